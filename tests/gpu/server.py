"""The server's worker, driven over its socket as `serve/pool.py` drives it, without HTTP and its packages: a model is
loaded and asked, all it can do, several requests at once, one is cancelled, and the worker ends with the socket.

    python3 -m tests.gpu.server translator --work FOLDER --device cuda
"""

import argparse
import json
import os
import select
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from regard.serve.settings import ServerSettings
from tests.gpu.recipes import Commands, overrides, read
from tests.gpu.report import step
from tests.gpu.scheduler import Item

PATIENCE = 90.0  # seconds with one answer
PRECISIONS = {"float32": None, "bf16": "bf16"}
TEXT = "Ba be bi bo."
Asked = dict[str, tuple[list[Any], dict[str, Any]]]  # by what is asked: items and options
MODELS: dict[str, tuple[str, Asked]] = {  # by name: the recipe
    "translator": (
        "quickstart",
        {
            "translate": ([TEXT, "The cat sees a dog.", ""], {}),
            "translate, beam, alternatives": ([TEXT] * 40, {"beam": 4, "nbest": 3}),
            "translate, alignments": ([TEXT], {"alignments": True}),
            "translate, a long text": ([f"{TEXT} " * 200], {}),
            "look": ([TEXT], {}),
        },
    ),
    "writer": ("tinyshakespeare", {"generate": (["Ba be"], {"max_tokens": 40, "seed": 1}), "look": (["Ba be bi"], {})}),
    "chat": ("dailydialog-chat", {"chat": ([["Ba be bi .", "Bo ?"]], {"seed": 1}), "look": (["Ba be bi"], {})}),
    "bert": ("bert-cpu", {"fill": (["Ba [MASK] bi."], {"top": 3}), "embed": ([TEXT], {})}),
    "classifier": ("sst2-bert-small", {"classify": ([TEXT, "Bu be."], {}), "look": ([TEXT], {})}),
}
CANCELLED = {"translator": ("translate", [f"{TEXT} " * 20] * 200), "writer": ("generate", ["Ba be"])}


def rows(name: str) -> list[str]:
    asked = [*MODELS[name][1], *(["cancel"] if name in CANCELLED else []), "end"]
    return ["train", *(f"{what} {precision}" for precision in PRECISIONS for what in ("load", *asked))]


def plan(work: Path, device: str, reduced: bool) -> list[Item]:
    here = [sys.executable, "-m", "tests.gpu.server", "--work", str(work), "--device", device]
    here += ["--reduced"] if reduced else []
    return [Item("serve", f"serve {name}", [*here, name], rows(name), estimate=40, note="made data") for name in MODELS]


class Worker:
    """A worker process, and our end of its socket."""

    def __init__(self, run: Path, device: str, precision: str | None) -> None:
        settings = ServerSettings(runs={"it": run}, device=device, precision=precision)
        ours, theirs = socket.socketpair()
        config = json.dumps(settings.worker_config(run))
        command = [sys.executable, "-m", "regard.serve.worker", config, str(theirs.fileno())]
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        theirs.close()
        self.sock, self.rest, self.last = ours, b"", 0
        self.messages: list[dict[str, Any]] = []

    def send(self, **message: Any) -> None:
        self.sock.sendall(json.dumps(message).encode() + b"\n")

    def ask(self, op: str, items: list[Any], options: dict[str, Any]) -> int:
        self.last += 1
        self.send(id=self.last, op=op, items=items, options=options)
        return self.last

    def next(self, id: int | None = None, seconds: float = PATIENCE) -> dict[str, Any]:
        """The next message, or the next of one request; others are kept."""
        end = time.monotonic() + seconds
        while True:
            for n, message in enumerate(self.messages):
                if id is None or message.get("id") == id:
                    return self.messages.pop(n)
            left = end - time.monotonic()
            assert left > 0, f"no answer in {seconds:.0f} s"
            if select.select([self.sock], [], [], left)[0]:
                data = self.sock.recv(1 << 16)
                assert data, f"the worker has ended, with {self.process.wait(10)}"
                *lines, self.rest = (self.rest + data).split(b"\n")
                self.messages += [message for message in map(json.loads, lines) if "beat" not in message]

    def answer(self, id: int) -> list[dict[str, Any]]:
        """All messages of a request."""
        found = [self.next(id)]
        while "piece" in found[-1]:
            found.append(self.next(id))
        assert "error" not in found[-1], found[-1]
        return found

    def end(self) -> None:
        """The end of the socket is the worker's end."""
        self.sock.close()
        code = self.process.wait(20)
        assert code == 0, f"the worker ended with {code}"


def check(op: str, items: list[Any], found: list[dict[str, Any]]) -> None:
    if op in ("generate", "chat"):
        assert "done" in found[-1], found[-1]
        return
    (message,) = found
    assert len(message["results"]) == len(items), message
    assert all(message["results"]), "an empty result"


def drive(name: str, run: Path, device: str, label: str, precision: str | None) -> None:
    worker = Worker(run, device, precision)
    try:
        with step(f"load {label}") as loaded:
            hello = worker.next()
            assert "hello" in hello, hello
            loaded.note = f"can {', '.join(hello['hello']['can'])}"
        if not loaded.ok:
            return
        for what, (items, options) in MODELS[name][1].items():
            op = what.partition(",")[0]
            with step(f"{what} {label}"):
                ids = [worker.ask(op, items, options) for _ in range(3)]  # of several at once each has its own
                for id in ids:
                    check(op, items, worker.answer(id))
        if name in CANCELLED:
            with step(f"cancel {label}"):
                cancel(worker, *CANCELLED[name])
        with step(f"end {label}"):
            worker.end()
    finally:
        worker.process.kill()


def cancel(worker: Worker, op: str, items: list[Any]) -> None:
    """What is asked after it is answered, and nothing more is said of what was cancelled."""
    story = op == "generate"
    for seed in range(8):  # a story of a model that has learned nothing may end by itself, at any word
        gone = worker.ask(op, items, {"max_tokens": 100_000, "seed": seed} if story else {})
        begun = worker.next(gone) if story else {}
        worker.send(cancel=gone)
        worker.answer(worker.ask(op, [TEXT], {"max_tokens": 8} if story else {}))
        said = [begun, *(m for m in worker.messages if m.get("id") == gone)]
        worker.messages.clear()
        if not any("done" in m or "results" in m for m in said):
            break
    else:
        raise AssertionError("it went on to its end")
    worker.answer(worker.ask(op, [TEXT], {"max_tokens": 8} if story else {}))
    assert not any(m.get("id") == gone for m in worker.messages), "it was still being worked on"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--reduced", action="store_true")
    given = parser.parse_args()
    regard = Commands(given.work.absolute(), given.device)
    os.environ.update(regard.environment)
    recipe, run = MODELS[given.name][0], given.work / "runs" / f"serve-{given.name}"
    few = ["training.steps=4", "training.validation.every=4"]
    few += ["training.init=null"] if given.name == "classifier" else []
    few += overrides(read(recipe), given.reduced)
    with step("train") as trained:
        regard("train", recipe, *few, "--out", str(run.absolute()))
    if trained.ok:
        for label, precision in PRECISIONS.items():
            drive(given.name, run.absolute(), given.device, label, precision)


if __name__ == "__main__":
    main()
