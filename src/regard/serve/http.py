"""Around every request: API keys, limits of size and time, log and metrics. Knows no model.

The body is read here, within its limits, before anything else is done.
"""

import asyncio
import hmac
import time
from collections.abc import Sequence

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Send
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from regard.serve.log import ServerLog
from regard.serve.settings import RequestError, ServerSettings, shutting_down

PROTECTED = ("/v1/", "/metrics")
ADMIN = "/admin/"
HEALTH = ("/healthz", "/readyz")
CLOSE = (b"connection", b"close")
CLOSING_CODES = ("framing", "connections")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]


class LimitsMiddleware:
    """The ASGI application with its limits around it."""

    app: ASGIApp

    def __init__(self, settings: ServerSettings, log: ServerLog) -> None:
        self.settings, self.log = settings, log
        self.keys = [key.encode() for key in settings.keys]
        self.admin_keys = [key.encode() for key in settings.admin_keys]
        self.draining, self.running = False, 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, status = time.perf_counter(), 0
        disconnect: asyncio.Future[Message] | None = None
        scope["regard"] = asyncio.current_task()  # cancelled when the connection is lost
        scope["asgi"] = scope["asgi"] | {"spec_version": "2.4"}  # streams then run in this task, too, and end with it
        fields: dict[str, object] = {}
        scope.setdefault("state", {})["log_fields"] = fields
        # HEAD is answered as GET; uvicorn, which knows the method, sends no body.
        routed = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        self.running += 1
        self.log.requests_running.inc()

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *HEADERS]
                if (self.draining or scope.get("over_limit")) and CLOSE not in message["headers"]:
                    message["headers"].append(CLOSE)
            await send(message)

        try:
            self._check_access(scope)
            body = await self._read_body(scope, receive)
            if len(body) > HIGH_WATER_LIMIT:  # there uvicorn stops reading, and would not see the client go
                disconnect = asyncio.ensure_future(receive())
            await self.app(routed, _replay_body(body, receive), send_with_headers)
        except RequestError as error:
            if not status:
                await error_response(error)(scope, receive, send_with_headers)
        except asyncio.CancelledError:
            if scope.get("client_gone"):
                self.log.log_event("client_gone", path=_route_path(scope))
            elif not self.draining:
                raise
            elif not status:  # the server waits no longer
                await error_response(shutting_down())(scope, receive, send_with_headers)
        finally:
            if disconnect:
                disconnect.cancel()
            self.running -= 1
            self.log.requests_running.dec()
            self._log_request(routed, status, time.perf_counter() - begin, fields)

    async def refuse(self, scope: Message, receive: Receive, send: Send) -> None:
        """The same on a connection beyond the limit: health is answered, all else is not."""
        await self({**scope, "over_limit": scope["path"] not in HEALTH}, receive, send)

    def _check_access(self, scope: Message) -> None:
        headers, path = dict(scope["headers"]), scope["path"]
        if scope.get("over_limit"):
            raise RequestError(503, "connections", "too many connections are open; try again soon", retry=1)
        if b"transfer-encoding" in headers and b"content-length" in headers:
            raise RequestError(400, "framing", "a request has Content-Length or Transfer-Encoding, not both")
        if path.startswith(ADMIN):
            _check_key(headers, self.admin_keys, "this needs an admin key, and the server must have been given one")
        elif self.keys and path.startswith(PROTECTED):
            _check_key(headers, self.keys, "this needs a valid key, as Authorization: Bearer KEY or X-API-Key: KEY")
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.settings.max_body:
            raise self._too_large()

    def _too_large(self) -> RequestError:
        return RequestError(413, "too_large", f"the body of a request has at most {self.settings.max_body:,} bytes")

    async def _read_body(self, scope: Message, receive: Receive) -> bytes:
        if scope["method"] in ("GET", "HEAD"):
            return b""
        body = b""
        try:
            async with asyncio.timeout(self.settings.client_timeout):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        scope["client_gone"] = True
                        raise asyncio.CancelledError
                    body += message.get("body", b"")
                    if len(body) > self.settings.max_body:
                        raise self._too_large()
                    if not message.get("more_body"):
                        return body
        except TimeoutError:
            raise RequestError(408, "slow", "the request did not come in time") from None

    def _log_request(self, scope: Message, status: int, seconds: float, fields: dict[str, object]) -> None:
        path = _route_path(scope)
        self.log.requests.labels(path, str(status)).inc()
        self.log.seconds.labels(path).observe(seconds)
        if path.startswith("/v1/") or status >= 400:
            milliseconds = round(1000 * seconds, 1)
            self.log.log_event("request", method=scope["method"], path=path, status=status, ms=milliseconds, **fields)


def _check_key(headers: dict[bytes, bytes], keys: Sequence[bytes], sentence: str) -> None:
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    key_shown = headers.get(b"x-api-key") or (token if scheme.lower() == b"bearer" else b"")
    if not sum(hmac.compare_digest(key_shown, key) for key in keys):  # all are compared
        raise RequestError(401, "key", sentence)


def _route_path(scope: Message) -> str:
    """The path as the API names it: paths that clients invent are no labels of metrics."""
    return getattr(scope.get("route"), "path", "other")


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """What the application receives: the body, then whatever comes of the client."""
    replayed = False

    async def received() -> Message:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return received


def error_response(error: RequestError) -> JSONResponse:
    """Where the body was not read, the connection cannot serve another request."""
    close = {"Connection": "close"} if error.status in (408, 413) or error.code in CLOSING_CODES else {}
    return JSONResponse(error.body(), error.status, error.headers | close)
