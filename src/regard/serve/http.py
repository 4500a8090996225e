"""Around every request: API keys, limits of size and time, log and metrics. Knows no model.

The body is read here, within its limits, before anything else is done.
"""

import asyncio
import hmac
import json
import logging
import socket
import sys
import time
from collections.abc import Awaitable, Callable, MutableMapping
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.responses import JSONResponse
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from regard.errors import RegardError
from regard.serve.settings import RequestError, ServerSettings

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Message, Receive, Send], Awaitable[None]]
PROTECTED = ("/v1/", "/metrics")
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


def shutting_down() -> RequestError:
    return RequestError(503, "ending", "the server is ending; ask another", retry=1)


class ServerLog(logging.Handler):
    """The log of a server, a line of JSON for each event, and its metrics for Prometheus."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.registry = CollectorRegistry()
        options: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter("regard_requests", "Requests.", ["path", "status"], **options)
        self.seconds = Histogram("regard_request_seconds", "Time from request to answer.", ["path"], **options)
        self.requests_running = Gauge("regard_requests_running", "Requests that are being worked on.", **options)
        self.events = Counter("regard_events", "queue_full, worker_died, worker_started …", ["event"], **options)
        self.texts = Counter("regard_texts", "Texts that were answered.", ["model", "op"], **options)
        options["buckets"] = (1, 2, 4, 8, 16, 32, 64, 128, 256)
        self.batch_rows = Histogram("regard_batch_rows", "Texts computed together.", ["model"], **options)

    def log_event(self, event: str, **fields: object) -> None:
        if event != "request":
            self.events.labels(event).inc()
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        sys.stderr.write(json.dumps({"time": now, "event": event, **fields}, ensure_ascii=False) + "\n")

    def emit(self, record: logging.LogRecord) -> None:
        self.log_event("log", message=self.format(record))


class LimitsMiddleware:
    """The ASGI application with its limits around it."""

    app: ASGIApp

    def __init__(self, settings: ServerSettings, log: ServerLog) -> None:
        self.settings, self.log = settings, log
        self.keys = [key.encode() for key in settings.keys]
        self.draining, self.running = False, 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, status = time.perf_counter(), 0
        disconnect: asyncio.Future[Message] | None = None
        scope["regard"] = asyncio.current_task()  # cancelled when the connection is lost
        scope["asgi"] = scope["asgi"] | {"spec_version": "2.4"}  # streams then run in this task, too, and end with it
        fields: dict[str, Any] = {}
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

    def _check_access(self, scope: Message) -> None:
        headers, path = dict(scope["headers"]), scope["path"]
        if self.draining and path.startswith("/v1/"):
            raise shutting_down()
        if self.keys and path.startswith(PROTECTED):
            scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
            key_shown = headers.get(b"x-api-key") or (token if scheme.lower() == b"bearer" else b"")
            if not sum(hmac.compare_digest(key_shown, key) for key in self.keys):  # all are compared
                raise RequestError(401, "key", "this needs a valid key, as Authorization: Bearer KEY or X-API-Key: KEY")
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

    def _log_request(self, scope: Message, status: int, seconds: float, fields: dict[str, Any]) -> None:
        path = _route_path(scope)
        self.log.requests.labels(path, str(status)).inc()
        self.log.seconds.labels(path).observe(seconds)
        if path.startswith("/v1/") or status >= 400:
            milliseconds = round(1000 * seconds, 1)
            self.log.log_event("request", method=scope["method"], path=path, status=status, ms=milliseconds, **fields)


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
    close = {"Connection": "close"} if error.status in (408, 413) else {}
    return JSONResponse(error.body(), error.status, error.headers | close)


def http_protocol(client_timeout: float) -> type[asyncio.Protocol]:
    """uvicorn's HTTP with timeouts for headers that do not come and responses that are not read; a client that
    disconnects cancels its request."""

    class TimeoutProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        header_timer: asyncio.TimerHandle | None = None
        write_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self._start_header_timer()

        def data_received(self, data: bytes) -> None:
            before = self.cycle
            super().data_received(data)
            if self.cycle is not before and self.header_timer:
                self.header_timer.cancel()
                self.header_timer = None
            elif self.header_timer is None and (self.cycle is None or self.cycle.response_complete):
                self._start_header_timer()

        def _start_header_timer(self) -> None:
            self.header_timer = self.loop.call_later(client_timeout, self.transport.close)

        def pause_writing(self) -> None:
            super().pause_writing()
            abort = self.transport.abort  # a close would wait for the reader
            self.write_timer = self.loop.call_later(client_timeout, abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self.write_timer:
                self.write_timer.cancel()

        def connection_lost(self, exc: Exception | None) -> None:
            for timer in filter(None, (self.header_timer, self.write_timer)):
                timer.cancel()
            running = self.cycle is not None and not self.cycle.response_complete
            super().connection_lost(exc)
            if running and (task := self.scope.get("regard")):
                self.scope["client_gone"] = True
                task.cancel()

    return TimeoutProtocol


def listening_socket(host: str, port: int) -> socket.socket:
    """A bound socket. asyncio turns Nagle's delay off only where the protocol is named, as it is here."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        family, kind, proto, _, address = addresses[0]
        sock = socket.socket(family, kind, proto)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        raise RegardError(f"{host}:{port}: cannot listen there ({error.strerror})") from None
    return sock
