"""The way of one sentence, as docs/architecture.md tells it, is the way that it takes; and it is short."""

import re
import sys
from pathlib import Path
from types import FrameType

from typer.testing import CliRunner

from regard.cli.main import app

ROOT = Path(__file__).parents[2]
CALL = re.compile(r"^(\d+)\. `([\w.]+)` in `([\w/]+\.py)`", re.MULTILINE)


def calls() -> list[tuple[str, str]]:
    """Files and functions, in order."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.partition("## The way of one sentence")[2].partition("\n## ")[0]
    found = CALL.findall(section)
    assert [int(number) for number, _, _ in found] == list(range(1, len(found) + 1))
    return [(file, name) for _, name, file in found]


def test_the_way_is_short() -> None:
    assert len(calls()) <= 25
    assert len({file for file, _ in calls()}) <= 12


def test_a_sentence_takes_this_way(toy_run: Path) -> None:
    package, seen = str(ROOT / "src" / "regard") + "/", []

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(package):
            seen.append((code.co_filename.removeprefix(package), code.co_qualname))

    sys.setprofile(note)
    try:
        result = CliRunner().invoke(app, ["translate", str(toy_run), "--device", "cpu", "--beam", "2"], input="w1 w2\n")
    finally:
        sys.setprofile(None)
    assert result.exit_code == 0, result.output
    first = {call: n for n, call in reversed(list(enumerate(seen)))}
    way = [first[call] for call in calls()]  # each is called …
    assert way == sorted(way)  # … in this order
