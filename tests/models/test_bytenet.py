"""ByteNet: a loop in numpy as oracle, columns read at the target's own step, receptive fields, stepwise decoding."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from regard import config
from regard.decoding import Beam, Symbols
from regard.models.batch import Packed, Pairs, pairs
from regard.models.bytenet import ByteNet, ByteNetConfig
from tests.searches import beam_search

MARKS = SimpleNamespace(pad=0, bos=2, eos=3)
CHOICES = [{}, {"kernel": 5, "dilations": [1, 3], "stretch": 1.0}, {"sets": 2, "dilations": [2, 1], "extra": 3}]


def build(entries: int = 30, target: int | None = None, **keys: object) -> ByteNet:
    torch.manual_seed(0)
    small = {"size": 8, "dilations": [1, 2, 4], "dropout": 0.0, **keys}
    model = config.parse(ByteNetConfig, small).build(entries, target or entries).double().eval()
    with torch.no_grad():
        for p in model.parameters():  # biases and norms too, so that none is left untested at 0 or 1
            p.add_(torch.randn_like(p) * 0.1)
    return model


def sentences(lengths: list[tuple[int, int]], seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    g = np.random.default_rng(seed)
    return [(g.integers(4, 30, s), g.integers(4, 30, t)) for s, t in lengths]


def batch(lengths: list[tuple[int, int]], seed: int = 0) -> Pairs:
    rows = sentences(lengths, seed)
    return pairs(Packed.of([s for s, _ in rows]), Packed.of([t for _, t in rows]), MARKS, MARKS)


# --- the same in numpy, one place at a time ------------------------------------------------------------------------


def rectified(part: nn.Module, x: np.ndarray) -> np.ndarray:
    scale, shift = part.norm.weight.detach().numpy(), part.norm.bias.detach().numpy()
    mean = x.mean(-1, keepdims=True)
    return np.maximum((x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * scale + shift, 0)


def linear(part: nn.Module, x: np.ndarray) -> np.ndarray:
    return x @ part.linear.weight.detach().numpy().T + part.linear.bias.detach().numpy()


def block(part: nn.Module, x: np.ndarray, first: int) -> np.ndarray:
    """x + W₃ r(conv(r(W₁ r(x)))); the first word of a window stands `first` words behind."""
    y = rectified(part.narrow[2], linear(part.narrow[1], rectified(part.narrow[0], x)))  # [N, d]
    weight, width = part.convolution.linear.weight.detach().numpy(), y.shape[1]
    out = np.tile(part.convolution.linear.bias.detach().numpy(), (len(y), 1))
    for i in range(len(y)):
        for j in range(part.convolution.kernel):
            place = i - first + j * part.convolution.dilation
            if 0 <= place < len(y):
                out[i] += weight[:, j * width : (j + 1) * width] @ y[place]
    return x + linear(part.widen[1], rectified(part.widen[0], out))


def numpy_logits(model: ByteNet, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """One pair without padding [T, V]."""
    c, root = model.config, np.sqrt(model.config.size)
    columns = np.zeros((int(c.stretch * len(source)) + c.extra, c.size))
    columns[: len(source)] = model.source_embedding.weight.detach().numpy()[source] * root
    for part in model.encoder:
        columns = block(part, columns, part.convolution.reach // 2)
    x = model.target_embedding.weight.detach().numpy()[target] * root
    for t in range(min(len(columns), len(x))):
        x[t] += columns[t]
    for part in model.decoder:
        x = block(part, x, part.convolution.reach)
    return linear(model.final[1], rectified(model.final[0], x)) @ model.output.weight.detach().numpy().T


@pytest.mark.parametrize("choices", CHOICES)
@pytest.mark.parametrize("share", ["none", "target", "all"])
def test_logits_are_those_of_the_equations(share: str, choices: dict) -> None:
    """Targets are shorter and longer than the source's columns."""
    model = build(share=share, **choices)
    lengths = [(5, 3), (1, 7), (9, 10), (8, 1)]
    found = model(batch(lengths)).split([t + 1 for _, t in lengths])
    for (source, target), logits in zip(sentences(lengths), found, strict=True):
        expected = numpy_logits(model, np.append(source, MARKS.eos), np.insert(target, 0, MARKS.bos))
        np.testing.assert_allclose(logits.detach().numpy(), expected, atol=1e-9, rtol=1e-9)


# --- who sees what -------------------------------------------------------------------------------------------------


def test_columns_are_as_many_as_the_source_asks_for() -> None:
    """1.2 · |s| + 1 each, |s| with its end; zero after a row's own."""
    columns = build(stretch=1.2, extra=1).encode(batch([(9, 1), (4, 1), (1, 1)]))
    assert columns.shape[1] == 13
    assert [int(row.abs().sum(-1).bool().sum()) for row in columns] == [13, 7, 3]


def test_no_place_sees_a_later_target() -> None:
    model, read = build(share="none"), []

    def keep(_, __, out: torch.Tensor) -> None:
        read.append(out)

    model.target_embedding.register_forward_hook(keep)
    logits = model(batch([(4, 6)]))  # [T, V]
    for t in range(7):
        (gradient,) = torch.autograd.grad(logits[t].sum(), read[0], retain_graph=True)  # [1, T, D]
        assert (gradient[0, t + 1 :] == 0).all()
        assert (gradient[0, t] != 0).any()


@pytest.mark.parametrize(
    "sets, dilations, kernel", [(1, [1, 2, 4, 8], 3), (2, [1, 2, 4], 3), (1, [1, 2], 5), (1, [1, 2, 4, 8, 16], 3)]
)
def test_dilation_doubles_what_is_seen(sets: int, dilations: list[int], kernel: int) -> None:
    """sets · Σ dilations · (kernel − 1) + 1 places: to both sides in the source network, back in the target network."""
    model = build(size=32, sets=sets, dilations=dilations, kernel=kernel)
    reach = sets * sum(dilations) * (kernel - 1)
    x = torch.randn(1, 2 * reach + 3, 32, dtype=torch.float64, requires_grad=True)
    columns, target = x, x
    for part in model.encoder:
        columns = part(columns, torch.ones(1, x.shape[1], dtype=torch.bool))
    for part in model.decoder:
        target, _ = part(target)
    middle = reach + 1
    for out, first, last in ((columns, middle - reach // 2, middle + reach // 2), (target, middle - reach, middle)):
        (gradient,) = torch.autograd.grad(out[0, middle].sum(), x, retain_graph=True)
        assert gradient[0].abs().sum(-1).nonzero()[:, 0].tolist() == list(range(first, last + 1))


@pytest.mark.parametrize("choices", CHOICES)
def test_a_sentence_alone_and_in_a_padded_batch(choices: dict) -> None:
    model = build(**choices)
    lengths = [(3, 2), (9, 8), (1, 1), (2, 9)]
    logits = model(batch(lengths, seed=3)).split([3, 9, 2, 10])
    for (source, target), expected in zip(sentences(lengths, 3), logits, strict=True):
        alone = pairs(Packed.of([source]), Packed.of([target]), MARKS, MARKS)
        torch.testing.assert_close(model(alone), expected, atol=1e-12, rtol=1e-12)


# --- step by step --------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 14)), min_size=1, max_size=4),
    st.integers(1, 4),
    st.sampled_from(CHOICES),
)
def test_step_by_step_is_the_parallel_pass(lengths, prompt, choices) -> None:
    model = build(**choices)
    b = batch(lengths)
    with torch.no_grad():
        parallel = model(b)
        state = model.start(b, b.target.shape[1])
        outs = []
        for tokens in [b.target[:, :prompt], *b.target[:, prompt:].split(1, 1)]:
            if tokens.shape[1]:
                out, state = model.step(tokens, state)
                outs.append(out)
    stepped = torch.cat(outs, 1).flatten(0, 1)[b.places]
    torch.testing.assert_close(stepped, parallel, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("choices", CHOICES)
def test_state_moves_and_replaces_rows(choices: dict) -> None:
    """Rows reordered and replaced, by shorter sources too, go on as if they had always stood there."""
    model = build(**choices)
    a, b = batch([(4, 6), (4, 6)], seed=1), batch([(2, 6)], seed=2)
    with torch.no_grad():
        state = model.start(a, 8)
        _, state = model.step(a.target[:, :4], state)
        state.reorder(torch.tensor([1, 0, 1]))
        fresh = model.start(b, 8)
        _, fresh = model.step(b.target[:, :2], fresh)
        state.write(torch.tensor([1]), fresh)
        assert state.position.tolist() == [4, 2, 4]
        found = []
        for t in range(3):
            tokens = torch.stack([a.target[1, 4 + t], b.target[0, 2 + t], a.target[1, 4 + t]])[:, None]
            found.append(model.step(tokens, state)[0][:, 0])
        whole_a, whole_b = model(a).split(7)[1], model(b)
    for t, out in enumerate(found):
        torch.testing.assert_close(out[0], whole_a[4 + t], atol=1e-9, rtol=1e-9)
        torch.testing.assert_close(out[1], whole_b[2 + t], atol=1e-9, rtol=1e-9)
        torch.testing.assert_close(out[2], out[0])


# --- learning ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choices", CHOICES)
def test_gradients_reach_every_parameter(choices: dict) -> None:
    model = build(share="none", **choices)
    model(batch([(4, 3), (2, 5)])).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_it_learns_to_copy_and_beam_search_reads_it() -> None:
    torch.manual_seed(0)
    keys = {"size": 64, "dilations": [1, 2, 4], "dropout": 0.0}
    model = config.parse(ByteNetConfig, keys).build(14, 14)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    g = np.random.default_rng(0)

    def draw(count: int) -> Pairs:
        rows = Packed.of([g.integers(4, 14, g.integers(2, 7)) for _ in range(count)])
        return pairs(rows, rows, MARKS, MARKS)

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


# --- the config ----------------------------------------------------------------------------------------------------


def test_sharing_two_and_three_ways() -> None:
    counts = [sum(p.numel() for p in build(share=share).parameters()) for share in ("all", "target", "none")]
    assert [c - counts[0] for c in counts] == [0, 30 * 8, 2 * 30 * 8]
    assert build(30, 40, share="target").output.weight.shape == (40, 8)
    with pytest.raises(ValueError, match="shared vocabulary"):
        build(30, 40, share="all")


@pytest.mark.parametrize(
    "keys, match",
    [
        ({"kernel": 2}, "kernel must be odd"),
        ({"size": 7}, "size must be even"),
        ({"dilations": []}, "dilations must be one or more"),
        ({"dilations": [1, 0]}, "dilations must be one or more"),
        ({"stretch": 0.9}, "no word may be cut off"),
    ],
)
def test_impossible_choices_are_refused(keys: dict, match: str) -> None:
    with pytest.raises(Exception, match=match):
        config.parse(ByteNetConfig, keys)
