"""Text in, text out: what the commands that use a trained model read from and write to. Knows no task."""

import contextlib
import io
import os
import select
import stat
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from regard.console import Console
from regard.data.readers import read_lines
from regard.errors import RegardError
from regard.io.atomic import atomic_write

CHUNK = 4096  # lines that are worked on together when they come as a stream
PAUSE = 0.05  # seconds without a line, after which those that have come are worked on: someone may wait for them
LONGEST = 1.0  # seconds that a line waits for others, if they come in shorter pauses

Soon = Callable[[float], bool]  # whether the next line, or the end, comes soon enough for one that came at that time


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


def always(since: float) -> bool:
    return True


class Lines(Iterator[str]):
    """Lines of text that know whether the next comes soon; those of a file do."""

    def __init__(self, lines: Iterator[str], soon: Soon = always) -> None:
        self.lines, self.soon = lines, soon

    def __next__(self) -> str:
        return next(self.lines)


class Coming(Iterator[bytes]):
    """The lines of a pipe, a terminal or a file, ends included; `soon` looks ahead without waiting for long.

    `select` does not see what lies in Python's buffer, so nothing may stay there: `read1` takes all of it, or what a
    single read of the system gives.
    """

    def __init__(self, stream: io.BufferedReader) -> None:
        self.stream, self.descriptor = stream, stream.fileno()
        self.whole: deque[bytes] = deque()
        self.part: list[bytes] = []  # of a line whose end has not come
        self.ended = False

    def __next__(self) -> bytes:
        while not self.whole and not self.ended:
            self._read()
        if not self.whole:
            raise StopIteration
        return self.whole.popleft()

    def soon(self, since: float) -> bool:
        until = min(time.monotonic() + PAUSE, since + LONGEST)
        while not self.whole and not self.ended:
            if not select.select([self.descriptor], [], [], max(0.0, until - time.monotonic()))[0]:
                return False
            self._read()
        return True

    def _read(self) -> None:
        got = self.stream.read1()
        self.ended = not got
        end = got.rfind(b"\n") + 1
        if end or self.ended:
            self.whole.extend(io.BytesIO(b"".join([*self.part, got[:end]])).readlines())
            self.part.clear()
        self.part.append(got[end:])


def standard_input(mend: Mended | None = None) -> Lines:
    stream, name = sys.stdin.buffer, "standard input"
    if os.name == "posix":
        with contextlib.suppress(io.UnsupportedOperation):  # what stands in for it has no descriptor
            coming = Coming(stream)  # type: ignore[arg-type]
            return Lines(decode(coming, name, mend), coming.soon)
    interactive = sys.stdin.isatty()
    return Lines(decode(stream, name, mend), lambda since: not interactive)


@contextlib.contextmanager
def reading(path: Path | None, mend: Mended | None = None) -> Iterator[Lines]:
    # What goes wrong in reading a file it says itself; an error of the output must not be taken for its own.
    yield standard_input(mend) if path is None else Lines(read_lines(path, repair=mend))


def decode(stream: Iterable[bytes], name: str, mend: Mended | None = None) -> Iterator[str]:
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
    with atomic_write(path) as file:
        yield file


def separate(outputs: Sequence[Path | None], inputs: Sequence[Path | None]) -> None:
    """Refuses an output that is an input, or another output, by whatever name; None is standard input, or no file."""
    known = {_identity(path): "standard input" if path is None else f"the input {path}" for path in inputs}
    known.pop(None, None)
    for output in filter(None, outputs):
        own = _identity(output)
        if own in known:
            raise RegardError(f"{output} would overwrite {known[own]}; give another name")
        if own is not None:
            known[own] = f"the output {output}"


def _identity(path: Path | None) -> tuple[Any, ...] | None:
    """What is the same for all names of a regular file, one that is not there yet included; None: not such a file."""
    try:
        found = os.fstat(sys.stdin.fileno()) if path is None else path.stat()
    except FileNotFoundError:
        return (os.path.realpath(str(path)),)
    except (OSError, ValueError, AttributeError):  # what cannot be looked at is told by whoever opens it
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def chunks(lines: Iterator[Any], soon: Soon = always) -> Iterator[list[Any]]:
    """CHUNK lines at a time, or those that have come when the next does not come soon."""
    held: list[Any] = []
    since = 0.0
    for line in lines:
        since = since if held else time.monotonic()
        held.append(line)
        if len(held) == CHUNK or not soon(since):
            yield held
            held = []
    if held:
        yield held


def after(before: int, tell: Callable[[int, int], None]) -> Callable[[str, int, int], None]:
    """What a model may tell of lines that so many came before."""
    return lambda what, done, of: tell(before + done, before + of)


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
