"""f(x Wᵀ + b) with its own gradients: that of the bias is a sum of columns, made in the backward pass of f."""

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.accel import launch
from regard.nn import dispatch
from regard.nn.dispatch import GradientContext

SPLITS = 64  # programs that share the rows of a column


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return _Linear.apply(x, weight, bias, "none")


def activated(x: Tensor, weight: Tensor, bias: Tensor, activation: nn.Module) -> Tensor | None:
    """None where the kernel does not know the activation."""
    kind = _kind(activation)
    return None if kind is None else _Linear.apply(x, weight, bias, kind)


def _kind(activation: nn.Module) -> str | None:
    """The kernel's name of an activation, if it knows it."""
    if isinstance(activation, nn.GELU):
        return {"none": "gelu", "tanh": "gelu_tanh"}[activation.approximate]
    return "relu" if isinstance(activation, nn.ReLU) else None


class _LinearContext(GradientContext, Protocol):
    saved: tuple[str, torch.dtype, torch.dtype, torch.dtype]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _LinearContext, x: Tensor, weight: Tensor, bias: Tensor, kind: str) -> Tensor:
        dtype = dispatch.product_dtype(x)
        rows, table, added = x.flatten(0, -2).to(dtype), weight.to(dtype), bias.to(dtype)
        with torch.autocast(x.device.type, enabled=False):
            if kind == "relu":  # torch makes max(0, …) while the product is still at hand
                out = kept = torch._addmm_activation(added, rows, table.T)
            else:
                out = kept = torch.addmm(added, rows, table.T)
                if kind != "none":
                    out = F.gelu(kept, approximate="tanh" if kind == "gelu_tanh" else "none")
        ctx.save_for_backward(rows, table, kept if kind != "none" else None)
        ctx.saved = kind, x.dtype, weight.dtype, bias.dtype
        return out.view(*x.shape[:-1], len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: _LinearContext, d_out: Tensor) -> tuple[Tensor | None, ...]:
        (rows, table, kept), (kind, of_x, of_weight, of_bias) = ctx.saved_tensors, ctx.saved
        d_rows, d_bias = _columns(d_out.flatten(0, -2).contiguous(), kept, kind)
        d_x = (d_rows @ table).to(of_x).view(*d_out.shape[:-1], -1) if ctx.needs_input_grad[0] else None
        return d_x, _product(d_rows.T, rows, of_weight), d_bias.to(of_bias), None


def _product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """a b in a wider type than theirs, without a second pass where the device can."""
    if dispatch.on_gpu(a.device) and dtype == torch.float32 != a.dtype:
        return torch.mm(a, b, out_dtype=dtype)
    return (a @ b).to(dtype)


def _columns(d_rows: Tensor, kept: Tensor | None, kind: str) -> tuple[Tensor, Tensor]:
    """A gradient [N, M] through the function of this kind, backwards, and the sum of its columns."""
    from regard.accel.kernels import column_sum_kernel

    n, width = d_rows.shape
    out = d_rows if kept is None else torch.empty_like(d_rows)
    splits = min(SPLITS, -(-n // 64))
    parts = d_rows.new_empty(splits, width, dtype=torch.float32)
    with launch.device_of(d_rows):
        column_sum_kernel[(-(-width // 64), splits)](
            d_rows, kept, out, parts, n, width, ROWS=64, WIDE=64, KIND=kind, num_warps=4
        )
    return out, parts.sum(0)
