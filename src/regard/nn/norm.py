"""Normalising layers: over the features of a place, or, for the comparison, over the places of a batch."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.nn import kernels
from regard.nn.dropout import NOTHING, Dropout, Noise

PROGRAMS = 528  # of the backward kernel: enough to fill a large GPU, few enough to add up what each has summed


class LayerNorm(nn.LayerNorm):
    """(x − mean) / √(variance + ε) over the D features of each place (Ba 2016)."""

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        if kernels.usable(x):
            return _Norm.apply(x, None, self.weight, self.bias, self.eps, NOTHING, False)  # type: ignore[no-any-return,no-untyped-call]
        return super().forward(x)


class BatchNorm(nn.BatchNorm1d):
    """The same over all real places of the batch, by feature (Ioffe 2015); running averages when not training."""

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        if real is None or not self.training:
            return super().forward(x.flatten(0, -2)).view_as(x)
        out = torch.zeros_like(x)  # padding counts for nothing
        out[real] = super().forward(x[real]).to(x.dtype)
        return out


NORMS: dict[str, type[LayerNorm] | type[BatchNorm]] = {"layer": LayerNorm, "batch": BatchNorm}


def add_norm(x: Tensor, y: Tensor, norm: nn.Module, dropout: Dropout, real: Tensor | None = None) -> Tensor:
    """norm(x + dropout(y)), on a GPU in one kernel."""
    if isinstance(norm, LayerNorm) and kernels.usable(x):
        return _Norm.apply(x, y, norm.weight, norm.bias, norm.eps, Noise.of(dropout, y), False)  # type: ignore[no-any-return,no-untyped-call]
    return norm(x + dropout(y), real)  # type: ignore[no-any-return]


def norm_beside(x: Tensor, norm: nn.Module, real: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """norm(x), and x itself, which goes on beside it; on a GPU the gradients of both meet in one kernel."""
    if isinstance(norm, LayerNorm) and kernels.usable(x):
        return _Norm.apply(x, None, norm.weight, norm.bias, norm.eps, NOTHING, True)  # type: ignore[no-any-return,no-untyped-call]
    return norm(x, real), x


def recorded_norm(x: Tensor, y: Tensor, norm: LayerNorm) -> Tensor:
    """norm(x + y) in one kernel, without a gradient: for launches that are recorded."""
    return _normed(x.contiguous(), y.contiguous(), norm.weight, norm.bias, norm.eps, NOTHING)[0]


def _normed(
    x: Tensor, y: Tensor | None, weight: Tensor, bias: Tensor, epsilon: float, noise: Noise
) -> tuple[Tensor, Tensor, Tensor]:
    """The norm, and what its gradient needs: the mean of every place, and what it was scaled by."""
    from regard.nn.norm_kernels import forward_kernel

    out, sizes = torch.empty_like(x, dtype=kernels.product_dtype(x)), _sizes(x, y, noise)
    n = x.numel() // sizes["D"]
    mean, scale = x.new_empty(2, n, dtype=torch.float32)
    with kernels.on(x):
        forward_kernel[(-(-n // sizes["ROWS"]),)](
            x, y, weight, bias, out, mean, scale, n, epsilon, kernels.seed(x), *noise, **sizes, num_warps=4
        )
    return out, mean, scale


class _Norm(torch.autograd.Function):
    """LayerNorm of x + dropout(y), or of x alone; the sum is computed again for the gradients, not kept."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor | None, weight: Tensor, bias: Tensor, epsilon: float, noise: Noise, passes: bool
    ) -> Tensor | tuple[Tensor, Tensor]:
        x, y = x.contiguous(), None if y is None else y.contiguous()
        out, mean, scale = _normed(x, y, weight, bias, epsilon, noise)
        ctx.save_for_backward(x, y, weight, mean, scale)
        ctx.how = x.numel() // x.shape[-1], noise
        return (out, x.view_as(x)) if passes else out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor, d_passed: Tensor | None = None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        from regard.nn.norm_kernels import backward_kernel

        (x, y, weight, mean, scale), (n, noise) = ctx.saved_tensors, ctx.how
        sizes = _sizes(x, y, noise)
        programs = min(PROGRAMS, -(-n // sizes["ROWS"]))
        d_out, d_x = d_out.contiguous(), torch.empty_like(x)
        d_passed = None if d_passed is None else d_passed.contiguous()
        apart = y is not None and (noise.share > 0 or y.dtype != x.dtype)  # else both have one gradient
        d_y = torch.empty_like(y) if apart else d_x
        parts = x.new_empty(programs, 2, sizes["D"], dtype=torch.float32)
        with kernels.on(x):
            backward_kernel[(programs,)](
                x, y, weight, mean, scale, d_out, d_passed, d_x, d_y, parts, n, kernels.seed(x), *noise,
                **sizes, APART=apart, PASSES=d_passed is not None, num_warps=2,
            )  # fmt: skip
        d_weight, d_bias = parts.sum(0).to(weight.dtype)
        return d_x, None if y is None else d_y, d_weight, d_bias, None, None, None


def _sizes(x: Tensor, y: Tensor | None, noise: Noise) -> dict[str, int]:
    """What the kernels are compiled for."""
    size = x.shape[-1]
    wide = kernels.power(size)
    return {"D": size, "WIDE": wide, "ROWS": max(1, 2048 // wide), "ADDS": y is not None, "DROPS": noise.share > 0}
