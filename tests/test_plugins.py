"""Plugins: what a module of somebody else registers is a choice like ours, and no folder has it imported."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard import config, recipe
from regard.config import plugins
from regard.errors import RegardError
from regard.mechanisms import all_mechanisms
from regard.run import train_recipe
from tests.plugin import SOURCE, on_path, with_plugin, write_plugin
from tests.training import toy

pytestmark = pytest.mark.usefixtures("own_choices")


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that modules are imported from."""
    monkeypatch.syspath_prepend(tmp_path / "parts")
    return write_plugin(tmp_path / "parts", "near_parts")


def load(folder: Path, **keys: object) -> recipe.Recipe:
    return recipe.load_recipe({**with_plugin(toy.recipe(folder, steps=4), "near_parts"), **keys})


def test_a_recipe_names_them(parts: Path, tmp_path: Path) -> None:
    loaded = load(tmp_path)
    position = loaded.model.position.encoder
    assert (type(position).__module__, position.kind, position.reach) == ("near_parts", "near", 2)
    assert recipe.parse_recipe(config.parse_yaml(recipe.dump_recipe(loaded), "c.yaml")) == loaded
    listed = {(m.slot, m.name): m for m in all_mechanisms()}
    assert listed["position", "near"].config == "model.position=near"
    assert listed["position", "near"].meaning == "Neighbours have a learned bonus."
    assert listed["position", "near"].file == "near_parts"
    assert listed["schedule", "steady"].config == "training.schedule.kind=steady"
    helped = {row[0]: row for row in config.describe_options(recipe.Recipe)}
    assert helped["model(transformer).position.encoder(near).reach"][3] == "how far neighbours are"


def test_mistakes_in_them_are_explained_as_in_ours(parts: Path, tmp_path: Path) -> None:
    keys = toy.recipe(tmp_path)
    for value, said in (
        ({"kind": "neer"}, "model.position.encoder.kind is 'neer'; did you mean near?"),
        ({"kind": "near", "reech": 3}, "model.position.encoder.reech is not a known key; did you mean reach?"),
        ({"kind": "near", "reach": 0}, "model.position.encoder is impossible: reach must be at least 1, not 0"),
    ):
        with pytest.raises(RegardError) as caught:
            recipe.load_recipe({**keys, "plugins": "near_parts", "model": {"position": value}})
        assert str(caught.value) == f"config: {said}"


def test_a_run_remembers_what_it_took_from_them(parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However they were loaded; what it did not use is not named."""
    write_plugin(parts, "unused_parts", SOURCE.replace('"near"', '"far"').replace('"steady"', '"other"'))
    monkeypatch.setenv("REGARD_PLUGINS", "near_parts, unused_parts")
    keys = with_plugin(toy.recipe(tmp_path), "near_parts")
    del keys["plugins"]
    assert recipe.load_recipe(keys).plugins == ["near_parts"]


def test_a_pattern_in_an_expression_is_remembered_too(parts: Path, tmp_path: Path) -> None:
    source = """
from regard.config import choice
from regard.nn.pattern import Pattern

@choice("even")
class Even(Pattern):
    def allow(self, context, b, h, i, j):
        return j % 2 == 0
"""
    write_plugin(parts, "even_parts", source)
    config.load_plugins(["even_parts"], "here")
    keys = toy.recipe(tmp_path)
    keys["model"]["attention"] = {"encoder": {"pattern": "even | window(2)"}}
    assert recipe.load_recipe(keys).plugins == ["even_parts"]


@pytest.mark.parametrize(
    "source, said",
    [
        (None, "there is no plugin bad_parts; install it, put it on PYTHONPATH, or run where it stands"),
        ("import no_such_library", "the plugin bad_parts needs no_such_library, which is not installed"),
        ("x = 1\nraise OSError('no disk')", "OSError: no disk (%s, line 2)"),
        ("def (", "SyntaxError"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        (
            SOURCE.replace('"near"', '"rotary"'),
            "the plugin bad_parts cannot be loaded: the position 'rotary' is registered twice, by "
            "regard.nn.position.rotary.RotaryConfig and bad_parts.NearConfig; give one of them another name",
        ),
        (
            SOURCE + '\n\n@choice("near")\nclass Again(NearConfig):\n    pass\n',
            "the position 'near' is registered twice, by bad_parts.NearConfig and bad_parts.Again",
        ),
        (SOURCE.replace("(PositionConfig)", ""), "bad_parts.NearConfig: @choice is for subclasses of"),
        (
            SOURCE.replace("def build(", "def bild("),
            "bad_parts.NearConfig has no method build, which every choice of the slot position needs",
        ),
    ],
)
def test_what_cannot_be_loaded_is_a_sentence(parts: Path, tmp_path: Path, source: str | None, said: str) -> None:
    if source is not None:
        write_plugin(parts, "bad_parts", source)
    before = dict(config.choices("position"))
    path = tmp_path / "r.yaml"
    path.write_text("data: {train: [a.en, a.de]}\nplugins: [bad_parts]\n", encoding="utf-8")
    with pytest.raises(RegardError) as caught:
        recipe.load_recipe(path)
    assert str(caught.value).startswith(f"{path}, line 2: ")
    assert (said % (parts / "bad_parts.py") if "%s" in said else said) in str(caught.value)
    assert config.choices("position") == before  # half a plugin is none


@pytest.mark.parametrize("slot", [slot for slot, base in config.registry.SLOTS.items() if base.must_define])
def test_a_choice_has_what_its_slot_calls(slot: str) -> None:
    """All of ours have it, and one that lacks it is named before anything is computed."""
    base = config.registry.SLOTS[slot]
    for kind, cls in config.choices(slot).items():
        assert all(getattr(cls, name) is not getattr(base, name, None) for name in base.must_define), kind
    with pytest.raises(RegardError, match=f"Lacking has no method {base.must_define[0]}, .* slot {slot} needs"):
        config.choice("lacking")(type("Lacking", (base,), {}))
    assert "lacking" not in config.choices(slot)


@pytest.mark.parametrize("name", ["./near_parts.py", "near-parts", "a..b", 3, ""])
def test_a_plugin_is_a_module(tmp_path: Path, name: object) -> None:
    with pytest.raises(RegardError, match="is no module's name; write it as one imports it"):
        recipe.load_recipe({**toy.recipe(tmp_path), "plugins": [name]})


def test_a_model_folder_has_nothing_imported(parts: Path, tmp_path: Path) -> None:
    """By loading, by resuming, by another recipe that begins with it: until the user says so."""
    text = recipe.dump_recipe(load(tmp_path)).replace("near_parts", "strange_parts")
    text = text.replace("kind: near", "kind: near2").replace("kind: steady", "kind: steady2")
    write_plugin(parts, "strange_parts", SOURCE.replace('"near"', '"near2"').replace('"steady"', '"steady2"'))
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text(text, encoding="utf-8")
    why = "the model needs the plugin strange_parts, code which is not run unasked; .* add --plugin strange_parts"
    for attempt in (
        lambda: regard.load(run),
        lambda: recipe.load_recipe(run / "config.yaml"),
        lambda: recipe.load_recipe({**toy.recipe(tmp_path, init=str(run)), "model": {}}),
    ):
        with pytest.raises(RegardError, match=why):
            attempt()
        assert "strange_parts" not in sys.modules


def test_nothing_is_imported_from_inside_a_model_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where the user names it: a model's folder is data."""
    write_plugin(tmp_path / "model" / "deep", "inside_parts", "raise SystemError('it was run')")
    (tmp_path / "model" / "model.safetensors").touch()
    monkeypatch.syspath_prepend(tmp_path / "model" / "deep")
    with pytest.raises(RegardError, match="the plugin inside_parts stands inside the model folder"):
        config.load_plugins(["inside_parts"], "--plugin")
    monkeypatch.syspath_prepend(tmp_path / "model")
    (tmp_path / "model" / "deep" / "__init__.py").write_text("raise SystemError('it was run')")
    with pytest.raises(RegardError, match="stands inside the model folder"):
        config.load_plugins(["deep.inside_parts"], "--plugin")


def test_installed_packages_are_allowed(parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package in the form in which pip leaves it, with an entry point of the group."""
    about = parts / "near_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: near-package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[regard.plugins]\nnear = near_parts\n")
    plugins._installed.cache_clear()
    keys = with_plugin(toy.recipe(tmp_path), "near_parts")
    del keys["plugins"]
    try:
        assert recipe.load_recipe(keys).plugins == ["near_parts"]
        (about / "entry_points.txt").write_text("[regard.plugins]\nnear = gone_parts\n")
        plugins._installed.cache_clear()
        with pytest.raises(RegardError, match=r"^the installed package near-package: there is no plugin gone_parts"):
            recipe.load_recipe(keys)
    finally:
        shutil.rmtree(about)
        plugins._installed.cache_clear()


def test_it_learns_and_is_loaded_once_allowed(parts: Path, tmp_path: Path) -> None:
    toy.write_corpus(tmp_path)
    train_recipe(load(tmp_path), tmp_path / "run", "cpu")
    learned = regard.load(tmp_path / "run").model.encoder_position[0].numbers
    assert learned.shape == (2, 5)
    assert learned.abs().min() > 0
    refused = toy.regard("info", tmp_path / "run")
    assert refused.returncode == 2
    assert "add --plugin near_parts" in refused.stderr
    assert not refused.stdout
    shown = toy.regard("info", tmp_path / "run", "--plugin", "near_parts", env=on_path(parts))
    assert shown.returncode == 0
    assert "near" in shown.stdout


def test_the_command_line_finds_them_in_the_current_folder(parts: Path) -> None:
    """As the installed command starts, whose own path is not the current folder."""
    code = "import sys; sys.path = [p for p in sys.path if p]; from regard.cli.main import main; main()"
    shown = subprocess.run(
        [sys.executable, "-c", code, "info", "--mechanisms", "--plugin", "near_parts"],
        cwd=parts, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "Neighbours have a learned bonus." in shown.stdout


OTHERS = """
from typing import ClassVar

import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from regard.config import choice, option
from regard.decoding.config import DecodingConfig
from regard.decoding.logits_processors import ForcedEos
from regard.decoding.sampling import GreedyPicker, SingleSequenceSearch
from regard.text.config import TextConfig


@choice("second")
class SecondBest(DecodingConfig):
    def build_search(self, spec, batch_size, longest, device):
        class Picker(GreedyPicker):
            def pick(self, logits, *more):
                best = logits.argmax(-1, keepdim=True)
                return super().pick(logits.scatter(-1, best, float("-inf")), *more)

        forced = ForcedEos(spec.symbols.eos, batch_size, device)
        return SingleSequenceSearch(Picker(spec.symbols), forced, batch_size, longest)


@choice("sorted_words")
class SortedWords(TextConfig):
    pieces: ClassVar[str] = "word"
    most: int = option(1000, "of words")

    def train(self, texts, specials):
        words = sorted({word for text in texts for word in text.split()})[: self.most]
        inner = Tokenizer(models.WordLevel({p: n for n, p in enumerate([*specials, *words])}, unk_token=specials[1]))
        inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        return inner
"""


def test_texts_and_searches_of_somebody_else(parts: Path, tmp_path: Path) -> None:
    write_plugin(parts, "other_parts", OTHERS)
    toy.write_corpus(tmp_path)
    keys = toy.recipe(tmp_path, steps=4) | {"plugins": ["other_parts"], "text": {"kind": "sorted_words", "most": 30}}
    greedy = regard.train(keys, tmp_path / "one", device="cpu").folder
    second = regard.train(keys | {"decoding": {"kind": "second"}}, tmp_path / "two", device="cpu").folder
    one, two = regard.load(greedy), regard.load(second)
    assert two.recipe.plugins == ["other_parts"]
    pieces = one.vocabulary.source.pieces
    assert pieces[4:] == sorted(pieces[4:])
    assert one.translate(["w1 w2"]) != two.translate(["w1 w2"])


METRIC = """
from typing import ClassVar

from regard.config import choice
from regard.evaluation.metrics import MetricConfig


@choice("extra_words")
class ExtraWords(MetricConfig):
    higher_is_better: ClassVar[bool] = False

    def score(self, outputs, references, sources):
        assert len(outputs) == len(references) == len(sources)
        return sum(len(o.split()) - len(s.split()) for o, s in zip(outputs, sources)) / len(outputs)
"""


def test_a_metric_of_somebody_else_decides_what_is_best(parts: Path, tmp_path: Path) -> None:
    write_plugin(parts, "metric_parts", METRIC)
    toy.write_corpus(tmp_path)
    keys = toy.recipe(tmp_path, steps=8, goal="extra_words") | {"plugins": ["metric_parts"]}
    with pytest.raises(RegardError, match="'extra_words'; known: bleu"):
        recipe.load_recipe(keys)
    keys["evaluation"] = {"metrics": "extra_words"}
    done = regard.train(keys, tmp_path / "run", device="cpu")
    values = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    seen = [each["extra_words"] for each in values if each["kind"] == "valid"]
    assert len(seen) == 2
    assert done.state.best_value == pytest.approx(min(seen), abs=1e-4)
    assert "extra_words" in done.results["valid"]["metrics"]
    for evaluation, task, said in (
        (
            {"metrics": ["extra_words"]},
            {"task": "lm", "data": {"train": "a.txt"}, "training": {}},
            "compare texts, and",
        ),
        ({"metrics": ["extra_words", "extra_words"]}, {}, "evaluation.metrics names extra_words, which is measured"),
        ({"metrics": ["extra_word"]}, {}, "evaluation.metrics.0.kind is 'extra_word'; did you mean extra_words"),
    ):
        with pytest.raises(RegardError, match=said):
            recipe.load_recipe({**keys, **task, "model": {}, "text": {}, "decoding": {}, "evaluation": evaluation})
