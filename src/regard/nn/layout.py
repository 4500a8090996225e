"""Where every query and key of one attention call stands: its position, its document, and whether it is real.

Cached decoding, cross-attention and packed documents are the same attention with other layouts.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """The places of one side of an attention. A row of length 1 in `position` serves the whole batch."""

    position: Tensor  # [B or 1, N] absolute positions
    end: int  # every position is below this; known without asking the device
    real: Tensor | None = None  # [B, N] False at padding; None: everything is real
    document: Tensor | None = None  # [B, N] which sequence of a packed row; None: one a row
    right_padded: bool = False  # positions are 0, 1, 2 … and padding stands only at the end

    @property
    def rows(self) -> int:
        return max(len(part) for part in (self.position, self.real, self.document) if part is not None)

    @property
    def length(self) -> int:
        return self.position.shape[1]

    @staticmethod
    def of(length: int, real: Tensor | None = None, device: torch.device | None = None) -> "Layout":
        """Sequences that start at 0 and are padded on the right, if at all."""
        return Layout(torch.arange(length, device=device)[None], length, real, right_padded=True)


@dataclass(frozen=True)
class Call:
    """One attention call: who asks, who is asked. Shared by all layers, so that a mask is built once."""

    queries: Layout
    keys: Layout
    _memo: dict[Hashable, Tensor | None] = field(default_factory=dict, repr=False, compare=False)

    def once(self, key: Hashable, make: Callable[[], Tensor | None]) -> Tensor | None:
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]
