"""How a position vector joins a word vector: added, or put beside it and projected back."""

from typing import Literal

import torch
from torch import Tensor, nn

Join = Literal["add", "concat"]


class AddJoin(nn.Module):
    """x + p (Vaswani 2017, 3.5)."""

    def __init__(self, size: int) -> None:
        super().__init__()

    def forward(self, x: Tensor, p: Tensor) -> Tensor:
        return x + p


class ConcatJoin(nn.Module):
    """W [x; p]: adding is the case W = [I, I]."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.project = nn.Linear(2 * size, size, bias=False)
        self.reset_own()

    def forward(self, x: Tensor, p: Tensor) -> Tensor:
        return self.project(torch.cat([x, p.expand_as(x)], -1))

    def reset_own(self) -> None:
        """Begin as adding."""
        with torch.no_grad():
            eye = torch.eye(self.project.out_features)
            self.project.weight.copy_(torch.cat([eye, eye], 1))


JOINS: dict[str, type[AddJoin] | type[ConcatJoin]] = {"add": AddJoin, "concat": ConcatJoin}
