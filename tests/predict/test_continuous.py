"""Texts that join a running batch are translated as if they were alone, whoever comes and goes beside them."""

import random
from pathlib import Path

import pytest

import regard
from regard.accel.decoding_graph import FixedStorageRunner
from regard.decoding import Beam, Engine, Greedy
from regard.predict import continuous as open_module
from regard.predict.continuous import ContinuousTranslator
from regard.predict.translation import Translation, Translator, distinct_texts
from tests.training.toy import WORDS


@pytest.fixture(scope="module")
def translator(toy_run: Path) -> Translator:
    return regard.load(toy_run, "cpu")


def texts(count: int, longest: int = 9) -> list[str]:
    draw = random.Random(3)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, longest))) for _ in range(count)]


def arriving(made: ContinuousTranslator, lines: list[str], decoding: object, count: int = 1) -> list[list[Translation]]:
    """All of them, coming a few at a time while others are being said; the most that were said at once."""
    draw, found, sent = random.Random(5), {}, 0
    made.most = 0  # type: ignore[attr-defined]
    while len(found) < len(lines):
        more = min(draw.choice((0, 0, 1, 3)), len(lines) - sent)
        assert made.add(range(sent, sent + more), lines[sent : sent + more], decoding, count) == []  # type: ignore[arg-type]
        sent += more
        found |= dict(made.step())
        made.most = max(made.most, made.rows)  # type: ignore[attr-defined]
    assert not made.busy
    return [distinct_texts(found[n], decoding, count) for n in range(len(lines))]  # type: ignore[arg-type]


@pytest.mark.parametrize("decoding, count", [(Greedy(), 1), (Beam(size=4), 1), (Beam(size=3), 3)])
def test_who_stands_beside_whom_changes_nothing(translator: Translator, decoding: object, count: int) -> None:
    lines = [*texts(40), ""]
    made = ContinuousTranslator(translator, slots=6)
    found = arriving(made, lines, decoding, count)
    wanted = translator.nbest(lines, count, decoding)  # type: ignore[arg-type]
    assert [[t.text for t in each] for each in found] == [[t.text for t in each] for each in wanted]
    for each, want in zip(found, wanted, strict=True):
        assert [t.score for t in each] == pytest.approx([t.score for t in want], abs=1e-4)
    assert 2 <= made.most <= 6  # type: ignore[attr-defined]


def test_compiled_steps_say_the_same(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    made, lines = ContinuousTranslator(translator, slots=4), texts(12)
    compiled = Engine(translator.engine.model, FixedStorageRunner)
    monkeypatch.setattr(Translator, "engine", property(lambda self: compiled))
    found = arriving(made, lines, Greedy())
    assert {batch.slots.runner is None for batch in made.batches.values()} == {False}
    monkeypatch.undo()
    assert [each[0].text for each in found] == translator.translate(lines, Greedy())


def test_lengths_have_batchs_of_their_own(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_module, "SMALLEST", 4)
    monkeypatch.setattr(open_module, "KEPT", 2)
    made, lines = ContinuousTranslator(translator, slots=8), [" ".join(WORDS[:n]) for n in (1, 3, 4, 7, 9, 15, 2)]
    assert [each[0].text for each in arriving(made, lines, Greedy())] == translator.translate(lines, Greedy())
    assert {4, 8, 16} <= {words for words, _, _ in made.batches}


def test_long_texts_are_given_back(translator: Translator) -> None:
    limit = translator.recipe.data.filters.max_length
    made = ContinuousTranslator(translator)
    assert made.add([7, 8], ["w1 " * (limit + 1), "w1 " * 3], Greedy()) == [7]
    found = dict(made.step())
    while made.busy:
        found |= dict(made.step())
    assert list(found) == [8]


def test_a_dropped_text_gives_its_place_to_another(translator: Translator) -> None:
    made, lines = ContinuousTranslator(translator, slots=2), texts(4)
    made.add(range(4), lines, Greedy())
    made.step()
    (batch,) = made.batches.values()
    assert (batch.active, len(batch.waiting)) == (2, 2)
    made.drop({0, 3})
    assert (batch.active, len(batch.waiting)) == (1, 1)
    found: dict[int, list[Translation]] = {}
    while made.busy:
        found |= dict(made.step())
    assert {n: each[0].text for n, each in found.items()} == {n: translator.translate([lines[n]])[0] for n in (1, 2)}
