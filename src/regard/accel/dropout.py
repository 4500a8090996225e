"""x + dropout(y) in one kernel, which draws as it goes and again for the gradient. The plain twin: `nn/dropout.py`."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.accel import launch
from regard.nn.dropout import Dropout

ROWS, WIDE = 32, 64  # places and features that a program of the kernel takes


def dropout(x: Tensor, layer: Dropout) -> Tensor:
    return _Add.apply(None, x, Noise.of(layer, x))  # type: ignore[no-any-return,no-untyped-call]


def add_dropout(x: Tensor, y: Tensor, layer: Dropout) -> Tensor:
    return _Add.apply(x, y, Noise.of(layer, y))  # type: ignore[no-any-return,no-untyped-call]


class Noise(NamedTuple):
    """What a kernel drops: which share, what tells this call's noise apart, and how many places share one draw."""

    share: float = 0.0
    salt: int = 0
    span: int = 1

    @staticmethod
    def of(dropout: Dropout, x: Tensor) -> "Noise":
        return Noise(dropout.rate, launch.salt(dropout.rate), dropout.span(x))


NONE = Noise()


class _Add(torch.autograd.Function):
    """x + dropout(y), or, without x, dropout(y)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor | None, y: Tensor, noise: Noise) -> Tensor:
        ctx.how = y.dtype, noise
        return _dropped(None if x is None else x.contiguous(), y.contiguous(), (y if x is None else x).dtype, noise)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        dtype, noise = ctx.how
        d_x = d_out if ctx.needs_input_grad[0] else None
        return d_x, _dropped(None, d_out.contiguous(), dtype, noise), None


def _dropped(x: Tensor | None, y: Tensor, dtype: torch.dtype, noise: Noise) -> Tensor:
    from regard.accel.kernels import drop_kernel

    size, out = y.shape[-1], torch.empty_like(y, dtype=dtype)
    places, shared = y.numel() // size, noise.span > 1
    row = noise.span if shared else max(places, 1)  # what does not share is one long row
    blocks = -(-row // ROWS)
    with launch.on(y):
        drop_kernel[(places // row * blocks, -(-size // WIDE))](
            x, y, out, row, blocks, launch.seed(y), noise.share, noise.salt,
            D=size, ROWS=ROWS, WIDE=WIDE, ADDS=x is not None, SHARED=shared, num_warps=4,
        )  # fmt: skip
    return out
