"""What a sampler makes of a model's scores before it draws. Knows no model, no search and no text."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from regard.decoding.config import Sample
from regard.decoding.contract import Symbols, log_probabilities


class Said:
    """Which words of the vocabulary each row has read or said; they become less likely (Keskar 2019, 4.1)."""

    def __init__(self, penalty: float, rows: Tensor, entries: int) -> None:
        """`rows` [B, T] are what was read so far."""
        self.penalty = penalty
        self.known = torch.zeros(len(rows), entries, dtype=torch.bool, device=rows.device).scatter_(1, rows, True)

    def add(self, rows: Tensor, tokens: Tensor) -> None:
        """One more token [B] for each of these rows [B]."""
        self.known[rows, tokens] = True

    def forget(self, rows: Tensor) -> None:
        """Others take the places of these rows."""
        self.known[rows] = False

    def reorder(self, index: Tensor) -> None:
        self.known = self.known[index]

    def apply(self, logits: Tensor, rows: Tensor) -> Tensor:
        """Scores [B, V] of these rows: divided where they are above 0, multiplied where they are below."""
        less = torch.where(logits > 0, logits / self.penalty, logits * self.penalty)
        return torch.where(self.known[rows], less, logits)


def ranked(logp: Tensor, config: Sample) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities under the temperature, best first [B, V], whose words they are, and which may be drawn."""
    best, ids = (logp.double() / config.temperature).softmax(-1).sort(dim=-1, descending=True, stable=True)
    before = best.cumsum(-1) - best  # probability of all that rank above
    keep = (before < config.top_p) & (best >= config.min_p * best[:, :1])
    if config.top_k:
        keep[:, config.top_k :] = False
    return best, ids, keep


def draw(logp: Tensor, config: Sample, numbers: Tensor) -> Tensor:
    """One word a row [B], by random numbers [B] in [0, 1)."""
    best, ids, keep = ranked(logp, config)
    kept = (best * keep).cumsum(-1)
    u = numbers.to(kept.device)[:, None] * kept[:, -1:]
    place = (kept <= u).sum(-1).clamp(max=keep.sum(-1) - 1)
    return ids.gather(-1, place[:, None])[:, 0]


def streams(seed: int, keys: Iterable[int], count: int) -> Tensor:
    """So many random numbers in [0, 1) a row [B, count], made of (seed, key) alone: batching changes nothing."""
    return torch.tensor(np.stack([np.random.default_rng((seed, key)).random(count) for key in keys]))


class Drawn:
    """How words are drawn. Row r has random numbers of its own, keyed by (seed, keys[r])."""

    def __init__(self, config: Sample, symbols: Symbols, keys: Iterable[int], longest: int, read: Tensor) -> None:
        """At most `longest` words a row, and the end; `read` [B, T] is what the rows have seen."""
        self.config, self.symbols, self.read = config, symbols, read
        self.numbers = streams(config.seed, keys, longest + 1)
        self.said: Said | None = None

    def __call__(self, logits: Tensor, logp: Tensor, rows: Tensor, step: int) -> Tensor:
        """The words [B] of these rows, by their scores [B, V] and log-probabilities."""
        if self.config.repetition_penalty != 1 and self.said is None:
            self.said = Said(self.config.repetition_penalty, self.read, logits.shape[-1])
        if self.said is not None:
            logp = log_probabilities(self.said.apply(logits, rows), self.symbols)
        token = draw(logp, self.config, self.numbers[rows.cpu(), step])
        if self.said is not None:
            self.said.add(rows, token)
        return token


def likeliest(logits: Tensor, logp: Tensor, rows: Tensor, step: int) -> Tensor:
    """The likeliest word of each row [B]."""
    return logp.argmax(-1)
