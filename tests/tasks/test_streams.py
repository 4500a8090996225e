"""Input that is not UTF-8: named by its line, or mended and counted."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard import cli
from regard.errors import RegardError
from regard.tasks.streams import Mended, mender, reading

BAD = "w1 ä\n".encode() + b"w2 \xff\xfe w3\n" + "w4 \ufffd\n".encode() + b"w5 \xe4\xbd \xef\xbf\xbd\r\n"
READ = ["w1 ä", "w2 \ufffd\ufffd w3", "w4 \ufffd", "w5 \ufffd \ufffd"]


def test_mended_lines_of_a_file_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").write_bytes(b"\xef\xbb\xbf" + BAD)
    mend = Mended()
    with reading(tmp_path / "in", mend) as lines:
        assert list(lines) == READ
    mend.tell("in")
    said = "regard: in: what is not UTF-8 became U+FFFD 3 time(s), in 2 line(s), first line 2\n"
    assert capsys.readouterr().err == said
    Mended().tell("in")
    assert capsys.readouterr().err == ""


def test_strict_is_as_before(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(BAD)
    with reading(tmp_path / "in", mender("strict")) as lines, pytest.raises(RegardError, match="line 2: not valid UTF"):
        list(lines)
    with pytest.raises(RegardError, match="--errors is 'ignore'; write strict or replace"):
        mender("ignore")


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
