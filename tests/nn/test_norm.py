"""norm(x + dropout(y)), x + dropout(y) and LayerNorm, in a kernel each: torch's own, forward and backward."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.accel import launch
from regard.models.transformer import TransformerConfig
from regard.nn.dropout import Dropout, RowDropout, add_dropout
from regard.nn.norm import BatchNorm, LayerNorm, add_norm, build_norm, norm_beside

SHAPES = [(70, 48), (1, 16), (3, 5, 33), (2, 1), (7, 100)]  # sizes that are no powers of two; one row; more than a tile


def norm_of(size: int, device: torch.device) -> LayerNorm:
    torch.manual_seed(0)
    norm = LayerNorm(size, eps=1e-3)
    torch.nn.init.normal_(norm.weight), torch.nn.init.normal_(norm.bias)
    return norm.to(device)


def random(shape: tuple[int, ...], device: torch.device, count: int = 3) -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(shape).to(device) * 2 + 1 for _ in range(count)]


def results(function, given: list[Tensor], weight: Tensor, norm: LayerNorm) -> list[Tensor]:
    """The output, and the gradients of what was given, of the norm's weight and of its bias."""
    given = [x.detach().clone().requires_grad_() for x in given]
    norm.zero_grad()
    out = function(*given, norm)
    out.backward(weight.to(out.dtype))
    return [x.detach().double() for x in (out, *(x.grad for x in given), norm.weight.grad, norm.bias.grad)]  # type: ignore[union-attr]


def torchs(x: Tensor, norm: LayerNorm) -> Tensor:
    return F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def close(ours: list[Tensor], theirs: list[Tensor], tolerance: float = 1e-5) -> None:
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_sum_and_its_norm(device: torch.device, shape: tuple[int, ...]) -> None:
    norm, (x, y, weight) = norm_of(shape[-1], device), random(shape, device)
    ours = results(lambda x, y, n: add_norm(x, y, n, Dropout(0.0)), [x, y], weight, norm)
    theirs = results(lambda x, y, n: torchs(x + y, n), [x.double(), y.double()], weight, norm.double())
    close(ours, theirs)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_norm_alone(device: torch.device, shape: tuple[int, ...]) -> None:
    norm, (x, weight) = norm_of(shape[-1], device), random(shape, device, 2)
    ours = results(lambda x, n: n(x), [x], weight, norm)
    close(ours, results(torchs, [x.double()], weight, norm.double()))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_norm_beside_what_it_is_of(device: torch.device, shape: tuple[int, ...]) -> None:
    """The gradients of both meet; also where one of the two has none."""
    norm, (x, weight, factor) = norm_of(shape[-1], device), random(shape, device)

    def both(x: Tensor, norm: LayerNorm) -> Tensor:
        normal, passed = norm_beside(x, norm)
        return normal + factor.to(x) * passed

    theirs = results(
        lambda x, n: torchs(x, n) + factor.to(x) * x, [x.double()], weight, norm_of(shape[-1], device).double()
    )
    close(results(both, [x], weight, norm), theirs)
    alone = results(torchs, [x], weight, norm)
    close(results(lambda x, n: norm_beside(x, n)[0], [x], weight, norm), alone)
    x.requires_grad_()
    passed = norm_beside(x, norm)[1]
    torch.testing.assert_close(torch.autograd.grad(passed, x, weight)[0], weight)


def test_what_lies_in_other_orders(device: torch.device) -> None:
    """Views that skip memory, as input and as gradient."""
    norm, (x, y, weight) = norm_of(6, device), random((6, 4, 5), device)
    ours, theirs = (
        results(
            lambda x, y, n, join=join: join(x.transpose(0, 2), y.transpose(0, 2), n),
            [x, y],
            weight.transpose(0, 2),
            norm,
        )
        for join in (lambda x, y, n: add_norm(x, y, n, Dropout(0.0)), lambda x, y, n: torchs(x + y, n))
    )
    close(ours, theirs)


def kept(shape: tuple[int, ...], dropout: Dropout, call_seed: int, device: torch.device) -> Tensor:
    """Which places of y are kept: of zeros and ones, those above their mean."""
    torch.manual_seed(call_seed)
    flat = LayerNorm(shape[-1]).to(device)
    out = add_norm(torch.zeros(shape, device=device), torch.ones(shape, device=device), flat, dropout)
    return out > 0


@pytest.mark.parametrize("dropout", [Dropout(0.3), RowDropout(0.3)], ids=str)
def test_dropout_is_the_same_forward_and_backward(device: torch.device, dropout: Dropout) -> None:
    shape = (30, 3, 48)
    norm, (x, y, weight) = norm_of(48, device), random(shape, device)
    mask = kept(shape, dropout, 5, device)
    assert float(mask.float().mean()) == pytest.approx(1 - dropout.p, abs=0.03)
    assert not torch.equal(mask, kept(shape, dropout, 6, device))
    assert not torch.equal(mask[:15], mask[15:])
    assert torch.equal(mask, mask[:, :1].expand(shape)) == isinstance(dropout, RowDropout)

    def ours(x: Tensor, y: Tensor, norm: LayerNorm) -> Tensor:
        torch.manual_seed(5)
        return add_norm(x, y, norm, dropout)

    def theirs(x: Tensor, y: Tensor, norm: LayerNorm) -> Tensor:
        return torchs(x + y * mask / (1 - dropout.p), norm)

    found = results(ours, [x, y], weight, norm)
    close(found, results(theirs, [x.double(), y.double()], weight, norm.double()))
    assert ((found[2] != 0) == mask).all()  # d_y is nothing where y was dropped


def test_the_seed_on_the_device_changes_the_noise(device: torch.device) -> None:
    seed = launch.step_seed(torch.zeros((), device=device))
    before = seed.clone()  # as other tests have left it
    first = kept((20, 48), Dropout(0.5), 1, device)
    try:
        seed.add_(9)
        assert not torch.equal(kept((20, 48), Dropout(0.5), 1, device), first)
    finally:
        seed.copy_(before)
    assert torch.equal(kept((20, 48), Dropout(0.5), 1, device), first)


def test_under_autocast(device: torch.device) -> None:
    """A sum of float32 and bf16: the output is made for products, and each gradient has its input's type."""
    norm, (x, y, weight) = norm_of(48, device), random((9, 48), device)
    x.requires_grad_()
    half = y.bfloat16().requires_grad_()
    with torch.autocast(device.type, torch.bfloat16):
        out = add_norm(x, half, norm, Dropout(0.0))
    assert out.dtype == torch.bfloat16
    out.backward(weight.bfloat16())
    assert (x.grad.dtype, half.grad.dtype, norm.weight.grad.dtype) == (torch.float32, torch.bfloat16, torch.float32)  # type: ignore[union-attr]
    ours = [out.detach().double(), *(p.grad.double() for p in (x, half, norm.weight, norm.bias))]  # type: ignore[union-attr]
    exact = [x.detach().double(), half.detach().double()]
    theirs = results(lambda x, y, n: torchs(x + y, n), exact, weight.bfloat16(), norm.double())
    for a, b in zip(ours, theirs, strict=True):
        assert float((a - b).norm() / b.norm()) < 4e-3  # bf16 keeps 8 bits


def test_other_norms_are_left_alone(device: torch.device) -> None:
    norm, (x, y) = BatchNorm(6).to(device), random((4, 5, 6), device, 2)
    real = torch.arange(5, device=device) < torch.tensor([5, 2, 3, 1], device=device)[:, None]
    torch.testing.assert_close(add_norm(x, y, norm, Dropout(0.0), real), norm(x + y, real))


# --- the sum alone -------------------------------------------------------------------------------------------------


def summed(x: Tensor, y: Tensor, weight: Tensor, dropout: Dropout) -> list[Tensor]:
    x, y = (z.detach().clone().requires_grad_() for z in (x, y))
    torch.manual_seed(5)
    out = add_dropout(x, y, dropout)
    out.backward(weight)
    return [out.detach(), x.grad, y.grad]  # type: ignore[list-item]


@pytest.mark.parametrize("dropout", [Dropout(0.3), RowDropout(0.3)], ids=str)
def test_a_sum_with_dropout(device: torch.device, dropout: Dropout) -> None:
    x, y, weight = random((45, 2, 47), device)  # more than a block, and no multiple of one
    mask = summed(torch.zeros_like(x), torch.ones_like(y), weight, dropout)[0] > 0
    assert float(mask.float().mean()) == pytest.approx(0.7, abs=0.03)
    assert torch.equal(mask[:, 0], mask[:, 1]) == isinstance(dropout, RowDropout)
    out, d_x, d_y = summed(x, y, weight, dropout)
    torch.testing.assert_close(out, x + y * mask / 0.7)
    torch.testing.assert_close(d_x, weight)
    torch.testing.assert_close(d_y, weight * mask / 0.7)
    torch.testing.assert_close(summed(x, y, weight, Dropout(0.0)), [x + y, weight, weight])


@pytest.mark.parametrize("dropout", [Dropout(0.3), RowDropout(0.3)], ids=str)
def test_a_sum_of_what_lies_in_other_orders(device: torch.device, dropout: Dropout) -> None:
    x, y, weight = random((6, 5, 4), device)
    straight = summed(x, y, weight, dropout)
    for turned in ((True, False, False), (False, True, False), (False, False, True), (True, True, True)):
        given = [z.mT.contiguous().mT if turn else z for z, turn in zip((x, y, weight), turned, strict=True)]
        torch.testing.assert_close(summed(*given, dropout), straight)


def test_a_sum_of_two_types(device: torch.device) -> None:
    x, y, weight = random((6, 1, 48), device)
    out, d_x, d_y = summed(x, y.bfloat16(), weight, Dropout(0.3))
    assert (out.dtype, d_x.dtype, d_y.dtype) == (torch.float32, torch.float32, torch.bfloat16)
    torch.testing.assert_close(out, torch.where(d_y != 0, x + y.bfloat16().float() / 0.7, x))


def test_noise_that_a_search_asked_for_first_can_be_changed_by_who_learns(monkeypatch) -> None:
    monkeypatch.setattr(launch, "_step_seeds", {})
    with torch.inference_mode():
        launch.step_seed(torch.zeros(()))
    assert int(launch.step_seed(torch.zeros(())).fill_(3)) == 3


@pytest.mark.parametrize("gain", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["layer", "rms", "none"])
def test_choices_by_their_formulas(kind: str, gain: bool, bias: bool) -> None:
    norm = build_norm(kind, 7, 1e-3, gain, bias).double()
    for parameter in norm.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(2, 3, 7, dtype=torch.float64)
    centred = x - x.mean(-1, keepdim=True) if kind == "layer" else x
    expected = x if kind == "none" else centred / (centred.square().mean(-1, keepdim=True) + 1e-3).sqrt()
    names = ({"weight"} if gain and kind != "none" else set()) | ({"bias"} if bias and kind == "layer" else set())
    assert {name for name, _ in norm.named_parameters()} == names
    expected = expected * norm.weight if "weight" in names else expected
    expected = expected + norm.bias if "bias" in names else expected
    torch.testing.assert_close(norm(x, None), expected)


def test_the_usual_norm_is_the_one_with_kernels() -> None:
    assert type(build_norm("layer", 4, 1e-5)) is LayerNorm
    for wrong in ({"norm": "rms", "norm_bias": False}, {"norm": "none", "norm_gain": False}):
        with pytest.raises(ValueError, match="belongs to norm: layer"):
            TransformerConfig(**wrong)
