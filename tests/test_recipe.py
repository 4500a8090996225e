"""Tasks and the rest of a recipe: what goes together, what is so by default, and where a mistake is."""

from pathlib import Path
from typing import Any

import pytest

import regard
from regard import config, recipe
from regard.config import choices
from regard.errors import RegardError

LM: dict[str, Any] = {"task": "lm", "data": {"train": "a.txt"}}


def test_the_task_chooses_what_is_not_said() -> None:
    made = recipe.load_recipe(LM)
    assert (made.model.kind, made.text.kind, made.decoding.kind) == ("lm", "byte_bpe", "sample")
    assert (made.training.goal, made.training.label_smoothing) == ("perplexity", 0.0)
    assert made.data.filters.duplicates is False
    plain = recipe.load_recipe({"data": {"train": ["a", "b"]}})
    assert (plain.task.kind, plain.model.kind, plain.training.goal) == ("translation", "transformer", "bleu")
    assert plain.data.filters.duplicates is True


def test_what_is_said_stays() -> None:
    given = LM | {"model": {"preset": "tiny"}, "text": "char", "training": {"goal": "loss"}, "decoding": "greedy"}
    made = recipe.load_recipe(given, ["training.label_smoothing=0.1"])
    assert (made.model.kind, made.model.layers, made.text.kind) == ("lm", 4, "char")  # type: ignore[union-attr]
    assert (made.training.goal, made.training.label_smoothing, made.decoding.kind) == ("loss", 0.1, "greedy")


def test_a_written_recipe_is_read_back() -> None:
    made = recipe.load_recipe(LM)
    assert config.parse_config(recipe.Recipe, config.parse_yaml(config.dump_yaml(made), "saved.yaml")) == made


@pytest.mark.parametrize(
    "keys, message",
    [
        ({"model": "transformer"}, "model.kind is transformer, but the task lm learns with lm or lstm_lm"),
        ({"training": {"goal": "bleu"}}, "training.goal is 'bleu'; known: perplexity, loss"),
        ({"text": {"kind": "bpe", "dropout": 0.1}}, "text.dropout draws pieces anew for every epoch"),
        ({"task": {"kind": "lm", "length": 2000}}, r"model.position.length is 1024, shorter than .* \(task.length"),
        ({"task": {"kind": "lm", "stride": 300}}, "stride must be from 1 to the context of 256, not 300"),
        ({"task": {"kind": "lmm"}}, "task.kind is 'lmm'; did you mean lm?"),
        ({"model": {"attention": {"normalise": "hard(3)"}}}, "is 'hard\\(3\\)'; write {kind: hard, width: 3}"),
        ({"model": {"attention": {"normalise": "softmax(3)"}}}, "is 'softmax\\(3\\)'; write softmax$"),
        ({"training": {"schedule": "wave(3)"}}, "is 'wave\\(3\\)'; known: "),
        ({"task": {"kind": "translation"}, "model": "lm"}, "the task translation learns with transformer or rnn"),
        ({"model": {"word_dropout": 1.0}}, r"word_dropout must be in \[0, 1\)"),
    ],
)
def test_misfits_are_one_sentence(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(RegardError, match=message) as found:
        recipe.load_recipe(LM | keys)
    assert "\n" not in str(found.value)


def test_a_mistake_keeps_its_line_under_a_task_with_defaults(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("task: lm\ndata:\n  train: a.txt\nmodel:\n  size: 64\n  headz: 4\n", encoding="utf-8")
    with pytest.raises(RegardError, match=r"r\.yaml, line 6: model\.headz is not a known key; did you mean heads"):
        recipe.load_recipe(path)


def test_text_that_yaml_takes_for_something_else_stays_text(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("task: {kind: lm, language: no}\ndata: {train: a.txt}\n", encoding="utf-8")
    assert recipe.load_recipe(path).task.language == "no"  # type: ignore[union-attr]


def test_every_model_has_a_task_and_every_task_a_model() -> None:
    models = {cls.kind for cls in choices("model").values()}
    served = {model for cls in choices("task").values() for model in cls.models}
    assert models == served
    for cls in choices("task").values():
        defaults = cls.defaults.get("training", {})
        assert defaults.get("goal", "bleu") in cls.metrics


# --- versions ----------------------------------------------------------------------------------------------------


def test_a_run_says_which_format_it_is_written_in() -> None:
    made = recipe.load_recipe(LM)
    text = recipe.dump_recipe(made)
    assert text.startswith("format: 1\n")
    assert recipe.parse_recipe(config.parse_yaml(text, "config.yaml")) == made
    assert (
        recipe.parse_recipe(config.parse_yaml(config.dump_yaml(made), "config.yaml")) == made
    )  # of before there was one
    with pytest.raises(RegardError, match=r"line 1: format is a number from 1 to 1, not 'two'"):
        recipe.parse_recipe(config.parse_yaml(text.replace("format: 1", "format: two"), "config.yaml"))


def test_what_a_newer_version_wrote_is_said_to_be_so() -> None:
    text = recipe.dump_recipe(recipe.load_recipe(LM)).replace("format: 1", "format: 2")
    assert recipe.parse_recipe(config.parse_yaml(text, "c.yaml")) == recipe.load_recipe(LM)  # nothing in it is unknown
    text += "steering: left\n"
    newer = r"steering is not a known key.*written by a newer regard, format 2, and this one reads up to 1; update"
    with pytest.raises(RegardError, match=newer):
        recipe.parse_recipe(config.parse_yaml(text, "c.yaml"))


def test_a_renamed_key_is_read_by_its_old_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recipe, "RENAMED_KEYS", {"training.passes": "training.steps", "model.attn": "model.attention"})
    path = tmp_path / "r.yaml"
    path.write_text("data: {train: [a, b]}\nmodel: {attn: {dropout: 0.3}}\ntraining:\n  passes: 7\n", encoding="utf-8")
    made = recipe.load_recipe(path)
    assert (made.training.steps, made.model.attention.encoder.dropout) == (7, 0.3)
    assert f"{path}, line 4: training.passes is called training.steps now" in capsys.readouterr().err.splitlines()
    assert recipe.load_recipe(path, ["training.passes=9"]).training.steps == 9  # the command line wins, by either name
    assert recipe.load_recipe(path, ["training.steps=9"]).training.steps == 9
    assert "command line: training.passes is called training.steps now" in capsys.readouterr().err
    path.write_text("data: {train: [a, b]}\ntraining: {passes: 7, steps: 8}\n", encoding="utf-8")
    with pytest.raises(RegardError, match=r"training\.passes is called training\.steps now, which is given too"):
        recipe.load_recipe(path)
    old = config.dump_yaml(recipe.load_recipe(LM)).replace("steps: 100000", "passes: 5")  # a run's own
    assert recipe.parse_recipe(config.parse_yaml(old, "config.yaml")).training.steps == 5
    assert capsys.readouterr().err == ""


# --- mistakes -----------------------------------------------------------------------------------------------------


def test_one_file_for_both_sides() -> None:
    with pytest.raises(RegardError, match=r"data\.train has train\.en for both source and target; give two files"):
        recipe.load_recipe({"data": {"train": ["train.en", "./train.en"]}})


def test_overrides_are_a_list() -> None:
    with pytest.raises(RegardError, match=r'takes a list of assignments, not one string; write .*overrides=\["model'):
        regard.train({"data": {"train": ["a", "b"]}}, overrides="model.layers=4")


@pytest.mark.parametrize("minutes", [-1, 0, float("nan")])
def test_a_time_limit_leaves_some_time(minutes: float) -> None:
    with pytest.raises(RegardError, match="minutes must be more than 0, not"):
        regard.train({"data": {"train": ["a", "b"]}}, minutes=minutes)


@pytest.mark.parametrize(
    "override, wanted",
    [
        ("model.attention.dropout=0.25", lambda model: model.attention.cross.dropout == 0.25),
        ("model.attention.score=additive", lambda model: model.attention.decoder.score.kind == "additive"),
        ("model.position.kind=rotary", lambda model: model.position.encoder.kind == "rotary"),
        ("model.position.layout=halves", lambda model: model.position.decoder.layout == "halves"),
    ],
)
def test_an_override_for_all_roles_wins_over_a_complete_config(tmp_path: Path, override: str, wanted: Any) -> None:
    """A run's config.yaml names encoder, decoder and cross apart, each with all keys."""
    (tmp_path / "config.yaml").write_text(recipe.dump_recipe(recipe.load_recipe("quickstart")), encoding="utf-8")
    assert wanted(recipe.load_recipe(tmp_path / "config.yaml", [override]).model)


def test_an_override_for_one_role_stays_beside_one_for_all(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(recipe.dump_recipe(recipe.load_recipe("quickstart")), encoding="utf-8")
    both = ["model.attention.encoder.dropout=0.5", "model.attention.dropout=0.25"]
    attention = recipe.load_recipe(tmp_path / "config.yaml", both).model.attention  # type: ignore[union-attr]
    assert (attention.encoder.dropout, attention.decoder.dropout, attention.cross.dropout) == (0.5, 0.25, 0.25)


@pytest.mark.parametrize(
    "position, wanted",
    [
        ({"encoder": "rotary", "decoder": "rotary", "base": 500}, ("rotary", 500, "rotary", 500)),
        ({"kind": "rotary", "base": 500, "decoder": "none"}, ("rotary", 500, "none", None)),
        ({"kind": "rotary", "base": 500, "decoder": {"base": 7}}, ("rotary", 500, "rotary", 7)),
        ({"encoder": ["rotary", "none"], "decoder": "rotary"}, (["rotary", "none"], None, "rotary", 10_000)),
    ],
)
def test_keys_of_positions_beside_encoder_and_decoder_are_for_both(position: Any, wanted: tuple[Any, ...]) -> None:
    model: Any = recipe.load_recipe({"data": {"train": "embedded:train"}, "model": {"position": position}}).model
    both = model.position.encoder, model.position.decoder
    shown = [
        ([each.kind for each in one], None) if isinstance(one, list) else (one.kind, getattr(one, "base", None))
        for one in both
    ]
    assert (*shown[0], *shown[1]) == wanted


def test_a_key_that_the_position_of_a_role_has_not_is_named() -> None:
    data = {"train": "embedded:train"}
    with pytest.raises(RegardError, match="base is not a known key"):
        recipe.load_recipe({"data": data, "model": {"position": {"encoder": "none", "decoder": "rotary", "base": 500}}})
