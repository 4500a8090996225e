"""Our kernels in bf16: from the truth in float64 at most twice as far as torch's own operations in bf16 are."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.accel import packed_attention as short
from regard.nn.dropout import Dropout
from regard.nn.feed_forward import Linear, activated
from regard.nn.layout import AttentionContext
from regard.nn.loss import vocabulary_loss
from regard.nn.norm import LayerNorm, add_norm
from tests.accel import test_packed_attention

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

Function = Callable[..., Tensor]


def with_gradients(function: Function, given: list[Tensor]) -> list[Tensor]:
    given = [x.detach().clone().requires_grad_() for x in given]
    out = function(*given)
    torch.manual_seed(7)
    out.backward(torch.randn(out.shape).bfloat16().to(out))
    return [out.detach().double(), *(x.grad.double() for x in given)]  # type: ignore[union-attr]


def no_worse(ours: Function, torchs: Function, given: list[Tensor]) -> None:
    """The output, and the gradient of each that was given."""
    exact = with_gradients(torchs, [x.double() for x in given])
    for n, (truth, rough, found) in enumerate(
        zip(exact, with_gradients(torchs, given), with_gradients(ours, given), strict=True)
    ):
        allowed, error = (float((x - truth).norm() / truth.norm()) for x in (rough, found))
        assert error <= 2 * allowed + 1e-7, f"number {n}: {error:.2e} where torch has {allowed:.2e}"


def random(device: torch.device, *shapes: tuple[int, ...]) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape).bfloat16().to(device) for shape in shapes]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [(16, 16), (64, 64), (64, 128)], ids=str)
@pytest.mark.parametrize("lengths", [[9, 16, 1, 5], [60, 33, 2], [128, 100]], ids=str)
def test_attention(device: torch.device, causal: bool, sizes: tuple[int, int], lengths: list[int]) -> None:
    layer = test_packed_attention.layer_of(2, *sizes, causal=causal)
    layout = test_packed_attention.end_to_end(lengths, device)
    context = AttentionContext(layout, layout)
    given = [x.bfloat16() for x in test_packed_attention.random_parts(layer, context, "one")]
    no_worse(
        lambda *parts: short.packed_attention(test_packed_attention.job_of(layer, parts, context)),
        lambda *parts: test_packed_attention.one_by_one(test_packed_attention.job_of(layer, parts, context)),
        given,
    )


@pytest.mark.parametrize("size", [48, 512])
def test_norm_of_a_sum(device: torch.device, size: int) -> None:
    norm = LayerNorm(size).to(device)

    def ours(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        norm.weight, norm.bias = weight, bias  # type: ignore[assignment]
        return add_norm(x, y, norm, Dropout(0.0))

    del norm.weight, norm.bias
    given = random(device, (50, size), (50, size), (size,), (size,))
    no_worse(ours, lambda x, y, weight, bias: F.layer_norm(x + y, (size,), weight, bias, norm.eps), given)


@pytest.mark.parametrize("activation", [None, nn.ReLU(), nn.GELU(), nn.GELU(approximate="tanh")], ids=str)
def test_products(device: torch.device, activation: nn.Module | None) -> None:
    layer = Linear(64, 96)
    del layer.weight, layer.bias

    def ours(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        layer.weight, layer.bias = weight, bias  # type: ignore[assignment]
        return layer(x) if activation is None else activated(layer, x, activation)

    def torchs(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        out = F.linear(x, weight, bias)
        return out if activation is None else activation(out)

    no_worse(ours, torchs, random(device, (150, 64), (96, 64), (96,)))


@pytest.mark.parametrize("entries", [64, 501])
def test_loss(device: torch.device, entries: int) -> None:
    x, weight = random(device, (40, 32), (entries, 32))
    labels = torch.randint(0, entries, (40,)).to(device)
    labels[[3, 39]] = -1

    def torchs(x: Tensor, weight: Tensor) -> Tensor:
        return F.cross_entropy(x @ weight.T, labels, label_smoothing=0.1, reduction="sum", ignore_index=-1)

    no_worse(lambda x, weight: vocabulary_loss(x, weight, labels, 0.1), torchs, [x * 0.3, weight])
