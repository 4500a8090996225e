"""A penalty on the scores that grows with the distance, at a slope of its own for every head."""

import torch
from torch import Tensor

from regard.config import choice
from regard.nn.layout import AttentionContext
from regard.nn.position.contract import Bias, Position, PositionConfig
from regard.nn.sizes import Sizes


def slopes(heads: int) -> Tensor:
    """2^(−8h/H) for h = 1 … H. If H is no power of two: those of the power p below, then every second of 2p's.

    (Press 2022, 3, and the authors' code for the second rule.)
    """
    p = 2 ** (heads.bit_length() - 1)
    steps = [h / p for h in range(1, p + 1)] + [h / (2 * p) for h in range(1, 2 * (heads - p), 2)]
    return 2.0 ** (-8 * torch.tensor(steps, dtype=torch.float64))  # [H]


class Alibi(Position):
    slopes: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes", slopes(heads), persistent=False)

    def bias(self, q: Tensor, context: AttentionContext) -> Bias | None:
        return Bias.by_distance(context.once(("alibi", self, q.dtype), lambda: self._table(q, context)), context)

    def _table(self, q: Tensor, context: AttentionContext) -> Tensor:
        """−m_h · |j − i| for every distance that the context can have [1, H, 1, R]."""
        far = context.farthest
        away = torch.arange(-far, far + 1, device=q.device).abs()
        table = -self.slopes[:, None, None] * away  # [H, 1, R]
        return table[None].to(torch.promote_types(q.dtype, torch.float32))


@choice("alibi", "P6", "−m_h · |j − i|, m_h = 2^(−8h/H)", "Press 2022, 3")
class AlibiConfig(PositionConfig):
    """Scores fall with the distance, faster in some heads than in others; nothing is learned.

    The paper has a causal model; where both sides are seen, both are penalised alike, so that an encoder without other
    positions cannot tell a sentence from its mirror image.
    """

    def build(self, sizes: Sizes, role: str = "encoder") -> Position:
        return Alibi(sizes.heads)
