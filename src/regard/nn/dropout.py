"""Dropout that does not wait for random numbers.

On a CPU torch draws a random number for every element, one after the other: for small models a tenth of a training
step. Here four elements share the 64 bits of one draw, 16 each. The numbers still come from torch's generator, so that
a seed gives the same run. Elsewhere it is torch's own.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn import dispatch

LEVELS = 1 << 16  # probabilities that 16 bits can tell apart


def dropout(x: Tensor, p: float) -> Tensor:
    """Each element is 0 with probability p, else x / (1 − p) (Srivastava 2014); p to the nearest 1/65,536 on a CPU."""
    dropped = round(p * LEVELS)
    if not dispatch.on_cpu(x.device) or not 0 < dropped < LEVELS:
        return F.dropout(x, p)
    bits = x.new_empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(1 << 63), None)
    drawn = bits.view(torch.int16)[: x.numel()].view(x.shape)  # −32,768 to 32,767, each as likely
    kept = torch.ge(drawn, dropped - LEVELS // 2, out=x.new_empty(x.shape))
    return x * kept.mul_(LEVELS / (LEVELS - dropped))


class Dropout(nn.Dropout):
    @property
    def rate(self) -> float:
        """The probability of 0 now: none in evaluation."""
        return self.p if self.training else 0.0

    def span(self, x: Tensor) -> int:
        """How many successive positions of x [B, T, D] share one draw."""
        return 1

    def forward(self, x: Tensor) -> Tensor:
        if not self.rate:
            return x
        fast = dispatch.fast("dropout", x)
        return fast(x, self) if fast else self.plain(x)

    def plain(self, x: Tensor) -> Tensor:
        return dropout(x, self.p)


class RowDropout(Dropout):
    """The same features are 0 at all positions of a row (Gal 2016): they cannot be read off a neighbour."""

    def span(self, x: Tensor) -> int:
        return x.shape[1]

    def plain(self, x: Tensor) -> Tensor:
        """x [B, T, D]; one draw for each row and feature."""
        return x * F.dropout(x.new_ones(len(x), 1, x.shape[-1]), self.p)


DROPOUTS: dict[str, type[Dropout]] = {"place": Dropout, "row": RowDropout}


def add_dropout(x: Tensor, y: Tensor, dropout: Dropout) -> Tensor:
    """x + dropout(y)."""
    if dropout.rate and (fast := dispatch.fast("add_dropout", x)):
        return fast(x, y, dropout)
    return x + dropout(y)
