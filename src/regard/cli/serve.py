"""`regard serve`: start the workers, listen, and end in good order."""

import asyncio
import contextlib
import logging
import os
import re
import signal
from pathlib import Path

from regard.errors import RegardError
from regard.serve.settings import ServerSettings

NAME = re.compile(r"[\w.-]{1,64}")


def named_runs(runs: list[str]) -> dict[str, Path]:
    """RUN or NAME=RUN, by name; a folder's name is its default."""
    paths: dict[str, Path] = {}
    for argument in runs:
        name, equals, run = argument.partition("=")
        path = Path(run if equals else argument)
        name = name if equals else path.resolve().name
        if not NAME.fullmatch(name):
            raise RegardError(f"a model's name has letters, digits, dots, - and _, not {name!r}; write NAME={path}")
        if name in paths:
            raise RegardError(f"two models are called {name}; write NAME={path}")
        if not path.is_dir():
            raise RegardError(f"{path}: there is no such folder")
        paths[name] = path
    return paths


def api_keys(option: str | None, file: Path | None) -> tuple[str, ...]:
    """From the option, the environment, and a file with one a line."""
    keys = [option or os.environ.get("REGARD_API_KEY", "")]
    if file is not None:
        try:
            keys += [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
        except UnicodeDecodeError:
            raise RegardError(f"{file}: it is not UTF-8; write one key a line") from None
        if not any(keys):
            raise RegardError(f"{file}: there is no key in it; write one a line")
    return tuple(key for key in keys if key)


def serve(settings: ServerSettings) -> None:
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise RegardError(
            f"{error.name} is not installed; `pip install regard[serve]` has all that is needed"
        ) from None
    asyncio.run(_serve(settings))


async def _serve(settings: ServerSettings) -> None:
    import uvicorn

    from regard.serve.app import build_app
    from regard.serve.http import LimitsMiddleware, ServerLog, http_protocol, listening_socket
    from regard.serve.pool import WorkerPool

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self):  # type: ignore[no-untyped-def]
            yield  # they are ours

    sock = listening_socket(settings.host, settings.port)  # an address that is taken is told before models are loaded
    log = ServerLog()
    logging.basicConfig(handlers=[log])
    pool = WorkerPool(settings, log.log_event)
    limits = LimitsMiddleware(settings, log)
    limits.app = build_app(pool, settings, log, lambda: limits.draining)
    config = uvicorn.Config(
        limits, http=http_protocol(settings.client_timeout), ws="none", lifespan="off", log_config=None,
        access_log=False, proxy_headers=False, server_header=False, timeout_keep_alive=60, timeout_graceful_shutdown=1,
        backlog=2048,
    )  # fmt: skip
    server = Server(config)
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        starting = asyncio.create_task(pool.start())
        await asyncio.wait([starting, asyncio.create_task(stop.wait())], return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            return
        starting.result()
        running = asyncio.create_task(server.serve(sockets=[sock]))
        while not server.started and not running.done():
            await asyncio.sleep(0.01)
        host, port = sock.getsockname()[:2]
        log.log_event("ready", address=f"http://{host}:{port}", models=list(pool.models))
        await asyncio.wait([running, asyncio.create_task(stop.wait())], return_when=asyncio.FIRST_COMPLETED)
        limits.draining = True
        log.log_event("ending", running=limits.running)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(settings.drain):
                while limits.running:
                    await asyncio.sleep(0.02)
        server.should_exit = True
        await running
    finally:
        await pool.stop()
        log.log_event("ended")
