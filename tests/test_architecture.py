"""The arrows of docs/architecture.md, checked in the code: who may import whom, and what stays cheap."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "regard"
COMMON = {"config", "console", "device", "errors", "language", "regard", "reporting"}  # of all; they know no component
ROOMS = [  # each may import what stands below it
    "cli", "distil", "lab", "serve", "look", "interop", "api", "run", "run_checks", "mechanisms", "recipe", "training",
    "tasks", "predict", "examples", "decoding", "accel", "models", "nn", "data", "text", "evaluation", "io",
]  # fmt: skip
APART = {"nn": {"data", "text", "io"}, "models": {"data", "text", "io"}, "serve": {"training"}}  # what it does not know


def imports(path: Path) -> set[str]:
    """The parts of regard that a file imports; names for type checkers only do not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    checked = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test)]
    skipped = {id(inner) for block in checked for inner in ast.walk(block)}
    found = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "regard":
            parts = node.module.split(".")
            names = [a.name for a in node.names]
            found |= (
                {parts[1]}
                if len(parts) > 1
                else {n if (ROOT / n).exists() or (ROOT / f"{n}.py").exists() else "regard" for n in names}
            )
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("regard.")}
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_dependencies_point_down(room: str) -> None:
    """Lazy imports count too, those for type checkers alone do not."""
    below = {room, *ROOMS[ROOMS.index(room) + 1 :]} | COMMON
    for path in sorted((ROOT / room).rglob("*.py")) or [ROOT / f"{room}.py"]:
        wrong = imports(path) - (below - APART.get(room, set()))
        assert not wrong, f"{path.relative_to(ROOT)} imports {', '.join(sorted(wrong))}"


def test_nothing_imports_the_command_line() -> None:
    outside = [path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] != "cli"]
    assert [path.name for path in outside if "cli" in imports(path)] == ["__main__.py"]


@pytest.mark.parametrize(
    "module", ["regard", "regard.cli.main", "regard.config", "regard.data.embedded", "regard.data.prepared"]
)
def test_these_load_no_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_no_command_waits_for_the_compiler() -> None:
    """torch.compile's own modules take as long to import as torch itself, and nothing here compiles."""
    code = "import sys, regard.api, regard.interop.engines, regard.look.attention, regard.run\n"
    found = subprocess.run([sys.executable, "-c", code + "sys.exit('torch._dynamo' in sys.modules)"], check=False)
    assert found.returncode == 0


# --- names ---------------------------------------------------------------------------------------------------------

TWINS = {"activated", "add_dropout", "add_norm", "dropout", "linear", "norm_beside", "register"}  # of nn, in accel
SAME_WORD = {"train", "look"}  # the function, its command and the command's body


def public_names() -> dict[str, list[str]]:
    """Every public function and class at the top of a module, with the modules that define it."""
    names: dict[str, list[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                names.setdefault(node.name, []).append(path.relative_to(ROOT).as_posix())
    return names


def test_one_name_has_one_meaning() -> None:
    """But for fast twins of plain functions, and commands, which are named like their bodies in cli."""
    twice = {name: homes for name, homes in public_names().items() if len(homes) > 1}
    commands = {name for name, homes in twice.items() if all(home.startswith("cli/") for home in homes)}
    assert set(twice) - commands == TWINS | SAME_WORD, twice


def test_folders_are_one_idea() -> None:
    sizes = {folder.name: len(list(folder.glob("*.py"))) for folder in ROOT.rglob("*") if folder.is_dir()}
    assert not {name for name, size in sizes.items() if size > 18}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_picture_is_drawn_from_the_imports(language: str) -> None:
    from tools import draw_architecture

    text = draw_architecture.PAGES[language].read_text(encoding="utf-8")
    assert draw_architecture.page(text, language) == text, "python tools/draw_architecture.py draws it anew"


def test_every_room_is_described_in_chinese() -> None:
    from tools import draw_architecture

    described = draw_architecture.CHINESE
    assert described.keys() == draw_architecture.rooms().keys()
    assert draw_architecture.FOOT.keys() == draw_architecture.PAGES.keys()
    for name, text in described.items():
        assert re.search("[一-鿿]", text), name
        assert draw_architecture.columns(text) <= draw_architecture.WIDTH - 19, f"{name}: the line is too long"


# --- types ---------------------------------------------------------------------------------------------------------

MOST = {"Any": 250, "getattr": 40}  # uses in the package; what has a type of its own need not be one


def test_most_things_have_types_of_their_own() -> None:
    """Uses as names, imports aside; `ignores` are comments that silence the type checker."""
    uses, ignores = dict.fromkeys(MOST, 0), 0
    for path in ROOT.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        ignores += text.count("# type: ignore")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Name) and node.id in uses:
                uses[node.id] += 1
    assert {name: count for name, count in uses.items() if count > MOST[name]} == {}
    assert ignores <= 40
