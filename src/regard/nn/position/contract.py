"""How does order enter? A position object offers five hooks, identity unless a choice needs them.

embed: on the word vectors; rotate: on queries and keys; query: on queries alone; bias: added to the scores; mix: added
to the output. A module of it that has weights which must not begin as all others do (`models/init.py`) sets them in a
method `reset_own`. A new one from its first line to its test: CONTRIBUTING.md, "Adding a choice".
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from regard.config import Choice
from regard.nn.layout import AttentionContext, Grid, Layout, distance
from regard.nn.sizes import Sizes


@dataclass(frozen=True)
class Bias:
    """Numbers added to the scores, as a small table and the column of it that query i uses for key j."""

    table: Tensor  # [B or 1, H or 1, Q or 1, R]
    column: Callable[[Tensor, Tensor, Tensor], Tensor]  # (b, i, j) -> which of the R columns
    key: Hashable = None  # a name for `column`, under which the layers of a context share its dense form

    @staticmethod
    def by_distance(table: Tensor, context: AttentionContext) -> "Bias":
        """The columns are the distances −r … r from query to key; what is farther uses the first or the last."""
        far = table.shape[-1] // 2
        return Bias(table, lambda b, i, j: clipped_distance(context, far, b, i, j), ("clipped", far))

    def dense(self, context: AttentionContext) -> Tensor:
        """The bias on scores [B, H, Q, K], of a shape that broadcasts to it."""

        def columns() -> Tensor:
            b, _, i, j = context.grid()
            return self.column(b, i, j)

        return self.look_up(columns() if self.key is None else context.once(self.key, columns))

    def look_up(self, column: Tensor) -> Tensor:
        """The table at columns [..., Q, K]."""
        column = column[(None,) * (4 - column.dim())]  # [B or 1, H or 1, Q, K]
        shape = [max(t, c) for t, c in zip(self.table.shape[:3], column.shape[:3], strict=True)]
        return self.table.expand(*shape, -1).gather(-1, column.expand(*shape, -1))


def clipped_distance(context: AttentionContext, far: int, b: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Distances from query to key as columns: −far and less is 0, 0 is `far`, far and more is 2·far."""
    return distance(context, b, i, j).clamp(-far, far) + far


class Position(nn.Module):
    """No position at all: attention is then blind to order (P0)."""

    longest: int | None = None  # positions that it can tell apart, where there is a limit
    rotates = False  # whether it turns queries and keys, …
    changes_queries = False  # … changes queries alone, …
    biases = False  # … adds to the scores …
    mixes = False  # … or to the output, which only plain and block backends serve
    joins_layers = False  # whether `embed` is for the input of the layer that it belongs to, not for the word vectors

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        cls.rotates = cls.rotate is not Position.rotate
        cls.changes_queries = cls.query is not Position.query
        cls.biases = cls.bias is not Position.bias
        cls.mixes = cls.mix is not Position.mix

    @property
    def acts_in_attention(self) -> bool:
        """Whether it does anything to queries, keys, scores or output; others act on word vectors alone."""
        return self.rotates or self.changes_queries or self.biases or self.mixes

    def forward(self, x: Tensor) -> Tensor:
        """Word vectors [B, T, D] with their positions, 0 to T − 1, in them."""
        return self.embed(x, Layout.of(x.shape[1], device=x.device))

    def embed(self, x: Tensor, layout: Layout) -> Tensor:
        """Word vectors, or where it `joins_layers` the input of its layer, [B, T, D] at the positions of a layout."""
        return x

    def enter(self, x: Tensor, layout: Layout) -> Tensor:
        """The input of the layer that it belongs to [B, T, D]."""
        return self.embed(x, layout) if self.joins_layers else x

    def rotate(self, x: Tensor, layout: Layout) -> Tensor:
        """Queries or keys [B, H, N, d] at their positions; keys are rotated once, before they are cached."""
        return x

    def query(self, q: Tensor) -> Tensor:
        """Queries [B, H, Q, d_k] as the scores take them, after they were rotated."""
        return q

    def bias(self, q: Tensor, context: AttentionContext) -> Bias | None:
        """What is added to the scores of these queries, which `query` has seen."""
        return None

    def mix(self, weights: Tensor, context: AttentionContext, grid: Grid) -> Tensor | None:
        """What weights [B, H, Q, K] at the positions in `grid` add to the output [B, H, Q, d_v]."""
        return None


class PositionConfig(Choice, slot="position"):
    """The base of all position configs."""

    must_define = ("build",)
    roles: ClassVar[tuple[str, ...]] = ("encoder", "decoder")  # of the attentions that can have it
    embeds: ClassVar[bool] = False  # whether `embed` is its only hook, so that a model without attention can have it
    per_layer: ClassVar[bool] = False  # whether each layer of a stack has one of its own

    @property
    def max_length(self) -> int | None:
        """How many positions it can tell apart, where there is a limit."""
        return None

    def check(self, sizes: Sizes) -> None:
        """Raise ValueError where a model of these sizes cannot have these positions."""

    def build(self, sizes: Sizes, role: str = "encoder") -> Position:
        """The module of the encoder or of the decoder, by `role`."""
        raise NotImplementedError
