"""The memory of Transformer-XL: what an attention read before a segment (Dai 2019). Knows no model."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import RegardError
from regard.nn.layout import AttentionContext, Layout


@dataclass
class SegmentMemory:
    """The inputs of one attention before a segment, as a cache: `attention(x, cache=memory)` sees both (Dai 2019, 3.2).

    Afterwards it holds the last M of both. No gradient flows into what it holds. `SegmentMemory.empty` begins one.
    """

    states: Tensor  # [B, M, D]
    real: Tensor  # [B, M] False where nothing was read yet

    @staticmethod
    def empty(rows: int, length: int, like: Tensor) -> "SegmentMemory":
        """Room for `length` positions of vectors like this one [..., D]."""
        real = torch.zeros(rows, length, dtype=torch.bool, device=like.device)
        return SegmentMemory(like.new_zeros(rows, length, like.shape[-1]), real)

    def context(self, steps: int, mask: Tensor | None = None) -> AttentionContext:
        """The context of the next segment, for a caller who has none."""
        if mask is not None:
            raise RegardError("a segment memory takes no mask: it knows what is real, and segments have no padding")
        real, device, before = self.real, self.real.device, self.real.shape[1]
        end = before + steps
        queries = Layout(torch.arange(before, end, device=device)[None], end, start=before)
        seen = torch.cat([real, real.new_ones(len(real), steps)], 1)
        return AttentionContext(queries, Layout(torch.arange(end, device=device)[None], end, seen))

    def extend(self, x: Tensor) -> Tensor:
        """What is remembered and the segment [B, M + T, D]; keeps the last M of it."""
        both = torch.cat([self.states.to(x.dtype), x], 1)
        kept = self.real.shape[1]
        self.states = both[:, both.shape[1] - kept :].detach()
        self.real = torch.cat([self.real, self.real.new_ones(len(x), x.shape[1])], 1)[:, -kept:] if kept else self.real
        return both
