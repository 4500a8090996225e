"""The HTTP API: routes, responses and errors. Knows no model; the workers of the pool compute."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from html import escape
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException

import regard
from regard.errors import RegardError
from regard.look.html import page as look_page
from regard.look.html import script, style
from regard.reporting import Json
from regard.serve import schemas
from regard.serve.log import ServerLog
from regard.serve.messages import Item, RequestOptions, Result, WorkerReply, character_count
from regard.serve.pool import ServedModel, WorkerPool
from regard.serve.settings import RequestError, ServerSettings, loading, shutting_down
from regard.serve.worker_process import Replies

PAGE = Path(__file__).parent / "page"
MAX_LENGTH = {"look": 1_000}  # characters; attention weights grow with their square
Headers = dict[str, str]
Reload = Callable[[], Awaitable[dict[str, str]]]  # the models' digests
UNION_TYPES = ("str", "list[str]")  # pydantic adds these to the location of an error in a union


ERROR_DESCRIPTIONS = {
    400: "not JSON, or no model that can do it",
    401: "no valid key",
    404: "no such model",
    408: "the request came too slowly",
    409: "the new files cannot be loaded; the old model goes on",
    413: "too large, too long or too many",
    422: "not what is asked for here",
    429: "too many are waiting; see Retry-After",
    500: "the model failed",
    503: "models are being loaded, the model's process ended, too many connections, or the server is ending",
    504: "it took too long",
}
ERROR_RESPONSES: dict[int | str, Json] = {
    status: {"model": schemas.ErrorResponse, "description": text} for status, text in ERROR_DESCRIPTIONS.items()
}


class Api:
    """What the routes have in common."""

    def __init__(self, pool: WorkerPool, settings: ServerSettings, log: ServerLog) -> None:
        self.pool, self.settings, self.log = pool, settings, log

    def check(self, body: schemas.Request) -> tuple[ServedModel, Sequence[Item], RequestOptions]:
        """The model, the items and the options of a request that is within the limits."""
        limits, model = self.settings, self.pool.find_model(body.model, body.op)
        items, options = body.to_items(), body.to_options()
        if not items:
            raise RequestError(422, "empty", "there is no text")
        if not _is_unicode([items, options]):
            raise RequestError(422, "invalid", "a text has half a character, which is no Unicode")
        if len(items) > (most := min(limits.max_texts, limits.queue)):
            raise RequestError(413, "too_many", f"a request has at most {most} texts, not {len(items)}")
        for n, length in enumerate([*map(character_count, items), len(options.get("target", ""))], 1):
            if length > (most := min(limits.max_length, MAX_LENGTH.get(body.op, length))):
                allowed = f"a text has at most {most:,}"
                raise RequestError(413, "too_long", f"text {n} has {length:,} characters; {allowed}")
        if "max_tokens" in options:
            options["max_tokens"] = min(options["max_tokens"], limits.max_tokens)
        return model, items, options

    def record(
        self, request: Request, model: ServedModel, op: str, items: Sequence[Item], output: object, rows: int = 1
    ) -> None:
        """Metrics and fields of the log."""
        self.log.texts.labels(model.name, op).inc(len(items))
        self.log.batch_rows.labels(model.name).observe(rows)
        fields = request.state.log_fields
        fields["model"], fields["texts"] = model.name, len(items)
        if self.settings.log_text:
            fields["given"], fields["said"] = items, output

    async def compute(self, request: Request, body: schemas.Request) -> tuple[str, list[Result], Headers]:
        """The name of the model, a result for each item, and which files gave it."""
        model, items, options = self.check(body)
        reply = await self.pool.request(model, body.op, items, options)
        self.record(request, model, body.op, items, reply["results"], reply.get("rows", 1))
        return model.name, reply["results"], digest_header(reply)

    async def generate(self, request: Request, body: schemas.SamplingRequest) -> Response:
        """Generated text, whole or as server-sent events."""
        model, items, options = self.check(body)
        replies = self.pool.stream(model, body.op, items, options)
        if body.stream:
            first = await anext(replies)  # an error that comes before the stream begins is a plain response
            self.record(request, model, body.op, items, None)
            headers = digest_header(first)
            return StreamingResponse(sse_events(first, replies), headers=headers, media_type="text/event-stream")
        async with aclosing(replies):
            received = [reply async for reply in replies]
        text = "".join(reply.get("piece", "") for reply in received)
        self.record(request, model, body.op, items, text)
        result = {"model": model.name, "text": text, "reason": received[-1]["done"]}
        return json_response(result, digest_header(received[-1]))


def _is_unicode(value: object) -> bool:
    """Whether it can be written as UTF-8: JSON may hold half a surrogate pair, which not every pydantic refuses."""
    try:
        return bool(json.dumps(value, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        return False


def json_response(body: object, headers: Headers | None = None) -> Response:
    content = json.dumps(body, ensure_ascii=False).encode(errors="replace")
    return Response(content, headers=headers, media_type="application/json")


def digest_header(reply: WorkerReply) -> Headers:
    """The digest of the model that gave the reply: after a reload another one."""
    return {"X-Model-Digest": reply.get("digest", "")}


def sse_event(data: Mapping[str, object]) -> bytes:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode(errors="replace")


async def sse_events(first: WorkerReply, rest: Replies) -> AsyncGenerator[bytes, None]:
    """A stream as server-sent events; an error in the middle of it is its last event."""
    try:
        async with aclosing(rest):
            reply: WorkerReply | None = first
            while reply and "piece" in reply:
                yield sse_event({"text": reply["piece"]})
                reply = await anext(rest, None)
            yield sse_event({"done": True, "reason": reply["done"] if reply else "end"})
    except RequestError as error:
        yield sse_event({"done": True, "reason": error.code, **error.body()})


def build_app(
    pool: WorkerPool, settings: ServerSettings, log: ServerLog, reload: Reload, draining: Callable[[], bool]
) -> FastAPI:
    about = "Trained attention models over HTTP."
    app = FastAPI(title="regard", version=regard.__version__, docs_url=None, redoc_url=None, description=about)
    api = Api(pool, settings, log)

    def post(schema: type[schemas.Request], response: object, endpoint: Callable[..., Awaitable[Response]]) -> None:
        endpoint.__annotations__ |= {"body": schema}
        endpoint.__name__ = schema.op
        path = f"/v1/{schema.op}"
        app.post(path, summary=schema.summary, response_model=response, responses=ERROR_RESPONSES)(endpoint)

    for schema in schemas.BATCHED:

        async def batched(request: Request, body: Any) -> Response:
            name, results, headers = await api.compute(request, body)
            return json_response({"model": name, "results": results}, headers)

        post(schema, schemas.ResultsResponse, batched)
    for schema in schemas.STREAMED:

        async def streamed(request: Request, body: Any) -> Response:
            return await api.generate(request, body)

        post(schema, schemas.TextResponse, streamed)

    async def look(request: Request, body: Any) -> Response:
        _, (attention,), headers = await api.compute(request, body)
        return json_response(attention, headers)

    post(schemas.LookRequest, Result, look)
    _add_info_routes(app, pool, log, draining)
    _add_admin_route(app, reload)
    _add_page(app)
    _add_error_handlers(app)
    return app


def _add_info_routes(app: FastAPI, pool: WorkerPool, log: ServerLog, draining: Callable[[], bool]) -> None:
    """Models, health, metrics and documentation."""

    @app.get(
        "/v1/models",
        summary="The models that are loaded, what they can do, and the sha256 of their files.",
        responses={status: ERROR_RESPONSES[status] for status in (401, 503)},
    )
    async def models() -> Response:
        if not pool.loaded:
            raise loading()
        return json_response({"models": [model.capabilities for model in pool.models.values()]})

    @app.get("/healthz", summary="200 as long as the server lives.")
    async def healthz() -> Response:
        return json_response({"status": "ok"})

    @app.get("/readyz", summary="200 if every model can be asked; else 503.", responses={503: ERROR_RESPONSES[503]})
    async def readyz() -> Response:
        if draining():
            raise shutting_down()
        if not pool.loaded:
            raise loading()
        if not pool.ready:
            raise RequestError(503, "not_ready", "a model has no worker; one is being started")
        return json_response({"status": "ready"})

    @app.get("/metrics", summary="Numbers for Prometheus.", responses={401: ERROR_RESPONSES[401]})
    async def metrics() -> Response:
        return Response(generate_latest(log.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(docs_page(app.openapi()))


def _add_admin_route(app: FastAPI, reload: Reload) -> None:
    errors: dict[int | str, Json] = {status: ERROR_RESPONSES[status] for status in (401, 409)}

    @app.post("/admin/reload", summary="Read the models' files anew, without losing a request.", responses=errors)
    async def reload_models() -> Response:
        try:
            return json_response({"models": await reload()})
        except RegardError as error:
            raise RequestError(409, "not_reloaded", f"{error}; the models of before go on") from None


def _add_page(app: FastAPI) -> None:
    files = {path.name: path for path in PAGE.glob("*") if path.is_file()}
    # what the page opens: the view, and the page in which a view is saved
    look = {"look/look.js": (script, "text/javascript"), "look/look.css": (style, "text/css"),
            "look/page.txt": (lambda: look_page({}), "text/plain")}  # fmt: skip

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(files["index.html"])

    @app.get("/static/{name:path}", include_in_schema=False)
    async def static(name: str) -> Response:
        if name in look:
            text, kind = look[name]
            return Response(text(), media_type=kind)
        if name not in files:  # one of these, never a path on the disk
            raise RequestError(404, "not_found", "there is no such file")
        return FileResponse(files[name])


def _add_error_handlers(app: FastAPI) -> None:
    def respond(error: RequestError) -> Response:
        return JSONResponse(error.body(), error.status, error.headers)

    @app.exception_handler(RequestError)
    async def refused(request: Request, error: RequestError) -> Response:
        return respond(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return respond(RequestError(400, "not_json", "the body is not JSON"))
        if "json" not in request.headers.get("content-type", ""):  # as curl -d sends it by default
            sentence = "the body is not JSON; send Content-Type: application/json with it"
            return respond(RequestError(400, "not_json", sentence))
        if len(first["loc"]) == 1:
            sentence = "the body must be a JSON object with the fields that /docs lists"
            return respond(RequestError(422, "invalid", sentence))
        field = ".".join(str(part) for part in first["loc"][1:] if part not in UNION_TYPES)
        return respond(RequestError(422, "invalid", f"{field}: {first['msg']}"))

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        known = {400: ("not_json", "the body is not JSON in UTF-8"), 404: ("not_found", "there is no such address")}
        allowed = (error.headers or {}).get("Allow")
        default = ("method", f"this address takes {allowed}") if allowed else ("refused", str(error.detail))
        code, message = known.get(error.status_code, default)
        response = respond(RequestError(error.status_code, code, message))
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return respond(RequestError(500, "internal", "the server failed on this request"))


def docs_page(schema: Json) -> str:
    """The API as a plain page without scripts."""
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
                (name, _type_name(field), "needed" if name in needed else _default(field), field.get("description", ""))
                for name, field in fields.get("properties", {}).items()
            ]
            if rows:
                shown = "".join("<tr>" + "".join(f"<td>{escape(cell)}" for cell in row) for row in rows)
                parts.append(f"<table><tr><th>field<th>type<th>default<th>meaning{shown}</table>")
    return "\n".join(parts)


def _default(field: Json) -> str:
    return "" if field.get("default") is None else json.dumps(field["default"])


def _type_name(field: Json) -> str:
    if "anyOf" in field:
        return " | ".join(_type_name(each) for each in field["anyOf"] if each.get("type") != "null")
    if "enum" in field:
        return " | ".join(json.dumps(value) for value in field["enum"])
    if "$ref" in field:
        return str(field["$ref"].rpartition("/")[2])
    return (
        f"list of {_type_name(field.get('items', {}))}"
        if field.get("type") == "array"
        else str(field.get("type", "any"))
    )
