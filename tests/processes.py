"""Processes that are forks of one that has imported torch, so that a start costs no seconds: commands, and several as
torchrun starts them."""

import contextlib
import io
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

PRELOAD = [
    "regard",
    "regard.cli.main",
    "regard.run",
    "tests.training.toy",
    "pytest",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch.utils.tensorboard",
]


def run_command(arguments: Sequence[str], stdin: bytes, seconds: float) -> subprocess.CompletedProcess:
    """`regard ARGUMENTS` in a process of its own, with a pipe for its input."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = [folder / stream for stream in ("stdin", "stdout", "stderr")]
        os.mkfifo(files[0])
        for path in files[1:]:
            path.touch()
        process = _context().Process(target=_command, args=(dict(os.environ), os.getcwd(), files, list(arguments)))
        process.start()
        threading.Thread(target=_write, args=(files[0], stdin), daemon=True).start()
        process.join(seconds)
        if process.is_alive():
            process.kill()
            raise subprocess.TimeoutExpired(arguments, seconds)
        return subprocess.CompletedProcess(arguments, process.exitcode, *(path.read_bytes() for path in files[1:]))


def _command(environment: dict[str, str], place: str, files: Sequence[Path], arguments: list[str]) -> None:
    from regard.cli.main import main

    os.environ.clear()
    os.environ.update(environment)
    os.chdir(place)
    for number, (path, flags) in enumerate(zip(files, (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY), strict=True)):
        os.dup2(os.open(path, flags), number)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8")
    torch.set_num_threads(1)
    sys.argv = ["regard", *arguments]
    main()


def _write(path: Path, content: bytes) -> None:
    with contextlib.suppress(OSError), path.open("wb") as pipe:  # a command that reads nothing has ended
        pipe.write(content)


def _context() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    return context


class Processes:
    """`work(*arguments)` in each of `size` processes; what they print goes into files. `more` is their environment."""

    def __init__(self, size: int, folder: Path, work: Callable[..., Any], *arguments: Any, **more: Any) -> None:
        context = _context()
        folder.mkdir(parents=True, exist_ok=True)
        self.files = [(folder / f"{rank}.out", folder / f"{rank}.err") for rank in range(size)]
        more = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": size, **more}
        self.each: list[Any] = []
        for rank, files in enumerate(self.files):
            given = {"RANK": rank, "LOCAL_RANK": rank, **more}
            process = context.Process(target=_enter, args=(given, files, work, arguments))
            process.start()
            self.each.append(process)

    def codes(self, seconds: float = 60) -> list[int]:
        """Exit codes, once all have ended; none may hang."""
        end = time.monotonic() + seconds
        for process in self.each:
            process.join(max(0.0, end - time.monotonic()))
        hanging = [rank for rank, process in enumerate(self.each) if process.is_alive()]
        for rank in hanging:
            self.each[rank].kill()
        assert not hanging, f"after {seconds} seconds: {hanging}\n{self.err}"
        return [process.exitcode for process in self.each]

    def succeed(self) -> "Processes":
        assert self.codes() == [0] * len(self.each), self.err
        return self

    @property
    def out(self) -> str:
        return "".join(out.read_text("utf-8") for out, _ in self.files)

    @property
    def err(self) -> str:
        return "".join(err.read_text("utf-8") for _, err in self.files)


def _enter(given: dict[str, Any], files: tuple[Path, Path], work: Callable[..., Any], arguments: tuple) -> None:
    os.environ.update({name: str(value) for name, value in given.items()})
    for number, path in enumerate(files, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    torch.set_num_threads(1)
    work(*arguments)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
