"""Positions against numpy, and against the rotation that makes PE(p + k) linear in PE(p)."""

import math
import re

import numpy as np
import pytest
import torch

from regard.nn.layout import Layout
from regard.nn.position import (
    LearnedConfig,
    Position,
    RelativeConfig,
    RotaryConfig,
    SinusoidalConfig,
    T5Config,
    sinusoids,
)
from regard.nn.sizes import Sizes


def test_sinusoids_by_the_formula() -> None:
    ours = sinusoids(torch.arange(50), 8).numpy()
    for p in range(50):
        for i in range(4):
            assert ours[p, 2 * i] == pytest.approx(math.sin(p / 10000 ** (2 * i / 8)), abs=1e-12)
            assert ours[p, 2 * i + 1] == pytest.approx(math.cos(p / 10000 ** (2 * i / 8)), abs=1e-12)


def test_halves_are_the_same_numbers_in_another_order() -> None:
    interleaved, halves = sinusoids(torch.arange(9), 6), sinusoids(torch.arange(9), 6, "halves")
    assert torch.equal(halves, torch.cat([interleaved[:, 0::2], interleaved[:, 1::2]], -1))


def test_shift_is_a_rotation() -> None:
    """T(k) built block by block from cos and sin alone moves PE(p) to PE(p + k)."""
    size, k = 16, 7
    shift = np.zeros((size, size))
    for i in range(size // 2):
        a = k / 10000 ** (2 * i / size)
        shift[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]]
    table = sinusoids(torch.arange(40), size).numpy()
    np.testing.assert_allclose(table[:-k] @ shift.T, table[k:], atol=1e-12)


def test_table_grows_and_stepwise_positions_agree() -> None:
    position = SinusoidalConfig().build(Sizes.of(8, 2))
    zeros = torch.zeros(2, 3000, 8, dtype=torch.float64)
    whole = position.embed(zeros, Layout.of(3000))
    torch.testing.assert_close(whole[0], sinusoids(torch.arange(3000), 8))
    places = torch.tensor([[5], [2999]])
    step = position.embed(zeros[:, :1], Layout(places, 3000))
    torch.testing.assert_close(step[:, 0], whole[0][[5, 2999]])


@pytest.mark.parametrize("length", [8, 1500])
def test_what_was_read_while_measuring_can_be_learned_from(length: int) -> None:
    """The table is kept, and one of inference mode would stop the next step; so would one that grew there."""
    rotary = RotaryConfig().build(Sizes(8, 2, 4, 4))
    with torch.inference_mode():
        rotary.rotate(torch.randn(1, 2, length, 4), Layout.of(length))
    x = torch.randn(1, 2, 8, 4, requires_grad=True)
    rotary.rotate(x, Layout.of(8)).square().sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())  # a rotation keeps lengths


def test_none_is_identity() -> None:
    x = torch.randn(1, 3, 4)
    assert Position().embed(x, Layout.of(3)) is x


def test_concat_by_hand() -> None:
    """W [x; p] of two dimensions at p = 0, 1: (sin p, cos p) is (0, 1), then (0.84147…, 0.54030…)."""
    position = SinusoidalConfig(join="concat").build(Sizes.of(2, 1)).double()
    x = torch.tensor([[[1.0, 0], [2, 1]]], dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(position.embed(x, Layout.of(2))[0, 1], x[0, 1] + sinusoids(torch.tensor(1), 2))
        position.join.project.weight.copy_(torch.tensor([[1.0, 2, 3, 4], [5, 6, 7, 8]]))
        out = position.embed(x, Layout.of(2))[0]
    expected = [[1 + 4, 5 + 8], [4 + 3 * math.sin(1) + 4 * math.cos(1), 16 + 7 * math.sin(1) + 8 * math.cos(1)]]
    torch.testing.assert_close(out, torch.tensor(expected, dtype=torch.float64))


def test_odd_size_is_refused() -> None:
    with pytest.raises(ValueError, match="odd"):
        SinusoidalConfig().check(Sizes.of(7, 1))
    with pytest.raises(ValueError, match="d_k of 3 is odd"):
        RotaryConfig().check(Sizes.of(6, 2))
    RotaryConfig().check(Sizes.of(6, 2, d_k=4))


@pytest.mark.parametrize(
    "config, keys, message",
    [
        (LearnedConfig, {"length": 0}, "length must be at least 1, not 0"),
        (RelativeConfig, {"distance": 0}, "distance must be at least 1, not 0"),
        (RotaryConfig, {"base": 0.0}, "base must be above 0, not 0.0"),
        (T5Config, {"buckets": 1}, "buckets must be at least 2, not 1"),
        (T5Config, {"buckets": 2, "distance": 0}, "distance must be above half the buckets (1), not 0"),
        (T5Config, {"distance": 16}, "distance must be above half the buckets (16), not 16"),
    ],
)
def test_impossible_options_are_told_in_a_sentence(config, keys, message) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        config(**keys)
