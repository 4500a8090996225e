"""Beam search, vectorised over sentences, all of it in tensors. Takes any model with `start` and `step`."""

from typing import Any

import torch
from torch import Tensor

from regard.decoding.best import best
from regard.decoding.config import Beam
from regard.decoding.contract import Asked, Hypothesis, Symbols
from regard.decoding.forced import Forced
from regard.decoding.penalty import penalty


class BeamSearch:
    """The `size` best beginnings of B sentences.

    A sentence is done when `size` of its hypotheses have ended among the best `size` continuations of a step; at its
    limit, where what is left is made to end; or, since that changes no result, as soon as nothing that still goes on
    can become one of the `nbest` best under the length penalty.
    """

    def __init__(
        self, config: Beam, symbols: Symbols, forced: Forced, sentences: int, longest: int, nbest: int = 1
    ) -> None:
        self.symbols, self.forced, self.beams, self.keep = symbols, forced, config.size, max(nbest, 1)
        device = forced.limit.device

        def room(*shape: int, dtype: torch.dtype = torch.long, fill: float = 0) -> Tensor:
            return torch.full((sentences, *shape), fill, dtype=dtype, device=device)

        size, keep = self.beams, self.keep
        self.done = room(dtype=torch.bool, fill=True)
        self.said = room()
        self.count = room()  # how many have ended
        self.score = room(size, dtype=torch.float64)  # of those that go on
        self.token, self.parent = room(size, longest + 1), room(size, longest + 1)  # what was chosen, step by step
        self.kept = room(keep, dtype=torch.float64, fill=-torch.inf)  # of those that have ended, best first
        self.total = room(keep, dtype=torch.float64)  # their log-probabilities
        self.last = room(keep, 2)  # when each ended, and on which beam
        self.divisor = torch.tensor(
            [1.0, *(penalty(n, config) for n in range(1, longest + 4))], dtype=torch.float64, device=device
        )

    def begin(self, rows: Tensor, asked: list[Asked]) -> None:
        self.forced.begin(rows, asked)
        self.done[rows] = False
        for zeroed in (self.said, self.count):
            zeroed[rows] = 0
        self.kept[rows] = self.score[rows] = -torch.inf
        self.score[rows, 0] = 0.0  # all beams of a sentence begin alike: let one of them count

    def take(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        score, beam, token = self._best(logits)  # [B, 2·size] each
        ends = token == self.symbols.eos
        self._collect(ends, score, beam)
        on = ends.long().argsort(dim=-1, stable=True)[:, : self.beams]  # the best that have not ended
        score, beam, token = score.gather(1, on), beam.gather(1, on), token.gather(1, on)
        self.score = score.masked_fill(token == self.symbols.eos, -torch.inf)  # where too few go on
        limit = self.forced.limit
        at = self.said.minimum(limit)[:, None, None].expand(-1, self.beams, 1)
        self.token.scatter_(2, at, token[..., None])
        self.parent.scatter_(2, at, beam[..., None])
        full = self.said >= limit
        self.said = self.said + (~self.done).long()
        self.done = self.done | full | (self.count >= self.beams) | self._decided()
        return token.flatten(), beam

    def _best(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The best 2·size continuations of each sentence: score, beam, token. So `size` go on even if all end."""
        must, only = (x[:, None, None] for x in self.forced.next(self.said))
        found = best(logits, self.symbols, 2 * self.beams, only.expand(-1, self.beams, 1).flatten(0, 1))
        logp, word, forced = (x.unflatten(0, (-1, self.beams)) for x in (found.logp, found.words, found.wanted))
        first = torch.arange(logp.shape[-1], device=logp.device) == 0
        logp = torch.where(must, forced.masked_fill(~first, -torch.inf), logp)  # [B, size, 2·size]
        word = torch.where(must, only, word)
        total = (self.score[..., None] + logp.double()).flatten(1)  # [B, size · 2·size]
        score, place = total.topk(min(2 * self.beams, total.shape[1]), dim=1)
        return score, place // logp.shape[-1], word.flatten(1).gather(1, place)

    def _collect(self, ends: Tensor, score: Tensor, beam: Tensor) -> None:
        """Take note of what ends among the best `size` continuations."""
        size = self.beams
        new = ends[:, :size] & (score[:, :size] > -torch.inf) & ~self.done[:, None]  # [B, size]
        ranked = (score[:, :size] / self.divisor[self.said + 1][:, None]).masked_fill(~new, -torch.inf)
        kept, order = torch.cat([self.kept, ranked], 1).sort(dim=1, descending=True, stable=True)
        self.kept, order = kept[:, : self.keep], order[:, : self.keep]
        self.total = torch.cat([self.total, score[:, :size]], 1).gather(1, order)
        here = torch.stack([self.said[:, None].expand(-1, size), beam[:, :size]], -1)
        self.last = torch.cat([self.last, here], 1).gather(1, order[..., None].expand(-1, -1, 2))
        self.count = self.count + new.sum(-1)

    def _decided(self) -> Tensor:
        """Whether no beginning can still beat the worst that is kept: log p ≤ 0 only falls, whatever comes."""
        ends = self.divisor[self.said + 1], self.divisor[self.forced.limit + 1]
        return self.score.amax(-1) / torch.maximum(*ends) <= self.kept[:, -1]

    def reorder(self, index: Tensor) -> None:
        self.forced.reorder(index)
        for name in ("done", "said", "count", "score", "token", "parent", "kept", "total", "last"):
            setattr(self, name, getattr(self, name)[index])

    def found(self, rows: list[int], record: Any) -> list[list[Hypothesis]]:
        at = torch.tensor(rows, device=self.done.device)
        tokens, parents, last = (x[at].tolist() for x in (self.token, self.parent, self.last))
        scores, totals = self.kept[at].tolist(), self.total[at].tolist()
        made = []
        for n, row in enumerate(rows):
            hypotheses = []
            for (length, beam), score, total in zip(last[n], scores[n], totals[n], strict=True):
                if score > float("-inf"):
                    words, path = _trace(tokens[n], parents[n], length, beam)
                    seen = None if record is None else record.path([row * self.beams + k for k in path])
                    hypotheses.append(Hypothesis(words, score, total, seen))
            made.append(hypotheses)
        return made


def _trace(tokens: list[list[int]], parents: list[list[int]], length: int, beam: int) -> tuple[list[int], list[int]]:
    """Back from where a hypothesis ended: what it said, and the beam on which it stood at each step, the end's too."""
    words, path = [], [beam]
    for step in range(length - 1, -1, -1):
        words.append(tokens[beam][step])
        beam = parents[beam][step]
        path.append(beam)
    return words[::-1], path[::-1]
