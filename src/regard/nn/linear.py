"""x Wᵀ + b. On a GPU its gradients are made by hand: a bias's is the sum of columns, which torch is slow at."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.nn import kernels

SPLITS = 64  # programs that share the rows of a column


class Linear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)

    def rectified(self, x: Tensor) -> Tensor:
        """max(0, x Wᵀ + b)"""
        return linear(x, self.weight, self.bias, True)


def linear(x: Tensor, weight: Tensor, bias: Tensor, rectify: bool = False) -> Tensor:
    if kernels.usable(x):
        return _Linear.apply(x, weight, bias, rectify)  # type: ignore[no-any-return,no-untyped-call]
    out = F.linear(x, weight, bias)
    return F.relu(out) if rectify else out


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, rectify: bool) -> Tensor:
        dtype = kernels.product_dtype(x)
        rows, table, added = x.flatten(0, -2).to(dtype), weight.to(dtype), bias.to(dtype)
        with torch.autocast(x.device.type, enabled=False):
            # The second is torch's product with max(0, …) made while its result is still at hand.
            product = torch._addmm_activation if rectify else torch.addmm
            out = product(added, rows, table.T)
        ctx.save_for_backward(rows, table, out if rectify else None)
        ctx.kinds = x.dtype, weight.dtype, bias.dtype
        return out.view(*x.shape[:-1], len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        (rows, table, out), (of_x, of_weight, of_bias) = ctx.saved_tensors, ctx.kinds
        change, d_bias = _columns(d_out.flatten(0, -2).contiguous(), out)
        d_x = (change @ table).to(of_x).view(*d_out.shape[:-1], -1) if ctx.needs_input_grad[0] else None
        return d_x, _product(change.T, rows, of_weight), d_bias.to(of_bias), None


def _product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """a b in a wider type than theirs, without a second pass where the device can."""
    if a.is_cuda and dtype == torch.float32 != a.dtype:
        return torch.mm(a, b, out_dtype=dtype)
    return (a @ b).to(dtype)


def _columns(change: Tensor, out: Tensor | None) -> tuple[Tensor, Tensor]:
    """A gradient [N, M], kept only where a rectified `out` is above zero; and the sum of its columns."""
    from regard.nn.linear_kernels import columns_kernel

    n, width = change.shape
    kept = change if out is None else torch.empty_like(change)
    splits = min(SPLITS, -(-n // 64))
    parts = change.new_empty(splits, width, dtype=torch.float32)
    with kernels.on(change):
        columns_kernel[(-(-width // 64), splits)](
            change, out, kept, parts, n, width, ROWS=64, WIDE=64, RECTIFIED=out is not None, num_warps=4
        )
    return kept, parts.sum(0)
