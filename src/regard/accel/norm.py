"""LayerNorm of a sum with dropout, and its gradients, in one kernel each. The plain twins are in `nn/norm.py`."""

from typing import Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.accel import launch
from regard.accel.dropout import NO_DROPOUT, DropoutDraw
from regard.nn import dispatch
from regard.nn.dispatch import GradientContext
from regard.nn.dropout import Dropout
from regard.nn.norm import LayerNorm

PROGRAMS = 528  # of the backward kernel: enough to fill a large GPU, few enough to add up what each has summed


def layer_norm(x: Tensor, norm: LayerNorm) -> Tensor:
    return _Norm.apply(x, None, norm.weight, norm.bias, norm.eps, NO_DROPOUT, False)


def add_norm(x: Tensor, y: Tensor, norm: LayerNorm, dropout: Dropout) -> Tensor:
    return _Norm.apply(x, y, norm.weight, norm.bias, norm.eps, DropoutDraw.of(dropout, y), False)


def norm_beside(x: Tensor, norm: LayerNorm) -> tuple[Tensor, Tensor]:
    return _Norm.apply(x, None, norm.weight, norm.bias, norm.eps, NO_DROPOUT, True)


def add_norm_without_gradient(x: Tensor, y: Tensor, norm: LayerNorm) -> Tensor:
    """norm(x + y) in one kernel, without a gradient: for captured launches."""
    return _normed(x.contiguous(), y.contiguous(), norm.weight, norm.bias, norm.eps, NO_DROPOUT)[0]


def _normed(
    x: Tensor, y: Tensor | None, weight: Tensor, bias: Tensor, epsilon: float, draw: DropoutDraw
) -> tuple[Tensor, Tensor, Tensor]:
    """The norm, and the mean and scale of every position, which its gradient needs."""
    from regard.accel.kernels import layer_norm_forward_kernel

    out, sizes = torch.empty_like(x, dtype=dispatch.product_dtype(x)), _sizes(x, y, draw)
    n = x.numel() // sizes["D"]
    mean, scale = x.new_empty(2, n, dtype=torch.float32)
    with launch.device_of(x):
        layer_norm_forward_kernel[(-(-n // sizes["ROWS"]),)](
            x, y, weight, bias, out, mean, scale, n, epsilon, launch.step_seed(x), *draw, **sizes, num_warps=4
        )
    return out, mean, scale


class _NormContext(GradientContext, Protocol):
    saved: tuple[int, DropoutDraw]


class _Norm(torch.autograd.Function):
    """LayerNorm of x + dropout(y), or of x alone; the sum is computed again for the gradients, not kept."""

    @staticmethod
    def forward(
        ctx: _NormContext,
        x: Tensor,
        y: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        epsilon: float,
        draw: DropoutDraw,
        passes: bool,
    ) -> Tensor | tuple[Tensor, Tensor]:
        x, y = x.contiguous(), None if y is None else y.contiguous()
        out, mean, scale = _normed(x, y, weight, bias, epsilon, draw)
        ctx.save_for_backward(x, y, weight, mean, scale)
        ctx.saved = x.numel() // x.shape[-1], draw
        return (out, x.view_as(x)) if passes else out

    @staticmethod
    @once_differentiable
    def backward(ctx: _NormContext, d_out: Tensor, d_passed: Tensor | None = None) -> tuple[Tensor | None, ...]:
        from regard.accel.kernels import layer_norm_backward_kernel

        (x, y, weight, mean, scale), (n, draw) = ctx.saved_tensors, ctx.saved
        sizes = _sizes(x, y, draw)
        programs = min(PROGRAMS, -(-n // sizes["ROWS"]))
        d_out, d_x = d_out.contiguous(), torch.empty_like(x)
        d_passed = None if d_passed is None else d_passed.contiguous()
        apart = y is not None and (draw.rate > 0 or y.dtype != x.dtype)  # else both have one gradient
        d_y = torch.empty_like(y) if apart else d_x
        parts = x.new_empty(programs, 2, sizes["D"], dtype=torch.float32)
        with launch.device_of(x):
            layer_norm_backward_kernel[(programs,)](
                x, y, weight, mean, scale, d_out, d_passed, d_x, d_y, parts, n, launch.step_seed(x), *draw,
                **sizes, APART=apart, PASSES=d_passed is not None, num_warps=2,
            )  # fmt: skip
        d_weight, d_bias = parts.sum(0).to(weight.dtype)
        return d_x, None if y is None else d_y, d_weight, d_bias, None, None, None


def _sizes(x: Tensor, y: Tensor | None, draw: DropoutDraw) -> dict[str, int]:
    """What the kernels are compiled for."""
    size = x.shape[-1]
    wide = launch.power_of_2(size)
    return {"D": size, "WIDE": wide, "ROWS": max(1, 2048 // wide), "ADDS": y is not None, "DROPS": draw.rate > 0}
