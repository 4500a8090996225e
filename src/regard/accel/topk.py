"""Top-k by blocks. The plain twin is `torch.topk`, which reads every number several times."""

import torch
from torch import Tensor

BLOCK = 128  # numbers whose maximum is found first
FEW = 1 << 14  # numbers for which blocks do not pay


def topk(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` greatest of each row [N, V], best first, and their indices.

    They lie in the `count` blocks with the greatest maxima, so only those are searched.
    """
    rows, entries = scores.shape
    blocks = entries // BLOCK
    if blocks <= 2 * count or scores.numel() <= FEW:
        return scores.topk(min(count, entries), -1)
    whole = scores[:, : blocks * BLOCK].unflatten(1, (blocks, BLOCK))
    chosen = whole.amax(-1).topk(count, -1).indices  # [N, count]
    near = whole.gather(1, chosen[..., None].expand(-1, -1, BLOCK)).flatten(1)
    index = (chosen[..., None] * BLOCK + torch.arange(BLOCK, device=scores.device)).flatten(1)
    if entries % BLOCK:  # what is left over belongs to no block
        rest = torch.arange(blocks * BLOCK, entries, device=scores.device).expand(rows, -1)
        near, index = torch.cat([near, scores[:, blocks * BLOCK :]], 1), torch.cat([index, rest], 1)
    values, at = near.topk(count, -1)
    return values, index.gather(1, at)
