"""Tasks and the rest of a recipe: what goes together, what is so by default, and where a mistake is."""

from pathlib import Path
from typing import Any

import pytest

from regard import config, recipe
from regard.config import kinds
from regard.errors import RegardError
from regard.recipe import ModelConfig, TaskConfig

LM: dict[str, Any] = {"task": "lm", "data": {"train": "a.txt"}}


def test_the_task_chooses_what_is_not_said() -> None:
    made = recipe.load(LM)
    assert (made.model.kind, made.text.kind, made.decoding.kind) == ("lm", "byte_bpe", "sample")
    assert (made.training.goal, made.training.label_smoothing) == ("perplexity", 0.0)
    assert made.data.filters.duplicates is False
    plain = recipe.load({"data": {"train": ["a", "b"]}})
    assert (plain.task.kind, plain.model.kind, plain.training.goal) == ("translation", "transformer", "bleu")
    assert plain.data.filters.duplicates is True


def test_what_is_said_stays() -> None:
    given = LM | {"model": {"preset": "tiny"}, "text": "char", "training": {"goal": "loss"}, "decoding": "greedy"}
    made = recipe.load(given, ["training.label_smoothing=0.1"])
    assert (made.model.kind, made.model.layers, made.text.kind) == ("lm", 4, "char")  # type: ignore[union-attr]
    assert (made.training.goal, made.training.label_smoothing, made.decoding.kind) == ("loss", 0.1, "greedy")


def test_a_written_recipe_is_read_back() -> None:
    made = recipe.load(LM)
    assert config.parse(recipe.Recipe, config.read_text(config.dump(made), "saved.yaml")) == made


@pytest.mark.parametrize(
    "keys, message",
    [
        ({"model": "transformer"}, "model.kind is transformer, but the task lm learns with lm or lstm_lm or"),
        ({"training": {"goal": "bleu"}}, "training.goal is 'bleu'; known: perplexity, loss"),
        ({"text": {"kind": "bpe", "dropout": 0.1}}, "text.dropout draws pieces anew for every epoch"),
        ({"task": {"kind": "lm", "length": 2000}}, r"model.position.length is 1024, shorter than .* \(task.length"),
        ({"task": {"kind": "lm", "stride": 300}}, "stride must be from 1 to the context of 256, not 300"),
        ({"task": {"kind": "lmm"}}, "task.kind is 'lmm'; did you mean lm?"),
        ({"task": {"kind": "translation"}, "model": "lm"}, "the task translation learns with transformer or rnn"),
        ({"model": {"word_dropout": 1.0}}, r"word_dropout must be in \[0, 1\)"),
    ],
)
def test_misfits_are_one_sentence(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(RegardError, match=message) as found:
        recipe.load(LM | keys)
    assert "\n" not in str(found.value)


def test_a_mistake_keeps_its_line_under_a_task_with_defaults(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("task: lm\ndata:\n  train: a.txt\nmodel:\n  size: 64\n  headz: 4\n", encoding="utf-8")
    with pytest.raises(RegardError, match=r"r\.yaml, line 6: model\.headz is not a known key; did you mean heads"):
        recipe.load(path)


def test_text_that_yaml_takes_for_something_else_stays_text(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("task: {kind: lm, language: no}\ndata: {train: a.txt}\n", encoding="utf-8")
    assert recipe.load(path).task.language == "no"  # type: ignore[union-attr]


def test_every_model_has_a_task_and_every_task_a_model() -> None:
    models = {cls.kind for cls in kinds(ModelConfig)}
    served = {model for cls in kinds(TaskConfig) for model in cls.models}
    assert models == served
    for cls in kinds(TaskConfig):
        defaults = cls.defaults.get("training", {})
        assert defaults.get("goal", "bleu") in cls.metrics
