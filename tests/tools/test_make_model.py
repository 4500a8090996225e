"""The models to be shipped: their sizes, and the command that makes each, on made data with models made small."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import regard
from regard import recipe as recipes
from regard.io.model_card import read_card
from regard.io.tensors import unique_state_dict
from tests import made_data
from tests.system.test_recipes import small
from tools import make_model, model_card

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in model_card.CARDS.glob("*.yaml"))
TOKENIZER = {"bert": 0.1, "lzh-zh": 0.3, "chat": 0.25}  # MB of vocabulary; others: 0.4


def words_of(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((model_card.CARDS / f"{name}.yaml").read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "sst2"])
def test_a_recipe_stays_below_the_size_that_its_card_allows(name: str) -> None:
    recipe = recipes.load_recipe(name)
    entries = [recipe.text.size] * (2 if recipe.task.kind == "translation" else 1)
    with torch.device("meta"):
        model = recipe.model.build(*entries)
    weights = unique_state_dict(model).values()
    stored = sum(w.numel() + 4 * w.shape[0] if w.dim() > 1 else 4 * w.numel() for w in weights)
    heads = 0.2 if name == "bert" else 0.0  # of pretraining, which the task adds
    assert stored / 1e6 + TOKENIZER.get(name, 0.4) + heads < words_of(name)["most_megabytes"]


def test_together_they_are_at_most_30_megabytes() -> None:
    assert sum(words_of(name)["most_megabytes"] for name in NAMES) < 31.5  # each is somewhat below its own
    assert set(NAMES) <= set(recipes.shipped_recipes())


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Makes a model as the command does, from made data."""
    made_data.make_all(tmp_path / "data", rows=60)
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(make_model, "COST", {})  # of what has learned nothing

    def run(name: str, out: Path = tmp_path / "models", teacher: Path | None = None) -> Path:
        out = out / name
        recipe = recipes.load_recipe(name)
        overrides = [*small(recipe), "training.precision=float32"]
        overrides += ["decoding.max_extra=4"] if recipe.task.kind == "translation" else []
        trained = out.parent.with_name(f"{out.parent.name}-runs") / name
        assert make_model.make_model(name, out, trained, overrides, "cpu", teacher) == []
        return out

    return run


def check_model(folder: Path) -> None:
    """What holds of every model that is shipped."""
    card = read_card(folder)
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert card is not None
    assert card.title
    assert card.terms in card.text
    predictor = regard.load(folder, "cpu")
    assert model_card.greedy_output(predictor, card.examples[0]) == card.output
    shown = re.findall(r"^\| ([^|]+) \| ([\d.e+-]+) \| ([\d.e+-]+) \|$", card.text, re.MULTILINE)
    assert [float(after) for _, _, after in shown] == pytest.approx(
        [entry["value"] for entry in results["valid"]["metrics"].values()], rel=1e-3
    )
    if "REGARD_DATA" in os.environ:
        assert model_card.slice_metrics(folder) == pytest.approx(results["slice"], rel=0.02, abs=0.02)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.name != "README.md")
    assert f"{size / 1e6:.2f} MB in all" in card.text


def test_a_translator_is_made_with_its_card(make: Callable[..., Path]) -> None:
    out = make("en-de")
    check_model(out)
    text = (out / "README.md").read_text(encoding="utf-8")
    assert "python tools/make_model.py en-de" in text
    assert "On tatoeba-en-de:valid, which training did not see" in text
    predictor = regard.load(out, "cpu")  # its figures can be measured again, by the set's name
    again = predictor.recipe.task.evaluate(predictor, "valid", {}, lambda what, done, of: None)
    assert again["metrics"] == json.loads((out / "results.json").read_text(encoding="utf-8"))["valid"]["metrics"]
    with pytest.raises(SystemExit, match="is there already; remove it"):
        make_model.make_model("en-de", out, out.parent, [], "cpu")


@pytest.mark.slow
def test_a_translator_learns_from_a_teacher(make: Callable[..., Path], tmp_path: Path) -> None:
    teacher = make("en-de")
    out = make("en-de", tmp_path / "taught", teacher)
    distilled = (tmp_path / "taught-runs" / "en-de-distilled.tsv").read_text(encoding="utf-8").splitlines()
    assert 0 < len(distilled) <= 60
    source, output = distilled[0].split("\t")
    assert output == regard.load(teacher, "cpu").translate([source])[0]
    train = recipes.read_recipe(tmp_path / "taught-runs" / "en-de").data.train
    assert [corpus.set or Path(str(corpus.path)).name for corpus in train] == [
        "tatoeba-en-de:train", "en-de-distilled.tsv"
    ]  # fmt: skip
    assert f"python tools/make_model.py en-de --teacher {teacher}" in (out / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_change_of_bert_is_made_over_it(make: Callable[..., Path]) -> None:
    with pytest.raises(SystemExit, match="make this model first"):
        make("sst2")
    check_model(make("bert"))
    out = make("sst2")
    check_model(out)
    assert json.loads((out / "base.json").read_text(encoding="utf-8"))["model"] == "bert"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["story", "lzh-zh", "chat"])
def test_each_is_made(name: str, make: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    check_model(make(name))
    assert ("non-commercial" in capsys.readouterr().err) == words_of(name)["noncommercial"]


SHIPPED = sorted(path.parent for path in (ROOT / "models").glob("*/config.yaml"))


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda path: path.name)
def test_shipped_models_are_what_their_cards_say(folder: Path) -> None:
    check_model(folder)
    assert sum(path.stat().st_size for path in folder.rglob("*")) / 1e6 < words_of(folder.name)["most_megabytes"]


def test_a_name_without_a_card_is_a_sentence() -> None:
    command = [sys.executable, ROOT / "tools" / "make_model.py", "en-xx"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode
    assert "tools/cards/en-xx.yaml: there is no such file" in done.stderr
