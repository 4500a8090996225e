"""Rates by depth: each part's by hand, what is frozen stays to the bit, and resuming changes nothing."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import regard
from regard import recipe as recipes
from regard.errors import RegardError
from regard.run import train_recipe
from regard.training.config import LayerwiseConfig, TrainingConfig
from regard.training.optimiser import build_optimiser, layerwise_groups
from tests.tasks import toys

MODEL = {"kind": "lstm_lm", "layers": 2, "size": 12, "hidden": 16, "dropout": 0.1}


def write_reviews(folder: Path) -> Path:
    draw = random.Random(3)
    words = {"0": ["bad", "dull", "poor"], "1": ["good", "fine", "great"]}
    for name, count in (("train.tsv", 120), ("valid.tsv", 30)):
        rows = ["text\tlabel"]
        for _ in range(count):
            label = draw.choice("01")
            said = [draw.choice(words[label]), *draw.choices(["film", "plot", "the", "a"], k=4)]
            draw.shuffle(said)
            rows.append(f"{' '.join(said)}\t{label}")
        (folder / name).write_text("\n".join(rows) + "\n", encoding="utf-8")
    (folder / "text.txt").write_text("a film the plot\nthe film a good plot\n" * 40, encoding="utf-8")
    return folder


def language_model(folder: Path, steps: int = 8) -> dict[str, Any]:
    made = toys.recipe(
        folder, {"kind": "lm", "documents": "line", "boundaries": "marked", "length": 6}, ("text.txt", "text.txt")
    )
    files = [str(folder / "text.txt"), {"path": str(folder / "train.tsv"), "columns": ["text"], "weight": 0}]
    training = {"steps": steps, "tokens_per_batch": 24, "schedule": {"kind": "constant", "peak": 1e-2},
                "validation": {"every": 4}, "checkpoints": {"every": 3}}  # fmt: skip
    return made | {"model": MODEL, "training": training, "data": made["data"] | {"train": files}}


def classifier(folder: Path, steps: int = 60, **training: Any) -> dict[str, Any]:
    return toys.recipe(
        folder, {"kind": "classify"}, ("train.tsv", "valid.tsv"), steps, model=MODEL,
        training={"init": str(folder / "lm"), "checkpoints": {"every": 1, "keep": 100},
                  "schedule": {"kind": "slanted_triangle", "peak": 2e-2}, **training},
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = write_reviews(tmp_path_factory.mktemp("layers"))
    assert toys.trained(language_model(made), made / "lm").finished
    return made


def test_shares_by_depth_and_step() -> None:
    rates = LayerwiseConfig(divide=2.0, unfreeze=10)
    found = [[rates.rate_factor(depth, step) for depth in range(4)] for step in (1, 10, 11, 20, 21, 31)]
    half = [1.0, 0.5, 0.25, 0.125]
    assert found == [[*half[:n], *[0.0] * (4 - n)] for n in (1, 1, 2, 2, 3, 4)]
    assert [LayerwiseConfig(divide=2.6).rate_factor(d, 1) for d in (0, 2)] == pytest.approx([1.0, 1 / 6.76])


def test_groups_are_the_head_the_layers_and_the_words(folder: Path) -> None:
    task = recipes.load_recipe(classifier(folder)).task
    recipe = recipes.load_recipe(classifier(folder))
    model = task.prepare(recipe, folder / "lm", lambda *_: None).build_model()
    names = {id(p): name for name, p in model.named_parameters()}
    settings = TrainingConfig(layerwise=LayerwiseConfig())
    found: dict[int, set[str]] = {}
    for group in build_optimiser(model, settings, torch.device("cpu")).param_groups:
        for p in group["params"]:
            found.setdefault(group["depth"], set()).add(names[id(p)])
            assert group["weight_decay"] == 0.0
    prefixes = ["pooler. output.", "body.ahead.layers.1.", "body.ahead.layers.0.", "body.embedding."]
    assert sorted(found) == [0, 1, 2, 3]
    for depth, wanted in enumerate(prefixes):
        assert all(name.startswith(tuple(wanted.split())) for name in found[depth])
    assert sum(map(len, found.values())) == len(names)
    with pytest.raises(RegardError, match=r"training\.layerwise"):
        layerwise_groups(recipes.load_recipe("quickstart").model.build(20, 20), [])


def test_frozen_parts_stay_to_the_bit_until_their_step(folder: Path) -> None:
    made = classifier(folder, steps=12, layerwise={"divide": 2.6, "unfreeze": 3}, optimiser={"weight_decay": 0.1})
    train_recipe(recipes.load_recipe(made), folder / "thaw", "cpu")
    begun = load_file(folder / "lm" / "model.safetensors")
    moved = {}
    for step in range(1, 13):
        now = load_file(folder / "thaw" / "checkpoints" / f"step-{step}" / "model.safetensors")
        for name, value in now.items():
            if name.startswith("body.") and name not in moved and not torch.equal(value, begun[name]):
                moved[name] = step
    firsts = {"body.ahead.layers.1.": 4, "body.ahead.layers.0.": 7, "body.embedding.": 10}
    assert set(moved) == {name for name in begun if name.startswith("body.")}
    for name, step in moved.items():
        assert step == next(first for prefix, first in firsts.items() if name.startswith(prefix)), name


@pytest.mark.parametrize("kind", ["carry", "memory", "unfreezing"])
def test_stopped_and_resumed_is_the_same_bits(folder: Path, kind: str) -> None:
    made = (
        classifier(folder, steps=10, layerwise={"divide": 2.0, "unfreeze": 3})
        if kind == "unfreezing"
        else language_model(folder, steps=10)
    )
    if kind == "memory":
        made["model"] = {"kind": "lm", "layers": 2, "size": 16, "heads": 2, "inner": 32, "position": "transformer_xl"}
        made["model"] |= {"memory": 24}
    carried = {"carry": {"layer0", "layer1", "next"}, "memory": {"layer0", "layer1", "real", "next"}}
    recipe = recipes.load_recipe(made)
    whole, parts = folder / f"{kind}-whole", folder / f"{kind}-parts"
    train_recipe(recipe, whole, "cpu")
    stops = 0
    while not train_recipe(recipe, parts, "cpu", minutes=0.0).finished:
        stops += 1
        if kind in carried:
            assert set(load_file(parts / "last" / "carry.safetensors")) == carried[kind]
    assert stops > 5
    for name in ("model", "optimiser", *(["carry"] if kind in carried else [])):
        a, b = (load_file(run / "last" / f"{name}.safetensors") for run in (whole, parts))
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a)


def test_it_learns_and_is_used(folder: Path) -> None:
    made = classifier(folder, 150, layerwise={"divide": 1.5, "unfreeze": 5})
    assert toys.value(toys.trained(made, folder / "classes"), "accuracy") > 95
    made["task"] |= {"limit": 40}
    few = recipes.load_recipe(made).task.prepare(recipes.load_recipe(made), folder / "lm", lambda *_: None)
    assert len(few.train) == 40
    said = toys.command("classify", folder / "classes", stdin="the good film\na dull plot\n")
    assert said.split("\n")[:2] == ["1", "0"]
    assert regard.load(folder / "lm", "cpu").generate("a film", max_tokens=3)[0].text
