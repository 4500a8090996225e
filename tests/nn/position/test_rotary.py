"""Rotary positions against complex numbers in numpy and Llama's halves; the score knows the distance alone."""

import numpy as np
import pytest
import torch
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from regard.nn import dispatch
from regard.nn.layout import Layout
from regard.nn.position import Position, RotaryConfig
from regard.nn.position.sinusoidal import SinusoidTable
from regard.nn.sizes import Sizes


def build(layout: str = "interleaved", base: float = 10000.0, d_k: int = 8) -> Position:
    return RotaryConfig(layout=layout, base=base).build(Sizes.of(2 * d_k, 2))


def turned(x: np.ndarray, position: np.ndarray, layout: str, base: float) -> np.ndarray:
    """Each pair is a complex number; position p multiplies pair n by exp(i p base^(−2n/d))."""
    d = x.shape[-1]
    a, b = (x[..., 0::2], x[..., 1::2]) if layout == "interleaved" else (x[..., : d // 2], x[..., d // 2 :])
    z = (a + 1j * b) * np.exp(1j * position[..., None] * base ** (-np.arange(d // 2) * 2 / d))
    out = np.empty_like(x)
    if layout == "interleaved":
        out[..., 0::2], out[..., 1::2] = z.real, z.imag
    else:
        out[..., : d // 2], out[..., d // 2 :] = z.real, z.imag
    return out


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("base", [10000.0, 50.0])
def test_complex_numbers(layout: str, base: float) -> None:
    x = torch.randn(2, 2, 5, 8, dtype=torch.float64)
    ours = build(layout, base).rotate(x, Layout.of(5))
    np.testing.assert_allclose(ours, turned(x.numpy(), np.arange(5), layout, base), atol=1e-12)
    places = torch.tensor([[3, 4, 5, 6, 7], [2995, 2996, 2997, 2998, 2999]])  # past the first table
    ours = build(layout, base).rotate(x, Layout(places, 3000))
    np.testing.assert_allclose(ours, turned(x.numpy(), places[:, None].numpy(), layout, base), atol=1e-12)


def test_halves_are_llamas() -> None:
    q, k = torch.randn(2, 3, 2, 7, 8, dtype=torch.float64)
    angle = torch.arange(7.0, dtype=torch.float64)[:, None] * 10000.0 ** -(torch.arange(0, 8, 2).double() / 8)
    angle = torch.cat([angle, angle], -1)[None]  # [1, N, d]
    rotary = build("halves")
    theirs = apply_rotary_pos_emb(q, k, angle.cos(), angle.sin())
    torch.testing.assert_close((rotary.rotate(q, Layout.of(7)), rotary.rotate(k, Layout.of(7))), theirs)


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_scores_depend_on_distance_alone(layout: str) -> None:
    """One query and one key at every place: the score matrix is constant along its diagonals, and not across them."""
    q, k = (torch.randn(1, 1, 1, 8, dtype=torch.float64).expand(1, 1, 6, 8) for _ in range(2))
    rotary = build(layout)

    def scores(shift: int) -> torch.Tensor:
        where = Layout(torch.arange(shift, shift + 6)[None], shift + 6)
        return (rotary.rotate(q, where) @ rotary.rotate(k, where).mT)[0, 0]

    torch.testing.assert_close(scores(0)[1:, 1:], scores(0)[:-1, :-1])
    torch.testing.assert_close(scores(0), scores(900))
    assert scores(0)[0].std() > 0.01
    assert (scores(0)[0, 1] - scores(0)[1, 0]).abs() > 1e-3  # before and behind are told apart


def test_angles_are_exact_far_away_whatever_the_type() -> None:
    """float32 angles would be off by 0.004 at 100,000; bfloat16 ones by far more."""
    where = Layout(torch.tensor([[99_999]]), 100_000)
    for dtype, tolerance in ((torch.float32, 1e-6), (torch.bfloat16, 0.02)):
        x = torch.randn(1, 1, 1, 8).to(dtype)
        ours = build().rotate(x, where)
        assert ours.dtype == dtype
        expected = turned(x.double().numpy(), np.array([99_999]), "interleaved", 10000.0)
        np.testing.assert_allclose(ours.double(), expected, atol=tolerance)


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize(
    "heads, d_k, places",
    [(3, 8, None), (1, 2, None), (2, 10, [[5, 6, 9, 0], [7, 2, 1, 3]]), (64, 32, [[5, 6, 9, 0], [7, 2, 1, 3]])],
    ids=str,
)
def test_the_kernel_is_the_formula(
    device: torch.device, layout: str, heads: int, d_k: int, places: list[list[int]] | None
) -> None:
    """Queries as they are cut out of a wider product; places of their own for each row, or the same for all.

    Many heads are more than one program for a row. A gradient may lie in any order.
    """
    rotary = RotaryConfig(layout=layout).build(Sizes.of(heads * d_k, heads)).to(device)
    torch.manual_seed(0)
    given = torch.randn(2, 4, 3 * heads * d_k).to(device)
    weight = torch.randn(2, heads, d_k, 4).to(device).mT
    where = Layout.of(4, device=device) if places is None else Layout(torch.tensor(places, device=device), 10)

    def turned() -> list[torch.Tensor]:
        x = given.clone().requires_grad_()
        out = rotary.rotate(x.chunk(3, -1)[1].unflatten(-1, (heads, -1)).transpose(1, 2), where)
        out.backward(weight)
        return [out.detach(), x.grad]

    assert dispatch.usable(given)
    ours = turned()
    with dispatch.disabled():
        torch.testing.assert_close(ours, turned())


def test_the_kernel_keeps_the_type(device: torch.device) -> None:
    x = torch.randn(1, 2, 3, 8).to(device).bfloat16().requires_grad_()
    out = build().to(device).rotate(x, Layout.of(3, device=device))
    with dispatch.disabled():
        torch.testing.assert_close(out, build().to(device).rotate(x, Layout.of(3, device=device)), atol=1e-2, rtol=1e-2)
    assert out.dtype == torch.bfloat16


def test_a_table_that_has_grown_leaves_the_one_before_where_it_is() -> None:
    """What was recorded on a GPU reads from there; asking for another type in between is no reason to make it anew."""
    waves = SinusoidTable(8, "halves")
    first = waves(Layout.of(5), torch.float32)
    waves(Layout.of(5), torch.float64)
    assert waves(Layout.of(7), torch.float32).data_ptr() == first.data_ptr()
    assert waves(Layout.of(1500), torch.float32).data_ptr() != first.data_ptr()
    assert [table.data_ptr() for table in waves.earlier] == [first.data_ptr()]
