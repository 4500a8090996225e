"""A trained model as a translator: order, empty lines, n-best, scores; batching changes nothing but near-ties."""

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.decoding import Beam, Greedy, Sample
from regard.errors import RegardError
from regard.examples.batching import by_length, slot_groups
from regard.predict.translation import Translator
from tests.training import toy


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained until it says different things of different sentences, and no longer."""
    folder = tmp_path_factory.mktemp("translator")
    toy.write_corpus(folder, train=1500)
    keys = toy.recipe(
        folder,
        steps=250,
        tokens_per_batch=400,
        validation={"every": 250, "lines": 5},
        checkpoints={"every": 250},
        schedule={"kind": "noam", "warmup": 50, "peak": 5e-3},
    )
    keys["model"] |= {"size": 48, "inner": 96, "heads": 4, "residual": "pre_norm"}
    regard.train(keys, folder / "run", device="cpu")
    return folder / "run"


@pytest.fixture(scope="module")
def translator(run: Path) -> Translator:
    return regard.load(run, device="cpu")


@pytest.fixture(scope="module")
def exact(run: Path) -> Translator:
    made = regard.load(run, device="cpu")
    made.model.double()
    return made


def sentences(count: int, seed: int = 5, longest: int = 12) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choice(toy.WORDS) for _ in range(draw.randint(1, longest))) for _ in range(count)]


def test_order_is_restored(exact: Translator) -> None:
    lines = sentences(30)
    together = exact.translate(lines)
    assert together == [exact.translate([line])[0] for line in lines]
    assert len(set(together)) > 15
    shuffled = random.Random(1).sample(range(30), 30)
    assert exact.translate([lines[n] for n in shuffled]) == [together[n] for n in shuffled]


def test_empty_lines_stay_in_place(translator: Translator) -> None:
    found = translator.translate(["", "w1 w2", "   ", "\t", "w3", ""])
    assert [bool(line) for line in found] == [False, True, False, False, True, False]
    assert [len(options) for options in translator.nbest(["", "w1"], 3, Beam(size=4))] == [0, 3]
    assert translator.translate([]) == []
    assert translator.translate(["", " "]) == ["", ""]


def test_of_the_same_text_the_best_is_kept(exact: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a text can be cut into pieces in two ways: the rest move up, and come from the whole beam."""
    lines, beam = sentences(6), Beam(size=8)
    whole = exact.nbest(lines, 8, beam)
    monkeypatch.setattr(exact, "detokenise", lambda rows, form: [str(sum(row) % 5) for row in rows])
    found = exact.nbest(lines, 3, beam)
    for options, every in zip(found, whole, strict=True):
        seen = list(dict.fromkeys(str(sum(t.tokens) % 5) for t in every))
        assert [t.text for t in options] == seen[:3]
        assert options[0].tokens == every[0].tokens
    assert sum(len({sum(t.tokens) % 5 for t in every[:3]}) < 3 for every in whole) > 1


def test_nbest_is_distinct_sorted_and_begins_with_the_best(exact: Translator) -> None:
    lines = sentences(8)
    found = exact.nbest(lines, 4, Beam(size=4))
    for options, best in zip(found, exact.nbest(lines, 1, Beam(size=4)), strict=True):
        assert len({option.text for option in options}) == 4
        assert [o.score for o in options] == sorted((o.score for o in options), reverse=True)
        assert options[0] == best[0]


def test_asking_for_more_than_the_search_gives(translator: Translator) -> None:
    with pytest.raises(RegardError, match="a beam of 2 has no 3 best; raise the beam to 3"):
        translator.nbest(["w1"], 3, Beam(size=2))
    with pytest.raises(RegardError, match="greedy search gives one output, not 2"):
        translator.nbest(["w1"], 2, Greedy())


@pytest.mark.parametrize("decoding", [Greedy(), Beam(size=3), Sample(seed=4)])
def test_scores_are_those_of_forced_scoring(exact: Translator, decoding: object) -> None:
    """Wherever the text says the words again (`<unk>` does not) and the end was not forced by the limit."""
    lines = sentences(12, seed=9)
    found = [options[0] for options in exact.nbest(lines, 1, decoding)]
    forced = exact.score([(line, t.text) for line, t in zip(lines, found, strict=True)])
    pairs = [(t, f, n) for t, (f, n) in zip(found, forced, strict=True) if t.text and "<unk>" not in t.text]
    assert len(pairs) >= 4
    for t, f, n in pairs:
        assert t.log_probability == pytest.approx(f, abs=1e-6)
        assert t.score == pytest.approx(f / n if isinstance(decoding, Beam) else f, abs=1e-6)


@pytest.mark.parametrize("decoding", [Greedy(), Beam(size=4), Sample(seed=2)])
def test_batch_size_changes_nothing_in_float64(exact: Translator, decoding: object) -> None:
    lines = sentences(60)
    outputs = [exact.translate(lines, decoding, batch_tokens=budget) for budget in (1, 50, 4096)]
    assert outputs[0] == outputs[1] == outputs[2]


def test_batch_size_changes_near_ties_only_in_float32(translator: Translator) -> None:
    lines = sentences(400, longest=20)
    for decoding in (Greedy(), Beam(size=4)):
        small, large = ([o[0] for o in translator.nbest(lines, 1, decoding, batch_tokens=b)] for b in (50, 4096))
        different = [(a, b) for a, b in zip(small, large, strict=True) if a.text != b.text]
        assert len(different) <= 0.005 * len(lines)
        assert all(abs(a.score - b.score) < 1e-4 for a, b in different)
        assert all(abs(a.score - b.score) < 1e-3 for a, b in zip(small, large, strict=True))
        assert len({t.text for t in large}) > 200


def test_a_stream_in_parts_is_drawn_as_the_whole(exact: Translator) -> None:
    lines = ["w1 w2 w3"] * 6
    whole = exact.nbest(lines, 1, Sample(seed=3))
    parts = exact.nbest(lines[:4], 1, Sample(seed=3)) + exact.nbest(lines[4:], 1, Sample(seed=3), before=4)
    assert [o[0].text for o in parts] == [o[0].text for o in whole]
    assert len({o[0].text for o in whole}) > 1  # equal lines are drawn apart


def test_a_string_instead_of_a_list(translator: Translator) -> None:
    for ask in (translator.translate, lambda text: translator.nbest(text, 1)):
        with pytest.raises(RegardError, match=r"a list of sentences, not one string; write translate\(\[text\]\)"):
            ask("w1 w2")


KNOWN = "Greedy or Beam or Sample or Speculative or Blockwise"


@pytest.mark.parametrize(
    "options, said",
    [
        ({"bem": 3}, "translate has no option bem; did you mean beam?"),
        ({"long": "foo"}, "long is 'foo'; known: truncate, extract, segments, refuse, none"),
        ({"long": "segmnt"}, "long is 'segmnt'; did you mean segments?"),
        ({"attention": ("cros",)}, "translate: attention is ('cros',); did you mean cross?"),
        ({"attention": "cross"}, "translate: attention is 'cross'; write a list: ['cross']"),
        ({"beam": 2.5}, "translate: beam is 2.5; write a whole number"),
        ({"beam": True}, "translate: beam is True; write a whole number"),
        ({"beam": 0}, "a beam has a size of at least 1, not 0"),
        ({"nbest": 0}, "of the best translations at least 1 is given, not 0"),
        ({"beam": 2, "nbest": 3}, "a beam of 2 has no 3 best; raise the beam to 3"),
        ({"form": "raw"}, "translate: form is 'raw'; known: plain, prepared"),
        ({"decoding": "beam"}, f"translate: decoding is 'beam'; write {KNOWN}"),
        ({"decoding": Greedy(), "beam": 3}, "decoding is a whole search; leave out beam, or decoding"),
        ({"temperature": 0.5}, "temperature is for drawing words at random; add sample=True"),
        ({"beam": 3, "sample": True}, "sample draws words and beam searches; give one of them"),
    ],
)
def test_options_that_are_not_there(translator: Translator, options: dict[str, Any], said: str) -> None:
    with pytest.raises(RegardError, match=f"^{re.escape(said)}$"):
        translator.translate(["w1"], **options)


@pytest.mark.parametrize(
    "lines, said",
    [
        (None, "translate takes a list of sentences, not None; write translate([text])"),
        (3, "translate takes a list of sentences, not 3; write translate([text])"),
        (iter(["w1"]), "translate takes a list of sentences, not a list_iterator; write translate([text])"),
        (["w1", None], "translate takes a list of sentences; number 2 is None, which is not text"),
        ([3], "translate takes a list of sentences; number 1 is 3, which is not text"),
        ([b"w1"], "translate takes a list of sentences; number 1 is b'w1', which is not text"),
        ([["w1"]], "translate takes a list of sentences; number 1 is ['w1'], which is not text"),
    ],
)
def test_what_is_no_list_of_texts(translator: Translator, lines: Any, said: str) -> None:
    with pytest.raises(RegardError, match=f"^{re.escape(said)}$"):
        translator.translate(lines)


def test_pairs_that_are_not_of_text(translator: Translator) -> None:
    with pytest.raises(RegardError, match=r"score takes a list of pairs; number 1 is \('w1', None\)"):
        translator.score([("w1", None)])  # type: ignore[list-item]
    with pytest.raises(RegardError, match=r"pair 2 is not a source and a target; write score\("):
        translator.score([("w1", "W1"), "w1"])  # type: ignore[list-item]
    with pytest.raises(RegardError, match=r"score has no option batch_token; did you mean batch_tokens\?"):
        translator.score([("w1", "W1")], batch_token=3)  # type: ignore[call-arg]


def test_the_search_of_a_call_is_that_of_the_command(exact: Translator) -> None:
    lines = [*sentences(4), ""]
    best = exact.nbest(lines, 1, Beam(size=3))
    assert exact.translate(lines, beam=3) == [found[0].text if found else "" for found in best]
    assert exact.translate(lines, beam=1) == exact.translate(lines, Greedy())
    several = exact.translate(lines, nbest=3)  # the recipe is greedy: a beam of 3
    assert several == [[t.text for t in found] for found in exact.nbest(lines, 3, Beam(size=3))]
    assert several == [[t.text for t in found] for found in exact.nbest(lines, 3)]
    drawn = exact.translate(lines, sample=True, temperature=0.7, seed=4)
    assert drawn == exact.translate(lines, Sample(temperature=0.7, seed=4))


def test_warnings_name_the_line_of_the_caller(translator: Translator) -> None:
    with pytest.warns(UserWarning, match="were cut") as found:
        translator.translate(["w2 " * 300])
    assert found[0].filename == __file__


def test_long_lines_by_policy_and_never_silently(translator: Translator) -> None:
    limit = translator.recipe.data.filters.max_length
    lines = ["w1", " ".join(["w2"] * (limit + 1)), " ".join(["w3"] * limit)]
    said: list[str] = []
    cut = translator.translate(lines, long="truncate", warn=said.append)
    assert said == [f"1 line(s) longer than {limit} pieces were cut, first line 2; 1 of 257 pieces were dropped"]
    assert cut[1] == translator.translate([" ".join(["w2"] * limit)])[0]
    with pytest.warns(UserWarning, match="1 line.s. longer than 256 pieces were cut, first line 2"):
        translator.translate(lines)
    with pytest.raises(RegardError, match=rf"line 12 has {limit + 1} pieces; the model was trained on at most {limit}"):
        translator.nbest(lines, 1, long="refuse", before=10)
    translator.translate(lines, Greedy(max_ratio=0.0), long="translate", warn=pytest.fail)


def test_a_model_in_training_mode_is_left_in_it(translator: Translator) -> None:
    translator.model.train()
    assert translator.translate(["w1 w2 w3"] * 2)[0] == translator.translate(["w1 w2 w3"])[0]  # without dropout
    translator.score([("w1", "W1")])
    assert translator.model.training
    translator.model.eval()


def test_scoring_by_hand(exact: Translator) -> None:
    """The empty target is the end alone; one more word adds its own log-probability."""
    (empty, one), (word, two) = exact.score([("w1 w2", ""), ("w1 w2", "W1")])
    assert (one, two) == (1, 2)
    assert word < 0
    assert empty < 0
    entries = exact.vocabulary.target.size
    every = exact.score([("w1 w2", w.upper()) for w in toy.WORDS])
    assert sum(torch.tensor([s for s, _ in every]).exp()) < 1
    mean = exact.loss([("w1 w2", "W1"), ("", ""), ("w1", "")])  # empty pairs do not count
    assert mean["loss"] == pytest.approx(-word / 2)
    assert mean["perplexity"] == pytest.approx(torch.tensor(-word / 2).exp().item(), rel=1e-5)
    assert mean["perplexity"] < 10 * entries


def test_batches_by_length() -> None:
    lengths = [3, 0, 9, 1, 9, 4]
    batches = list(by_length(lengths, budget=20))
    assert sorted(n for rows in batches for n in rows) == [0, 2, 3, 4, 5]
    assert batches[0] == [2, 4]  # two of nine pieces and an end each: twenty
    assert all(len(rows) * (max(lengths[n] for n in rows) + 1) <= 20 for rows in batches)
    assert list(by_length([500], budget=20)) == [[0]]  # one sentence, however long


def test_lanes_hold_every_row_once_and_short_ones_apart() -> None:
    draw = random.Random(3)
    lengths = [draw.randint(0, 80) for _ in range(500)]
    made = list(slot_groups(lengths, 200))
    assert sorted(n for rows, _ in made for n in rows) == [n for n in range(500) if lengths[n]]
    for rows, room in made[:-1]:
        ranked = [lengths[n] for n in rows]
        assert ranked == sorted(ranked, reverse=True)
        assert 2 * ranked[-1] >= ranked[0]
        assert room == min(len(rows), max(1, 200 // (ranked[0] + 1)))
    assert len(made) > 3
    assert list(slot_groups([40, 3, 2], 1000)) == [([0, 1, 2], 3)]  # too few to have storage of their own
    assert list(slot_groups([0, 0], 10)) == []


def test_bf16_says_nearly_the_same(run: Path, translator: Translator) -> None:
    lines = sentences(40)
    half = regard.load(run, "cpu", "bf16")
    for decoding in (Greedy(), Beam(size=4)):
        plain, fast = translator.nbest(lines, 1, decoding), half.nbest(lines, 1, decoding)
        assert sum(a[0].text == b[0].text for a, b in zip(plain, fast, strict=True)) >= 36
        assert [t[0].log_probability for t in fast] != [t[0].log_probability for t in plain]
    assert next(half.model.parameters()).dtype == torch.float32  # scores of given text stay exact
    assert half.score([("w1", "W1")]) == translator.score([("w1", "W1")])
    with pytest.raises(RegardError, match="precision is 'int4'; write float32 or bf16 or int8"):
        regard.load(run, "cpu", "int4").translate(["w1"])


def test_changed_weights_are_noticed(run: Path) -> None:
    """What is laid out for decoding follows the model, whose weights an optimiser changes in place."""
    changing, lines = regard.load(run, device="cpu"), sentences(6)
    before, engine = changing.nbest(lines, 1), changing.engine
    assert changing.engine is engine
    with torch.no_grad():
        for p in changing.model.parameters():
            p.mul_(1.01)
    after = changing.nbest(lines, 1)
    assert changing.engine is not engine
    assert all(a[0].score != b[0].score for a, b in zip(before, after, strict=True))


def test_train_and_load_as_functions(tmp_path: Path) -> None:
    toy.write_corpus(tmp_path)
    outcome = regard.train(
        toy.recipe(tmp_path), out=tmp_path / "run", overrides=["training.steps=3", "seed=7"], device="cpu"
    )
    assert outcome.finished
    assert outcome.exit_code == 0
    assert (outcome.state.step, outcome.results["seed"]) == (3, 7)
    assert json.loads((tmp_path / "run" / "results.json").read_text())["steps"] == 3
    assert len(regard.load(str(tmp_path / "run"), device="cpu").translate(["w1 w2", "", "w3"])) == 3
    assert len(regard.load(tmp_path / "run" / "last", device="cpu").translate(["w1"])) == 1  # a checkpoint, too
    with pytest.raises(RegardError, match=r"training\.stepz is not a known key; did you mean steps"):
        regard.train(toy.recipe(tmp_path), out=tmp_path / "b", overrides=["training.stepz=3"])
