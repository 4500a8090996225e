"""A learned number for every head and bucket of distances, added to the scores."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.config import at_least, choice, option
from regard.nn.layout import AttentionContext
from regard.nn.position.contract import Bias, Position, PositionConfig
from regard.nn.sizes import Sizes


def past_buckets(away: Tensor, buckets: int, distance: int) -> Tensor:
    """Half of the buckets hold one distance each; the others grow by a factor, and the last has all from `distance` on.

    (Raffel 2020, 2.1; the formula is that of the authors' code.)
    """
    exact = max(buckets // 2, 1)
    ratio = (away.clamp(min=exact).float() / exact).log() / math.log(distance / exact)  # 0 … 1
    grown = exact + (ratio * (buckets - exact)).long()
    return torch.where(away < exact, away, grown.clamp(max=buckets - 1))


def both_buckets(distance: Tensor, buckets: int, far: int) -> Tensor:
    """The first half of the buckets for keys before the query, the second for those after it."""
    half = buckets // 2
    return past_buckets(distance.abs(), half, far) + half * (distance > 0)


class T5(Position):
    """One table serves all layers, as in T5. The encoder's buckets are for both sides, the decoder's for the past."""

    bucket: Tensor

    def __init__(self, heads: int, buckets: int, far: int, role: str) -> None:
        super().__init__()
        away = torch.arange(-far, far + 1)
        if role == "decoder":
            bucket = past_buckets((-away).clamp(min=0), buckets, far)
        else:
            bucket = both_buckets(away, buckets, far)
        self.register_buffer("bucket", bucket, persistent=False)  # [2·far + 1]
        self.numbers = nn.Parameter(nn.init.normal_(torch.empty(buckets, heads), std=0.02))

    def bias(self, q: Tensor, context: AttentionContext) -> Bias | None:
        return Bias.by_distance(context.once(("t5", self), self._table), context)

    def _table(self) -> Tensor:
        return F.embedding(self.bucket, self.numbers).T[None, :, None]  # [1, H, 1, 2·far + 1]


@choice("t5", "P6", "b[h, bucket(j − i)]", "Raffel 2020, 2.1")
class T5Config(PositionConfig):
    """Learned numbers on the scores by bucket of distance: near ones exactly, far ones ever more coarsely."""

    buckets: int = option(32, "how many; in the encoder half of them for each side")
    distance: int = option(128, "from here on all positions share the last bucket")

    def __post_init__(self) -> None:
        at_least(self, 2, "buckets")
        if self.distance <= self.buckets // 2:
            raise ValueError(f"distance must be above half the buckets ({self.buckets // 2}), not {self.distance}")

    def build(self, sizes: Sizes, role: str = "encoder") -> Position:
        return T5(sizes.heads, self.buckets, self.distance, role)
