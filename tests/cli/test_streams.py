"""Input that is not UTF-8: named by its line, or mended and counted. Lines of a pipe: worked on as they come."""

import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli import main as cli
from regard.cli import streams
from regard.cli.streams import BATCH_LINES, PipeReader, Utf8Repair, batched_lines, input_lines, utf8_repair
from regard.errors import RegardError

BAD = "w1 ä\n".encode() + b"w2 \xff\xfe w3\n" + "w4 \ufffd\n".encode() + b"w5 \xe4\xbd \xef\xbf\xbd\r\n"
READ = ["w1 ä", "w2 \ufffd\ufffd w3", "w4 \ufffd", "w5 \ufffd \ufffd"]


def test_mended_lines_of_a_file_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").write_bytes(b"\xef\xbb\xbf" + BAD)
    repair = Utf8Repair()
    assert list(input_lines(tmp_path / "in", repair)) == READ
    repair.report("in")
    said = "regard: in: what is not UTF-8 became U+FFFD 3 time(s), in 2 line(s), first line 2\n"
    assert capsys.readouterr().err == said
    Utf8Repair().report("in")
    assert capsys.readouterr().err == ""


def test_strict_is_as_before(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(BAD)
    lines = input_lines(tmp_path / "in", utf8_repair("strict"))
    with pytest.raises(RegardError, match="line 2: not valid UTF"):
        list(lines)
    with pytest.raises(RegardError, match="--errors is 'ignore'; write strict or replace"):
        utf8_repair("ignore")


@pytest.mark.parametrize("stdin", [True, False])
def test_the_command(toy_run: Path, tmp_path: Path, stdin: bool) -> None:
    (tmp_path / "in").write_bytes(BAD)
    given = ["translate", str(toy_run), "--device", "cpu", *([] if stdin else ["-i", str(tmp_path / "in")])]
    found = CliRunner().invoke(cli.app, [*given, "--errors", "replace"], input=BAD, catch_exceptions=False)
    assert found.stdout.count("\n") == 4
    name = "standard input" if stdin else str(tmp_path / "in")
    assert found.stderr.startswith(f"regard: {name}: what is not UTF-8 became U+FFFD 3 time(s), in 2 line(s)")
    with pytest.raises(RegardError, match=f"{name}, line 2: not"):
        CliRunner().invoke(cli.app, given, input=BAD, catch_exceptions=False)


# --- as they come ----------------------------------------------------------------------------------------------------


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.FileIO]:
    """What is written here comes on standard input."""
    read, write = os.pipe()
    with open(read, encoding="utf-8") as stdin, io.FileIO(write, "w") as mouth:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield mouth


def meanwhile(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def parts() -> Iterator[list[str]]:
    lines = input_lines(None)
    return batched_lines(lines, lines.ready)


def test_lines_of_a_pipe_do_not_wait_for_those_that_have_not_come(pipe: io.FileIO) -> None:
    found = parts()
    pipe.write(b"a\n\nb\r\nc")
    assert next(found) == ["a", "", "b"]
    pipe.write(b"d\n")
    assert next(found) == ["cd"]
    pipe.write(b"e\n")
    assert next(found) == ["e"]
    pipe.write(b"f\ng")
    pipe.close()
    assert list(found) == [["f", "g"]]


def test_a_bad_line_after_lines_that_were_answered(pipe: io.FileIO) -> None:
    found = parts()
    pipe.write(b"\xef\xbb\xbfa\nb\n")
    assert next(found) == ["a", "b"]
    pipe.write(b"\xff\n")
    with pytest.raises(RegardError, match="standard input, line 3: not UTF-8"):
        next(found)


def test_who_writes_at_full_speed_gets_full_chunks(pipe: io.FileIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "PAUSE", 60.0)  # a busy machine may stop the writer for a while
    monkeypatch.setattr(streams, "LONGEST_WAIT", 60.0)
    begun = time.monotonic()

    def write() -> None:
        with pipe:
            for n in range(10_000):
                pipe.write(b"line %d\n" % n)

    writer = meanwhile(write)
    found = list(parts())
    writer.join()
    assert [len(part) for part in found] == [BATCH_LINES, BATCH_LINES, 10_000 - 2 * BATCH_LINES]
    assert [line for part in found for line in part] == [f"line {n}" for n in range(10_000)]
    assert time.monotonic() - begun < 30  # the end is not waited for


def test_who_never_pauses_is_not_waited_for_without_end(pipe: io.FileIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "PAUSE", 60.0)
    monkeypatch.setattr(streams, "LONGEST_WAIT", 0.1)
    seen = threading.Event()

    def write() -> None:
        with pipe:
            while not seen.wait(0.02):
                pipe.write(b"a\n")

    writer = meanwhile(write)
    found = parts()
    first = next(found)
    seen.set()
    writer.join()
    assert 1 <= len(first) < BATCH_LINES
    assert {line for part in found for line in part} <= {"a"}


@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_lines_are_cut_as_python_cuts_them(pipe: io.FileIO, size: int) -> None:
    text = b"a\r\n\n\nb\rc\x0bd\n" + "ä\u2028\n".encode() + b"x" * 50 + b"\n\nend"

    def write() -> None:
        with pipe:
            for begin in range(0, len(text), size):
                pipe.write(text[begin : begin + size])

    writer = meanwhile(write)
    assert list(PipeReader(sys.stdin.buffer)) == io.BytesIO(text).readlines()  # type: ignore[arg-type]
    writer.join()


def test_what_python_has_read_already_is_not_forgotten(pipe: io.FileIO) -> None:
    pipe.write(b"a\nb\nc\n")
    assert sys.stdin.buffer.readline() == b"a\n"  # the others lie in its buffer, where select sees nothing
    assert next(parts()) == ["b", "c"]


@pytest.mark.parametrize("kind", ["file", "nothing", "bytes"])
def test_what_is_no_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    text = b"" if kind == "nothing" else b"a\n" * 5000 + b"b"
    (tmp_path / "in").write_bytes(text)
    path = Path(os.devnull) if kind == "nothing" else tmp_path / "in"
    with io.TextIOWrapper(io.BytesIO(text)) if kind == "bytes" else open(path, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert [len(part) for part in parts()] == ([] if kind == "nothing" else [BATCH_LINES, 5001 - BATCH_LINES])
