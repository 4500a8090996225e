"""Rotary positions in one kernel. The plain twin: `nn/position/rotary.py`."""

from typing import Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.accel import launch
from regard.nn.dispatch import GradientContext


def rotate(x: Tensor, waves: Tensor, neighbours: bool) -> Tensor:
    """x [B, H, N, d] by waves [N, d] or [B or 1, N, d]; the two of a pair are `neighbours`, or one of each half."""
    return _Rotate.apply(x, waves, neighbours)


class _RotateContext(GradientContext, Protocol):
    neighbours: bool


class _Rotate(torch.autograd.Function):
    """A gradient is rotated back."""

    @staticmethod
    def forward(ctx: _RotateContext, x: Tensor, waves: Tensor, neighbours: bool) -> Tensor:
        ctx.save_for_backward(waves)
        ctx.neighbours = neighbours
        return _rotated(x, waves, neighbours, back=False)

    @staticmethod
    @once_differentiable
    def backward(ctx: _RotateContext, d_out: Tensor) -> tuple[Tensor | None, ...]:
        (waves,) = ctx.saved_tensors
        return _rotated(d_out, waves, ctx.neighbours, back=True), None, None


def _rotated(x: Tensor, waves: Tensor, neighbours: bool, back: bool) -> Tensor:
    """x [B, H, N, d]; waves [N, d], or [B or 1, N, d]. The result lies in memory as [B, N, H, d]."""
    from regard.accel.kernels import rotary_kernel

    if x.stride(-1) != 1:
        x = x.contiguous()
    rows, heads, n, size = x.shape
    out = x.new_empty(rows, n, heads, size)
    wide = launch.power_of_2(heads * size // 2)
    positions = max(1, 2048 // wide)
    with launch.device_of(x):
        rotary_kernel[(rows, -(-n // positions))](
            x, waves.contiguous(), out, n, x.stride(0), x.stride(1), x.stride(2),
            n * size if waves.dim() == 3 and len(waves) > 1 else 0,
            HEADS=heads, HALF=size // 2, WIDE=wide, ROWS=positions, NEXT=1 if neighbours else size // 2, BACK=back,
        )  # fmt: skip
    return out.transpose(1, 2)
