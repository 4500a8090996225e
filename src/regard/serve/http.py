"""Around every request: who may ask, how much and how slowly, and what is noted of it. Knows no model.

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
from regard.serve.settings import Refused, Settings

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
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


def ending() -> Refused:
    return Refused(503, "ending", "the server is ending; ask another", retry=1)


class Journal(logging.Handler):
    """What is known of a server from outside: a line of JSON for each event, and numbers for Prometheus."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.registry = CollectorRegistry()
        made: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter("regard_requests", "Requests.", ["path", "status"], **made)
        self.seconds = Histogram("regard_request_seconds", "Time from request to answer.", ["path"], **made)
        self.running = Gauge("regard_requests_running", "Requests that are being worked on.", **made)
        self.events = Counter("regard_events", "queue_full, worker_died, worker_started …", ["event"], **made)
        self.texts = Counter("regard_texts", "Texts that were answered.", ["model", "op"], **made)
        made["buckets"] = (1, 2, 4, 8, 16, 32, 64, 128, 256)
        self.together = Histogram("regard_batch_rows", "Texts computed together.", ["model"], **made)

    def tell(self, event: str, **facts: Any) -> None:
        if event != "request":
            self.events.labels(event).inc()
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        sys.stderr.write(json.dumps({"time": now, "event": event, **facts}, ensure_ascii=False) + "\n")

    def emit(self, record: logging.LogRecord) -> None:
        self.tell("log", message=self.format(record))


class Guard:
    """The application with its limits around it."""

    app: Any  # ASGI

    def __init__(self, settings: Settings, journal: Journal) -> None:
        self.settings, self.journal = settings, journal
        self.keys = [key.encode() for key in settings.keys]
        self.draining, self.running = False, 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, status = time.perf_counter(), 0
        listening: asyncio.Future[Message] | None = None
        scope["regard"] = asyncio.current_task()  # which ends with its connection
        scope["asgi"] = scope["asgi"] | {"spec_version": "2.4"}  # streams then run in it, too, and end with it
        facts: dict[str, Any] = {}
        scope.setdefault("state", {})["facts"] = facts
        # What may be got has a head, too; uvicorn, which knows what was asked, sends no body.
        asked = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        self.running += 1
        self.journal.running.inc()

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        try:
            self._admit(scope)
            body = await self._body(scope, receive)
            if len(body) > HIGH_WATER_LIMIT:  # there uvicorn stops reading, and would not see the client go
                listening = asyncio.ensure_future(receive())
            await self.app(asked, _once(body, receive), answer)
        except Refused as refused:
            if not status:
                await refusal(refused)(scope, receive, answer)
        except asyncio.CancelledError:
            if scope.get("gone"):
                self.journal.tell("client_gone", path=_place(scope))
            elif not self.draining:
                raise
            elif not status:  # the server waits no longer
                await refusal(ending())(scope, receive, answer)
        finally:
            if listening:
                listening.cancel()
            self.running -= 1
            self.journal.running.dec()
            self._note(asked, status, time.perf_counter() - begin, facts)

    def _admit(self, scope: Message) -> None:
        headers, path = dict(scope["headers"]), scope["path"]
        if self.draining and path.startswith("/v1/"):
            raise ending()
        if self.keys and path.startswith(PROTECTED):
            scheme, _, shown = headers.get(b"authorization", b"").partition(b" ")
            given = headers.get(b"x-api-key") or (shown if scheme.lower() == b"bearer" else b"")
            if not sum(hmac.compare_digest(given, key) for key in self.keys):  # all are compared
                raise Refused(401, "key", "this needs a valid key, as Authorization: Bearer KEY or X-API-Key: KEY")
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.settings.max_body:
            raise self._large()

    def _large(self) -> Refused:
        return Refused(413, "too_large", f"the body of a request has at most {self.settings.max_body:,} bytes")

    async def _body(self, scope: Message, receive: Receive) -> bytes:
        if scope["method"] in ("GET", "HEAD"):
            return b""
        body = b""
        try:
            async with asyncio.timeout(self.settings.patience):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        scope["gone"] = True
                        raise asyncio.CancelledError
                    body += message.get("body", b"")
                    if len(body) > self.settings.max_body:
                        raise self._large()
                    if not message.get("more_body"):
                        return body
        except TimeoutError:
            raise Refused(408, "slow", "the request did not come in time") from None

    def _note(self, scope: Message, status: int, seconds: float, facts: dict[str, Any]) -> None:
        path = _place(scope)
        self.journal.requests.labels(path, str(status)).inc()
        self.journal.seconds.labels(path).observe(seconds)
        if path.startswith("/v1/") or status >= 400:
            where = {"path": path, "status": status, "ms": round(1000 * seconds, 1)}
            self.journal.tell("request", method=scope["method"], **where, **facts)


def _place(scope: Message) -> str:
    """The address as the API names it: what callers invent is no label."""
    return getattr(scope.get("route"), "path", "other")


def _once(body: bytes, receive: Receive) -> Receive:
    """What the application receives: the body, then whatever comes of the client."""
    given = False

    async def received() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return received


def refusal(refused: Refused) -> JSONResponse:
    """Where the body was not read, the connection cannot serve another request."""
    close = {"Connection": "close"} if refused.status in (408, 413) else {}
    return JSONResponse(refused.body(), refused.status, refused.headers | close)


def protocol(patience: float) -> type[asyncio.Protocol]:
    """HTTP as uvicorn speaks it, impatient with headers that do not come and with answers that are not read; whoever
    hangs up ends their request."""

    class Patient(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        late: asyncio.TimerHandle | None = None
        unread: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            before = self.cycle
            super().data_received(data)
            if self.cycle is not before and self.late:
                self.late.cancel()
                self.late = None
            elif self.late is None and (self.cycle is None or self.cycle.response_complete):
                self._wait()

        def _wait(self) -> None:
            self.late = self.loop.call_later(patience, self.transport.close)

        def pause_writing(self) -> None:
            super().pause_writing()
            self.unread = self.loop.call_later(patience, self.transport.abort)  # a close would wait for the reader

        def resume_writing(self) -> None:
            super().resume_writing()
            if self.unread:
                self.unread.cancel()

        def connection_lost(self, exc: Exception | None) -> None:
            for timer in filter(None, (self.late, self.unread)):
                timer.cancel()
            running = self.cycle is not None and not self.cycle.response_complete
            super().connection_lost(exc)
            if running and (task := self.scope.get("regard")):
                self.scope["gone"] = True
                task.cancel()

    return Patient


def listener(host: str, port: int) -> socket.socket:
    """A socket to listen on. asyncio turns Nagle's delay off only where the protocol is named, as it is here."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        family, kind, proto, _, address = found[0]
        made = socket.socket(family, kind, proto)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        raise RegardError(f"{host}:{port}: cannot listen there ({error.strerror})") from None
    return made
