"""The best few of a vocabulary, with their log-probabilities. The plain twins are `log_softmax` and `topk`."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.decoding.contract import Symbols, log_probabilities

BLOCK = 128  # entries whose maximum is found first
CHUNK = {"cpu": 1 << 18}  # scores turned into log-probabilities at once: what a core's own cache holds


@dataclass(frozen=True)
class Best:
    logp: Tensor  # [N, count] log-probabilities, best first
    words: Tensor  # [N, count]
    end: Tensor  # [N] the log-probability of ending


def best(logits: Tensor, symbols: Symbols, count: int) -> Best:
    """The `count` likeliest words of each row [N, V]. Some rows at a time: scores are not worth a way to memory."""
    rows = max(1, CHUNK.get(logits.device.type, logits.numel()) // logits.shape[1])
    found = []
    for part in logits.split(rows):
        logp = log_probabilities(part, symbols)
        found.append((*top(logp, count), logp[:, symbols.eos].clone()))
    return Best(*(each[0] if len(found) == 1 else torch.cat(each) for each in zip(*found, strict=True)))


def top(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` greatest of each row [N, V], best first, and where they stand.

    They lie in the `count` blocks with the greatest maxima, so only those are looked into.
    """
    rows, entries = scores.shape
    blocks = entries // BLOCK
    if blocks <= 2 * count:
        return scores.topk(min(count, entries), -1)
    whole = scores[:, : blocks * BLOCK].unflatten(1, (blocks, BLOCK))
    chosen = whole.amax(-1).topk(count, -1).indices  # [N, count]
    near = whole.gather(1, chosen[..., None].expand(-1, -1, BLOCK)).flatten(1)
    place = (chosen[..., None] * BLOCK + torch.arange(BLOCK, device=scores.device)).flatten(1)
    if entries % BLOCK:  # what is left over belongs to no block
        rest = torch.arange(blocks * BLOCK, entries, device=scores.device).expand(rows, -1)
        near, place = torch.cat([near, scores[:, blocks * BLOCK :]], 1), torch.cat([place, rest], 1)
    values, at = near.topk(count, -1)
    return values, place.gather(1, at)
