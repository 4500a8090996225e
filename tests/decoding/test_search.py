"""The searches against brute force on models small enough to enumerate, and against themselves in other batches."""

import itertools
import math

import numpy as np
import pytest
import torch

from regard.decoding import Beam, Greedy, Sample, Symbols
from regard.decoding.beam import penalty
from regard.models.batch import PairBatch, RaggedRows, collate_sources
from tests.models.promises import MARKS
from tests.models.test_transformer import build
from tests.searches import beam_search, greedy_search, sample

SYMBOLS = Symbols(bos=2, eos=3, never=(0, 2))


class Table:
    """A generator whose next-word probabilities depend on the last two words alone: easy to enumerate."""

    def __init__(self, entries: int = 7, seed: int = 0, rows: int = 1) -> None:
        g = torch.Generator().manual_seed(seed)
        self.logits = torch.randn(entries, entries, entries, dtype=torch.float64, generator=g) * 2
        self.entries = entries

    def start(self, batch, length, record=None):
        return _State(torch.zeros(len(batch.source), dtype=torch.long))

    def step(self, tokens, state):
        out = self.logits[state.before, tokens[:, 0]][:, None]
        state.before = tokens[:, 0]
        return out, state

    def log_probability(self, words) -> float:
        before, last, total = 0, 2, 0.0
        for word in (*words, 3):
            total += float(self.logits[before, last].log_softmax(-1)[word])
            before, last = last, word
        return total


class _State:
    def __init__(self, before):
        self.before, self.beams = before, 1  # [B·K]

    def expand_beams(self, beams):
        self.before, self.beams = self.before.repeat_interleave(beams), beams

    def reorder_beams(self, beams):
        self.before = self.before.view(-1, self.beams).gather(1, beams).flatten()

    def reorder(self, index):
        self.before = self.before.view(-1, self.beams)[index].flatten()

    def release(self, rows):
        pass

    def write(self, rows, other):
        self.before.view(-1, self.beams)[rows] = other.before.view(-1, self.beams)


def one(rows: int = 1) -> PairBatch:
    return PairBatch(torch.zeros(rows, 1, dtype=torch.long), None)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("alpha, kind", [(0.0, "power"), (1.0, "power"), (0.6, "gnmt")])
def test_wide_beam_finds_the_best_of_all(seed: int, alpha: float, kind: str) -> None:
    """A beam that holds every beginning is exhaustive search: its n-best are the true ones, with their scores."""
    model, limit = Table(5, seed), 3
    config = Beam(size=200, length_penalty=alpha, penalty=kind)
    words = [w for w in range(5) if w not in (0, 2, 3)]
    everything = [s for n in range(limit + 1) for s in itertools.product(words, repeat=n)]
    ranked = sorted(everything, key=lambda s: -model.log_probability(s) / penalty(len(s) + 1, config))
    found = beam_search(model, one(), [limit], SYMBOLS, config, nbest=5)[0]
    assert [tuple(h.tokens) for h in found] == ranked[:5]
    for h in found:
        assert h.log_probability == pytest.approx(model.log_probability(h.tokens), abs=1e-9)
        assert h.score == pytest.approx(h.log_probability / penalty(len(h.tokens) + 1, config), abs=1e-9)


def test_penalties_by_hand() -> None:
    assert penalty(10, Beam(length_penalty=1.0)) == 10
    assert penalty(7, Beam(length_penalty=0.5, penalty="gnmt")) == pytest.approx(math.sqrt(2))
    assert penalty(9, Beam(length_penalty=0.0)) == 1


def test_beam_of_one_is_greedy() -> None:
    for seed in range(5):
        model = Table(9, seed)
        greedy = greedy_search(model, one(), [12], SYMBOLS, Greedy())[0]
        beam = beam_search(model, one(), [12], SYMBOLS, Beam(size=1))[0][0]
        assert greedy.tokens == beam.tokens
        assert greedy.log_probability == pytest.approx(beam.log_probability)


def test_limits_are_kept_and_forbidden_words_never_said() -> None:
    model = Table(6, 1)
    model.logits[..., 3] = -50.0  # it would never end by itself
    model.logits[..., 0] = 50.0  # and would love to say padding
    for search, config in ((greedy_search, Greedy()), (sample, Sample())):
        found = search(model, one(2), [4, 7], SYMBOLS, config)
        assert [len(h.tokens) for h in found] == [4, 7]
        assert not {0, 2} & {t for h in found for t in h.tokens}
    assert [len(h[0].tokens) for h in beam_search(model, one(2), [4, 7], SYMBOLS, Beam(size=3))] == [4, 7]


def test_sampling_follows_the_probabilities() -> None:
    model = Table(6, 4)
    first = model.logits[0, 2].log_softmax(-1).exp()
    first[[0, 2]] = 0  # may not be said
    draws = sample(model, one(4000), [1] * 4000, SYMBOLS, Sample(seed=3))
    counts = np.bincount([h.tokens[0] if h.tokens else 3 for h in draws], minlength=6) / 4000
    np.testing.assert_allclose(counts, first / first.sum(), atol=0.03)


def test_top_k_top_p_and_temperature_limit_the_choice() -> None:
    model = Table(8, 5)
    order = [w for w in model.logits[0, 2].argsort(descending=True).tolist() if w not in (0, 2)]
    said = lambda **keys: {  # noqa: E731
        h.tokens[0] if h.tokens else 3 for h in sample(model, one(300), [1] * 300, SYMBOLS, Sample(**keys))
    }
    assert said(top_k=1) == {order[0]}
    assert said(top_k=2) == set(order[:2])
    assert said(top_p=1e-6) == {order[0]}
    assert said(temperature=1e-3) == {order[0]}
    assert len(said(temperature=5.0)) == 6


def transformer_batch(rows: list[np.ndarray]) -> PairBatch:
    return PairBatch(*collate_sources(RaggedRows.of(rows), 0, 3))


@pytest.mark.parametrize(
    "config", [Greedy(), Beam(size=4), Beam(size=3, penalty="gnmt", length_penalty=0.6), Sample(seed=7)]
)
def test_batching_and_order_change_nothing(config) -> None:
    """In float64 the output of a sentence is the same alone, in any batch and in any order."""
    model = build(40)
    g = np.random.default_rng(0)
    rows = [g.integers(4, 40, n) for n in g.integers(1, 12, 24)]

    def search(chosen: list[int]) -> dict[int, list[int]]:
        batch, limits = transformer_batch([rows[i] for i in chosen]), [2 * len(rows[i]) + 5 for i in chosen]
        if isinstance(config, Beam):
            found = [h[0] for h in beam_search(model, batch, limits, SYMBOLS, config)]
        elif isinstance(config, Greedy):
            found = greedy_search(model, batch, limits, SYMBOLS, config)
        else:
            found = sample(model, batch, limits, SYMBOLS, config, keys=chosen)
        return {i: h.tokens for i, h in zip(chosen, found, strict=True)}

    together = search(list(range(24)))
    assert len({tuple(t) for t in together.values()}) > 5
    shuffled = search(g.permutation(24).tolist())
    alone = {i: search([i])[i] for i in range(24)}
    assert together == shuffled == alone


def test_forced_score_of_an_output_is_the_search_score() -> None:
    from regard.models.batch import collate_pairs

    model = build(40)
    row = np.arange(5, 12)
    for h in beam_search(model, transformer_batch([row]), [20], SYMBOLS, Beam(size=4), nbest=4)[0]:
        batch = collate_pairs(RaggedRows.of([row]), RaggedRows.of([h.tokens]), MARKS, MARKS)
        forced = model(batch).log_softmax(-1).gather(1, batch.labels[:, None]).sum()
        assert float(forced.detach()) == pytest.approx(h.log_probability, abs=1e-9)
