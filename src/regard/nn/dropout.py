"""Dropout that does not wait for random numbers.

On a CPU torch draws a random number for every element, one after the other: for small models a tenth of a training
step. Here four elements share the 64 bits of one draw, 16 each. The numbers still come from torch's generator, so that
a seed gives the same run. On a GPU a kernel draws as it goes; elsewhere it is torch's own.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.nn import kernels

STEPS = 1 << 16  # probabilities that 16 bits can tell apart
ROWS, WIDE = 32, 64  # places and features that a program of the kernel takes


def dropout(x: Tensor, p: float) -> Tensor:
    """Each element is 0 with probability p, else x / (1 − p) (Srivastava 2014); p to the nearest 1/65,536 on a CPU."""
    dropped = round(p * STEPS)
    if not kernels.on_cpu(x.device) or not 0 < dropped < STEPS:
        return F.dropout(x, p)
    bits = x.new_empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(1 << 63), None)
    drawn = bits.view(torch.int16)[: x.numel()].view(x.shape)  # −32,768 to 32,767, each as likely
    kept = torch.ge(drawn, dropped - STEPS // 2, out=x.new_empty(x.shape))
    return x * kept.mul_(STEPS / (STEPS - dropped))


class Dropout(nn.Dropout):
    @property
    def share(self) -> float:
        """How many are 0 now: none where nothing is learned."""
        return self.p if self.training else 0.0

    def span(self, x: Tensor) -> int:
        """How many places of x [B, T, D], one after the other, have one draw together."""
        return 1

    def forward(self, x: Tensor) -> Tensor:
        if not self.share:
            return x
        return _Add.apply(None, x, Noise.of(self, x)) if kernels.usable(x) else self.plain(x)  # type: ignore[no-any-return,no-untyped-call]

    def plain(self, x: Tensor) -> Tensor:
        return dropout(x, self.p)


class RowDropout(Dropout):
    """The same features are 0 at all places of a row (Gal 2016): what is hidden cannot be read off a neighbour."""

    def span(self, x: Tensor) -> int:
        return x.shape[1]

    def plain(self, x: Tensor) -> Tensor:
        """x [B, T, D]; one draw for each row and feature."""
        return x * F.dropout(x.new_ones(len(x), 1, x.shape[-1]), self.p)


DROPOUTS: dict[str, type[Dropout]] = {"place": Dropout, "row": RowDropout}


def add(x: Tensor, y: Tensor, dropout: Dropout) -> Tensor:
    """x + dropout(y), on a GPU in one kernel."""
    if dropout.share and kernels.usable(x):
        return _Add.apply(x, y, Noise.of(dropout, y))  # type: ignore[no-any-return,no-untyped-call]
    return x + dropout(y)  # type: ignore[no-any-return]


# --- in kernels ----------------------------------------------------------------------------------------------------


class Noise(NamedTuple):
    """What a kernel drops: which share, what tells this call's noise apart, and how many places share one draw."""

    share: float = 0.0
    salt: int = 0
    span: int = 1

    @staticmethod
    def of(dropout: Dropout, x: Tensor) -> "Noise":
        return Noise(dropout.share, kernels.salt(dropout.share), dropout.span(x))


NOTHING = Noise()


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
    from regard.nn.dropout_kernel import drop_kernel

    size, out = y.shape[-1], torch.empty_like(y, dtype=dtype)
    places, shared = y.numel() // size, noise.span > 1
    row = noise.span if shared else max(places, 1)  # what does not share is one long row
    blocks = -(-row // ROWS)
    with kernels.on(y):
        drop_kernel[(places // row * blocks, -(-size // WIDE))](
            x, y, out, row, blocks, kernels.seed(y), noise.share, noise.salt,
            D=size, ROWS=ROWS, WIDE=WIDE, ADDS=x is not None, SHARED=shared, num_warps=4,
        )  # fmt: skip
    return out
