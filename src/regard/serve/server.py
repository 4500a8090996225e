"""A server from its start to its end: it listens while models load, loads them anew on SIGHUP, and drains on SIGTERM.

Knows no routes and no limits; uvicorn speaks HTTP.
"""

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
from collections.abc import Iterator

import uvicorn

from regard.errors import RegardError
from regard.serve.app import build_app
from regard.serve.connections import Listener, allow_descriptors, http_protocol, listening_socket
from regard.serve.http import LimitsMiddleware
from regard.serve.log import ServerLog
from regard.serve.pool import WorkerPool
from regard.serve.settings import ServerSettings

POLL_SECONDS = 0.02


class HTTPServer(uvicorn.Server):
    """uvicorn without its listening and its signals, which are ours."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:  # type: ignore[override]
        yield

    def listen(self, sock: socket.socket, most: int, log: ServerLog) -> Listener:
        def protocol() -> asyncio.Protocol:
            return self.config.http_protocol_class(  # type: ignore[call-arg]
                config=self.config, server_state=self.server_state, app_state={}, _loop=asyncio.get_running_loop()
            )

        return Listener(sock, protocol, self.server_state.connections, most, log)


class Server:
    """One server; `run` ends when a signal has ended it."""

    def __init__(self, settings: ServerSettings, sock: socket.socket, log: ServerLog) -> None:
        self.settings, self.sock, self.log = settings, sock, log
        self.pool = WorkerPool(settings, log.log_event)
        self.limits = limits = LimitsMiddleware(settings, log)
        limits.app = build_app(self.pool, settings, log, self.reload, lambda: limits.draining)
        protocol = http_protocol(settings, limits.refuse)
        self.http = HTTPServer(uvicorn.Config(
            limits, http=protocol, ws="none", lifespan="off", log_config=None, access_log=False, proxy_headers=False,
            server_header=False, timeout_keep_alive=60, timeout_graceful_shutdown=1,
        ))  # fmt: skip
        log.connections.set_function(lambda: len(self.http.server_state.connections))
        for name, model in self.pool.models.items():
            log.workers.labels(name).set_function(model.count_ready)
        self.patient, self.hurried = asyncio.Event(), asyncio.Event()  # the first and the second signal to end
        self.reloading: asyncio.Task[dict[str, str]] | None = None

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end, number)
        self.terminal, self.nohup = has_terminal(), signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)

    def _end(self, number: int) -> None:
        if number == signal.SIGINT or self.patient.is_set():  # somebody at a terminal, or for the second time
            self.hurried.set()
        self.patient.set()

    async def run(self) -> None:
        self._handle_signals()
        loading = asyncio.create_task(self.load())
        serving = asyncio.create_task(self.http.serve(sockets=[]))
        ending = asyncio.create_task(self.patient.wait())
        try:
            while not self.http.started and not serving.done():
                await asyncio.sleep(0.001)
            listener = self.http.listen(self.sock, self.settings.connections, self.log)
            host, port = self.sock.getsockname()[:2]
            address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
            self.log.log_event("listening", address=address)
            await asyncio.wait([loading, serving, ending], return_when=asyncio.FIRST_COMPLETED)
            if loading.done():
                loading.result()
                self.log.log_event("ready", address=address, models=list(self.pool.models))
                await asyncio.wait([serving, ending], return_when=asyncio.FIRST_COMPLETED)
            await self._drain(listener)
        finally:
            for task in (loading, ending, *([self.reloading] if self.reloading else ())):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, RegardError):
                    await task
            self.http.should_exit = True
            await serving
            await self.pool.stop()
            self.log.log_event("ended")

    async def load(self) -> None:
        await self.pool.load()
        self.log.models.clear()
        for model in self.pool.models.values():
            self.log.models.labels(model.name, model.digest).set(1)

    async def reload(self) -> dict[str, str]:
        """The digests after new workers have taken the place of all; RegardError where the old ones go on."""
        if self.reloading and not self.reloading.done():
            raise RegardError("the models are being loaded already")
        self.reloading = asyncio.create_task(self._reload())
        return await asyncio.shield(self.reloading)  # a client that goes away does not stop it

    async def _reload(self) -> dict[str, str]:
        try:
            await self.load()
        except (RegardError, OSError) as error:
            self.log.log_event("reload_failed", why=str(error))
            raise RegardError(str(error)) from None
        digests = {model.name: model.digest for model in self.pool.models.values()}
        self.log.log_event("reloaded", models=digests)
        return digests

    def _hang_up(self) -> None:
        """Load the models anew; but end where the terminal that it was started from has gone."""
        if self.terminal and not has_terminal():
            if not self.nohup:
                self._end(signal.SIGINT)
            return

        if self.reloading is None or self.reloading.done():
            self.reloading = asyncio.create_task(self._reload())
            self.reloading.add_done_callback(lambda task: task.cancelled() or task.exception())  # it is in the log

    async def _drain(self, listener: Listener) -> None:
        """Not ready, but still answering: new connections for a while, those that are kept until they are closed.

        Every response closes its connection, so that clients go elsewhere. A connection without a request is closed
        after as long as a client may take to send one; at once where somebody at a terminal waits.
        """
        self.limits.draining = True
        self.log.log_event("ending", running=self.limits.running)
        await self._pause(self.settings.drain_delay)
        await listener.close()
        connections, loop = self.http.server_state.connections, asyncio.get_running_loop()
        end, idle_end = loop.time() + self.settings.drain, loop.time() + self.settings.client_timeout
        while connections and loop.time() < end:
            if loop.time() > idle_end or self.hurried.is_set():
                for connection in [each for each in connections if each.idle]:  # type: ignore[union-attr]
                    connection.shutdown()
                if not self.limits.running:
                    return
            await asyncio.sleep(POLL_SECONDS)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.hurried.wait()


def has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def check_address(address: str, settings: ServerSettings) -> None:
    """Others may call only with a key, or where the operator says so."""
    if settings.keys or settings.open or ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return
    raise RegardError(
        f"--host {settings.host}: others could call it without a key; give --api-key-file, or --open to let them"
    )


async def run_server(settings: ServerSettings, log: ServerLog | None = None) -> None:
    sock = listening_socket(settings.host, settings.port)  # an address that is taken is told before models are loaded
    with sock:
        check_address(sock.getsockname()[0], settings)
        allow_descriptors(settings)
        log = log or ServerLog()
        logging.basicConfig(handlers=[log])
        try:
            await Server(settings, sock, log).run()
        finally:
            log.writer.close()
