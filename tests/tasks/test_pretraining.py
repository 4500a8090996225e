"""Pretraining from files to figures: examples, masks of every epoch, measures, resuming, and a loss that falls."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import regard
from regard import recipe as recipes
from regard.errors import RegardError
from regard.io.tensors import read_tensors
from regard.models.batch import TextBatch
from regard.nn import dispatch
from regard.run import train_recipe
from regard.tasks.mlm_metrics import count_predictions
from regard.tasks.pretraining import PretrainingTask
from tests.tasks import bert_toy


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bert")
    bert_toy.write_text(made)
    return made


def prepared(folder: Path, **task: Any) -> PretrainingTask:
    recipe = recipes.load_recipe(bert_toy.recipe(folder, **task))
    return recipe.task.prepare(recipe, None, lambda what, n, of: None)  # type: ignore[return-value]


def batches(task: PretrainingTask, seed: int = 1, epoch: int = 0) -> list[TextBatch]:
    view = task.view(seed, epoch)
    return [view.collate(indices) for indices in view.plan(256, seed, epoch)]


# --- examples ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("examples", ["pairs", "single"])
def test_rows_are_framed_and_padded_to_one_length(folder: Path, examples: str) -> None:
    task = prepared(folder, examples=examples)
    t = task.encoder.tokenizer
    for batch in batches(task):
        whole = batch.ids.clone().flatten()
        whole[batch.label_positions] = batch.labels
        assert batch.ids.shape[1] == 32
        assert batch.ids.shape[0] <= 8
        real = torch.ones_like(batch.ids).bool() if batch.real is None else batch.real
        for n, row in enumerate(whole.view_as(batch.ids).tolist()):
            size = int(real[n].sum())
            assert row[0] == t.bos
            assert row[size - 1] == t.eos
            assert all(i == t.pad for i in row[size:])
            ends = [k for k, i in enumerate(row) if i == t.eos]
            assert len(ends) == (2 if examples == "pairs" else 1)
            if examples == "pairs":
                expected = [0] * (ends[0] + 1) + [1] * (ends[1] - ends[0]) + [0] * (32 - size)
                assert batch.segments[n].tolist() == expected  # type: ignore[index]
        marks = set(t.special.values())
        assert not marks & set(batch.labels.tolist())  # type: ignore[union-attr]
        assert (batch.classes is None) == (batch.segments is None) == (examples == "single")


def test_an_epoch_is_a_function_of_seed_and_epoch(folder: Path) -> None:
    task, again = prepared(folder), prepared(folder)

    def told(task: PretrainingTask, seed: int, epoch: int) -> list[Any]:
        return [(b.ids.tolist(), b.labels.tolist(), b.classes.tolist()) for b in batches(task, seed, epoch)]  # type: ignore[union-attr]

    assert told(task, 1, 4) == told(again, 1, 4)
    assert told(task, 1, 4) != told(task, 1, 5)
    assert told(task, 1, 4) != told(task, 2, 4)
    assert told_pairs(task, 1, 4) != told_pairs(task, 1, 5)
    view = task.view(1, 4)
    both = view.collate(np.array([3, 9]))
    for row, index in enumerate((3, 9)):  # neighbours in a batch do not matter, so that processes may share it
        assert view.collate(np.array([index])).ids.tolist() == [both.ids[row].tolist()]


def told_pairs(task: PretrainingTask, seed: int, epoch: int) -> list[Any]:
    examples = task.view(seed, epoch).examples
    return [examples.span.tolist(), examples.is_random_next.tolist()]


def test_targets_are_the_masked_places(folder: Path) -> None:
    task = prepared(folder)
    view = task.view(1, 0)
    plan = view.plan(256, 1, 0)
    assert [view.targets(rows) for rows in plan] == [len(view.collate(rows).labels) for rows in plan]


def test_half_of_the_pairs_follow(folder: Path) -> None:
    task = prepared(folder)
    classes = torch.cat([b.classes for epoch in range(20) for b in batches(task, 1, epoch)])  # type: ignore[misc]
    assert len(classes) > 1000
    assert float(classes.float().mean()) == pytest.approx(0.5, abs=0.03)
    said = task.report()
    assert any("60 documents" in line and "6 of one sentence, which nothing follows" in line for line in said)
    assert any("(rules-1)" in line for line in said)


def test_words_that_were_left_out_are_unknown_and_headings_are_gone(tmp_path: Path) -> None:
    article = "\n = Cats = \n\n The <unk> cat sat . It purrs . \n\n = = Milk = = \n\n A cat . \n"
    for name in ("train", "valid"):
        (tmp_path / f"{name}.txt").write_text(article * 3, encoding="utf-8")
    recipe = recipes.load_recipe(bert_toy.recipe(tmp_path, documents="article"), ["text.size=27"])
    task = recipe.task.prepare(recipe, None, lambda *a: None)
    t = task.encoder.tokenizer  # type: ignore[attr-defined]
    first = task.prepared.columns["text"][0].tolist()  # type: ignore[attr-defined]
    assert t.tokens(first).count("[UNK]") == 1
    assert t.decode([i for i in first if i != t.eos]) == "the <unk> cat sat . it purrs . a cat ."
    assert first.count(t.eos) == 3
    assert "=" not in t.tokens(range(t.size)) or "=" not in t.tokens(first)


# --- learning ------------------------------------------------------------------------------------------------------


def test_without_pairs_there_is_no_pooler(folder: Path) -> None:
    both, words = (prepared(folder, examples=e).build_model() for e in ("pairs", "single"))
    names = {name.split(".")[0] for name, _ in words.named_parameters()}
    assert names == {"body", "words"}
    assert {name.split(".")[0] for name, _ in both.named_parameters()} == {"body", "words", "pooler", "sentence"}
    for model, examples in ((both, "pairs"), (words, "single")):
        task = prepared(folder, examples=examples)
        task.loss(model, batches(task)[0], None)[0].backward()
        assert all(p.grad is not None for p in model.parameters())


def test_the_fixed_form_has_one_shape_and_the_same_loss(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = prepared(folder)
    model = task.build_model().double().eval()
    assert task.static_batch(model, batches(task)[0]) is None  # on a CPU nothing is recorded
    monkeypatch.setattr(dispatch, "usable", lambda x: True)
    full = [b for b in batches(task) if len(b.ids) == 8]
    fixed = [task.static_batch(model, b) for b in full]
    monkeypatch.undo()
    shapes = {
        tuple(
            None if v is None else tuple(v.shape)
            for v in (f.ids, f.real, f.labels, f.label_positions, f.segments, f.classes)
        )
        for f in fixed
        if f is not None
    }
    assert len(shapes) == 1
    assert len({len(b.labels) for b in full}) > 1  # type: ignore[arg-type]
    for batch, same in zip(full, fixed, strict=True):
        assert same is not None
        kept = same.labels >= 0
        plain = replace(same, labels=same.labels[kept], label_positions=same.label_positions[kept])
        torch.testing.assert_close(task.loss(model, plain, None)[0], task.loss(model, batch, None)[0])


def test_it_learns_both(tmp_path: Path) -> None:
    """Four topics of three words: a third of the words can be known, and seven of eight pairs."""
    bert_toy.write_text(tmp_path, documents=400)
    sizes = ["model.layers=2", "model.size=32", "model.inner=64", "model.dropout=0"]
    pace = ["training.tokens_per_batch=512", "training.schedule.peak=3e-3", "training.validation.every=300"]
    train_recipe(recipes.load_recipe(bert_toy.recipe(tmp_path, steps=300), sizes + pace), tmp_path / "run", "cpu")
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "rate" in line]
    assert np.mean(losses[-3:]) < np.mean(losses[:3]) - 2
    found = json.loads((tmp_path / "run" / "results.json").read_text())["valid"]
    values = {name: entry["value"] for name, entry in found["metrics"].items()}
    assert values["gap_accuracy"] > 1.8 * values["unigram_accuracy"]
    assert values["masked_loss"] < np.log(13) - 0.8  # of twelve words and a full stop
    assert values["next_accuracy"] > 75
    assert "sentences:rules-1" in found["metrics"]["masked_accuracy"]["signature"]
    again = regard.load(tmp_path / "run", device="cpu")
    assert again.recipe.task.evaluate(again, None, {})["metrics"] == found["metrics"]  # the masks are the seed's


@pytest.mark.parametrize("examples", ["pairs", "single"])
def test_a_resumed_run_ends_with_the_same_weights(folder: Path, tmp_path: Path, examples: str) -> None:
    """Cut within an epoch: about nine steps each."""
    recipe = recipes.load_recipe(bert_toy.recipe(folder, steps=14, examples=examples))
    train_recipe(recipe, tmp_path / "one", "cpu")
    train_recipe(recipe, tmp_path / "two", "cpu")
    resumed = tmp_path / "two" / "checkpoints"
    last = sorted(resumed.iterdir(), key=lambda path: int(path.name.split("-")[1]))
    for path in last[1:]:  # as if it had been killed after the first checkpoint that is left
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    (tmp_path / "two" / "last").unlink()
    (tmp_path / "two" / "last").symlink_to(Path("checkpoints") / last[0].name)
    for name in ("model.safetensors", "results.json"):
        (tmp_path / "two" / name).unlink()
    outcome = train_recipe(recipe, tmp_path / "two", "cpu")
    assert outcome.finished
    one, two = (read_tensors(tmp_path / name / "checkpoints/step-14/model.safetensors") for name in ("one", "two"))
    assert all(torch.equal(one[name], two[name]) for name in one)


# --- measuring -----------------------------------------------------------------------------------------------------


class Known(torch.nn.Module):
    """Says what it is told to: four words of scores, and whether rows follow."""

    def __init__(self, words: list[list[float]], follows: list[list[float]] | None) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.said = torch.tensor(words), None if follows is None else torch.tensor(follows)

    def scores(self, batch: TextBatch) -> tuple[torch.Tensor, torch.Tensor | None]:
        return self.said


def test_measures_by_hand() -> None:
    """Of five places two are right; word 1 is the most frequent, three of five; of two rows one is judged rightly."""
    words = [[0.0, 2, 0, 0], [0, 0, 0, 3], [0, 0, 0, 0.5], [1, 0, 0, 0], [0, 0, 9, 0]]
    labels, classes = torch.tensor([1, 3, 1, 1, 3]), torch.tensor([0, 1])
    read = torch.tensor([[4, 4, 1, 4], [3, 0, 0, 0]])  # three gaps, of which two are right
    batch = TextBatch(read, labels=labels, label_positions=torch.arange(5), classes=classes)
    found = count_predictions(Known(words, [[1.0, 0], [2, 0]]), [batch, batch], 4).metrics()  # type: ignore[arg-type]
    assert found["masked_accuracy"] == pytest.approx(40)
    assert found["gap_accuracy"] == pytest.approx(100 * 2 / 3)
    assert found["unigram_accuracy"] == pytest.approx(60)
    assert found["next_accuracy"] == pytest.approx(50)
    nll = -np.log([np.exp(r[k]) / np.exp(r).sum() for r, k in zip(words, labels, strict=True)])
    assert found["masked_loss"] == pytest.approx(nll.mean())
    expected = F.cross_entropy(torch.tensor([[1.0, 0], [2, 0]]), classes)
    assert found["next_loss"] == pytest.approx(float(expected))
    assert found["loss"] == pytest.approx(found["masked_loss"] + found["next_loss"])
    alone = count_predictions(Known(words, None), [batch], 4).metrics()  # type: ignore[arg-type]
    assert set(alone) == {"loss", "masked_loss", "masked_accuracy", "gap_accuracy", "unigram_accuracy"}
    assert alone["loss"] == alone["masked_loss"]


# --- mistakes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "overrides, message",
    [
        (["text.kind=char", "task.masking.unit=words"], "words needs pieces that show where a word begins"),
        (["text={kind: sentencepiece, path: a.model}"], r"text.kind sentencepiece has no \[MASK\]"),
        (["text={kind: unigram, alpha: 0.1}"], "text.alpha draws pieces anew"),
        (["task.length=64"], r"model\.position\.length is 32, shorter than the longest input of 64"),
        (["model.segments=0"], r"model\.segments must be 2 where a second segment is read"),
        (["task.examples=single", "training.goal=next_accuracy"], "training.goal is next_accuracy, which"),
        (["task.masking.share=2"], "share must be above 0 and at most 1"),
        (["task.sentences=rules"], "task.sentences is 'rules'; did you mean rules-1"),
        (["task.examples=pair"], "did you mean pairs"),
    ],
)
def test_misfits_are_refused_before_any_file_is_read(folder: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(RegardError, match=message):
        recipes.load_recipe(bert_toy.recipe(folder), overrides)


def test_documents_of_one_sentence(tmp_path: Path) -> None:
    for name in ("train", "valid"):
        (tmp_path / f"{name}.txt").write_text("A cat sat .\n\nA king sails .\n\n" * 9, encoding="utf-8")
    with pytest.raises(RegardError, match=r"every document is one sentence, .*task\.examples=single"):
        prepared_small(tmp_path)
    assert batches(prepared_small(tmp_path, examples="single"))


def test_validation_data_of_one_sentence_is_refused_before_the_first_step(folder: Path, tmp_path: Path) -> None:
    valid = tmp_path / "valid.txt"
    valid.write_text("Cat mat purrs .\n", encoding="utf-8")
    recipe = recipes.load_recipe(bert_toy.recipe(folder), [f"data.valid={valid}"])
    with pytest.raises(RegardError, match=r"valid\.txt: the text is one document, "):
        recipe.task.prepare(recipe, None, lambda *a: None)


@pytest.mark.parametrize("text", ["wordpiece", "char", "word", "unigram"])
def test_other_vocabularies_get_a_mask(folder: Path, text: str) -> None:
    size = {"wordpiece": ["text.size=50"], "unigram": ["text.size=37"]}.get(text, [])
    recipe = recipes.load_recipe(bert_toy.recipe(folder), [f"text={{kind: {text}}}", *size])
    task = recipe.task.prepare(recipe, None, lambda *a: None)
    t = task.encoder.tokenizer  # type: ignore[attr-defined]
    assert t.mask == 4
    assert (batches(task)[0].ids == t.mask).any()  # type: ignore[arg-type]
    (row,) = task.encoder.encode(["cat [MASK] mat"], {"[MASK]": t.mask})  # type: ignore[attr-defined]
    assert row.count(t.mask) == 1


def prepared_small(folder: Path, **task: Any) -> PretrainingTask:
    recipe = recipes.load_recipe(bert_toy.recipe(folder, **task), ["text.size=26"])
    return recipe.task.prepare(recipe, None, lambda *a: None)  # type: ignore[return-value]
