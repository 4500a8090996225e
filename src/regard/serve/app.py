"""The API: addresses, answers and errors. Knows no model; the pool's workers do the work."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from html import escape
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel
from starlette.exceptions import HTTPException

import regard
from regard.serve.http import Journal, ending
from regard.serve.pool import Messages, Model, Pool
from regard.serve.schemas import PLAIN, STORIES, Asked, Look, Story
from regard.serve.settings import Refused, Settings, letters

PAGE = Path(__file__).parent / "page"
LOOK = Path(regard.__file__).parent / "look" / "page"  # the view of attention, which the page opens
LONGEST = {"look": 1_000}  # characters; weights of attention grow with their square
UNIONS = ("str", "list[str]")  # what pydantic adds to a place where several types are possible


class Results(BaseModel):
    model: str
    results: list[dict[str, Any]]


class Written(BaseModel):
    model: str
    text: str
    reason: str


class Wrong(BaseModel):
    message: str
    code: str


class Failure(BaseModel):
    error: Wrong


MEANINGS = {
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
}
WRONG: dict[int | str, dict[str, Any]] = {n: {"model": Failure, "description": what} for n, what in MEANINGS.items()}


class Api:
    """What the addresses have in common."""

    def __init__(self, pool: Pool, settings: Settings, journal: Journal) -> None:
        self.pool, self.settings, self.journal = pool, settings, journal

    def given(self, body: Asked) -> tuple[Model, list[Any], dict[str, Any]]:
        """Who is asked, and for what, within the limits."""
        limits, model = self.settings, self.pool.model(body.model, body.op)
        items, options = body.to_items(), body.to_options()
        if not items:
            raise Refused(422, "empty", "there is no text")
        if not _whole([items, options]):
            raise Refused(422, "invalid", "a text has half a character, which is no Unicode")
        if len(items) > (most := min(limits.max_texts, limits.queue)):
            raise Refused(413, "too_many", f"a request has at most {most} texts, not {len(items)}")
        for n, length in enumerate([*map(letters, items), len(options.get("target", ""))], 1):
            if length > (most := min(limits.max_length, LONGEST.get(body.op, length))):
                allowed = f"a text has at most {most:,}"
                raise Refused(413, "too_long", f"text {n} has {length:,} characters; {allowed}")
        if "max_tokens" in options:
            options["max_tokens"] = min(options["max_tokens"], limits.max_tokens)
        return model, items, options

    def note(self, request: Request, model: Model, op: str, items: list[Any], said: Any, rows: int = 1) -> None:
        self.journal.texts.labels(model.name, op).inc(len(items))
        self.journal.together.labels(model.name).observe(rows)
        facts = request.state.facts
        facts["model"], facts["texts"] = model.name, len(items)
        if self.settings.log_text:
            facts["given"], facts["said"] = items, said

    async def results(self, request: Request, body: Asked) -> tuple[str, list[Any]]:
        model, items, options = self.given(body)
        answer = await self.pool.ask(model, body.op, items, options)
        self.note(request, model, body.op, items, answer["results"], answer.get("rows", 1))
        return model.name, answer["results"]

    async def story(self, request: Request, body: Story) -> Response:
        model, items, options = self.given(body)
        pieces = self.pool.stream(model, body.op, items, options)
        if body.stream:
            first = await anext(pieces)  # what is refused is refused before the stream begins
            self.note(request, model, body.op, items, None)
            return StreamingResponse(events(first, pieces), media_type="text/event-stream")
        async with aclosing(pieces):
            said = [message async for message in pieces]
        text = "".join(message.get("piece", "") for message in said)
        self.note(request, model, body.op, items, text)
        return told({"model": model.name, "text": text, "reason": said[-1]["done"]})


def _whole(given: Any) -> bool:
    """Whether it can be written as UTF-8: JSON may name half of a pair, which not every pydantic refuses."""
    try:
        return bool(json.dumps(given, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        return False


def told(body: Any) -> Response:
    return Response(json.dumps(body, ensure_ascii=False).encode(errors="replace"), media_type="application/json")


def event(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode(errors="replace")


async def events(first: dict[str, Any], rest: Messages) -> AsyncGenerator[bytes, None]:
    """A story as server-sent events; what goes wrong in the middle of it is its last event."""
    try:
        async with aclosing(rest):
            message: dict[str, Any] | None = first
            while message and "piece" in message:
                yield event({"text": message["piece"]})
                message = await anext(rest, None)
            yield event({"done": True, "reason": message["done"] if message else "end"})
    except Refused as refused:
        yield event({"done": True, "reason": refused.code, **refused.body()})


def build(pool: Pool, settings: Settings, journal: Journal, draining: Callable[[], bool]) -> FastAPI:
    about = "Trained attention models over HTTP."
    app = FastAPI(title="regard", version=regard.__version__, docs_url=None, redoc_url=None, description=about)
    api = Api(pool, settings, journal)

    def post(kind: type[Asked], answer: Any, endpoint: Callable[..., Any]) -> None:
        endpoint.__annotations__ |= {"body": kind}
        endpoint.__name__ = kind.op
        app.post(f"/v1/{kind.op}", summary=kind.summary, response_model=answer, responses=WRONG)(endpoint)

    for kind in PLAIN:

        async def plain(request: Request, body: Any) -> Response:
            name, results = await api.results(request, body)
            return told({"model": name, "results": results})

        post(kind, Results, plain)
    for kind in STORIES:

        async def story(request: Request, body: Any) -> Response:
            return await api.story(request, body)

        post(kind, Written, story)

    async def look(request: Request, body: Any) -> Response:
        _, (seen,) = await api.results(request, body)
        return told(seen)

    post(Look, dict[str, Any], look)
    _about(app, pool, journal, draining)
    _page(app)
    _errors(app)
    return app


def _about(app: FastAPI, pool: Pool, journal: Journal, draining: Callable[[], bool]) -> None:
    """What a server says of itself."""

    @app.get("/v1/models", summary="The models that are loaded, and what they can do.", responses={401: WRONG[401]})
    async def models() -> Response:
        return told({"models": [model.portrait for model in pool.models.values()]})

    @app.get("/healthz", summary="200 as long as the server lives.")
    async def healthz() -> Response:
        return told({"status": "ok"})

    @app.get("/readyz", summary="200 if every model can be asked; else 503.", responses={503: WRONG[503]})
    async def readyz() -> Response:
        if draining():
            raise ending()
        if not pool.ready:
            raise Refused(503, "not_ready", "a model is being loaded")
        return told({"status": "ready"})

    @app.get("/metrics", summary="Numbers for Prometheus.", responses={401: WRONG[401]})
    async def metrics() -> Response:
        return Response(generate_latest(journal.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(described(app.openapi()))


def _page(app: FastAPI) -> None:
    files = {path.name: path for path in PAGE.glob("*") if path.is_file()}
    files |= {f"look/{path.name}": path for path in LOOK.glob("*") if path.is_file()}

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(files["index.html"])

    @app.get("/static/{name:path}", include_in_schema=False)
    async def static(name: str) -> Response:
        if name not in files:  # one of these, never a path on the disk
            raise Refused(404, "not_found", "there is no such file")
        return FileResponse(files[name])


def _errors(app: FastAPI) -> None:
    def answer(refused: Refused) -> Response:
        return JSONResponse(refused.body(), refused.status, refused.headers)

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> Response:
        return answer(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return answer(Refused(400, "not_json", "the body is not JSON"))
        if "json" not in request.headers.get("content-type", ""):  # what curl -d sends where it is not told
            return answer(Refused(400, "not_json", "the body is not JSON; send Content-Type: application/json with it"))
        if len(first["loc"]) == 1:
            return answer(Refused(422, "invalid", "the body must be a JSON object with the fields that /docs lists"))
        place = ".".join(str(part) for part in first["loc"][1:] if part not in UNIONS)
        return answer(Refused(422, "invalid", f"{place}: {first['msg']}"))

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        codes = {400: ("not_json", "the body is not JSON in UTF-8"), 404: ("not_found", "there is no such address")}
        allowed = (error.headers or {}).get("Allow")
        usual = ("method", f"this address takes {allowed}") if allowed else ("refused", str(error.detail))
        code, message = codes.get(error.status_code, usual)
        found = answer(Refused(error.status_code, code, message))
        found.headers.update(error.headers or {})
        return found

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return answer(Refused(500, "internal", "the server failed on this request"))


def described(schema: dict[str, Any]) -> str:
    """The API as a plain page, which needs no scripts and no network."""
    parts = ["<!doctype html><html lang=en><meta name=viewport content='width=device-width'><title>regard API</title>"]
    parts.append("<link rel=stylesheet href=static/style.css><main class=api><h1>regard</h1>")
    parts.append("<p>The same for programs: <a href=openapi.json>/openapi.json</a>.")
    for path, methods in schema["paths"].items():
        for method, about in methods.items():
            parts.append(f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(about.get('summary', ''))}")
            body = about.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            fields = schema["components"]["schemas"].get(body.get("$ref", "").rpartition("/")[2], {})
            needed = fields.get("required", ())
            rows = [
                (name, _kind(field), "needed" if name in needed else _usual(field), field.get("description", ""))
                for name, field in fields.get("properties", {}).items()
            ]
            if rows:
                shown = "".join("<tr>" + "".join(f"<td>{escape(cell)}" for cell in row) for row in rows)
                parts.append(f"<table><tr><th>field<th>type<th>default<th>meaning{shown}</table>")
    return "\n".join(parts)


def _usual(field: dict[str, Any]) -> str:
    return "" if field.get("default") is None else json.dumps(field["default"])


def _kind(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        return " | ".join(_kind(each) for each in field["anyOf"] if each.get("type") != "null")
    if "enum" in field:
        return " | ".join(json.dumps(value) for value in field["enum"])
    if "$ref" in field:
        return str(field["$ref"].rpartition("/")[2])
    return f"list of {_kind(field.get('items', {}))}" if field.get("type") == "array" else str(field.get("type", "any"))
