"""Dropout against its definition and torch's own: how much is dropped, what is left, how draws hang together."""

import pytest
import torch
from torch.nn import functional as F

from regard.nn.dropout import Dropout, RowDropout, dropout

N = 1 << 20


@pytest.mark.parametrize("p", [0.001, 0.1, 0.3, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_it_drops_p_and_scales_the_rest(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    x = torch.full((N,), 3.0, dtype=dtype, requires_grad=True)
    out = dropout(x, p)
    assert out.dtype == dtype
    kept = out != 0
    assert kept.double().mean().item() == pytest.approx(1 - p, abs=5 * (p * (1 - p) / N) ** 0.5 + 1 / (1 << 17))
    value = torch.tensor(3 / (1 - p), dtype=dtype)
    torch.testing.assert_close(
        out[kept], value.expand(int(kept.sum())), rtol=1e-2 if dtype == torch.bfloat16 else 1e-4, atol=0
    )
    (gradient,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(gradient * 3, out, rtol=1e-2 if dtype == torch.bfloat16 else 1e-6, atol=0)


def test_the_four_that_share_a_draw_are_independent() -> None:
    torch.manual_seed(2)
    kept = (dropout(torch.ones(N), 0.3) != 0).double()
    for distance in (1, 2, 3, 4, 8, 128):
        both = (kept[distance:] * kept[:-distance]).mean().item()
        assert both == pytest.approx(0.49, abs=0.003), distance  # five standard deviations and more


def test_the_seed_decides_and_any_shape_will_do() -> None:
    x = torch.randn(3, 7, 5)  # not a multiple of four
    torch.manual_seed(3)
    first, second = dropout(x, 0.5), dropout(x, 0.5)
    torch.manual_seed(3)
    assert torch.equal(dropout(x, 0.5), first)
    assert not torch.equal(first, second)
    assert dropout(x[:0], 0.5).shape == (0, 7, 5)
    assert torch.equal(dropout(x.transpose(0, 1), 0.0), x.transpose(0, 1))
    assert not dropout(x, 1.0).any()


def test_the_module_is_torchs_where_it_does_not_train() -> None:
    x = torch.randn(10, 4)
    ours = Dropout(0.4)
    assert torch.equal(ours.eval()(x), x)
    assert repr(ours) == repr(torch.nn.Dropout(0.4))
    torch.manual_seed(4)
    theirs = torch.stack([F.dropout(x, 0.4) for _ in range(4000)])
    mine = torch.stack([ours.train()(x) for _ in range(4000)])
    torch.testing.assert_close(mine.mean(0), theirs.mean(0), atol=0.15, rtol=0)
    torch.testing.assert_close(mine.var(0), theirs.var(0), atol=0.3, rtol=0.15)


def test_a_row_lacks_the_same_features_at_all_its_places() -> None:
    torch.manual_seed(5)
    x = torch.ones(64, 7, 512)
    out = RowDropout(0.7)(x)
    assert torch.equal(out, out[:, :1].expand_as(out))
    assert not torch.equal(out[0], out[1])
    assert (out == 0).double().mean().item() == pytest.approx(0.7, abs=0.015)  # five standard deviations
    torch.testing.assert_close(out[out != 0], torch.full_like(out[out != 0], 1 / 0.3))
    assert torch.equal(RowDropout(0.7).eval()(x), x)


@pytest.mark.parametrize("layer", [Dropout(0.3), RowDropout(0.3)], ids=str)
def test_the_kernel_draws_as_it_should(device: torch.device, layer: Dropout) -> None:
    """Forward and backward agree on what is dropped; rows, features and calls have draws of their own."""
    x = torch.ones(40, 35, 70, device=device, requires_grad=True)
    torch.manual_seed(6)
    first, second = layer(x), layer(x)
    (gradient,) = torch.autograd.grad(first, x, torch.ones_like(first))
    torch.testing.assert_close(gradient, first.detach())
    mask = (first > 0).double()
    torch.testing.assert_close(first[mask.bool()], torch.full_like(first[mask.bool()], 1 / 0.7))
    assert mask.mean().item() == pytest.approx(0.7, abs=0.05)  # five standard deviations of 2,800 draws
    assert torch.equal(mask, mask[:, :1].expand_as(mask)) == isinstance(layer, RowDropout)
    for a, b in ((mask[1:], mask[:-1]), (mask[..., 1:], mask[..., :-1]), (mask, (second > 0).double())):
        assert (a * b).mean().item() == pytest.approx(0.49, abs=0.06)


@pytest.mark.parametrize("layer", [Dropout(0.3), RowDropout(0.3)], ids=str)
@pytest.mark.parametrize("shape", [(0, 5, 8), (3, 0, 8)], ids=str)
def test_the_kernel_takes_nothing_at_all(device: torch.device, layer: Dropout, shape: tuple[int, ...]) -> None:
    x = torch.ones(shape, device=device, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None
    assert x.grad.shape == shape
