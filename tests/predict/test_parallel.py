"""Parallel decoding as users ask for it: in translation, generation, chat and serving, with drafts and heads that are
trained, and refused where it cannot be.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from regard import load
from regard import recipe as recipes
from regard.accel.int8.linear import Int8Linear
from regard.cli.commands.options import EvaluationOptions
from regard.cli.evaluate import evaluate
from regard.cli.main import app
from regard.cli.streams import check_stats, report_acceptance
from regard.cli.train import tune
from regard.decoding import Beam, Blockwise, DecodingConfig, Greedy, Sample, Speculative
from regard.decoding.config import NO_SHAPE
from regard.errors import RegardError
from regard.interop.compatibility import TRAINING_KEYS, config_differences, without_proposals
from regard.io.tensors import read_tensors
from regard.predict.continuous import ContinuousTranslator
from regard.predict.options import SearchOptions, TranslationOptions, TranslationSearch
from regard.run import train_recipe
from tests.tasks import chat_toy, lm_toy
from tests.training import toy

LINES = ["w1 w2 w3", "", "w4", "w2 w2 w9 w1 w5 w6", "w7 w8"]
LIMIT = {"max_ratio": 0.0, "max_extra": 9}  # an untrained model does not end


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("lm")
    lm_toy.write_text(folder)
    train_recipe(recipes.load_recipe(lm_toy.recipe(folder, steps=20, documents="file")), folder / "run", "cpu")
    return load(folder / "run", "cpu")


@pytest.fixture(scope="module")
def tuned(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tuned") / "run"
    assert tune(toy_run, ["training.validation.lines=4"], 3, True, 8, out, "cpu", None, True) == 0
    return out


def test_a_translator_guesses(toy_run: Path) -> None:
    translator = load(toy_run, "cpu")
    expected = translator.translate(LINES, Greedy())
    for options in ({"search": "speculative"}, {"draft": str(toy_run)}, {"draft": toy_run, "draft_tokens": 2}):
        assert translator.translate(LINES, **options) == expected
    found = translator.acceptance(Speculative(draft=str(toy_run), tokens=2))
    assert found.by_position == [1.0, 1.0]  # it is its own draft
    assert found.tokens > found.steps
    assert set(found.json()) == {"steps", "tokens", "gain", "accepted_length", "acceptance_by_position"}
    assert translator.acceptance(Greedy()) is None
    drawn = translator.translate(LINES, sample=True, search="speculative", seed=3)
    assert drawn == translator.translate(LINES, Speculative(temperature=1.0, seed=3))
    own = ContinuousTranslator(translator, slots=3)
    own.add([0, 2, 3, 4], [line for line in LINES if line], Speculative())
    results: dict[int, str] = {}
    while own.busy:
        results |= {key: best[0].text for key, best in own.step()}
    assert [results.get(n, "") for n in range(5)] == expected


def test_attention_is_recorded_token_by_token(toy_run: Path) -> None:
    translator = load(toy_run, "cpu")
    (plain,), (guessed,) = (
        translator.nbest(LINES[:1], 1, search, attention=["cross"])[0] for search in (Greedy(), Speculative())
    )
    assert plain.text == guessed.text
    assert torch.equal(plain.attention["cross"], guessed.attention["cross"])


def test_a_draft_has_the_same_vocabulary(toy_run: Path, tmp_path: Path, generator: Any) -> None:
    toy.write_corpus(tmp_path)
    with (tmp_path / "train.de").open("a") as target, (tmp_path / "train.en").open("a") as source:
        source.write("one more\n" * 3)
        target.write("ein anderes\n" * 3)
    train_recipe(recipes.load_recipe(toy.recipe(tmp_path, steps=2)), tmp_path / "other", "cpu")
    translator = load(toy_run, "cpu")
    with pytest.raises(RegardError, match=f"{tmp_path / 'other'} has another vocabulary than {toy_run}"):
        translator.translate(LINES, draft=tmp_path / "other")
    with pytest.raises(RegardError, match="a model lm of the task lm cannot be the draft of a model transformer"):
        translator.translate(LINES, draft=generator.run)
    with pytest.raises(RegardError, match="there is no such folder"):
        translator.translate(LINES, draft=tmp_path / "absent")
    both = translator.ensemble([load(toy_run, "cpu")])
    with pytest.raises(RegardError, match="needs one model with a KV cache: no ensemble"):
        both.translate(LINES, search="speculative")


def test_a_draft_is_computed_as_the_model_is(toy_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.accel.int8.LEAST", 1)
    monkeypatch.setattr("regard.accel.int8.int8_unsupported_reason", lambda: None)
    for precision in ("float32", "bf16", "int8"):
        translator = load(toy_run, "cpu", precision)
        translator.translate(LINES[:1], draft=toy_run)
        draft = translator.drafts[str(toy_run)]
        assert draft.precision == precision
        assert any(isinstance(m, Int8Linear) for m in draft.model.modules()) == (precision == "int8")


def test_a_generator_guesses(generator: Any) -> None:
    """Also beyond the context of 16; as a stream and whole; several samples; stops in the middle of a block."""
    assert generator.context == 16
    for options in ({"draft": "ngrams"}, {"draft": str(generator.run), "draft_tokens": 6}):
        (expected,) = generator.generate("the cat ", max_tokens=50, greedy=True)
        (found,) = generator.generate("the cat ", max_tokens=50, greedy=True, search="speculative", **options)
        assert (found.text, found.tokens, found.ended) == (expected.text, expected.tokens, expected.ended)
        assert found.log_probability == pytest.approx(expected.log_probability, abs=1e-4)
        stop = expected.text[7:9]
        stopped, plain = (
            generator.generate("the cat ", max_tokens=50, greedy=True, stop=[stop], **more)[0]
            for more in ({"search": "speculative", **options}, {})
        )
        assert (stopped.text, stopped.ended) == (plain.text, "stop")
    texts = generator.generate("the ", 3, max_tokens=20, temperature=0.9, search="speculative", seed=5)
    assert len({each.text for each in texts}) == 3
    again = generator.generate("the ", 1, max_tokens=20, temperature=0.9, search="speculative", seed=5)
    assert again[0].text == texts[0].text
    with pytest.raises(RegardError, match="greedy search writes one text, not 2"):
        generator.generate("the ", 2, search="speculative", greedy=True)


@pytest.mark.parametrize("kind", ["transformer", "lm"])
def test_a_chat_guesses(kind: str, tmp_path: Path) -> None:
    chat_toy.write(tmp_path)
    train_recipe(recipes.load_recipe(chat_toy.recipe(tmp_path, kind, steps=6)), tmp_path / "run", "cpu")
    talker = load(tmp_path / "run", "cpu")
    for options in ({"draft": "ngrams"}, {"draft": str(tmp_path / "run")}):
        history = ["do you like tea"]
        expected = talker.reply(history, greedy=True, max_tokens=9)
        assert talker.reply(history, greedy=True, max_tokens=9, search="speculative", **options) == expected
        stream = talker.stream(history, greedy=True, max_tokens=9, search="speculative", **options)
        assert "".join(stream).strip() == expected


# --- heads ---------------------------------------------------------------------------------------------------------


def test_tuning_adds_heads(toy_run: Path, tuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Frozen, every other weight stays as it is; the words do, too."""
    before, after = read_tensors(toy_run / "model.safetensors"), read_tensors(tuned / "model.safetensors")
    heads = {name for name in after if name.startswith("proposals.")}
    assert heads == after.keys() - before.keys()
    assert len(heads) == 2 * 4
    assert all(torch.equal(before[name], after[name]) for name in before)
    translator = load(tuned, "cpu")
    expected = load(toy_run, "cpu").translate(LINES, Greedy())
    assert translator.translate(LINES, search="blockwise") == expected
    assert translator.translate(LINES, search="speculative") == expected
    translator.translate(LINES, accept="distance(3)")  # near in number only: other words
    assert translator.acceptance(Blockwise(accept="distance(3)")).steps
    with pytest.raises(RegardError, match="no proposal heads, which guess in blockwise search; regard tune RUN"):
        load(toy_run, "cpu").translate(LINES, search="blockwise")


def test_heads_are_of_no_use_elsewhere(toy_run: Path, tuned: Path, tmp_path: Path) -> None:
    """Another library gets the model without them; a model that cannot take a step back gets none."""
    out, runs = tmp_path / "run", Path(__file__).parent.parent / "fixtures" / "runs"
    plain, model = load(toy_run, "cpu").model, load(tuned, "cpu").model
    assert without_proposals(model.state_dict()).keys() == plain.state_dict().keys()
    assert config_differences(plain.config, model.config, TRAINING_KEYS) == []
    with pytest.raises(RegardError, match="a model rnn of the task translation is not searched blockwise"):
        tune(runs / "rnn" / "run", [], 4, True, 2, out, "cpu", None, True)
    assert not out.exists()


def test_no_shape_of_a_distribution_without_drawing() -> None:
    """The likeliest token is taken, so that what shapes probabilities would do nothing, silently."""
    for key, value in NO_SHAPE.items():
        assert Speculative(**{key: value}) == Speculative()
        with pytest.raises(ValueError, match=f"{key} is about drawing tokens, and at a temperature of 0 the likeliest"):
            Speculative(**{key: 0.5 if value == 1 else value + 0.5})
    drawn = Speculative(temperature=0.8, top_k=7, repetition_penalty=1.1)
    assert SearchOptions(greedy=True).decoding_config(drawn) == Speculative()
    assert SearchOptions(temperature=0.0).decoding_config(drawn) == Speculative()


def test_a_recipe_with_heads_and_a_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    toy.write_corpus(tmp_path)
    keys = toy.recipe(tmp_path, steps=4)
    keys["decoding"] = {"kind": "blockwise", **LIMIT}
    with pytest.raises(RegardError, match=r"decoding\.kind is blockwise, and the model has no proposal heads"):
        recipes.load_recipe(keys)
    keys["model"]["proposals"] = 2
    outcome = train_recipe(recipes.load_recipe(keys), tmp_path / "run", "cpu")
    assert outcome.results["valid"]["metrics"]["bleu"]
    evaluate(EvaluationOptions(run=tmp_path / "run", device="cpu", as_json=True))
    told = capsys.readouterr()
    acceptance = json.loads(told.out)["acceptance"]
    assert acceptance["tokens"] > 0
    assert len(acceptance["acceptance_by_position"]) == 1
    assert f"blockwise search: {acceptance['gain']:.2f} tokens a step" in told.err
    keys["model"] = {"kind": "rnn", "size": 8}
    with pytest.raises(RegardError, match="takes back what was read, and a model of the kind rnn cannot"):
        recipes.load_recipe(keys)
    keys["decoding"] = {"kind": "speculative", "draft": "layers(1)"}
    keys["model"] = {"layers": 1}
    with pytest.raises(RegardError, match=r"decoding.draft is layers\(1\), and the model has 1 layers; take fewer"):
        recipes.load_recipe(keys)


# --- options -------------------------------------------------------------------------------------------------------


def test_searches_by_name() -> None:
    base, lengths = Beam(size=4, max_ratio=1.5, max_extra=3), {"max_ratio": 1.5, "max_extra": 3}
    drawn = Sample(temperature=0.8, top_k=7, repetition_penalty=1.1)

    def translation(given: DecodingConfig = base, **options: Any) -> DecodingConfig:
        return TranslationSearch(**options).decoding_config(given, False, 1)

    assert translation(search="greedy") == Greedy(**lengths)
    assert translation(search="speculative") == translation(draft="ngrams") == Speculative(**lengths)
    assert translation(draft="runs/x", draft_tokens=2) == Speculative(draft="runs/x", tokens=2, **lengths)
    assert translation(accept="top_k(2)") == Blockwise(accept="top_k(2)", **lengths)
    assert translation(search="speculative", sample=True, top_k=5) == Speculative(temperature=1.0, top_k=5, **lengths)
    assert translation(Speculative(draft="x"), beam=3) == Beam(size=3)  # a beam instead of the recipe's search
    assert translation(Speculative(draft="x"), draft_tokens=9) == Speculative(draft="x", tokens=9)
    searched = SearchOptions(search="speculative").decoding_config(drawn)
    assert searched == Speculative(temperature=0.8, top_k=7, repetition_penalty=1.1)
    assert searched.token_by_token() == drawn
    assert SearchOptions(search="speculative", greedy=True).decoding_config(drawn).token_by_token() == Greedy()
    assert SearchOptions(search="speculative", temperature=0.0).decoding_config(drawn).samples is False
    assert SearchOptions(search="sample").decoding_config(Speculative()) == Sample()
    assert SearchOptions(temperature=0.5).decoding_config(Speculative(draft="x")) == Speculative(
        draft="x", temperature=0.5
    )


@pytest.mark.parametrize("options, said", [
    ({"search": "speculativ"}, "--search is 'speculativ'; did you mean speculative?"),
    ({"search": "speculative", "beam": 3}, "--beam keeps 3 hypotheses, and speculative search one; leave out one"),
    ({"search": "greedy", "draft": "x"}, "--draft is for speculative search, not for greedy"),
    ({"search": "blockwise", "draft_tokens": 2}, "--draft-tokens is for speculative search, not for blockwise"),
    ({"search": "speculative", "accept": "exact"}, "--accept is for blockwise search, not for speculative"),
    ({"draft_tokens": 0}, "--search speculative: tokens must be from 1 to 64, not 0"),
    ({"accept": "top_k"}, "--search blockwise: accept is 'top_k'; write exact, top_k(2) or distance(2)"),
    ({"search": "blockwise", "sample": True}, "blockwise search takes the likeliest words; to draw them"),
])  # fmt: skip
def test_what_does_not_go_together(options: dict[str, Any], said: str) -> None:
    with pytest.raises(RegardError) as caught:
        TranslationSearch(**options).decoding_config(Beam(), False, 1, cli=True)
    assert said in str(caught.value)


def test_one_hypothesis(toy_run: Path) -> None:
    translator = load(toy_run, "cpu")
    with pytest.raises(RegardError, match="speculative search gives one output, not 3"):
        translator.nbest(LINES, 3, search="speculative")
    with pytest.raises(RegardError, match="phrases that must appear need a beam search"):
        translator.translate(LINES[:1], search="speculative", phrases=[["w2"]])
    with pytest.raises(RegardError, match="decoding is a whole search; leave out draft, or decoding"):
        TranslationOptions(decoding=Greedy(), draft="x").chosen_search(Greedy())


def test_the_report_of_a_search(toy_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    translator, search, path = load(toy_run, "cpu"), Speculative(draft="ngrams", tokens=2), tmp_path / "stats.json"
    report_acceptance(translator, search, path)  # nothing was decoded
    assert not path.exists()
    translator.translate(LINES, search)
    report_acceptance(translator, search, path)
    said = json.loads(path.read_text(encoding="utf-8"))
    assert said["decoding"]["draft"] == "ngrams"
    assert said["gain"] == pytest.approx(said["tokens"] / said["steps"], abs=1e-4)
    assert f"regard: speculative search: {said['gain']:.2f} tokens a step" in capsys.readouterr().err
    (tmp_path / "a.txt").write_text("w1 w2\n\nw3 w4 w5\n", encoding="utf-8")
    given = ["translate", str(toy_run), "--document", str(tmp_path / "a.txt"), "--device", "cpu", "--json", "--output"]
    given += [str(tmp_path / "b.txt"), "--stats", str(path)]
    told = CliRunner().invoke(app, [*given, "--search", "speculative"])
    assert told.exit_code == 0, told.exception
    said = json.loads(path.read_text(encoding="utf-8"))
    assert json.loads(told.stdout)["acceptance"] == {name: said[name] for name in said if name != "decoding"}
    assert "--stats counts the guesses" in str(CliRunner().invoke(app, [*given, "--search", "greedy"]).exception)
    with pytest.raises(RegardError, match="--stats counts the guesses of a speculative or blockwise search"):
        check_stats(Greedy(), path)
