"""Prefixes and phrases, against the best of all sequences that have them; in batches beside sentences without any."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.accel.decoding_graph import FixedStorageRunner
from regard.decoding import Beam, Engine, Greedy, RequestQueue, Sample, length_penalty
from regard.decoding.contract import WordBoundaries
from regard.errors import RegardError
from tests.decoding.small import MODELS, SYMBOLS, constrained, queue, sentences
from tests.decoding.test_search import Table, one

PREFIXES = [(), (4,), (4, 1), (1, 1, 4)]
PHRASES = [((4, 4),), ((1, 4), (4,)), ((4, 1, 4),), ((1, 1, 4),), ((4,), (1,), (5,)), ((5, 4), (4, 5))]


def appears(phrase: tuple[int, ...], words: list[int]) -> bool:
    return any(tuple(words[n : n + len(phrase)]) == phrase for n in range(len(words)))


BOUNDARIES = {  # of words of the pieces 1, 4 and 5
    "ends are marked": WordBoundaries(frozenset({4}), frozenset({1, 4, 5}), frozenset({1, 5})),
    "beginnings are marked": WordBoundaries(frozenset({1, 4, 5}), frozenset({4})),
    "characters": WordBoundaries(frozenset({4, 5}), frozenset({4, 5}), frozenset({1})),  # 1: a space
}
APART = [
    ("ends are marked", ((5,),)),
    ("ends are marked", ((4, 5),)),
    ("ends are marked", ((1,), (5,))),
    ("ends are marked", ((4, 4, 5),)),
    ("ends are marked", ((4, 1), (5,))),
    ("beginnings are marked", ((1,),)),
    ("beginnings are marked", ((5, 4),)),
    ("beginnings are marked", ((1, 5),)),
    ("beginnings are marked", ((1,), (5, 4))),
    ("characters", ((4,),)),
    ("characters", ((4, 5),)),
    ("characters", ((4, 4),)),
    ("characters", ((4, 1, 5),)),
    ("characters", ((4,), (5,))),
]


def apart(phrase: tuple[int, ...], words: list[int], boundaries: WordBoundaries) -> bool:
    """Whether it appears, and not inside a word."""
    places = [n for n in range(len(words)) if tuple(words[n : n + len(phrase)]) == phrase]
    joined = [n for n in range(1, len(words)) if boundaries.inside_word(words[n - 1], words[n])]
    return any(n not in joined and n + len(phrase) not in joined for n in places)


def ranked(model: Table, limit: int, config: Beam) -> list[list[int]]:
    words = [w for w in range(model.entries) if w not in (0, 2, 3)]
    everything = [list(s) for n in range(limit + 1) for s in itertools.product(words, repeat=n)]
    return sorted(everything, key=lambda s: -model.log_probability(s) / length_penalty(len(s) + 1, config))


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_the_best_with_a_prefix(prefix: tuple[int, ...], alpha: float) -> None:
    model, config = Table(5, 3), Beam(size=100, length_penalty=alpha)
    wanted = [s for s in ranked(model, 4, config) if tuple(s[: len(prefix)]) == prefix][:3]
    given = constrained(RequestQueue.of(one(), [4]), prefixes=[prefix])
    found = Engine(model).decode(given, SYMBOLS, config, 3)[0]
    assert [h.tokens for h in found] == wanted
    assert found[0].log_probability == pytest.approx(model.log_probability(wanted[0]), abs=1e-9)


@pytest.mark.parametrize("phrases", PHRASES)
@pytest.mark.parametrize("seed", range(2))
def test_the_best_with_phrases(phrases: tuple[tuple[int, ...], ...], seed: int) -> None:
    """A beam that holds everything finds the best of all that have the phrases, wherever and in whatever order."""
    model, config = Table(6, seed), Beam(size=400, length_penalty=1.0)
    wanted = [s for s in ranked(model, 4, config) if all(appears(p, s) for p in phrases)]
    given = constrained(RequestQueue.of(one(), [4]), phrases=[phrases])
    found = Engine(model).decode(given, SYMBOLS, config, 3)[0]
    # Overlapping phrases may be met in fewer words than the search allows for; what it finds is then no worse than
    # the best that says them one after the other.
    assert all(appears(p, h.tokens) for h in found for p in phrases)
    if sum(map(len, phrases)) < 4:
        assert found[0].tokens == wanted[0]
    for h in found:
        assert h.log_probability == pytest.approx(model.log_probability(h.tokens), abs=1e-9)


@pytest.mark.parametrize("variants", [(((5,), (1, 4)), ()), (((4, 5),), ((1, 1), (5, 5, 5))), ((), ((5,),))], ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_the_best_with_phrases_that_have_variants(variants, seed: int) -> None:
    model, config, phrases = Table(6, seed), Beam(size=600, length_penalty=1.0), ((4,), (1,))
    every = [(phrase, *others) for phrase, others in zip(phrases, variants, strict=True)]
    wanted = [s for s in ranked(model, 4, config) if all(any(appears(p, s) for p in each) for each in every)]
    given = constrained(RequestQueue.of(one(), [4]), phrases=[phrases], variants=[variants])
    found = Engine(model).decode(given, SYMBOLS, config, 3)[0]
    assert [h.tokens for h in found] == wanted[:3]
    plain = Engine(model).decode(constrained(RequestQueue.of(one(), [4]), phrases=[phrases]), SYMBOLS, config, 3)[0]
    assert found[0].score >= plain[0].score


@pytest.mark.parametrize("kind, phrases", APART)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("prefix", [(), (4,), (5, 1)])
def test_the_best_with_phrases_that_stand_by_themselves(kind: str, phrases, seed: int, prefix) -> None:
    model, config, boundaries = Table(6, seed), Beam(size=400, length_penalty=1.0), BOUNDARIES[kind]
    limit = 5 + (len(prefix) > 0)
    wanted = [
        s
        for s in ranked(model, limit, config)
        if tuple(s[: len(prefix)]) == prefix and all(apart(p, s, boundaries) for p in phrases)
    ]
    given = constrained(RequestQueue.of(one(), [limit]), phrases=[phrases], boundaries=boundaries, prefixes=[prefix])
    found = Engine(model).decode(given, SYMBOLS, config, 3)[0]
    assert [h.tokens for h in found] == wanted[:3]


@pytest.mark.parametrize("kind, phrases", APART)
@pytest.mark.parametrize("prefix", [(), (4,), (5, 1)])
@pytest.mark.parametrize("size", [1, 3])
def test_words_are_ended_in_time(kind: str, phrases, prefix, size: int) -> None:
    """In no more room than is needed, phrases stand by themselves, whatever the model would rather say."""
    boundaries = BOUNDARIES[kind]
    for seed, limit in itertools.product(range(10), range(1, 9)):
        model = Table(6, seed)
        model.logits[..., 4] += 3  # words that go on
        given = constrained(
            RequestQueue.of(one(), [limit]), phrases=[phrases], boundaries=boundaries, prefixes=[prefix]
        )
        try:
            found = Engine(model).decode(given, SYMBOLS, Beam(size=size))[0]
        except RegardError:
            assert limit < len(prefix) + sum(map(len, phrases)) + len(phrases)
            continue
        assert found
        assert all(apart(p, found[0].tokens, boundaries) for p in phrases)
        assert tuple(found[0].tokens[: len(prefix)]) == prefix


def test_what_has_to_end_needs_room() -> None:
    given = constrained(
        RequestQueue.of(one(), [3]), phrases=[((4, 5),)], prefixes=[(4,)], boundaries=BOUNDARIES["ends are marked"]
    )
    with pytest.raises(RegardError, match="it has 2 pieces, and there is room for 1"):
        Engine(Table(6)).decode(given, SYMBOLS, Beam())


@pytest.mark.parametrize("runner", [None, FixedStorageRunner])
@pytest.mark.parametrize("name", ["transformer", "rnn, feeding"])
def test_phrases_stand_by_themselves_in_a_batch(name: str, runner) -> None:
    """Compiled steps too, and in places that other sentences had before."""
    model, rows = MODELS[name](), sentences(14)
    even, every = frozenset(range(4, 40, 2)), frozenset(range(4, 40))
    boundaries = WordBoundaries(even, every, every - even)
    phrases = [((6 + n, 9), (11,))[: n % 3] for n in range(14)]
    given = constrained(queue(rows, 5), phrases=phrases, boundaries=boundaries)
    found = Engine(model, runner).decode(given, SYMBOLS, Beam(size=4), 2)
    assert all(hypotheses and all(apart(p, h.tokens, boundaries) for h in hypotheses for p in asked)
               for hypotheses, asked in zip(found, phrases, strict=True))  # fmt: skip
    free = Engine(model).decode(queue(rows, 5), SYMBOLS, Beam(size=4), 2)
    assert [h.tokens for each in found[::3] for h in each] == [h.tokens for each in free[::3] for h in each]


@pytest.mark.parametrize("runner", [None, FixedStorageRunner])
@pytest.mark.parametrize("name", ["transformer", "rnn, feeding"])
def test_phrases_appear_in_a_batch_and_leave_other_sentences_alone(name: str, runner) -> None:
    model, rows = MODELS[name](), sentences(14)
    g = np.random.default_rng(1)
    phrases = [
        tuple(tuple(g.integers(4, 40, g.integers(1, 4)).tolist()) for _ in range(g.integers(0, 4))) for _ in rows
    ]
    given = queue(rows, 5)
    given.requests = [replace(each, limit=each.limit + 12) for each in given.requests]
    config = Beam(size=4)
    found = Engine(model, runner).decode(constrained(given, phrases=phrases), SYMBOLS, config, 2)
    free = Engine(model, runner).decode(given, SYMBOLS, config, 2)
    for n, asked in enumerate(phrases):
        assert found[n]
        assert all(appears(phrase, h.tokens) for h in found[n] for phrase in asked)
        if not asked:
            assert [h.tokens for h in found[n]] == [h.tokens for h in free[n]]
            assert [h.score for h in found[n]] == pytest.approx([h.score for h in free[n]], abs=1e-9)
    assert sum(bool(asked) for asked in phrases) > 5


@pytest.mark.parametrize("config", [Greedy(), Sample(), Beam(size=3)], ids=str)
def test_prefixes_in_a_batch(config) -> None:
    """The prefix comes first, then what the model says after it; sentences without one are left alone."""
    model, rows = MODELS["transformer"](), sentences(10)
    prefixes = [(7, 8, 9) if n % 3 == 0 else (11,) if n % 3 == 1 else () for n in range(10)]
    given = queue(rows, 4)
    found = Engine(model).decode(constrained(given, prefixes=prefixes), SYMBOLS, config)
    free = Engine(model).decode(given, SYMBOLS, config)
    for n, prefix in enumerate(prefixes):
        assert tuple(found[n][0].tokens[: len(prefix)]) == prefix
        if not prefix:
            assert found[n][0].tokens == free[n][0].tokens


def test_a_prefix_and_phrases_together() -> None:
    given = constrained(queue(sentences(3), 3), prefixes=[(7, 8), (), (9,)], phrases=[((8, 9),), ((5,), (6,)), ()])
    found = Engine(MODELS["transformer"]()).decode(given, SYMBOLS, Beam(size=4))
    assert found[0][0].tokens[:2] == [7, 8]
    assert appears((8, 9), found[0][0].tokens)
    assert appears((5,), found[1][0].tokens)
    assert appears((6,), found[1][0].tokens)
    assert found[2][0].tokens[0] == 9


@pytest.mark.parametrize(
    "phrases, prefix, config, message",
    [
        (((5,), (4, 4, 4, 4)), (), Beam(), r"phrase 2 of sentence 1 \(tokens 4 4 4 4\).*room for 3"),
        (((5,), (2, 4)), (), Beam(), r"phrase 2 of sentence 1 \(tokens 2 4\).*never generated"),
        (((),), (), Beam(), r"phrase 1 of sentence 1 .*empty"),
        (((5, 5, 5),), (4, 4), Beam(), r"phrase 1 of sentence 1 .*room for 2"),
        (((5,),), (), Greedy(), "need a beam"),
        ((), (4, 4, 4, 4, 4), Greedy(), r"sentence 1 cannot begin with the tokens 4 4 4 4 4"),
        ((), (3,), Beam(), r"sentence 1 cannot begin"),
    ],
)
def test_what_cannot_be_met_is_named(phrases, prefix, config, message: str) -> None:
    given = constrained(RequestQueue.of(one(), [4]), phrases=[phrases], prefixes=[prefix])
    with pytest.raises(RegardError, match=message):
        Engine(Table(6)).decode(given, SYMBOLS, config)


def test_phrases_with_common_words() -> None:
    """One that has been said does not hide another that goes on with the same word."""
    model = Table(7, 1)
    model.logits[..., [4, 5, 6]] -= 8
    given = constrained(RequestQueue.of(one(), [6]), phrases=[((4, 5), (6, 5), (5,))])
    words = Engine(model).decode(given, SYMBOLS, Beam(size=3))[0][0].tokens
    assert appears((4, 5), words)
    assert appears((6, 5), words)


def test_a_tight_limit_is_enough() -> None:
    """Phrases that fill all the room there is are said, whatever the model would rather say."""
    model = Table(7, 1)
    model.logits[..., [4, 5, 6]] -= 8
    given = constrained(RequestQueue.of(one(2), [5, 5]), phrases=[((4, 5), (6, 4, 4)), ((5,),)])
    found = Engine(model).decode(given, SYMBOLS, Beam(size=3))
    assert sorted(found[0][0].tokens) == [4, 4, 4, 5, 6]
    assert appears((6, 4, 4), found[0][0].tokens)
    assert 5 in found[1][0].tokens
    assert torch.isfinite(torch.tensor(found[0][0].score))
