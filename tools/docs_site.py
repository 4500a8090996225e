"""Hooks of `mkdocs build`: front pages from the READMEs, an API reference from docstrings, links that leave docs/.

Pages of docs/ link to source files as well, which are no pages of the site: there such a link is its text alone.
Chinese has no spaces between sentences, so line ends that a browser would show as spaces are removed. A wide table
scrolls by itself.
"""

import posixpath
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "regard"
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
PAUSE = re.compile(r"(?<=[，。；：、！？）”])\n *(?=\S)(?![-*>] |\d+\. |[|#<]|```)")  # not before lists, tables
TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
STYLE = "<style>.table-responsive td { min-width: 5.5em } .table-responsive code { overflow-wrap: anywhere }</style>"
FRONT = {"index.md": "README.md", "zh/index.md": "README.zh-CN.md"}
REFERENCE = {
    "api/regard.md": [
        "regard.api",
        "regard.look.attention",
        "regard.predict.translation",
        "regard.predict.pairs",
        "regard.predict.generation",
    ],
    "api/nn.md": ["regard.nn.multi_head", "regard.nn.layers", "regard.nn.attention", "regard.nn"],
    "api/models.md": ["regard.models.transformer", "regard.models.lm", "regard.models.bert", "regard.models"],
    "api/schedule.md": ["regard.training.schedule"],
}


def modules(name: str) -> list[str]:
    """A module, or all modules of a package."""
    folder = PACKAGE.joinpath(*name.split(".")[1:])
    if not folder.is_dir():
        return [name]
    files = sorted(path for path in folder.rglob("*.py") if path.name != "__init__.py")
    return [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in files]


def reference(names: list[str]) -> str:
    """A page of the reference; what comes first is what one needs first."""
    listed = dict.fromkeys(module for name in names for module in modules(name))
    return "\n\n".join([f"# {names[-1]}", *(f"::: {module}" for module in listed)]) + "\n"


def on_files(files: Files, config: Any) -> Files:
    for path, source in FRONT.items():
        files.append(File.generated(config, path, content=(ROOT / source).read_text(encoding="utf-8")))
    for path, names in REFERENCE.items():
        files.append(File.generated(config, path, content=reference(names)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    here = page.file.src_uri
    base = posixpath.dirname(FRONT.get(here, f"docs/{here}"))

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(base, match[2]))
        front = {source: path for path, source in FRONT.items()}
        inside = front.get(target) or target.removeprefix("docs/")
        if target not in front and (not target.startswith("docs/") or files.get_file_from_path(inside) is None):
            return match[1]
        return f"[{match[1]}]({posixpath.relpath(inside, posixpath.dirname(here) or '.')}{match[3] or ''})"

    markdown = LINK.sub(link, markdown)
    return without_breaks(markdown) if here.startswith("zh/") else markdown


def without_breaks(markdown: str) -> str:
    """Lines that end with Chinese punctuation are joined with the next one of the paragraph; code stays as it is."""
    ends = [0, *(end for fence in FENCE.finditer(markdown) for end in fence.span()), len(markdown)]
    pieces = [markdown[a:b] for a, b in pairwise(ends)]
    return "".join(PAUSE.sub("", text) if index % 2 == 0 else text for index, text in enumerate(pieces))


def on_page_content(html: str, **_: Any) -> str:
    """Tables scroll where they are too wide; `\\|`, which GitHub needs in code within a table, is a bar here too."""

    def scrolling(table: re.Match[str]) -> str:
        return f'<div class="table-responsive">{table[0]}</div>'.replace("\\|", "|")

    made, tables = TABLE.subn(scrolling, html)
    return STYLE + made if tables else html
