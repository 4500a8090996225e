"""The documents are run: recipes parse, commands and links exist, languages are in step, an example runs."""

import ast
import os
import re
import shlex
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import typer
import yaml

from regard import recipe as recipes
from regard.cli.main import app
from regard.errors import RegardError
from regard.models.batch import RaggedRows, collate_pairs
from regard.models.transformer import PositionsConfig, TransformerConfig
from regard.run import train_recipe
from tests.training import toy

ROOT = Path(__file__).parent.parent
READMES = (ROOT / "README.md", ROOT / "README.zh-CN.md")
DOCS = [*READMES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
CHINESE = sorted(path for path in (ROOT / "docs" / "zh").glob("*.md") if path.name != "glossary.md")  # both in one
TRANSLATED = [READMES, *((ROOT / "docs" / path.name, path) for path in CHINESE)]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    file: str
    line: int
    language: str
    text: str


def blocks(path: Path, *languages: str) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    name = str(path.relative_to(ROOT))
    found = [Block(name, text[: m.start()].count("\n") + 1, m[1], m[2]) for m in FENCE.finditer(text)]
    assert text.count("```") == 2 * len(found), f"{name}: a fence is not closed, or does not begin its line"
    return [block for block in found if not languages or block.language in languages]


def everywhere(*languages: str) -> list[Block]:
    return [block for path in DOCS for block in blocks(path, *languages)]


def named(block: Block) -> str:
    return f"{block.file}:{block.line}"


def prose(path: Path) -> str:
    return FENCE.sub("", path.read_text(encoding="utf-8"))


def without_comments(text: str) -> list[str]:
    lines = [re.sub(r"(^|\s+)#.*$", "", line).rstrip() for line in text.splitlines()]
    return [line for line in lines if line]


@pytest.fixture
def documented_plugins(own_choices: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The modules of docs/plugins.md, whose first line says their names, on the path."""
    folder = tmp_path / "modules"
    folder.mkdir()
    for block in blocks(ROOT / "docs" / "plugins.md", "python"):
        name = re.match(r"# (\w+\.py)\n", block.text)
        assert name, named(block)
        (folder / name[1]).write_text(block.text, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    return folder


# --- recipes --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("documented_plugins")
@pytest.mark.parametrize("block", everywhere("yaml"), ids=named)
def test_recipes_parse(block: Block, tmp_path: Path) -> None:
    """A block that begins with `# recipe` is complete; any other is a part, and parses beside some data."""
    if block.text.startswith("# recipe\n"):
        path = tmp_path / "recipe.yaml"
        path.write_text(block.text, encoding="utf-8")
        recipes.load_recipe(path)
    else:
        recipes.load_recipe({"data": {"train": "embedded:train"}} | yaml.safe_load(block.text))


def test_some_recipes_are_complete() -> None:
    for path in (*READMES, ROOT / "docs" / "data.md", ROOT / "docs" / "recipes.md"):
        assert any(block.text.startswith("# recipe\n") for block in blocks(path, "yaml")), path


# --- commands -------------------------------------------------------------------------------------


def shell_words() -> list[tuple[str, list[str]]]:
    """(where, words) of every command in the documents; a pipe separates commands."""
    found = []
    for block in everywhere("bash", "console"):
        for line in block.text.splitlines():
            lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars="|")
            lexer.whitespace_split = True
            command: list[str] = []
            for word in [*lexer, "|"]:
                if word != "|":
                    command.append(word)
                elif command:
                    found.append((named(block), command))
                    command = []
    return found


def my_recipe(folder: Path) -> Path:
    """The README's my.yaml, as a reader saves it."""
    path = folder / "my.yaml"
    path.write_text(blocks(READMES[0], "yaml")[0].text, encoding="utf-8")
    return path


COMMANDS = [pytest.param(w, c, id=f"{w} {' '.join(c)}") for w, c in shell_words() if c[0] == "regard"]


@pytest.mark.usefixtures("documented_plugins")
@pytest.mark.parametrize("where, words", COMMANDS)
def test_commands_and_options_exist(where: str, words: list[str], tmp_path: Path) -> None:
    command, arguments = typer.main.get_command(app), words[1:]
    while hasattr(command, "commands"):
        assert arguments, f"{where}: a command is missing"
        assert arguments[0] in command.commands, f"{where}: there is no command {arguments[0]}"
        command, arguments = command.commands[arguments[0]], arguments[1:]
    context = command.make_context(command.name, list(arguments))  # raises if it cannot be typed so
    if command.name == "train":
        given = context.params["recipe"]
        recipes.load_recipe(my_recipe(tmp_path) if given == "my.yaml" else given, context.params["overrides"] or [])


def test_every_command_is_in_the_readme() -> None:
    shown = {words[1] for where, words in shell_words() if where.startswith("README.md:")}
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert {name for name, command in commands.items() if not command.hidden} <= shown


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    asked = {words[1] for _, words in shell_words() if words[0] == "make"}
    assert asked
    assert asked <= targets


# --- languages ------------------------------------------------------------------------------------


FROM_CHINESE = {  # what stands between backquotes and is not the same in both languages
    "--ablate 位置.层.头": "--ablate PLACE.LAYER.HEAD",
    "<s> 句 </s> 句 </s> …": "<s> turn </s> turn </s> …",
    "= 标题 =": "= Title =",
    "regard figures --language zh": "regard figures",
}
TIMES = {"million": 1e6, "billion": 1e9, "万": 1e4, "亿": 1e8}
AMOUNT = re.compile(r"(\d+(?:,\d{3})*(?:\.\d+)?)(?: ?(million|billion|万|亿))?")
by_page = pytest.mark.parametrize("english, chinese", TRANSLATED, ids=lambda path: path.name)


def rows(path: Path) -> list[str]:
    return [line for line in prose(path).splitlines() if line.startswith("|")]


@by_page
def test_translations_are_in_step(english: Path, chinese: Path) -> None:
    def levels(path: Path) -> list[int]:
        return [len(marks) for marks in re.findall(r"^(#+) ", prose(path), re.MULTILINE)]

    def code(path: Path) -> list[tuple[str, list[str]]]:
        found = blocks(path, "bash", "console", "yaml", "python")
        return [(block.language, without_comments(block.text)) for block in found]

    def pictures(path: Path) -> list[str]:
        """Without the folder and the language: `softmax` of `../figures/softmax.zh.svg`."""
        return [Path(link).name.partition(".")[0] for link in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", prose(path))]

    assert levels(english) == levels(chinese)
    assert code(english) == code(chinese)
    assert len(blocks(english)) == len(blocks(chinese))
    assert len(rows(english)) == len(rows(chinese))
    assert pictures(english) == pictures(chinese)


@by_page
def test_translations_lead_to_each_other(english: Path, chinese: Path) -> None:
    for page, other in ((english, chinese), (chinese, english)):
        top = page.read_text(encoding="utf-8").split("\n## ")[0]
        assert f"({Path(os.path.relpath(other, page.parent)).as_posix()})" in top, f"{page.name}: no link to {other}"


@by_page
def test_tables_have_the_same_numbers_in_both_languages(english: Path, chinese: Path) -> None:
    def amounts(row: str) -> list[float]:
        found = [(float(number.replace(",", "")), TIMES.get(unit, 1.0)) for number, unit in AMOUNT.findall(row)]
        return sorted(round(number * times, 6) for number, times in found)

    for one, other in zip(rows(english), rows(chinese), strict=True):
        assert amounts(one) == amounts(other), f"{one}\n{other}"


@by_page
def test_both_languages_name_the_same_keys_files_and_functions(english: Path, chinese: Path) -> None:
    if english.name == "mechanisms.md":
        pytest.skip("formulas are taken apart there; tests/test_mechanisms.py compares them")

    def quoted(path: Path) -> set[str]:
        return {" ".join(text.split()) for text in re.findall(r"`([^`]+)`", prose(path))}

    assert quoted(english) == {FROM_CHINESE.get(text, text) for text in quoted(chinese)}


@pytest.mark.parametrize("path", [READMES[1], *CHINESE], ids=lambda path: path.name)
def test_chinese_lines_do_not_end_within_a_word(path: Path) -> None:
    """Where a line ends, a browser shows a space, which belongs in no Chinese word."""
    lines = prose(path).splitlines()
    for line, following in pairwise(lines):
        within = re.search("[一-鿿]$", line) and re.match(" *[一-鿿]", following)
        assert not within or line.startswith("#"), f"{path.name}: end the line after a comma, not after “{line[-12:]}”"
        assert not re.match(" *[，。；：、）！？”]", following), f"{path.name}: a line begins with “{following[:12]}”"


# --- links ----------------------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), f"{path.name}: {link} leads nowhere"
        assert target.is_relative_to(ROOT), f"{path.name}: {link} leaves the repository"
        assert not anchor or anchor in anchors(target), f"{path.name}: {link} has no such heading"


def test_files_named_in_the_architecture_exist() -> None:
    text = "".join(prose(ROOT / "docs" / name) for name in ("architecture.md", "contracts.md"))
    assert {"architecture.md", "contracts.md"} <= {path.name for path in CHINESE}  # and held to the same names
    for name in set(re.findall(r"`((?:\w+/)+\w+\.py)`", text)):
        assert (ROOT / name).exists() or (ROOT / "src" / "regard" / name).exists(), name


def test_every_shipped_recipe_is_in_the_readme() -> None:
    for path in READMES:
        listed = set(re.findall(r"\]\(recipes/([\w-]+)\.yaml\)", prose(path)))
        assert listed == set(recipes.shipped_recipes())


# --- Python ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", everywhere("python"), ids=named)
def test_python_compiles(block: Block) -> None:
    compile(block.text, named(block), "exec")


def test_the_python_example_runs(toy_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = next(b.text for b in blocks(READMES[0], "python") if "regard.load(" in b.text)
    assert '"runs/my"' in example
    names: dict[str, object] = {}
    exec(example.replace('"runs/my"', repr(str(toy_run))), names)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 4  # two translations, several of one line, and a score
    assert len(ast.literal_eval(printed[2])[0]) > 1
    assert re.fullmatch(r"-\d+\.\d\d for \d+ tokens", printed[-1])
    assert float(printed[-1].split()[0]) == pytest.approx(names["log_probability"], abs=0.01)


@pytest.mark.usefixtures("own_choices")
def test_the_example_of_adding_a_choice_works() -> None:
    """Its own test passes, and a model with it learns it."""
    choice, test = (block.text for block in blocks(ROOT / "CONTRIBUTING.md", "python"))
    names: dict[str, Any] = {}
    exec(choice, names)
    exec(test, names)
    names["test_neighbours_have_a_number_in_each_head"]()
    near = names["NearConfig"]()
    config = TransformerConfig(layers=1, size=8, inner=8, heads=2, position=PositionsConfig(near, near))
    model = config.build(9, 9)
    marks = SimpleNamespace(pad=0, bos=2, eos=3)
    model(collate_pairs(RaggedRows.of([[5, 6, 7]]), RaggedRows.of([[7, 8]]), marks, marks)).square().sum().backward()
    for position in (model.encoder_position[0], model.decoder_position[0]):
        assert position.numbers.grad.abs().sum() > 0


@pytest.mark.parametrize("folder", ["docs", "docs/zh"])
def test_the_shown_error_is_what_is_printed(folder: str, tmp_path: Path) -> None:
    path = ROOT / folder / "recipes.md"
    shown = next(block.text for block in blocks(path, "text") if block.text.startswith("regard: my.yaml"))
    mistaken = my_recipe(tmp_path)
    mistaken.write_text(mistaken.read_text("utf-8").replace("  steps:", "  step:"), "utf-8")
    with pytest.raises(RegardError) as caught:
        recipes.load_recipe(mistaken)
    assert shown == f"regard: {caught.value}\n".replace(str(mistaken), "my.yaml")


TRACKERS = {  # stand-ins that write down how they are called
    "wandb": """
CALLS = []
class Run:
    def log(self, values, step):
        CALLS.append(("log", values, step))
    def finish(self):
        CALLS.append(("finish",))
def init(**options):
    CALLS.append(("init", options))
    return Run()
""",
    "mlflow": """
CALLS = []
def __getattr__(name):
    if name.startswith("_"):
        raise AttributeError(name)
    return lambda *values, **options: CALLS.append((name, *values, options))
""",
}


def test_the_callbacks_for_trackers_work(documented_plugins: Path, tmp_path: Path) -> None:
    """As the page has them, with stand-ins for the libraries: nothing is sent."""
    for name, source in TRACKERS.items():
        (documented_plugins / f"{name}.py").write_text(source, encoding="utf-8")
    toy.write_corpus(tmp_path)
    chosen = next(yaml.safe_load(b.text) for b in blocks(ROOT / "docs" / "plugins.md", "yaml") if "callbacks" in b.text)
    keys = toy.recipe(tmp_path, steps=4, **chosen["training"]) | {"plugins": chosen["plugins"]}
    train_recipe(recipes.load_recipe(keys), tmp_path / "run", "cpu")
    begin, *logs, end = sys.modules["wandb"].CALLS
    assert begin[1]["project"] == "translation"
    assert begin[1]["config"]["model"]["layers"] == 1
    assert [sorted(values)[0] for _, values, _ in logs] == ["epoch", "epoch", "valid/bleu"]
    assert [step for *_, step in logs] == [2, 4, 4]
    assert end == ("finish",)
    calls = sys.modules["mlflow"].CALLS
    assert [call[0] for call in calls] == [
        "set_experiment", "start_run", "log_params", "log_metrics", "log_metrics", "log_metrics", "end_run"
    ]  # fmt: skip
    assert calls[2][1] == {"seed": 1, "model": "transformer", "kind": "noam", "warmup": 10, "peak": 3e-3, "factor": 1.0}
    assert calls[-1][1] == "FINISHED"
    assert "loss" in calls[3][1]
    assert "valid_bleu" in calls[5][1]


@pytest.mark.parametrize("path", [ROOT / "docs" / "questions.md", ROOT / "docs" / "zh" / "questions.md"], ids=str)
def test_questions_name_files_that_exist_and_every_claim(path: Path) -> None:
    for name in set(re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", prose(path))):
        assert (ROOT / "src" / "regard" / name).exists(), name
    assert set(re.findall(r"\bC\d+\b", prose(path).split("\n## ", 1)[1])) == {f"C{n}" for n in range(1, 30)}
