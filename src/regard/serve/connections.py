"""Connections: the listening socket, a limit on their number, and timeouts for clients that say or read nothing.

uvicorn speaks HTTP on them. Knows no request and no model.
"""

import asyncio
import resource
import socket
import sys
from collections.abc import Callable, Collection
from typing import ClassVar

from starlette.types import ASGIApp
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from regard.errors import RegardError
from regard.serve.log import ServerLog
from regard.serve.settings import ServerSettings

ACCEPTED_AT_ONCE = 64
ACCEPT_PAUSE = 0.5  # seconds, after an error such as no descriptor left
ACCEPT_LOG_PAUSE = 10.0  # seconds between lines of the log about such errors
GONE_CHECK = 0.2  # seconds between looks at a client that has closed its side
OWN_DESCRIPTORS = 64  # those of the server itself, besides two of each worker


class TimeoutProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's HTTP with timeouts for headers that do not come and responses that are not read.

    A client that disconnects cancels its request; `refuse` answers on connections beyond the limit.
    """

    settings: ClassVar[ServerSettings]
    refuse: ClassVar[ASGIApp]
    header_timer: asyncio.TimerHandle | None = None
    write_timer: asyncio.TimerHandle | None = None
    gone_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.settings.connections:
            self.app = self.refuse
        self._start_header_timer()

    @property
    def idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before and self.header_timer:
            self.header_timer.cancel()
            self.header_timer = None
        elif self.header_timer is None and self.idle:
            self._start_header_timer()

    def _start_header_timer(self) -> None:
        self.header_timer = self.loop.call_later(self.settings.client_timeout, self.transport.close)

    def eof_received(self) -> bool | None:
        """A client that has sent a whole request may close its side and still read the response."""
        if self.idle or self.cycle.more_body:
            return None
        self.cycle.keep_alive = False
        if not self.cycle.response_started and self.scope["http_version"] == "1.1":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")  # a client that has gone answers by a reset
        self._check_gone()
        return True

    def _check_gone(self) -> None:
        """asyncio does not read a half-closed connection any more, and would not see the reset."""
        sock = self.transport.get_extra_info("socket")
        if sock.fileno() >= 0 and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
        elif not self.transport.is_closing():
            self.gone_timer = self.loop.call_later(GONE_CHECK, self._check_gone)

    def pause_writing(self) -> None:
        super().pause_writing()
        abort = self.transport.abort  # a close would wait for the reader
        self.write_timer = self.loop.call_later(self.settings.client_timeout, abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.write_timer:
            self.write_timer.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in filter(None, (self.header_timer, self.write_timer, self.gone_timer)):
            timer.cancel()
        running = not self.idle
        super().connection_lost(exc)
        if running and (task := self.scope.get("regard")):
            self.scope["client_gone"] = True
            task.cancel()


def http_protocol(settings: ServerSettings, refuse: ASGIApp) -> type[asyncio.Protocol]:
    """The protocol of a server with these settings."""
    return type("ServerProtocol", (TimeoutProtocol,), {"settings": settings, "refuse": staticmethod(refuse)})


def listening_socket(host: str, port: int) -> socket.socket:
    """A bound socket."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        family, kind, proto, _, address = addresses[0]
        sock = socket.socket(family, kind, proto)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        raise RegardError(f"{host}:{port}: cannot listen there ({error.strerror})") from None
    return sock


def allow_descriptors(settings: ServerSettings) -> None:
    """Raise the process's limit to what the connections need: twice their number, so that those too many get a word."""
    needed = 2 * settings.connections + 3 * settings.workers * len(settings.runs) + OWN_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise RegardError(
            f"--connections {settings.connections}: these need {needed} open files, and this process may have "
            f"{hard}; take fewer, or raise `ulimit -n`"
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


class Listener:
    """Accepts connections for a protocol: at most twice the limit, and after an error not at once again."""

    def __init__(
        self, sock: socket.socket, protocol: Callable[[], asyncio.Protocol], connections: Collection[object], most: int,
        log: ServerLog,
    ) -> None:  # fmt: skip
        self.sock, self.protocol, self.connections, self.most, self.log = sock, protocol, connections, most, log
        self.loop = asyncio.get_running_loop()
        self.connecting: set[asyncio.Task[None]] = set()
        self.resume_timer: asyncio.TimerHandle | None = None
        self.next_line = 0.0  # of the log about errors
        sock.setblocking(False)
        sock.listen(2048)
        self._resume()

    def _resume(self) -> None:
        self.loop.add_reader(self.sock, self._accept, ACCEPTED_AT_ONCE)

    def _pause(self) -> None:
        self.loop.remove_reader(self.sock)
        self.resume_timer = self.loop.call_later(ACCEPT_PAUSE, self._resume)

    def _accept(self, count: int) -> None:
        for _ in range(count):
            if len(self.connections) + len(self.connecting) >= 2 * self.most:
                self._pause()
                return
            try:
                connection, _ = self.sock.accept()
            except (BlockingIOError, InterruptedError):  # no more are waiting
                return
            except ConnectionError:  # it was reset while it waited
                continue
            except OSError as error:
                self._report(error)
                self._pause()
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
            task = self.loop.create_task(self._connect(connection))
            self.connecting.add(task)
            task.add_done_callback(self.connecting.discard)

    async def _connect(self, connection: socket.socket) -> None:
        try:
            await self.loop.connect_accepted_socket(self.protocol, connection)
        except OSError:  # it was reset
            connection.close()

    def _report(self, error: OSError) -> None:
        if self.loop.time() < self.next_line:
            self.log.events.labels("accept_failed").inc()
        else:
            self.next_line = self.loop.time() + ACCEPT_LOG_PAUSE
            self.log.log_event("accept_failed", why=error.strerror)

    async def close(self) -> None:
        """Take what the kernel has accepted already, then no more."""
        if self.resume_timer:
            self.resume_timer.cancel()
        self.loop.remove_reader(self.sock)
        self._accept(sys.maxsize)
        self.sock.close()
        if self.resume_timer:
            self.resume_timer.cancel()
        await asyncio.gather(*self.connecting)
