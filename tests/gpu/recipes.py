"""The shipped recipes by the commands that a user types, each in a process of its own: a few steps of training, killed
in them and resumed, measured, and asked, in float32 and, where the command has it, in bf16.

    python3 -m tests.gpu.recipes quickstart --work FOLDER --device cuda

Commands run in FOLDER, so that `training.init: runs/minilm` of a recipe means what it says. Sets that are not on
the machine and the weights of MiniLM are made (`tests/made_data.py`). In the reduced form models are small, for a
CPU.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from regard.api import COMMANDS
from regard.data.datasets import DATASETS
from tests import made_data
from tests.gpu.report import step
from tests.gpu.scheduler import Item

RECIPES = Path(__file__).parents[2] / "recipes"
STEPS, FIRST = 8, 2  # of training, and the first that is saved: there it is killed
FEW = [f"training.steps={STEPS}", f"training.checkpoints.every={FIRST}", "training.validation.every=4"]
MINILM = "minilm"  # the run that recipes begin with, and the item that makes it
COMMANDS_OF = "quickstart"  # the run that further commands are tried on, in the item "commands"
WEIGHTS = {"layers": 6, "size": 384, "inner": 1536, "heads": 12, "entries": 30522}
SMALL_WEIGHTS = {"layers": 2, "size": 32, "inner": 64, "heads": 2, "entries": 400}
STACK = ["model.layers=2", "model.size=32", "model.inner=64", "model.heads=2"]
SMALL = {
    "transformer": STACK,
    "lm": STACK,
    "decoder_only": STACK,
    "bert": STACK,
    "rnn": ["model.size=32"],
    "conv": ["model.layers=1", "model.size=32"],
    "bytenet": ["model.sets=1", "model.size=32"],
    "lstm_lm": ["model.layers=2", "model.size=32", "model.hidden=32"],
    "bilstm_lm": ["model.size=32"],
    "elmo": ["model.size=32", "model.embedding=16", "model.features.size=32"],
}
PIECES = {"bpe": 200, "byte_bpe": 400, "bert": 150}  # made texts have too few words for more
LINES = "Ba be bi bo bu.\n\nDa de ba di.\n"
ASKED: dict[str, tuple[list[str], str, int]] = {  # by command: options, standard input, lines of output
    "translate": (["--beam", "4"], LINES, 3),
    "generate": (["Ba be", "--max-tokens", "24", "--seed", "1"], "", 1),
    "chat": (["--seed", "1", "--max-tokens", "24"], "Ba be bi .\nBo bu ba ?\n", 2),
    "fill": ([], "Ba [MASK] bi.\nDa de [MASK] [MASK].\n", 2),
    "embed": ([], LINES, 3),
    "classify": ([], LINES, 3),
    "tag": ([], LINES, 3),
    "answer": ([], "Ba be?\tDa de ba di. Ba be bi bo.\n", 1),
    "choose": ([], "Ba be bi.\tDa de?\tBa\tBe\tBi bo\n", 1),
    "score": ([], "Ba be bi.\nDa de di.\n", 2),
}
MORE = {"pretraining": ["embed"], "lm": ["score"]}  # by task, what is asked besides
PRECISE = ("evaluate", "translate")  # commands with --precision


# --- the plan ------------------------------------------------------------------------------------------------------


def names() -> list[str]:
    return sorted(path.stem for path in RECIPES.glob("*.yaml"))


def read(name: str) -> dict[str, Any]:
    return yaml.safe_load((RECIPES / f"{name}.yaml").read_text(encoding="utf-8"))


def asks(recipe: dict[str, Any]) -> list[str]:
    """Commands that serve what a recipe trains."""
    task = recipe["task"]["kind"]
    if recipe["model"]["kind"] == "bilstm_lm":  # reads both ways, so it cannot go on with a text
        return ["score"]
    return [COMMANDS.get(task, task), *MORE.get(task, [])]


SENTENCES = "".join(f"Every evening my sister washes {n} cars.\n" for n in range(80))
TOLD: dict[str, tuple[str, ...]] = {  # on one run, in this order
    "translate, n-grams guess": ("translate", "runs/quickstart", "--search", "speculative"),
    "translate, layers guess": ("translate", "runs/quickstart", "--search", "speculative", "--draft", "layers(1)"),
    "tune": (
        *("tune", "runs/quickstart", "training.validation.every=4", "--proposals", "3", "--frozen", "--steps", "4"),
        *("--out", "runs/heads"),
    ),
    "translate, heads guess": ("translate", "runs/heads", "--search", "blockwise"),
    "translate a document": ("translate", "runs/quickstart", "--document", "page.md", "--output", "out.md"),
    "distil": (
        *("distil", "runs/quickstart", "training.steps=4", "training.validation.every=4", "--student", "ssru"),
        *("--data", "sentences.txt", "--max-ratio", "0", "--lines", "20", "--out", "runs/distilled"),
    ),
    "translate, a student": ("translate", "runs/distilled/student", "--beam", "4"),
    "look through layers": ("look", "runs/quickstart", "The cat sees a dog.", "--lens"),
    "look at patches": ("look", "runs/quickstart", "The cat sees a dog.", "The dog sees a cat.", "--patch", "heads"),
}


def tags(name: str) -> bool:
    return read(name)["task"]["kind"] == "tag"


def rows(recipe: dict[str, Any]) -> list[str]:
    asked = [row for name in asks(recipe) for row in (name, *([f"{name} bf16"] if name in PRECISE else []))]
    return ["train, killed", "resume", "evaluate", "evaluate bf16", *asked]


def sets(recipe: dict[str, Any]) -> set[str]:
    """Of the catalog, that a recipe reads."""
    found, queue = set(), [recipe["data"]]
    while queue:
        value = queue.pop()
        if isinstance(value, dict | list):
            queue += value.values() if isinstance(value, dict) else value
        elif isinstance(value, str) and value.partition(":")[0] in DATASETS:
            found.add(value.partition(":")[0])
    return found


def plan(work: Path, device: str, reduced: bool, made: set[str], chosen: list[str] | None = None) -> list[Item]:
    """An item for each recipe; `made` are the sets that are not real. Recipes that begin with another are after it."""
    options = ["--work", str(work), "--device", device, *(["--reduced"] if reduced else [])]
    here = [sys.executable, "-m", "tests.gpu.recipes"]
    items = {MINILM: Item("recipes", MINILM, [*here, MINILM, *options], ["import hf"], note="made weights")}
    wanted = names() if chosen is None else [n for n in names() if n in chosen]
    for name in wanted:
        _add(items, name, here, options, made)
    if COMMANDS_OF in items:
        command = [*here, "commands", *options]
        items["commands"] = Item("recipes", "commands", command, [*TOLD], estimate=60, limit=200, after=(COMMANDS_OF,))
    return list(items.values()) if any(MINILM in i.after for i in items.values()) else list(items.values())[1:]


def _add(items: dict[str, Item], name: str, here: list[str], options: list[str], made: set[str]) -> None:
    recipe = read(name)
    before = Path(recipe["training"]["init"]).name if recipe["training"].get("init") else None
    if before and before not in items:
        _add(items, before, here, options, made)
    notes = [f"made {each}" for each in sorted(sets(recipe) & made)]
    notes += ["made texts"] if name == "bert-folder" else []
    notes += ["made weights"] if before == MINILM else []
    after = (before,) if before else ()
    items[name] = Item("recipes", name, [*here, name, *options], rows(recipe), estimate=45, limit=200, after=after,
                       note=", ".join(notes))  # fmt: skip


def prepare(work: Path, real: bool) -> set[str]:
    """The data that recipes read, into the folder they run in: links to real sets, where wanted, and made ones."""
    from regard.data.catalog import set_folder

    made = set()
    for name, entry in DATASETS.items():
        if entry.layout == "grammar":
            continue
        folder = set_folder(entry) if real else None
        if folder is None:
            made.add(name)
        link, ours = work / "data" / name, made_data.make(work / "made", name)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to((folder or ours).resolve())
    made_data.make_own(work)
    return made


# --- one recipe ----------------------------------------------------------------------------------------------------


class Commands:
    """`regard` as a user runs it, in one folder, on one device."""

    def __init__(self, work: Path, device: str) -> None:
        self.work, self.device = work, device
        own = {"REGARD_DATA": str(work / "data"), "REGARD_CACHE": str(work / "cache"), "PYTHONUNBUFFERED": "1"}
        self.environment = os.environ | own

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "regard", *arguments]
        print("$ regard", *arguments, flush=True)
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=self.work, env=self.environment, text=True, stdin=pipe, stdout=pipe, stderr=pipe
        )

    def __call__(self, *arguments: str, stdin: str = "", on_device: bool = True) -> tuple[str, str]:
        """Standard output and error; it must succeed."""
        process = self.start(*arguments, *(["--device", self.device] if on_device else []))
        out, err = process.communicate(stdin)
        print(out[-2000:], err[-4000:], sep="", flush=True)
        if process.returncode:
            last = (err.strip() or "it said nothing").splitlines()[-1]
            raise AssertionError(f"regard {arguments[0]} ended with {process.returncode}: {last}")
        return out, err


def overrides(recipe: dict[str, Any], reduced: bool) -> list[str]:
    """What a recipe is told besides the steps: sizes that suit made texts, and in the reduced form a small model."""
    size = PIECES.get(recipe["text"]["kind"])
    if Path(recipe["training"].get("init") or "").name == MINILM:
        size = SMALL_WEIGHTS["entries"] if reduced else None
    if "zh" in recipe["task"].values():  # real text has many characters; with made text, bpe stops by itself
        size = None
    pieces = [f"text.size={size}"] if size and sets(recipe) != {"embedded"} else []
    return [*pieces, *(["training.tokens_per_batch=512", *SMALL[recipe["model"]["kind"]]] if reduced else [])]


def work_through(name: str, regard: Commands, reduced: bool) -> None:
    recipe, run = read(name), regard.work / "runs" / name
    command = ["train", name, *FEW, *overrides(recipe, reduced)]
    with step("train, killed") as first:
        first.note = train_and_kill(regard, command, run)
    if not first.ok:
        return
    with step("resume") as second:
        _, err = regard(*command)
        results = json.loads((run / "results.json").read_text(encoding="utf-8"))
        assert "going on from step" in err, "it did not go on from its checkpoint"
        assert results["steps"] == STEPS, f"it ended at step {results['steps']}"
    if not second.ok:
        return
    for precision in ([], ["--precision", "bf16"]):
        with step(f"evaluate{' bf16' if precision else ''}"):
            out, _ = regard("evaluate", f"runs/{name}", "--json", *precision)
            assert json.loads(out)["metrics"], "it measured nothing"
    for asked in asks(recipe):
        for precision in ([], ["--precision", "bf16"]) if asked in PRECISE else ([],):
            with step(f"{asked}{' bf16' if precision else ''}"):
                ask(regard, asked, recipe, f"runs/{name}", precision)


def train_and_kill(regard: Commands, command: list[str], run: Path) -> str:
    """SIGKILL as soon as there is a checkpoint; where it was."""
    process = regard.start(*command, "--device", regard.device)
    try:
        while not (run / "last").exists():
            if process.poll() is not None:
                raise AssertionError(f"it ended with {process.returncode}: {process.stderr.read()[-300:]}")  # type: ignore[union-attr]
            time.sleep(0.002)
    finally:
        process.kill()
        print(*process.communicate(), sep="", flush=True)
    if process.returncode != -9:
        raise AssertionError(f"it had ended, with {process.returncode}, before it was killed")
    return f"killed at {(run / 'last').resolve().name}"


def ask(regard: Commands, command: str, recipe: dict[str, Any], run: str, precision: list[str]) -> None:
    options, stdin, lines = ASKED[command]
    if command == "classify" and any("sentence2" in DATASETS[name].columns for name in sets(recipe)):
        stdin = LINES.replace(".\n", ".\tDa de.\n")
    out, _ = regard(command, run, *options, *precision, stdin=stdin)
    assert len(out.splitlines()) >= lines if command == "generate" else len(out.splitlines()) == lines, out


def tell(regard: Commands) -> None:
    """Commands that no recipe needs."""
    (regard.work / "page.md").write_text("# The cat\n\nThe cat sees a dog.\n", encoding="utf-8")
    (regard.work / "sentences.txt").write_text(SENTENCES, encoding="utf-8")
    for what, command in TOLD.items():
        with step(what):
            out, _ = regard(*command, stdin=SENTENCES)
            lines = SENTENCES.count("\n") if what.startswith("translate,") else None
            assert lines in (None, len(out.splitlines())), out


def import_minilm(regard: Commands, reduced: bool) -> None:
    with step("import hf", "made weights"):
        made_data.make_bert(regard.work / "minilm", **(SMALL_WEIGHTS if reduced else WEIGHTS))
        regard("import", "hf", "minilm", f"runs/{MINILM}", on_device=False)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--reduced", action="store_true")
    given = parser.parse_args()
    regard = Commands(given.work.absolute(), given.device)
    if given.name == MINILM:
        import_minilm(regard, given.reduced)
    elif given.name == "commands":
        tell(regard)
    else:
        work_through(given.name, regard, given.reduced)


if __name__ == "__main__":
    main()
