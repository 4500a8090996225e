"""How does order enter? A position object offers four hooks, identity unless a choice needs them.

embed: on the word vectors; rotate: on queries and keys; bias: added to the scores; mix: added to the output.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn.layout import Call, Grid, Layout


@dataclass(frozen=True)
class Bias:
    """Numbers added to the scores, as a small table and the column of it that query i uses for key j."""

    table: Tensor  # [B or 1, H or 1, Q or 1, R]
    column: Callable[[Tensor, Tensor, Tensor], Tensor]  # (b, i, j) -> which of the R columns

    def dense(self, call: Call) -> Tensor:
        """What is added to scores [B, H, Q, K], of a shape that broadcasts to it."""
        b, _, i, j = call.grid()
        return self.look_up(self.column(b, i, j))

    def look_up(self, column: Tensor) -> Tensor:
        """The table at columns [..., Q, K]."""
        column = column[(None,) * (4 - column.dim())]  # [B or 1, H or 1, Q, K]
        if self.table.shape[0] == self.table.shape[2] == 1 and column.shape[1] == 1:
            return F.embedding(column[:, 0], self.table[0, :, 0].T).permute(0, 3, 1, 2)  # [B or 1, H, Q, K]
        shape = [max(t, c) for t, c in zip(self.table.shape[:3], column.shape[:3], strict=True)]
        return self.table.expand(*shape, -1).gather(-1, column.expand(*shape, -1))


class Position(nn.Module):
    """No position at all: attention is then blind to order (P0)."""

    mixes = False  # True where `mix` adds to the output, which only plain and block backends serve
    longest: int | None = None  # places that it can tell apart, where there is a limit

    def embed(self, x: Tensor, layout: Layout) -> Tensor:
        return x

    def rotate(self, x: Tensor, layout: Layout) -> Tensor:
        """Queries or keys [B, H, N, d] at their places; keys are rotated once, before they are cached."""
        return x

    def bias(self, q: Tensor, call: Call) -> Bias | None:
        return None

    def mix(self, weights: Tensor, call: Call, grid: Grid) -> Tensor | None:
        """What weights [B, H, Q, K] of the places in `grid` add to the output [B, H, Q, d_v]."""
        return None
