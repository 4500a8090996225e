"""Text in, text out: what the commands that use a trained model read from and write to. Knows no task."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from regard.data.readers import lines
from regard.errors import RegardError, whole

CHUNK = 4096  # lines that are worked on together when they come as a stream


def warn(sentence: str) -> None:
    print(f"regard: {sentence}", file=sys.stderr)


class Mended:
    """Makes UTF-8 of lines that are not: bytes that mean nothing become U+FFFD, and are counted."""

    def __init__(self) -> None:
        self.marks = self.lines = self.first = 0

    def __call__(self, raw: bytes, number: int) -> bytes:
        mended = raw.decode("utf-8", errors="replace").encode()
        if mended != raw:
            mark = "\ufffd".encode()
            self.marks += mended.count(mark) - raw.count(mark)
            self.lines += 1
            self.first = self.first or number
        return mended

    def tell(self, name: str) -> None:
        if self.lines:
            warn(
                f"{name}: what is not UTF-8 became U+FFFD {self.marks} time(s), "
                f"in {self.lines} line(s), first line {self.first}"
            )


MENDERS: dict[str, Callable[[], Mended | None]] = {"strict": lambda: None, "replace": Mended}


def mender(errors: str) -> Mended | None:
    """What `--errors` asks for."""
    if errors not in MENDERS:
        raise RegardError(f"--errors is {errors!r}; write {' or '.join(MENDERS)}")
    return MENDERS[errors]()


@contextlib.contextmanager
def reading(path: Path | None, mend: Mended | None = None) -> Iterator[Iterator[str]]:
    if path is None:
        yield decode(sys.stdin.buffer, "standard input", mend)
        return
    yield lines(
        path, mend=mend
    )  # what goes wrong in reading it says itself; an error of the output must not be taken for its own


def decode(stream: IO[bytes], name: str, mend: Mended | None = None) -> Iterator[str]:
    for number, raw in enumerate(stream, 1):
        line = mend(raw, number) if mend else raw
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\n").removesuffix("\r")
            yield text.replace("\0", " ")
        except UnicodeDecodeError:
            raise RegardError(f"{name}, line {number}: not UTF-8") from None


@contextlib.contextmanager
def writing(path: Path | None) -> Iterator[IO[str]]:
    if path is None:
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        yield sys.stdout
        return
    with whole(path) as file:  # the input may be the same file
        yield file


def chunks(lines: Iterator[Any], interactive: bool = False) -> Iterator[list[Any]]:
    held = []
    for line in lines:
        held.append(line)
        if interactive or len(held) == CHUNK:
            yield held
            held = []
    if held:
        yield held


@contextlib.contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr where there is a terminal, else nothing; `tell(n, of)` says how many are done."""
    console = Console(stderr=True)
    if not console.is_terminal or sys.stdout.isatty():  # text and a bar on one screen would run into each other
        yield lambda done, of: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)
