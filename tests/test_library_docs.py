"""The examples of docs/library.md, of README.md and of the notebook run as they stand."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from regard.errors import RegardError

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


def test_the_notebook_runs() -> None:
    """Cell by cell, as a kernel does: the value of a cell's last expression is what it shows."""
    notebook = json.loads((ROOT / "docs" / "regard.ipynb").read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for number, cell in enumerate(cell for cell in notebook["cells"] if cell["cell_type"] == "code"):
        tree, source = ast.parse("".join(cell["source"])), f"regard.ipynb, code {number + 1}"
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, source, "exec"), names)
        value = eval(compile(ast.Expression(last.value), source, "eval"), names) if last else None
        shown.append(value._repr_html_() if hasattr(value, "_repr_html_") else value)
    model, translation, named, page, cross, weights = shown[2:8]
    assert "Translator" in model
    assert "EIN HUND SIEHT" in translation
    best = names["model"].named_attention("ein Hund sieht", names["best"])["cross"]
    assert (best.queries, best.keys) == (["EIN", "HUND", "SIEHT", "</s>"], ["ein", "Hund", "sieht", "</s>"])
    assert best.weights.shape[2:] == (4, 4)
    assert named.count("<tr>") == 5
    assert page.startswith("<iframe")
    assert "regardLook" in page
    assert not re.search(r"(src|href)=&quot;http", page)
    assert cross.count("<tr>") == len(names["cross"].queries) + 1
    assert weights.shape == (4,)
    with pytest.raises(RegardError, match="no key is 'Hnd'; did you mean Hund"):
        names["cross"].select(key="Hnd")
