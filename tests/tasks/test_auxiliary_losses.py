"""The extra losses of a language model in a run: targets further ahead, the last place alone, layers that stop."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard import recipe as recipes
from regard.errors import RegardError
from regard.io.tensors import read_tensors
from regard.models.batch import TextBatch
from regard.run import train_recipe
from regard.tasks.language_modelling import LanguageModellingTask
from tests.tasks import lm_toy

LOSSES = {"layers": 2, "layer_losses": True, "targets": 2, "position": {"kind": "learned_per_layer", "length": 16}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("auxiliary")
    lm_toy.write_text(made)
    return made


def recipe(folder: Path, model: dict[str, Any], **keys: Any) -> recipes.Recipe:
    made = lm_toy.recipe(folder, **keys)
    return recipes.load_recipe(made | {"model": model if "kind" in model else made["model"] | model})


def prepared(folder: Path, model: dict[str, Any], **keys: Any) -> LanguageModellingTask:
    made = recipe(folder, model, **keys)
    return made.task.prepare(made, None, lambda what, n, of: None)  # type: ignore[return-value]


def first_batch(task: LanguageModellingTask) -> TextBatch:
    view = task.view(1, 0)
    return view.collate(view.plan(128, 1, 0)[0])


@pytest.mark.parametrize("documents", ["kept", "marked"])
@pytest.mark.parametrize("learn", ["all", "last"])
def test_further_targets_by_hand(folder: Path, learn: str, documents: str) -> None:
    task = prepared(folder, {"targets": 3}, learn=learn, boundaries=documents)
    flat, bos, b = np.asarray(task.stream.flat), task.encoder.tokenizer.bos, first_batch(task)
    wanted: dict[int, list[tuple[int, int]]] = {1: [], 2: [], 3: []}
    for row, start in enumerate(b.rows):
        for place in range(16) if learn == "all" else [15]:
            for ahead in wanted:
                between = flat[start + place + 1 : start + place + ahead]
                if documents == "marked" or bos not in between:
                    wanted[ahead].append((row * 16 + place, int(flat[start + place + ahead])))
    places = [b.label_positions, *(f.positions for f in b.further)]
    labels = [b.labels, *(f.labels for f in b.further)]
    for ahead in wanted:
        assert list(zip(places[ahead - 1].tolist(), labels[ahead - 1].tolist(), strict=True)) == wanted[ahead]  # type: ignore[union-attr]
    assert (len(wanted[1]) > len(wanted[3])) == (documents == "kept" and learn == "all")
    view = task.view(1, 0)
    assert view.targets(np.arange(3)) == (48 if learn == "all" else 3)
    last = max(start for epoch in range(8) for start in task.view(1, epoch).block_starts)  # type: ignore[union-attr]
    assert last + 16 + 3 <= len(flat)


def test_blocks_are_where_they_were_without_further_targets(folder: Path) -> None:
    one, two = (prepared(folder, {}, learn=learn).view(3, 1) for learn in ("all", "last"))
    assert one.block_starts.tolist() == two.block_starts.tolist()  # type: ignore[union-attr]


def test_layers_stop_one_after_the_other(folder: Path) -> None:
    task = prepared(folder, LOSSES | {"layers": 4})
    assert [task.begin_step(step, 16) for step in (1, 2, 3, 4, 5, 6, 7, 8)] == [True, False] * 3 + [True, False]
    model, b = task.build_model(), first_batch(replace_boundaries(task))
    for step, lowest in ((2, 1), (3, 2), (16, 4)):
        task.begin_step(step, 16)
        fixed = task.static_batch(model, b)
        assert fixed is not None
        assert fixed.predicting == lowest
    plain = prepared(folder, {})
    assert not any(plain.begin_step(step, 16) for step in range(1, 17))


def replace_boundaries(task: LanguageModellingTask) -> LanguageModellingTask:
    """The task without documents in its batches, as a captured step needs."""
    task.settings = replace(task.settings, boundaries="marked")
    return task


def test_validation_and_writing_know_nothing_of_them(folder: Path) -> None:
    task = prepared(folder, LOSSES)
    torch.manual_seed(0)
    model = task.build_model()
    before = task.validate(model, torch.device("cpu"))
    for p in model.auxiliary.parameters():  # type: ignore[union-attr]
        p.data.fill_(float("nan"))
    assert task.validate(model, torch.device("cpu")) == before


@pytest.mark.parametrize("text", ["char", "word"])
def test_stopped_and_resumed_is_the_same_bits(folder: Path, tmp_path: Path, text: str) -> None:
    """Two layers, 12 steps: layer 1 predicts in the first three, and the first run stops after the first."""
    made = recipe(folder, LOSSES, text=text)
    train_recipe(made, tmp_path / "one", "cpu")
    assert not train_recipe(made, tmp_path / "two", "cpu", minutes=1e-9).finished
    assert train_recipe(made, tmp_path / "two", "cpu").finished
    one, two = (read_tensors(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert regard.load(tmp_path / "two", device="cpu").generate("the", max_tokens=4)


def test_one_character_at_a_time_sees_the_whole_context(folder: Path, tmp_path: Path) -> None:
    """`stride: 1`: every character but a document's first 16 is predicted from 16 before it."""
    made = recipe(folder, LOSSES, stride=1)
    train_recipe(made, tmp_path / "run", "cpu")
    writer = regard.load(tmp_path / "run", device="cpu")
    text = "the cat sat on a mat\n"
    ids = writer.document_encoder.encode_batch([text])[0]
    total = 0.0
    with torch.no_grad():
        for end in range(1, len(ids)):
            logits = writer.model.eval()(TextBatch(torch.tensor([ids[max(0, end - 16) : end]])))[0, -1]
            total += float(logits.log_softmax(-1)[ids[end]])
    ((score, count),) = writer.score([text])
    assert (score, count) == (pytest.approx(total, rel=1e-4), len(ids) - 1)


@pytest.mark.parametrize(
    "model, keys, said",
    [
        ({"memory": 4, "position": "rotary", "targets": 2}, {"boundaries": "marked"}, "model.targets is for separate"),
        ({"memory": 4, "position": "rotary"}, {"boundaries": "marked", "learn": "last"}, "task.learn: last is for"),
        ({"kind": "bilstm_lm"}, {"learn": "last"}, "task.learn: last is for the model lm"),
        ({"position": {"kind": "learned_per_layer", "length": 8}}, {}, "model.position.length is 8, shorter"),
        ({}, {"learn": "lst"}, "last"),
    ],
)
def test_what_does_not_go_together_is_refused(folder: Path, model: Any, keys: Any, said: str) -> None:
    with pytest.raises(RegardError, match=said):
        recipe(folder, model, **keys)
