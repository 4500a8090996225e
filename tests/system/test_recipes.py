"""Every shipped recipe, and every complete one in the documents, learns for a step: models and vocabularies are small,
data and others' weights are made, and all else is as the recipe says."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import regard
from regard import recipe as recipes
from regard.interop.families import import_checkpoint
from regard.io.run_folder import RESULTS
from regard.run import train_recipe
from tests import made_data
from tests.test_docs import Block, everywhere, named, without_comments

BERT = {"layers": 2, "size": 32, "inner": 64, "heads": 2}  # the made one
STACK = {"layers": 1, "size": 16, "inner": 24, "heads": 2}
SMALL: dict[str, dict[str, Any]] = {  # by kind of model
    "transformer": STACK,
    "lm": STACK,
    "decoder_only": STACK,
    "bert": STACK,
    "rnn": {"size": 16},
    "conv": {"layers": 1, "size": 16},
    "bytenet": {"sets": 1, "size": 16},
    "lstm_lm": {"size": 16, "hidden": 24},
    "bilstm_lm": {"size": 16},
    "elmo": {"embedding": 8, "size": 16, "features.size": 16},
}
SIZES = {"bpe": 150, "byte_bpe": 270, "unigram": 255, "bert": 100}  # pieces, of kinds whose size is exact
MINILM = "runs/minilm"


def small(recipe: recipes.Recipe) -> list[str]:
    """What makes a recipe small enough to be tried."""
    keys: dict[str, Any] = {"training.steps": 1, "training.tokens_per_batch": 512, "training.validation.lines": 30}
    from_bert = recipe.training.init == MINILM
    if not from_bert or recipe.model.layers != BERT["layers"]:  # else the recipe leaves the model to the run
        sizes = BERT if from_bert else SMALL[recipe.model.kind]
        keys |= {f"model.{key}": value for key, value in sizes.items()}
        if getattr(recipe.decoding, "draft", "").startswith("layers"):  # of fewer than all
            keys["model.layers"] = 3
        if recipe.text.kind in SIZES:
            chinese = "zh" in getattr(recipe.task, "languages", ()) and recipe.text.kind == "bpe"
            keys["text.size"] = 400 if from_bert or chinese else SIZES[recipe.text.kind]
    if (recipe.data.train[0].set or "").startswith("embedded"):  # 1,000 lines would be translated
        keys |= {f"data.{split}": "[valid.en, valid.de]" for split in ("valid", "test")}
    return [f"{key}={value}" for key, value in keys.items()]


@pytest.fixture(scope="module")
def learn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Any, str], Path]]:
    """Trains a recipe, and first those it begins with, in a folder that has all data."""
    root, before = tmp_path_factory.mktemp("recipes"), Path.cwd()
    made_data.make_all(root / "data", rows=60)
    made_data.make_own(root, rows=60)
    import_checkpoint(made_data.make_bert(root / "hf", **BERT), root / MINILM)
    patch = pytest.MonkeyPatch()
    patch.setenv("REGARD_DATA", str(root / "data"))
    patch.setenv("REGARD_CACHE", str(root / "cache"))
    os.chdir(root)

    def run(source: Any, name: str) -> Path:
        out = Path("runs") / name
        if not (out / RESULTS).exists():
            recipe = recipes.load_recipe(source)
            origin = Path(recipe.training.init or MINILM)
            if not origin.exists():
                run(origin.name, origin.name)
            train_recipe(recipes.load_recipe(source, small(recipe)), out, "cpu")
        return out

    yield run
    os.chdir(before)
    patch.undo()


@pytest.mark.parametrize("name", recipes.shipped_recipes())
def test_shipped_recipes_learn(name: str, learn: Callable[[Any, str], Path]) -> None:
    assert regard.load(learn(name, name), "cpu").recipe.training.steps == 1


def complete() -> list[Block]:
    """The documents' recipes; one that stands in both languages, or twice, is run once."""
    found = [block for block in everywhere("yaml") if block.text.startswith("# recipe\n")]
    return list({"\n".join(without_comments(block.text)): block for block in reversed(found)}.values())[::-1]


@pytest.mark.parametrize("block", complete(), ids=named)
def test_recipes_of_the_documents_learn(block: Block, learn: Callable[[Any, str], Path]) -> None:
    path = Path(f"{block.file}-{block.line}.yaml".replace("/", "-"))
    path.write_text(block.text, encoding="utf-8")
    assert regard.load(learn(path, path.stem), "cpu").recipe.training.steps == 1
