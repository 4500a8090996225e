"""The API: what may be asked, and how the answers look. Knows no model; the pool's workers do the work."""

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from html import escape
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

import regard
from regard.serve.http import Journal
from regard.serve.pool import Model, Pool
from regard.serve.settings import Refused, Settings

PAGE = Path(__file__).parent / "page"
UNIONS = ("str", "list[str]")  # what pydantic adds to a place where several types are possible
PLACEHOLDER = "<!doctype html><title>regard</title><p>The API is described at <a href=/docs>/docs</a>."
Text = Annotated[str, Field(description="A text.")]
Texts = Annotated[str | list[str], Field(description="A text, or several.")]
Count = Annotated[int, Field(ge=1, le=16)]


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    model: str | None = Field(None, description="Its name; may be left out where only one can do it.")


class Translate(Asked):
    text: Texts
    beam: Count | None = Field(None, description="Beginnings that are kept; 1 is greedy. Default: as the recipe says.")
    nbest: Count | None = Field(None, description="So many translations: the best, and alternatives.")
    alignments: bool = Field(False, description="Also pairs of source and target words, numbered from 0.")


class Sampling(Asked):
    max_tokens: int = Field(256, ge=1)
    temperature: float | None = Field(None, ge=0, le=100, description="Below 1 sharpens; 0: the likeliest word always.")
    top_k: int | None = Field(None, ge=0, le=1_000_000)
    top_p: float | None = Field(None, gt=0, le=1)
    repetition_penalty: float | None = Field(None, gt=0, le=100)
    seed: int | None = Field(None, ge=0, lt=1 << 63, description="The same seed writes the same text.")
    stream: bool = Field(False, description="Answer by server-sent events, as the text is written.")

    def options(self) -> dict[str, Any]:
        return self.model_dump(exclude={"model", "prompt", "messages", "stream"}, exclude_none=True)


class Generate(Sampling):
    prompt: str
    stop: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field([], max_length=8)


class Said(BaseModel):
    model_config = ConfigDict(extra="forbid")
    role: Literal["user", "assistant"]
    text: str


class Chat(Sampling):
    messages: list[Said] = Field(min_length=1)


class Fill(Asked):
    text: Annotated[Texts, Field(description="With [MASK] for each gap.")]
    top: int = Field(5, ge=1, le=100)


class Classify(Asked):
    text: Texts | None = None
    pairs: list[tuple[str, str]] | None = Field(None, description="Instead of texts, where two belong together.")


class Tag(Asked):
    text: Texts


class Answer(Asked):
    question: str
    context: str


class Choose(Asked):
    context: str
    question: str = ""
    options: list[str] = Field(min_length=2, max_length=32)


class Embed(Asked):
    text: Texts
    pooling: Literal["mean", "cls", "max", "pooler"] | None = None
    normalise: bool | None = None


class Look(Asked):
    text: str
    target: str | None = None


class Results(BaseModel):
    model: str
    results: list[dict[str, Any]]


class Wrong(BaseModel):
    message: str
    code: str


class Failure(BaseModel):
    error: Wrong


WRONG: dict[int | str, dict[str, Any]] = {
    status: {"model": Failure, "description": what}
    for status, what in {
        400: "not JSON, or no model that can do it",
        401: "no valid key",
        404: "no such model",
        408: "the request came too slowly",
        413: "too large, too long or too many",
        422: "not what is asked for here",
        429: "too many are waiting; see Retry-After",
        500: "the model failed",
        503: "the model's process ended, or the server is ending",
        504: "it took too long",
    }.items()
}


def clean(text: str) -> str:
    """A text as one line: what is not printed becomes a space."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split()) if not text.isprintable() else text


class Api:
    """Endpoints as functions of the pool."""

    def __init__(self, pool: Pool, settings: Settings, journal: Journal) -> None:
        self.pool, self.settings, self.journal = pool, settings, journal

    def items(self, given: Any) -> list[Any]:
        """What was given as a list, within the limits."""
        items = given if isinstance(given, list) else [given]
        if not items:
            raise Refused(422, "empty", "there is no text")
        if len(items) > self.settings.max_texts:
            raise Refused(413, "too_many", f"a request has at most {self.settings.max_texts} texts, not {len(items)}")
        for n, item in enumerate(items, 1):
            length = len(item) if isinstance(item, str) else sum(map(len, _flat(item)))
            if length > self.settings.max_length:
                limit = f"a text has at most {self.settings.max_length:,}"
                raise Refused(413, "too_long", f"text {n} has {length:,} characters; {limit}")
        return items

    def note(self, request: Request, model: Model, op: str, items: list[Any], answer: dict[str, Any]) -> None:
        self.journal.texts.labels(model.name, op).inc(len(items))
        if rows := answer.get("rows"):
            self.journal.together.labels(model.name).observe(rows)
        request.state.facts |= {"model": model.name, "texts": len(items)}
        if self.settings.log_text:
            request.state.facts |= {"given": items, "said": answer.get("results")}

    async def results(self, request: Request, op: str, name: str | None, given: Any, **options: Any) -> Response:
        model, items = self.pool.model(name, op), self.items(given)
        asked = {key: value for key, value in options.items() if value is not None}
        answer = await self.pool.ask(model, op, items, asked)
        self.note(request, model, op, items, answer)
        return told({"model": model.name, "results": answer["results"]})

    async def story(self, request: Request, body: Generate) -> Response:
        model, items = self.pool.model(body.model, "generate"), self.items(body.prompt.replace("\0", " "))
        options = body.options() | {"max_tokens": min(body.max_tokens, self.settings.max_tokens)}
        pieces = self.pool.stream(model, "generate", items, options)
        if body.stream:
            first = await anext(pieces)  # what is refused is refused before the stream begins
            self.note(request, model, "generate", items, {})
            return StreamingResponse(events(first, pieces), media_type="text/event-stream")
        async with aclosing(pieces):
            said = [message async for message in pieces]
        text = "".join(message.get("piece", "") for message in said)
        self.note(request, model, "generate", items, {"results": [text]})
        return told({"model": model.name, "text": text, "reason": said[-1]["done"]})

    async def chat(self, request: Request, body: Chat) -> Response:
        if body.messages[-1].role != "user":
            raise Refused(422, "order", "the last message must be the user's")
        model = self.pool.model(body.model, "chat")
        items = self.items([[clean(message.text) for message in body.messages]])
        options = body.options() | {"max_tokens": min(body.max_tokens, self.settings.max_tokens)}
        answer = await self.pool.ask(model, "chat", items, options)
        self.note(request, model, "chat", items, answer)
        (text,) = answer["results"]
        if not body.stream:
            return told({"model": model.name, "text": text})
        lines = event({"text": text}) + event({"done": True, "reason": "end"})
        return Response(lines, media_type="text/event-stream")

    async def look(self, request: Request, body: Look) -> Response:
        model, items = self.pool.model(body.model, "look"), self.items([clean(body.text)])
        target = None if body.target is None else self.items(clean(body.target))[0]
        answer = await self.pool.ask(model, "look", items, {"target": target} if target is not None else {})
        self.note(request, model, "look", items, {"rows": 0})
        return told(answer["results"][0])


def _flat(item: Any) -> list[str]:
    return [item] if isinstance(item, str) else [text for part in item for text in _flat(part)]


def told(body: Any) -> Response:
    return Response(json.dumps(body, ensure_ascii=False).encode(errors="replace"), media_type="application/json")


def event(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode(errors="replace")


async def events(first: dict[str, Any], rest: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    """A story as server-sent events; what goes wrong in the middle of it is its last event."""
    try:
        async with aclosing(rest):  # type: ignore[type-var]
            message: dict[str, Any] | None = first
            while message is not None:
                if "done" in message:
                    yield event({"done": True, "reason": message["done"]})
                    return
                yield event({"text": message["piece"]})
                message = await anext(rest, None)
    except Refused as refused:
        yield event({"done": True, "reason": refused.code, **refused.body()})


def clean_all(given: Any) -> Any:
    return clean(given) if isinstance(given, str) else [clean_all(item) for item in given]


def build(pool: Pool, settings: Settings, journal: Journal, draining: Any) -> FastAPI:
    app = FastAPI(title="regard", version=regard.__version__, docs_url=None, redoc_url=None,
                  description="Trained attention models over HTTP.")  # fmt: skip
    api = Api(pool, settings, journal)

    def post(path: str, summary: str, model: Any = Results) -> Any:
        return app.post(f"/v1/{path}", summary=summary, response_model=model, responses=WRONG)

    @post("translate", "Translate texts; with nbest also alternatives, with alignments also which word is which.")
    async def translate(request: Request, body: Translate) -> Response:
        asked = {"beam": body.beam, "nbest": body.nbest, "alignments": body.alignments or None}
        return await api.results(request, "translate", body.model, clean_all(body.text), **asked)

    @post("generate", "Go on writing from a prompt; with stream, as server-sent events.", None)
    async def generate(request: Request, body: Generate) -> Response:
        return await api.story(request, body)

    @post("chat", "Answer the last message of a conversation.", None)
    async def chat(request: Request, body: Chat) -> Response:
        return await api.chat(request, body)

    @post("fill", "The likeliest words for each [MASK] of a text.")
    async def fill(request: Request, body: Fill) -> Response:
        return await api.results(request, "fill", body.model, clean_all(body.text), top=body.top)

    @post("classify", "Label texts, or pairs of texts.")
    async def classify(request: Request, body: Classify) -> Response:
        if (body.text is None) == (body.pairs is None):
            raise Refused(422, "either", "give text, or pairs, and not both")
        given = clean_all(body.text if body.pairs is None else body.pairs)
        return await api.results(request, "classify", body.model, given)

    @post("tag", "Tag the words of texts, which stand between spaces.")
    async def tag(request: Request, body: Tag) -> Response:
        return await api.results(request, "tag", body.model, clean_all(body.text))

    @post("answer", "Answer a question by a part of a text.")
    async def answer(request: Request, body: Answer) -> Response:
        given = body.question.replace("\0", " "), body.context.replace("\0", " ")
        return await api.results(request, "answer", body.model, [given])

    @post("choose", "Choose the right one of some options.")
    async def choose(request: Request, body: Choose) -> Response:
        given = clean(body.context), clean(body.question), clean_all(body.options)
        return await api.results(request, "choose", body.model, [given])

    @post("embed", "Turn texts into vectors.")
    async def embed(request: Request, body: Embed) -> Response:
        asked = {"pooling": body.pooling, "normalise": body.normalise}
        return await api.results(request, "embed", body.model, clean_all(body.text), **asked)

    @post("look", "The attention of a model to a text, and to a target where one is given.", None)
    async def look(request: Request, body: Look) -> Response:
        return await api.look(request, body)

    _about(app, pool, journal, draining)
    _errors(app)
    return app


def _about(app: FastAPI, pool: Pool, journal: Journal, draining: Any) -> None:
    """What a server says of itself."""

    @app.get("/v1/models", summary="The models that are loaded, and what they can do.")
    async def models() -> Response:
        return told({"models": [model.portrait for model in pool.models.values()]})

    @app.get("/healthz", summary="200 as long as the server lives.")
    async def healthz() -> Response:
        return told({"status": "ok"})

    @app.get("/readyz", summary="200 if every model can be asked; else 503.", responses={503: WRONG[503]})
    async def readyz() -> Response:
        if draining():
            raise Refused(503, "ending", "the server is ending; ask another")
        if not pool.ready:
            raise Refused(503, "not_ready", "a model is being loaded")
        return told({"status": "ready"})

    @app.get("/metrics", summary="Numbers for Prometheus.")
    async def metrics() -> Response:
        return Response(generate_latest(journal.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(described(app.openapi()))

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(PAGE / "index.html") if (PAGE / "index.html").exists() else HTMLResponse(PLACEHOLDER)

    files = {path.name: path for path in PAGE.glob("*") if path.is_file()}

    @app.get("/static/{name}", include_in_schema=False)
    async def static(name: str) -> Response:
        if name not in files:  # a name, never a path
            raise Refused(404, "not_found", "there is no such file")
        return FileResponse(files[name])


def _errors(app: FastAPI) -> None:
    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> Response:
        return JSONResponse(error.body(), error.status, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return JSONResponse(Refused(400, "not_json", "the body is not JSON").body(), 400)
        named = [str(part) for part in first["loc"][1:] if part not in UNIONS]
        place = ".".join(named) or "the body"
        return JSONResponse(Refused(422, "invalid", f"{place}: {first['msg']}").body(), 422)

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        codes = {400: ("not_json", "the body is not JSON in UTF-8"), 404: ("not_found", "there is no such address")}
        code, message = codes.get(error.status_code, ("refused", str(error.detail)))
        return JSONResponse(Refused(error.status_code, code, message).body(), error.status_code, error.headers)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return JSONResponse(Refused(500, "internal", "the server failed on this request").body(), 500)


def described(schema: dict[str, Any]) -> str:
    """The API as a plain page, which needs no scripts and no network."""
    parts = [f"<!doctype html><html lang=en><title>regard API</title><h1>regard {escape(schema['info']['version'])}</h1>"
             "<p>The same for programs: <a href=/openapi.json>/openapi.json</a>."]  # fmt: skip
    for path, methods in schema["paths"].items():
        for method, about in methods.items():
            parts.append(f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(about.get('summary', ''))}")
            body = about.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            fields = schema["components"]["schemas"].get(body.get("$ref", "").rpartition("/")[2], {})
            rows = [
                f"<tr><td><code>{escape(name)}</code><td>{escape(_kind(field))}"
                f"<td>{'needed' if name in fields.get('required', ()) else escape(json.dumps(field.get('default')))}"
                f"<td>{escape(field.get('description', ''))}"
                for name, field in fields.get("properties", {}).items()
            ]
            if rows:
                parts.append("<table><tr><th>field<th>type<th>default<th>meaning" + "".join(rows) + "</table>")
    return "\n".join(parts)


def _kind(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        return " | ".join(_kind(each) for each in field["anyOf"] if each.get("type") != "null")
    if "enum" in field:
        return " | ".join(json.dumps(value) for value in field["enum"])
    if "$ref" in field:
        return str(field["$ref"].rpartition("/")[2])
    return f"list of {_kind(field.get('items', {}))}" if field.get("type") == "array" else str(field.get("type", "any"))
