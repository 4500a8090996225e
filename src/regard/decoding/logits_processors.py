"""Logits processors: repetition penalty, temperature, top-k, top-p and min-p. They know no model, search or text."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from regard.decoding.config import Sample


class RepetitionPenalty:
    """Makes tokens that a row has read or generated before less likely (Keskar 2019, 4.1)."""

    def __init__(self, penalty: float, prompts: Tensor, vocabulary_size: int) -> None:
        """`prompts` [B, T] are the tokens read so far."""
        self.penalty = penalty
        seen = torch.zeros(len(prompts), vocabulary_size, dtype=torch.bool, device=prompts.device)
        self.seen = seen.scatter_(1, prompts, True)

    def add(self, rows: Tensor, tokens: Tensor) -> None:
        """One more token [B] for each of these rows [B]."""
        self.seen[rows, tokens] = True

    def reset(self, rows: Tensor) -> None:
        """Other sequences begin in these rows."""
        self.seen[rows] = False

    def reorder(self, index: Tensor) -> None:
        self.seen = self.seen[index]

    def apply(self, logits: Tensor, rows: Tensor) -> Tensor:
        """Logits [B, V] of these rows: divided where they are above 0, multiplied where they are below."""
        less = torch.where(logits > 0, logits / self.penalty, logits * self.penalty)
        return torch.where(self.seen[rows], less, logits)


def filtered_distribution(logp: Tensor, config: Sample) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities under the temperature, best first [B, V], their tokens, and which of them may be sampled."""
    best, ids = (logp.double() / config.temperature).softmax(-1).sort(dim=-1, descending=True, stable=True)
    before = best.cumsum(-1) - best  # probability of all that rank above
    keep = (before < config.top_p) & (best >= config.min_p * best[:, :1])
    if config.top_k:
        keep[:, config.top_k :] = False
    return best, ids, keep


def sample_tokens(logp: Tensor, config: Sample, numbers: Tensor) -> Tensor:
    """One token a row [B], by random numbers [B] in [0, 1)."""
    best, ids, keep = filtered_distribution(logp, config)
    kept = (best * keep).cumsum(-1)
    u = numbers[:, None] * kept[:, -1:]
    rank = (kept <= u).sum(-1).clamp(max=keep.sum(-1) - 1)
    return ids.gather(-1, rank[:, None])[:, 0]


def random_numbers(seed: int, keys: Iterable[int], count: int) -> Tensor:
    """So many random numbers in [0, 1) a row [B, count], made of (seed, key) alone: batching changes nothing."""
    return torch.tensor(np.stack([np.random.default_rng((seed, key)).random(count) for key in keys]))
