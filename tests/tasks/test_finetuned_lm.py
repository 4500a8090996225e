"""A GPT that is fine-tuned: what it reads, what it learns by, and that pretraining helps it (Radford 2018)."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from typer.testing import CliRunner

import regard
from regard import recipe as recipes
from regard.cli.main import app
from regard.errors import RegardError
from regard.interop.families import export_run
from regard.io.tensors import read_tensors
from regard.look.attention import look
from regard.models.heads import SequenceClassifier
from regard.models.lm import LanguageModelBody
from regard.tasks.classify import ClassifyConfig
from regard.tasks.finetuning import FinetuningTask
from tests.tasks import toys

MODEL = {**toys.MODEL, "kind": "lm"}
TOPICS = {"sea": [f"s{n}" for n in range(20)], "sky": [f"k{n}" for n in range(20)]}
NAMES = list(TOPICS)


def sentence(draw: random.Random, topic: str) -> str:
    return " ".join(draw.choices(TOPICS[topic], k=draw.randint(3, 6)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text whose sentences keep to one topic, few of them with a label, and an lm that has learned the text."""
    folder, draw = tmp_path_factory.mktemp("gpt"), random.Random(0)
    for name, count in (("train", 1500), ("valid", 40)):
        lines = [sentence(draw, draw.choice(NAMES)) for _ in range(count)]
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    for name, count in (("few", 12), ("valid", 100)):
        rows = [(sentence(draw, topic), topic) for topic in draw.choices(NAMES, k=count - 2) + NAMES]
        (folder / f"{name}.tsv").write_text("sentence\tlabel\n" + "".join(f"{a}\t{b}\n" for a, b in rows))
    made = toys.recipe(
        folder, {"kind": "lm", "documents": "line"}, ("train.txt", "valid.txt"), steps=300, model=MODEL,
        training={"tokens_per_batch": 512},
    )  # fmt: skip
    toys.trained(made, folder / "lm")
    return folder


def tuned(folder: Path, name: str, task: dict[str, Any], files: tuple[str, str], steps: int = 30, **keys: Any) -> Path:
    training = {"init": str(folder / "lm"), "schedule": {"kind": "linear", "peak": 2e-3, "warmup": 3}}
    made = toys.recipe(folder, task, files, steps, model=MODEL, training=training | keys.pop("training", {}), **keys)
    toys.trained(made, folder / name)
    return folder / name


def accuracy(run: Path) -> float:
    return float(json.loads((run / "results.json").read_text())["valid"]["metrics"]["accuracy"]["value"])


# --- classification ------------------------------------------------------------------------------------------------


def test_a_pretrained_model_learns_more_from_few_labels(folder: Path) -> None:
    """Most words of the validation data have no labelled example: only the text says what they go with."""
    run = tuned(folder, "classify", {"kind": "classify", "lm_weight": 0.5}, ("few.tsv", "valid.tsv"), steps=60)
    fresh = toys.recipe(folder, {"kind": "classify", "lm_weight": 0.5}, ("few.tsv", "valid.tsv"), 60, model=MODEL,
                        training={"schedule": {"kind": "linear", "peak": 2e-3, "warmup": 3}})  # fmt: skip
    toys.trained(fresh, folder / "fresh")
    assert accuracy(run) >= 90 > accuracy(folder / "fresh") + 8
    model = regard.load(run, "cpu")
    texts = ["s1 s2 s3", "", "k4 k5 k6 k7 k8 k9"]
    said = model.classify(texts)
    assert [s.label for s in said] == ["sea", "", "sky"]
    alone = model.classify(texts[:1])[0]
    assert alone.probabilities["sea"] == pytest.approx(said[0].probabilities["sea"], abs=1e-6)  # padding is nothing
    assert toys.command("classify", run, stdin="s1 s2\n") == "sea\n"
    measured = json.loads(toys.command("evaluate", run, "--json"))
    assert measured["metrics"]["accuracy"]["value"] == accuracy(run)


def test_the_weights_are_those_of_the_lm_and_two_tokens_are_new(folder: Path) -> None:
    made = toys.recipe(folder, {"kind": "classify"}, ("few.tsv", "valid.tsv"), model=MODEL)
    made["training"] |= {"init": str(folder / "lm")}
    recipe = recipes.load_recipe(made)
    task = cast(FinetuningTask, recipe.task.prepare(recipe, folder / "lm", lambda *_: None))
    before, model = read_tensors(folder / "lm" / "model.safetensors"), task.build_model()
    begun, own = task.initial_weights(model, before, "lm"), model.state_dict()
    size = task.codec.tokenizer.size
    for name, tensor in before.items():
        assert torch.equal(begun[f"body.{name}"][: len(tensor)], tensor), name
    assert len(begun["body.embedding.weight"]) == size + 2
    assert torch.equal(begun["body.embedding.weight"][size:], own["body.embedding.weight"][size:])
    (feature,) = task.codec.features([task.train[0]._replace(texts=("s1", "k1 k2"))])
    t = task.codec.tokenizer
    assert feature.rows[0].ids == [t.bos, *t.encode("s1"), size, *t.encode("k1 k2"), size + 1]
    assert task.codec.special_tokens.shown(feature.rows[0].ids)[2:3] == ["<delimiter>"]
    tuned_once = tuned(folder, "once", {"kind": "classify"}, ("few.tsv", "valid.tsv"), steps=2)
    again = tuned(folder, "twice", {"kind": "classify", "frozen": True}, ("few.tsv", "valid.tsv"), steps=2,
                  training={"init": str(tuned_once)})  # fmt: skip
    first, second = (read_tensors(run / "model.safetensors") for run in (tuned_once, again))
    assert all(torch.equal(first[name], second[name]) for name in first if name.startswith("body."))


@pytest.mark.parametrize("output", ["tied", "own"])
def test_the_loss_by_hand(folder: Path, output: str) -> None:
    """The examples' own loss, and λ times the mean of the real next tokens' for each of them (eq. 5)."""
    made = toys.recipe(folder, {"kind": "classify", "lm_weight": 0.5}, ("few.tsv", "valid.tsv"))
    made["model"] = MODEL | {"output": output}
    recipe = recipes.load_recipe(made)
    torch.manual_seed(0)
    task = cast(FinetuningTask, recipe.task.prepare(recipe, None, lambda *_: None))
    model = cast(SequenceClassifier, task.build_model())
    batch = task.codec.collate(task.features[:5])
    assert batch.real is not None
    assert not batch.real.all()
    loss, _ = task.loss(model, batch, None)
    loss.backward()
    wanted, tokens = torch.zeros(()), list[torch.Tensor]()
    body = cast(LanguageModelBody, model.body)
    for row, real, label in zip(batch.ids, batch.real, batch.classes, strict=True):  # one by one, without padding
        ids = row[real][None]
        hidden = body.hidden(replace(batch, ids=ids, real=None, segments=None))[0]  # [T, D]
        wanted = wanted + F.cross_entropy(model.output(hidden[-1]), label)
        tokens += [F.cross_entropy(body.output(h), n) for h, n in zip(hidden[:-1], ids[0, 1:], strict=True)]
    torch.testing.assert_close(loss, wanted + 0.5 * 5 * torch.stack(tokens).mean())
    torch.testing.assert_close(model.loss(model.scores(batch), batch), wanted)  # as it is measured
    assert all(p.grad is not None for p in model.parameters())
    assert task.static_batch(model, batch) is None  # as many rows of words as there are real tokens


@pytest.mark.parametrize("output", ["tied", "own"])
def test_without_the_auxiliary_loss_a_step_may_be_captured(folder: Path, output: str) -> None:
    made = toys.recipe(folder, {"kind": "classify"}, ("few.tsv", "valid.tsv"), model=MODEL | {"output": output})
    recipe = recipes.load_recipe(made)
    task = cast(FinetuningTask, recipe.task.prepare(recipe, None, lambda *_: None))
    model = task.build_model()
    batch = task.codec.collate(task.features[:5])
    assert task.static_batch(model, batch) is not None
    task.loss(model, batch, None)[0].backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


# --- pairs, options, words -------------------------------------------------------------------------------------------


def test_pairs_in_both_orders(folder: Path) -> None:
    draw = random.Random(1)
    for name, count in (("pairs", 200), ("more", 40)):
        rows = []
        for _ in range(count):
            first, second = draw.choice(NAMES), draw.choice(NAMES)
            rows.append({"text1": sentence(draw, first), "text2": sentence(draw, second), "score": first == second})
        (folder / f"{name}.jsonl").write_text(
            "".join(json.dumps(row | {"score": int(row["score"])}) + "\n" for row in rows)
        )
    run = tuned(folder, "regress", {"kind": "regress", "symmetric": True}, ("pairs.jsonl", "more.jsonl"), 150)
    model = regard.load(run, "cpu")
    like, other, turned = model.classify([("s1 s2", "s3 s4"), ("s1 s2", "k3"), ("k3", "s1 s2")])
    assert like.value > other.value + 0.3
    assert other.value == pytest.approx(turned.value, abs=1e-5)
    with pytest.raises(RegardError, match=r"text 1: one text, and task\.symmetric reads a pair in both orders"):
        model.classify(["s1 s2"])


def test_options_are_scored(folder: Path) -> None:
    draw = random.Random(2)
    for name, count in (("asked", 200), ("held", 30)):
        rows = []
        for _ in range(count):
            topic, right = draw.choice(NAMES), draw.randint(0, 1)
            options = [sentence(draw, topic if n == right else NAMES[1 - NAMES.index(topic)]) for n in (0, 1)]
            rows.append({"context": sentence(draw, topic), "question": "", "options": options, "answer": right})
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = tuned(folder, "choose", {"kind": "choose", "lm_weight": 0.5}, ("asked.jsonl", "held.jsonl"), 150)
    assert accuracy(run) >= 90
    assert toys.command("choose", run, stdin="s1 s2 s3\t\tk1 k2\ts4 s5\n") == "s4 s5\n"


def test_words_are_tagged_where_they_end(folder: Path) -> None:
    """A word in pieces is read at its last one: until then a causal model has not seen all of it."""
    draw = random.Random(3)
    for name, count in (("tagged", 150), ("untold", 20)):
        words = [[f"{draw.choice('ab')}{draw.choice('ab')}{draw.choice('xy')}" for _ in range(4)] for _ in range(count)]
        text = "\n".join("".join(f"{w} {'LAST' if w[-1] == 'x' else 'NOT'}\n" for w in row) for row in words)
        (folder / f"{name}.conll").write_text(text)
    task = {"kind": "tag", "scheme": "plain", "overlap": 4}
    made = toys.recipe(folder, task, ("tagged.conll", "untold.conll"), 60, model=MODEL, text={"kind": "char"})
    made["training"] |= {"goal": "accuracy"}
    toys.trained(made, folder / "tag")
    assert accuracy(folder / "tag") == 100
    assert toys.command("tag", folder / "tag", stdin="aax aay\n").split() == ["LAST", "NOT"]


# --- what goes with it, and what does not -----------------------------------------------------------------------------


def test_it_is_looked_at_and_not_exported(folder: Path) -> None:
    run = tuned(folder, "seen", {"kind": "classify"}, ("few.tsv", "valid.tsv"), steps=2)
    shown = look(regard.load(run, "cpu"), "s1 k1")
    (place, *_) = shown["places"]
    assert place["queries"] == ["<s>", "s1", "k1", "<extract>"]
    with pytest.raises(RegardError, match=r"Hugging Face cannot express this model: model\.kind is lm"):
        export_run("hf", run, folder / "hf", "float32")
    assert CliRunner().invoke(app, ["info", str(run)]).exit_code == 0
    export_run("safetensors", run, folder / "copy", "float32")
    assert regard.load(folder / "copy", "cpu").classify(["s1"]) == regard.load(run, "cpu").classify(["s1"])


@pytest.mark.parametrize(
    "keys, said",
    [
        (["model.kind=bert", "task.lm_weight=0.5"], r"task\.lm_weight is of .* the model bert has none; write 0"),
        (["task.lm_weight=0.5", "task.frozen=true"], r"the model stays as it is \(task\.frozen\); write 0"),
        (["task.lm_weight=-1"], "lm_weight must be at least 0"),
    ],
)
def test_what_does_not_go_together_is_said(folder: Path, keys: list[str], said: str) -> None:
    made = toys.recipe(folder, {"kind": "classify"}, ("few.tsv", "valid.tsv"), model=MODEL)
    made["training"] |= {"init": str(folder / "lm")}
    with pytest.raises(RegardError, match=said):
        recipes.load_recipe(made, keys)


def test_the_setting_is_off_by_default() -> None:
    assert ClassifyConfig().lm_weight == 0.0
