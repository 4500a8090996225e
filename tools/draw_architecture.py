"""The picture in docs/architecture.md, drawn from the imports: `python tools/draw_architecture.py` writes it anew.

A room is a package or a module of src/regard. Rooms stand in levels: each imports only from levels below it. Beside a
room stand its first docstring sentence and the rooms directly below it, those it reaches through others left out.
"""

import ast
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parent.parent / "src" / "regard"
PAGE = ROOT.parent.parent / "docs" / "architecture.md"
COMMON = ("config", "console", "device", "errors", "language", "reporting")  # used by all
BEGIN, END = "<!-- picture: tools/draw_architecture.py -->", "<!-- end of picture -->"
WIDTH = 118


def rooms() -> dict[str, Path]:
    packages = {path.parent.name: path.parent for path in ROOT.glob("*/__init__.py")}
    modules = {path.stem: path for path in ROOT.glob("*.py") if not path.stem.startswith("__")}
    return {name: path for name, path in (packages | modules).items() if name not in COMMON}


def imports(path: Path, known: set[str]) -> set[str]:
    """The rooms that a file imports, also inside functions; not those for type checkers alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    checked = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test)]
    skipped = {id(inner) for block in checked for inner in ast.walk(block)}
    names: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.ImportFrom) and node.module == "regard":
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("regard."):
            names.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            names |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("regard.")}
    return names & known


def graph() -> dict[str, set[str]]:
    homes = rooms()
    return {
        name: {
            other for file in (home.rglob("*.py") if home.is_dir() else [home]) for other in imports(file, set(homes))
        } - {name}
        for name, home in homes.items()
    }  # fmt: skip


def reachable(edges: dict[str, set[str]], name: str) -> set[str]:
    seen: set[str] = set()
    todo = list(edges[name])
    while todo:
        room = todo.pop()
        if room not in seen:
            seen.add(room)
            todo += edges[room]
    return seen


def level(edges: dict[str, set[str]], name: str) -> int:
    """How many rooms stand below it in the longest chain."""
    if name in reachable(edges, name):
        raise SystemExit(f"{name} imports itself by way of others")
    return 1 + max((level(edges, other) for other in edges[name]), default=-1)


def purpose(path: Path) -> str:
    text = ast.get_docstring(ast.parse((path / "__init__.py" if path.is_dir() else path).read_text(encoding="utf-8")))
    sentence = (text or "").splitlines()[0]
    return sentence.partition(". ")[0].rstrip(".")


def picture() -> str:
    homes, edges = rooms(), graph()
    lines = []
    for name in sorted(homes, key=lambda room: (-level(edges, room), room)):
        direct = edges[name] - {far for other in edges[name] for far in reachable(edges, other)}
        label = f"{name}/" if homes[name].is_dir() else f"{name}.py"
        below = ", ".join(sorted(direct))
        head = f"{level(edges, name):2}  {label:14} "
        lines.append(head + textwrap.shorten(purpose(homes[name]), WIDTH - len(head), placeholder=" …"))
        lines += [f"{'':19}↓ {below}"] if below else []
    lines.append(f"\n    {', '.join(COMMON)}: known to all; they know no room")
    return "\n".join(lines)


def page(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n```text\n{picture()}\n```\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    if BEGIN not in text:
        sys.exit(f"{PAGE}: there is no {BEGIN}")
    PAGE.write_text(page(text), encoding="utf-8")
