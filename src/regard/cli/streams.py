"""Input lines, output files and progress of the commands that use a trained model. Knows no task."""

import contextlib
import io
import json
import os
import select
import stat
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TypeVar

from rich import progress as rich_progress

from regard.config import to_plain
from regard.console import Console
from regard.data.readers import MAX_LINE, check_line_length, read_lines
from regard.decoding import DecodingConfig
from regard.errors import RegardError
from regard.io.atomic import atomic_write
from regard.language import localise
from regard.predict.base import Predictor
from regard.reporting import Json, Progress

T = TypeVar("T")

BATCH_LINES = 4096  # lines that are worked on together when they come as a stream
PAUSE = 0.05  # seconds without a line, after which those that have come are worked on: someone may wait for them
LONGEST_WAIT = 1.0  # seconds that a line waits for others, if they come in shorter pauses

NextIsReady = Callable[[float], bool]  # whether the next line, or the end, comes soon enough for one read at that time


def warn(sentence: str) -> None:
    print(f"regard: {localise(sentence)}", file=sys.stderr)


def check_stats(decoding: DecodingConfig | None, stats: Path | None) -> None:
    if stats is not None and not (decoding and decoding.parallel):
        raise RegardError("--stats counts the guesses of a speculative or blockwise search; add --search speculative")


def report_acceptance(predictor: Predictor, decoding: DecodingConfig | None, stats: Path | None = None) -> Json:
    """What parallel decoding gained: a line for people, JSON in the file `stats`, and as an entry of a report; nothing
    of other searches."""
    if decoding is None or not decoding.parallel or (found := predictor.acceptance(decoding)) is None:
        return {}
    shares = " ".join(f"{share:.0%}" for share in found.by_position)
    warn(
        f"{decoding.kind} search: {found.gain:.2f} tokens a step, {found.accepted_length:.2f} guesses kept; of those "
        f"that were looked at, by position: {shares}"
    )
    if stats is not None:
        with atomic_write(stats) as file:
            file.write(json.dumps({"decoding": to_plain(decoding), **found.json()}, ensure_ascii=False) + "\n")
    return {"acceptance": found.json()}


class Utf8Repair:
    """`--errors replace`: bytes of a line that are not UTF-8 become U+FFFD, and are counted."""

    def __init__(self) -> None:
        self.replaced = self.lines = self.first = 0

    def __call__(self, raw: bytes, number: int) -> bytes:
        repaired = raw.decode("utf-8", errors="replace").encode()
        if repaired != raw:
            mark = "\ufffd".encode()
            self.replaced += repaired.count(mark) - raw.count(mark)
            self.lines += 1
            self.first = self.first or number
        return repaired

    def report(self, name: str) -> None:
        if self.lines:
            warn(
                f"{name}: what is not UTF-8 became U+FFFD {self.replaced} time(s), "
                f"in {self.lines} line(s), first line {self.first}"
            )


def utf8_repair(errors: str) -> Utf8Repair | None:
    """The option `--errors`."""
    if errors not in ("strict", "replace"):
        raise RegardError(f"--errors is {errors!r}; write strict or replace")
    return Utf8Repair() if errors == "replace" else None


def always_ready(since: float) -> bool:
    return True


class LineStream(Iterator[str]):
    """Lines of text, with what is known about when the next one comes; those of a file are always ready."""

    def __init__(self, lines: Iterator[str], ready: NextIsReady = always_ready) -> None:
        self.lines, self.ready = lines, ready

    def __next__(self) -> str:
        return next(self.lines)


def longest_line() -> int:
    """In bytes; 1 MiB, since the memory that a line takes in a model is a hundred times its own and more."""
    value = os.environ.get(MAX_LINE, "") or str(1 << 20)
    if not value.isdigit() or not int(value):
        raise RegardError(f"{MAX_LINE} is {value!r}; write a number of bytes")
    return int(value)


def input_lines(path: Path | None, repair: Utf8Repair | None = None) -> LineStream:
    """The lines of a file, or of standard input."""
    if path is not None:
        return LineStream(read_lines(path, repair=repair, longest=longest_line()))
    stream, name = sys.stdin.buffer, "standard input"
    if os.name == "posix":
        with contextlib.suppress(io.UnsupportedOperation):  # what stands in for it has no descriptor
            pipe = PipeReader(stream)  # type: ignore[arg-type]
            return LineStream(decode_lines(pipe, name, repair), pipe.ready)
    interactive = sys.stdin.isatty()
    return LineStream(decode_lines(stream, name, repair), lambda since: not interactive)


class PipeReader(Iterator[bytes]):
    """The lines of a pipe, a terminal or a file, ends included; `ready` looks ahead without waiting for long.

    `select` does not see what lies in Python's buffer, so nothing may stay there: `read1` takes all of it, or what a
    single read of the system gives.
    """

    def __init__(self, stream: io.BufferedReader) -> None:
        self.stream, self.descriptor = stream, stream.fileno()
        self.complete: deque[bytes] = deque()
        self.partial: list[bytes] = []  # of a line whose end has not come
        self.longest, self.size = longest_line(), 0  # of `partial`, in bytes
        self.ended = False

    def __next__(self) -> bytes:
        while not self.complete and not self.ended:
            self._read()
        if not self.complete:
            raise StopIteration
        return self.complete.popleft()

    def ready(self, since: float) -> bool:
        until = min(time.monotonic() + PAUSE, since + LONGEST_WAIT)
        while not self.complete and not self.ended:
            if not select.select([self.descriptor], [], [], max(0.0, until - time.monotonic()))[0]:
                return False
            self._read()
        return True

    def _read(self) -> None:
        data = self.stream.read1()
        self.ended = not data
        end = data.rfind(b"\n") + 1
        if end or self.ended:
            self.complete.extend(io.BytesIO(b"".join([*self.partial, data[:end]])).readlines())
            self.partial.clear()
            self.size = 0
        self.partial.append(data[end:])
        self.size += len(data) - end
        if self.size > self.longest:  # decode_lines says so, of what is whole too
            self.complete.append(b"".join(self.partial))
            self.ended = True


def decode_lines(stream: Iterable[bytes], name: str, repair: Utf8Repair | None = None) -> Iterator[str]:
    longest = longest_line()
    for number, raw in enumerate(stream, 1):
        check_line_length(raw, longest, f"{name}, line {number}")
        line = repair(raw, number) if repair else raw
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\n").removesuffix("\r")
            yield text.replace("\0", " ")
        except UnicodeDecodeError:
            raise RegardError(f"{name}, line {number}: not UTF-8") from None


@contextlib.contextmanager
def open_output(path: Path | None) -> Iterator[IO[str]]:
    if path is None:
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        yield sys.stdout
        return
    with atomic_write(path) as file:
        yield file


def check_distinct_files(outputs: Sequence[Path | None], inputs: Sequence[Path | None]) -> None:
    """Refuses an output that is an input, or another output, by whatever name; None is standard input, or no file."""
    known = {_identity(path): "standard input" if path is None else f"the input {path}" for path in inputs}
    known.pop(None, None)
    for output in filter(None, outputs):
        own = _identity(output)
        if own in known:
            raise RegardError(f"{output} would overwrite {known[own]}; give another name")
        if own is not None:
            known[own] = f"the output {output}"


def _identity(path: Path | None) -> tuple[object, ...] | None:
    """What is the same for all names of a regular file, one that is not there yet included; None: not such a file."""
    try:
        status = os.fstat(sys.stdin.fileno()) if path is None else path.stat()
    except FileNotFoundError:
        return (os.path.realpath(str(path)),)
    except (OSError, ValueError, AttributeError):  # what cannot be looked at is told by whoever opens it
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def batched_lines(lines: Iterator[T], ready: NextIsReady = always_ready) -> Iterator[list[T]]:
    """BATCH_LINES lines at a time, or those that have come when the next is not ready."""
    batch: list[T] = []
    since = 0.0
    for line in lines:
        since = since if batch else time.monotonic()
        batch.append(line)
        if len(batch) == BATCH_LINES or not ready(since):
            yield batch
            batch = []
    if batch:
        yield batch


def offset_progress(before: int, report: Callable[[int, int], None]) -> Progress:
    """The progress of lines before which others were done."""
    return lambda what, done, of: report(before + done, before + of)


@contextlib.contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr where there is a terminal, else nothing; `report(n, of)` says how many are done."""
    console = Console(stderr=True)
    if not console.is_terminal or sys.stdout.isatty():  # text and a bar on one screen would run into each other
        yield lambda done, of: None
        return
    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TimeRemainingColumn(),
    )
    with rich_progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(localise(what), total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)
