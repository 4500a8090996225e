"""x Wᵀ + b, and activations of it, with gradients made by hand: torch's own."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.feed_forward import Linear, activated, linear

SHAPES = [
    ((150, 24), 70),
    ((1, 5), 3),
    ((4, 33, 17), 130),
    ((2, 3), 64),
]  # odd sizes; more rows and columns than a tile


def build(size: int, width: int, device: torch.device) -> Linear:
    torch.manual_seed(0)
    layer = Linear(size, width).to(device)
    torch.nn.init.normal_(layer.bias)
    return layer


def results(function, x: Tensor, layer: Linear) -> list[Tensor]:
    x = x.detach().clone().requires_grad_()
    layer.zero_grad()
    out = function(x, layer)
    torch.manual_seed(2)
    out.backward(torch.randn(out.shape, dtype=torch.float64).to(out))
    return [y.detach().double() for y in (out, x.grad, layer.weight.grad, layer.bias.grad)]  # type: ignore[union-attr]


def torchs(x: Tensor, layer: Linear) -> Tensor:
    return F.linear(x, layer.weight, layer.bias)


ACTIVATIONS = [nn.Identity(), nn.ReLU(), nn.GELU(), nn.GELU(approximate="tanh"), nn.SiLU()]  # the last has no kernel


def close(ours: list[Tensor], theirs: list[Tensor]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=3e-5, rtol=1e-5)  # sums of up to 150 products, in float32


@pytest.mark.parametrize("shape, width", SHAPES, ids=str)
def test_it_is_torchs(device: torch.device, shape: tuple[int, ...], width: int) -> None:
    layer, x = build(shape[-1], width, device), torch.randn(shape).to(device)
    close(results(lambda x, layer: layer(x), x, layer), results(torchs, x.double(), layer.double()))


@pytest.mark.parametrize("shape, width", SHAPES, ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_activations(device: torch.device, shape: tuple[int, ...], width: int, activation: nn.Module) -> None:
    layer, x = build(shape[-1], width, device), torch.randn(shape).to(device)
    close(
        results(lambda x, layer: activated(layer, x, activation), x, layer),
        results(lambda x, layer: activation(torchs(x, layer)), x.double(), layer.double()),
    )


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
@pytest.mark.filterwarnings("ignore:overflow encountered")  # by the interpreter, in numpy
def test_far_from_zero(device: torch.device, activation: nn.Module) -> None:
    """Where exponentials overflow or vanish, slopes are 0 and 1."""
    layer = Linear(1, 1).to(device)
    nn.init.ones_(layer.weight), nn.init.zeros_(layer.bias)
    x = torch.tensor([[-1e4], [-60.0], [-9.0], [0.0], [9.0], [60.0], [1e4]], device=device)
    close(
        results(lambda x, layer: activated(layer, x, activation), x, layer)[:2],
        results(lambda x, layer: activation(torchs(x, layer)), x.double(), layer.double())[:2],
    )


def test_input_that_learns_nothing(device: torch.device) -> None:
    layer, x = build(8, 5, device), torch.randn(6, 8).to(device)
    layer(x).sum().backward()
    torch.testing.assert_close(layer.weight.grad, x.sum(0).expand(5, 8))
    torch.testing.assert_close(layer.bias.grad, torch.full((5,), 6.0, device=device))


def test_weights_put_together(device: torch.device) -> None:
    """One product for the weights of two: their gradients come apart again."""
    a, b = build(8, 5, device), build(8, 20, device)
    x = torch.randn(6, 8).to(device)
    linear(x, torch.cat([a.weight, b.weight]), torch.cat([a.bias, b.bias])).square().sum().backward()
    for layer in (a, b):
        found = [p.grad for p in layer.parameters()]
        made = torch.autograd.grad(torchs(x, layer).square().sum(), list(layer.parameters()))
        for ours, theirs in zip(found, made, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("activation", ACTIVATIONS[:4], ids=str)
def test_half_precision(device: torch.device, activation: nn.Module) -> None:
    """From the truth at most twice as far as torch's own are; Triton's interpreter cuts bits off, it does not round."""
    layer, x = build(24, 70, device), torch.randn(150, 24).to(device)

    def ours(x: Tensor, layer: Linear) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            return layer(x) if isinstance(activation, nn.Identity) else activated(layer, x, activation)

    def theirs(x: Tensor, layer: Linear) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            return activation(torchs(x, layer))

    rough, found = results(theirs, x, layer), results(ours, x, layer)
    assert {p.grad.dtype for p in layer.parameters()} == {torch.float32}  # type: ignore[union-attr]
    truth = results(lambda x, layer: activation(torchs(x, layer)), x.double(), layer.double())
    for right, a, b in zip(truth, found, rough, strict=True):
        assert (a - right).norm() <= 2 * (b - right).norm() + 1e-6
