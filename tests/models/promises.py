"""What every model with a source and a target promises: checks that the tests of each call with models of their own."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from regard.decoding import Beam, Symbols
from regard.models.batch import PairBatch, RaggedRows, collate_pairs
from tests.searches import beam_search

MARKS = SimpleNamespace(pad=0, bos=2, eos=3)
Lengths = list[tuple[int, int]]  # words of source and target


def sentences(lengths: Lengths, seed: int = 0, entries: int = 30) -> list[tuple[np.ndarray, np.ndarray]]:
    g = np.random.default_rng(seed)
    return [(g.integers(4, entries, s), g.integers(4, entries, t)) for s, t in lengths]


def batch(lengths: Lengths, seed: int = 0, entries: int = 30) -> PairBatch:
    rows = sentences(lengths, seed, entries)
    return collate_pairs(RaggedRows.of([s for s, _ in rows]), RaggedRows.of([t for _, t in rows]), MARKS, MARKS)


def close(a: torch.Tensor, b: torch.Tensor, room: float = 1e-9) -> None:
    torch.testing.assert_close(a, b, atol=room, rtol=room)


def no_place_sees_a_later_target(model: Any) -> None:
    """`model` shares no embeddings."""
    read = []

    def keep(_, __, out: torch.Tensor) -> None:
        read.append(out)

    model.target_embedding.register_forward_hook(keep)
    logits = model(batch([(4, 6)]))  # [T, V]
    for t in range(7):
        (gradient,) = torch.autograd.grad(logits[t].sum(), read[0], retain_graph=True)  # [1, T, D]
        assert (gradient[0, t + 1 :] == 0).all()
        assert (gradient[0, t] != 0).any()


def alone_as_in_a_padded_batch(model: Any, lengths: Lengths) -> None:
    logits = model(batch(lengths, seed=3)).split([t + 1 for _, t in lengths])
    for (source, target), expected in zip(sentences(lengths, 3), logits, strict=True):
        close(model(collate_pairs(RaggedRows.of([source]), RaggedRows.of([target]), MARKS, MARKS)), expected, 1e-12)


def stepwise_as_at_once(model: Any, lengths: Lengths, prompt: int) -> None:
    """The first `prompt` words of the target at once, the others one by one."""
    b = batch(lengths)
    with torch.no_grad():
        state, outs = model.start(b, b.target.shape[1]), []
        for tokens in [b.target[:, :prompt], *b.target[:, prompt:].split(1, 1)]:
            if tokens.shape[1]:
                out, state = model.step(tokens, state)
                outs.append(out)
        close(torch.cat(outs, 1).flatten(0, 1)[b.label_positions], model(b))


def rows_move(model: Any) -> None:
    """Reordered and replaced, by shorter sources too, they go on as if they had always stood there."""
    a, b = batch([(4, 6), (4, 6)], seed=1), batch([(2, 6)], seed=2)
    with torch.no_grad():
        state = model.start(a, 8)
        begun = state.position[0]  # a decoder alone has read the source
        _, state = model.step(a.target[:, :4], state)
        state.reorder(torch.tensor([1, 0, 1]))
        fresh = model.start(b, 8)
        begun = torch.stack([begun, fresh.position[0], begun])
        _, fresh = model.step(b.target[:, :2], fresh)
        state.write(torch.tensor([1]), fresh)
        assert (state.position - begun).tolist() == [4, 2, 4]
        whole_a, whole_b = model(a).split(7)[1], model(b)
        for t in range(3):
            tokens = torch.stack([a.target[1, 4 + t], b.target[0, 2 + t], a.target[1, 4 + t]])[:, None]
            out = model.step(tokens, state)[0][:, 0]
            close(out[0], whole_a[4 + t])
            close(out[1], whole_b[2 + t])
            torch.testing.assert_close(out[2], out[0])


def gradients_reach_every_parameter(model: Any) -> None:
    """`model` shares no embeddings."""
    model(batch([(4, 3), (2, 5)])).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


def learns_to_copy(model: Any) -> None:
    """Of 14 entries; a beam search then reads it."""
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    g = np.random.default_rng(0)

    def draw(count: int) -> PairBatch:
        rows = RaggedRows.of([g.integers(4, 14, g.integers(2, 7)) for _ in range(count)])
        return collate_pairs(rows, rows, MARKS, MARKS)

    for _ in range(150):
        b = draw(48)
        loss = F.cross_entropy(model(b), b.labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.eval()
    b = draw(40)
    found = beam_search(model, b, [12] * 40, Symbols(2, 3, (0, 2)), Beam(size=3))
    said = [best[0].tokens for best in found]
    expected = [[word for word in row if word > 3] for row in b.source.tolist()]
    assert sum(a == e for a, e in zip(said, expected, strict=True)) >= 38


def shares_two_and_three_ways(build: Callable[..., Any], size: int) -> None:
    """`build(source, target, share=…)`, by default of 30 entries each."""
    counts = [sum(p.numel() for p in build(share=share).parameters()) for share in ("all", "target", "none")]
    assert [c - counts[0] for c in counts] == [0, 30 * size, 2 * 30 * size]
    assert build(30, 40, share="target").output.weight.shape == (40, size)
    with pytest.raises(ValueError, match="shared vocabulary"):
        build(30, 40, share="all")
