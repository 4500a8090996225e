"""Structural positions: a word's depth in its dependency tree, beside its position in the sentence."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from regard.config import at_least, choice, option
from regard.errors import RegardError
from regard.nn.layout import AttentionContext, Grid, Layout, Tree, at, distance
from regard.nn.position.contract import Bias, Position, PositionConfig
from regard.nn.position.join import ConcatJoin
from regard.nn.position.relative import RelativeKeysValues
from regard.nn.position.sinusoidal import SinusoidalConfig, SinusoidTable
from regard.nn.sizes import Sizes


class Depth(Position):
    """x_i + tanh(W [PE(i); PE(depth_i)]); W begins as [I, I]."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.waves, self.join = SinusoidTable(size, "interleaved"), ConcatJoin(size)

    def embed(self, x: Tensor, layout: Layout) -> Tensor:
        depth = tree_of(layout).depth.clamp(max=len(self.waves.table) - 1)  # no sentence is as deep
        structural, sequential = self.waves.table[depth].to(x.dtype), self.waves(layout, x.dtype)  # [B, N, D]
        return x + self.join(structural, sequential).tanh()


class TreeRelative(RelativeKeysValues):
    """Shaw's vectors, for distances in the tree."""

    def column(self, context: AttentionContext, b: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return tree_distance(context, b, i, j).clamp(-self.distance, self.distance) + self.distance


def tree_distance(context: AttentionContext, b: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """depth_j − depth_i where one lies above the other, else ±(depth_i + depth_j), the sign by which comes first."""
    own, other = tree_of(context.queries), tree_of(context.keys)
    here, there = at(own.depth, b, i), at(other.depth, b, j)
    enter, start = at(own.enter, b, i), at(other.enter, b, j)
    below = (enter <= start) & (start < at(own.leave, b, i))  # j is below i, or is its own word
    above = (start <= enter) & (enter < at(other.leave, b, j))
    return torch.where(below | above, there - here, distance(context, b, i, j).sign() * (here + there))


def tree_of(layout: Layout) -> Tree:
    if layout.tree is None:
        raise RegardError(
            "structural positions need a dependency tree for every sentence: give heads (`heads` of a corpus, "
            "--trees of a command, trees= of translate), and do not shorten the encoder's keys (compress)"
        )
    return layout.tree


@dataclass(frozen=True)
class SumBias(Bias):
    """Several columns of one table for each query and key, stacked in front: what they hold is added up."""

    def look_up(self, column: Tensor) -> Tensor:
        first, second = column
        return super().look_up(first) + super().look_up(second)

    @staticmethod
    def of(first: Bias, second: Bias) -> "SumBias":
        def column(b: Tensor, i: Tensor, j: Tensor) -> Tensor:
            pair = first.column(b, i, j), first.table.shape[-1] + second.column(b, i, j)
            return torch.stack(torch.broadcast_tensors(*pair))

        return SumBias(torch.cat([first.table, second.table], -1), column, ("sum", first.key, second.key))


class Relative(Position):
    """q_iᵀ(k_j + aᴷ_{j−i} + bᴷ_{t(i,j)}) / √d_k and Σ_j w_ij (v_j + aⱽ_{j−i} + bⱽ_{t(i,j)})."""

    def __init__(self, sizes: Sizes, distance: int) -> None:
        super().__init__()
        self.sequential, self.structural = RelativeKeysValues(sizes, distance), TreeRelative(sizes, distance)

    def bias(self, q: Tensor, context: AttentionContext) -> Bias:
        return SumBias.of(self.sequential.bias(q, context), self.structural.bias(q, context))

    def mix(self, weights: Tensor, context: AttentionContext, grid: Grid) -> Tensor:
        return self.sequential.mix(weights, context, grid) + self.structural.mix(weights, context, grid)


class Both(Relative):
    def __init__(self, sizes: Sizes, distance: int) -> None:
        super().__init__(sizes, distance)
        self.depth = Depth(sizes.size)

    def embed(self, x: Tensor, layout: Layout) -> Tensor:
        return self.depth.embed(x, layout)


@choice(
    "structural",
    "P5",
    "x_i + tanh(W [PE(i); PE(depth_i)]); k_j + aᴷ_{j−i} + bᴷ_{t(i,j)}, v_j alike; t = depth_j − depth_i "
    "on one path, else sign(j−i)(depth_i + depth_j)",
    "Wang, Tu, Wang, Shi 2019",
)
class StructuralConfig(PositionConfig):
    """Depth in the dependency tree and distance in it, each beside its sequential counterpart; heads are given.

    The paper: abs(x) is the distance to the main verb in the tree, its depth; rel is the difference of depths on one
    path, and otherwise their sum, signed by the order of the words. Absolute positions of both kinds are fused by a
    nonlinear function; relative ones are added to keys and values as Shaw's are. Chosen here: the function,
    tanh(W [PE(i); PE(depth_i)]); that any two words above each other are on one path; signs, key minus query.
    """

    roles: ClassVar[tuple[str, ...]] = ("encoder",)

    terms: Literal["absolute", "relative", "both"] = option(
        "both", "on the word vectors, on keys and values as in relative, or both"
    )
    distance: int = option(16, "of the relative terms: what is farther counts as this far")

    def __post_init__(self) -> None:
        at_least(self, 1, "distance")

    def check(self, sizes: Sizes) -> None:
        if self.terms != "relative":
            SinusoidalConfig().check(sizes)

    def build(self, sizes: Sizes, role: str = "encoder") -> Position:
        if self.terms == "absolute":
            return Depth(sizes.size)
        return {"relative": Relative, "both": Both}[self.terms](sizes, self.distance)
