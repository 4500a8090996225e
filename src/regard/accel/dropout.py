"""x + dropout(y) in one kernel, which draws as it goes and again for the gradient. The plain twin: `nn/dropout.py`."""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.accel import launch
from regard.nn.dispatch import GradientContext
from regard.nn.dropout import Dropout

ROWS, WIDE = 32, 64  # positions and features that a program of the kernel takes


def dropout(x: Tensor, layer: Dropout) -> Tensor:
    return _Add.apply(None, x, DropoutDraw.of(layer, x))


def add_dropout(x: Tensor, y: Tensor, layer: Dropout) -> Tensor:
    return _Add.apply(x, y, DropoutDraw.of(layer, y))


class DropoutDraw(NamedTuple):
    """Dropout of one call of a kernel."""

    rate: float = 0.0
    call_seed: int = 0
    span: int = 1  # how many positions share one draw

    @staticmethod
    def of(dropout: Dropout, x: Tensor) -> "DropoutDraw":
        return DropoutDraw(dropout.rate, launch.call_seed(dropout.rate), dropout.span(x))


NO_DROPOUT = DropoutDraw()


class _AddContext(GradientContext, Protocol):
    saved: tuple[torch.dtype, DropoutDraw]


class _Add(torch.autograd.Function):
    """x + dropout(y), or, without x, dropout(y)."""

    @staticmethod
    def forward(ctx: _AddContext, x: Tensor | None, y: Tensor, draw: DropoutDraw) -> Tensor:
        ctx.saved = y.dtype, draw
        return _dropped(None if x is None else x.contiguous(), y.contiguous(), (y if x is None else x).dtype, draw)

    @staticmethod
    @once_differentiable
    def backward(ctx: _AddContext, d_out: Tensor) -> tuple[Tensor | None, ...]:
        dtype, draw = ctx.saved
        d_x = d_out if ctx.needs_input_grad[0] else None
        return d_x, _dropped(None, d_out.contiguous(), dtype, draw), None


def _dropped(x: Tensor | None, y: Tensor, dtype: torch.dtype, draw: DropoutDraw) -> Tensor:
    from regard.accel.kernels import dropout_kernel

    size, out = y.shape[-1], torch.empty_like(y, dtype=dtype)
    positions, shared = y.numel() // size, draw.span > 1
    row = draw.span if shared else max(positions, 1)  # what does not share is one long row
    blocks = -(-row // ROWS)
    with launch.device_of(y):
        dropout_kernel[(positions // row * blocks, -(-size // WIDE))](
            x, y, out, row, blocks, launch.step_seed(y), draw.rate, draw.call_seed,
            D=size, ROWS=ROWS, WIDE=WIDE, ADDS=x is not None, SHARED=shared, num_warps=4,
        )  # fmt: skip
    return out
