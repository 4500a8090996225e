"""Beam search, vectorised over sentences, all of it in tensors. Takes any model with `start` and `step`."""

from typing import Any

import torch
from torch import Tensor

from regard.decoding.best import best
from regard.decoding.config import Beam
from regard.decoding.contract import Asked, Hypothesis, Symbols, fetched
from regard.decoding.forced_tokens import Forced


def penalty(length: int, config: Beam) -> float:
    """What a log-probability is divided by for its length, the end included; it grows or falls steadily."""
    base = (5 + length) / 6 if config.penalty == "gnmt" else length  # Wu 2016, eq. 14
    return float(base**config.length_penalty)


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
        self.chosen = room(size, longest + 2)  # what was chosen, step by step: word · size + the beam it goes on from
        self.kept = room(keep, dtype=torch.float64, fill=-torch.inf)  # of those that have ended, best first
        self.last = room(keep)  # when each ended and on which beam: step · size + beam
        self.lengths = [penalty(n, config) for n in range(1, longest + 4)]  # of n words and the end
        self.divisor = torch.tensor(self.lengths, dtype=torch.float64, device=device)
        self.grows = self.lengths[-1] >= self.lengths[0]
        self.first = torch.arange(2 * size, device=device) == 0

    def begin(self, rows: Tensor, asked: list[Asked]) -> None:
        self.forced.begin(rows, asked)
        self.done[rows] = False
        for zeroed in (self.said, self.count):
            zeroed[rows] = 0
        self.kept[rows] = self.score[rows] = -torch.inf
        self.score[rows, 0] = 0.0  # all beams of a sentence begin alike: let one of them count

    def take(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        score, beam, token = self._best(logits)  # [B, 2·size] each
        ends, going = token == self.symbols.eos, ~self.done
        self._collect(ends[:, : self.beams] & going[:, None], score[:, : self.beams], beam[:, : self.beams])
        self.score, on = self._going_on(score.masked_fill(ends, -torch.inf), ends)
        beam, token = beam.gather(1, on), token.gather(1, on)  # [B, size]
        at = self.said[:, None, None].expand(-1, self.beams, 1)
        self.chosen.scatter_(2, at, torch.add(beam, token, alpha=self.beams)[..., None])
        full = self.said >= self.forced.limit
        self.said = self.said + going
        self.done = self.done | full | self._enough() | self._decided()
        return token.flatten(), beam

    def _best(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The best 2·size continuations of each sentence: score, beam, token. So `size` go on even if all end."""
        must, only = (x[:, None, None] for x in self.forced.next(self.said))
        found = best(logits, self.symbols, 2 * self.beams, only.expand(-1, self.beams, 1).flatten(0, 1))
        logp, word, forced = (x.unflatten(0, (-1, self.beams)) for x in (found.logp, found.words, found.wanted))
        alone = forced.masked_fill(~self.first[: logp.shape[-1]], -torch.inf)
        total = (self.score[..., None] + torch.where(must, alone, logp)).flatten(1)  # [B, size · 2·size]
        score, place = total.topk(min(2 * self.beams, total.shape[1]), dim=1)
        return score, place // logp.shape[-1], torch.where(must, only, word).flatten(1).gather(1, place)

    def _going_on(self, score: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
        """The scores of the best `size` that have not ended, and where they stand; −∞ where too few go on."""
        return score.topk(self.beams, dim=1)

    def _collect(self, new: Tensor, score: Tensor, beam: Tensor) -> None:
        """Take note of what ends [B, size] among the best `size` continuations."""
        ranked = torch.where(new, score / self.divisor[self.said][:, None], -torch.inf)
        kept, order = torch.cat([self.kept, ranked], 1).sort(dim=1, descending=True, stable=True)
        self.kept = kept[:, : self.keep]
        here = torch.add(beam, self.said[:, None], alpha=self.beams)
        self.last = torch.cat([self.last, here], 1).gather(1, order[:, : self.keep])
        self.count = self.count + (ranked > -torch.inf).sum(-1)

    def _enough(self) -> Tensor:
        """Whether as many have ended as the beam is wide."""
        return self.count >= self.beams

    def _decided(self) -> Tensor:
        """Whether no beginning can still beat the worst that is kept: log p ≤ 0 only falls, whatever comes."""
        longest = self.divisor[self.forced.limit if self.grows else self.said]
        return self.score.amax(-1) <= self.kept[:, -1] * longest

    def reorder(self, index: Tensor) -> None:
        self.forced.reorder(index)
        for name in ("done", "said", "count", "score", "chosen", "kept", "last"):
            setattr(self, name, getattr(self, name)[index])

    def found(self, rows: list[int], record: Any) -> list[list[Hypothesis]]:
        chosen, last, kept = fetched(rows, self.chosen, self.last, self.kept)
        made = []
        for n, row in enumerate(rows):
            hypotheses = []
            for at, score in zip(last[n].tolist(), kept[n].tolist(), strict=True):
                if score > float("-inf"):
                    length, beam = divmod(at, self.beams)
                    words, path = _trace(chosen[n].tolist(), length, beam)
                    seen = None if record is None else record.trace([row * self.beams + k for k in path])
                    total = score * self.lengths[length]
                    hypotheses.append(Hypothesis(words, score, total, seen))
            made.append(hypotheses)
        return made


def _trace(said: list[list[int]], length: int, beam: int) -> tuple[list[int], list[int]]:
    """Back from where a hypothesis ended: what it said, and the beam on which it stood at each step, the end's too."""
    words, path = [], [beam]
    for step in range(length - 1, -1, -1):
        word, beam = divmod(said[beam][step], len(said))
        words.append(word)
        path.append(beam)
    return words[::-1], path[::-1]
