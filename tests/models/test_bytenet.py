"""ByteNet: a loop in numpy as oracle, columns read at the target's own step, receptive fields, stepwise decoding."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard import config
from regard.models.bytenet import ByteNet, ByteNetConfig
from tests.models import promises
from tests.models.promises import MARKS, batch, sentences

CHOICES = [{}, {"kernel": 5, "dilations": [1, 3], "stretch": 1.0}, {"sets": 2, "dilations": [2, 1], "extra": 3}]


def build(entries: int = 30, target: int | None = None, **keys: object) -> ByteNet:
    torch.manual_seed(0)
    small = {"size": 8, "dilations": [1, 2, 4], "dropout": 0.0, **keys}
    model = config.parse_config(ByteNetConfig, small).build(entries, target or entries).double().eval()
    with torch.no_grad():
        for p in model.parameters():  # biases and norms too, so that none is left untested at 0 or 1
            p.add_(torch.randn_like(p) * 0.1)
    return model


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
    promises.no_place_sees_a_later_target(build(share="none"))


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
    promises.alone_as_in_a_padded_batch(build(**choices), [(3, 2), (9, 8), (1, 1), (2, 9)])


# --- step by step --------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 14)), min_size=1, max_size=4),
    st.integers(1, 4),
    st.sampled_from(CHOICES),
)
def test_step_by_step_is_the_parallel_pass(lengths, prompt, choices) -> None:
    promises.stepwise_as_at_once(build(**choices), lengths, prompt)


@pytest.mark.parametrize("choices", CHOICES)
def test_state_moves_and_replaces_rows(choices: dict) -> None:
    promises.rows_move(build(**choices))


# --- learning ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choices", CHOICES)
def test_gradients_reach_every_parameter(choices: dict) -> None:
    promises.gradients_reach_every_parameter(build(share="none", **choices))


def test_it_learns_to_copy_and_beam_search_reads_it() -> None:
    torch.manual_seed(0)
    promises.learns_to_copy(
        config.parse_config(ByteNetConfig, {"size": 64, "dilations": [1, 2, 4], "dropout": 0.0}).build(14, 14)
    )


# --- the config ----------------------------------------------------------------------------------------------------


def test_sharing_two_and_three_ways() -> None:
    promises.shares_two_and_three_ways(build, 8)


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
        config.parse_config(ByteNetConfig, keys)
