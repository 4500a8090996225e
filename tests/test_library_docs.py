"""The examples of docs/library.md, of README.md and of the notebook run as they stand."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
SECTIONS = re.findall(r"^## (\d+\. [^\n]*)\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)


def python_blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("title, text", SECTIONS, ids=[title for title, _ in SECTIONS])
def test_an_example_runs(title: str, text: str) -> None:
    (code,) = python_blocks(text)
    exec(compile(code, f"docs/library.md, {title}", "exec"), {"__name__": "__main__"})


def test_there_are_ten() -> None:
    assert [title.split(".")[0] for title, _ in SECTIONS] == [str(n) for n in range(1, 11)]


def test_the_readmes_library_example_runs() -> None:
    code = next(code for code in python_blocks((ROOT / "README.md").read_text(encoding="utf-8")) if "regard.nn" in code)
    exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})
