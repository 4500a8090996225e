"""`regard try`: the models that are here behind the page of a server; without a browser, a tour in the terminal."""

import asyncio
import os
import socket
import sys
import threading
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.streams import warn
from regard.errors import RegardError
from regard.io.manifest import MODEL, verified
from regard.io.models import known_models
from regard.io.run_folder import WEIGHTS
from regard.language import localise

if TYPE_CHECKING:
    from regard.serve.log import ServerLog

PORT = 8000  # if it is free
SERVER_PARTS = ("fastapi", "uvicorn", "prometheus_client")
FIRST = ("en-de", "story", "chat", "bert")  # the order of tabs; others follow


def try_models(page: bool | None, port: int | None, device: str) -> None:
    """`page` is whether the page was asked for, or the terminal; None: the page where there is a browser."""
    runs = models_to_try()
    missing = [part for part in SERVER_PARTS if find_spec(part) is None]
    if page and missing:
        raise RegardError(f"{missing[0]} is not installed; `pip install regard[serve]` has all that the page needs")
    if page is None and missing:
        warn("the page needs more than is installed (`pip install regard[serve]`): this is the tour in the terminal")
    elif page is None and not has_browser():
        warn("there is no browser here: this is the tour in the terminal; `regard try --page` starts the page anyway")
    if page or (page is None and not missing and has_browser()):
        serve_page(runs, port, device)
        return
    from regard.cli.shipped.tour import terminal_tour

    terminal_tour(runs, device)


def models_to_try() -> dict[str, Path]:
    """The models that have a name; where there is none, the run of `regard quickstart`, with a sentence about that."""
    known = known_models()
    if known:
        return {name: known[name] for name in sorted(known, key=lambda n: (n not in FIRST, [*FIRST, n].index(n), n))}
    run = Path("runs") / "quickstart"
    if (run / WEIGHTS).is_file():
        warn(f"the models to begin with are not here (`regard models list`): this is {run}, a small translator")
        return {str(run): run}
    raise RegardError(
        "the models to begin with are not here (`regard models list`), and there is no runs/quickstart either; "
        "`make quickstart`, or `regard quickstart`, trains a small translator in minutes, which this command then shows"
    )


def has_browser() -> bool:
    display = any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))
    if sys.platform not in ("darwin", "win32") and not display:
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def serve_page(runs: dict[str, Path], port: int | None, device: str) -> None:
    """Until Ctrl-C. A port that was asked for is used or refused; else any, where the usual one is taken."""
    from regard.serve.server import run_server
    from regard.serve.settings import ServerSettings

    runs = whole_models(runs)
    if port is None and not _is_free(PORT):
        warn(f"port {PORT} is taken: the page is at another one")
        port = 0
    named = {path.name if "/" in name else name: path for name, path in runs.items()}
    settings = ServerSettings(named, port=PORT if port is None else port, device=device)
    print(localise(f"Loading {', '.join(named)} …"), flush=True)
    asyncio.run(run_server(settings, page_log()))


def whole_models(runs: dict[str, Path]) -> dict[str, Path]:
    """Those whose files are what was written, as no other can be served; of the rest a sentence each."""
    from regard.io.tensors import tensor_shapes
    from regard.recipe import read_recipe

    whole = dict[str, Path]()
    for number, (name, folder) in enumerate(runs.items(), 1):
        try:
            with verified(folder, (*MODEL, WEIGHTS)):
                read_recipe(folder)
                tensor_shapes(folder / WEIGHTS)
        except RegardError as error:
            if number == len(runs) and not whole:
                raise
            warn(f"{name}: left out; {error}")
            continue
        whole[name] = folder
    return whole


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def page_log() -> "ServerLog":
    """A log for one person at a terminal: where the page is; and as always what went wrong."""
    from regard.serve.log import ServerLog

    class PageLog(ServerLog):
        def log_event(self, event: str, **fields: object) -> None:
            if event == "ready":
                print(localise(f"The page is at {fields['address']}/ (Ctrl-C ends it)"), flush=True)
                if has_browser():
                    threading.Thread(target=webbrowser.open, args=(f"{fields['address']}/",), daemon=True).start()
            elif event not in ("request", "listening", "model_loaded", "ending", "ended"):
                super().log_event(event, **fields)

    return PageLog()
