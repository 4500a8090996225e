"""Beam search, vectorised over sequences, all of it in tensors. Knows no model: `select` takes logits."""

import torch
from torch import Tensor

from regard.decoding.config import Beam
from regard.decoding.contract import AttentionRecord, GenerationRequest, Hypothesis, Symbols
from regard.decoding.logits_processors import ForcedEos, rows_to_host, top_tokens


def length_penalty(length: int, config: Beam) -> float:
    """The divisor of a log-probability for its length, the end included; it grows or falls steadily."""
    base = (5 + length) / 6 if config.penalty == "gnmt" else length  # Wu 2016, eq. 14
    return float(base**config.length_penalty)


class BeamSearch:
    """The `size` best unfinished hypotheses (beams) of B sequences, and the `nbest` best finished ones.

    A sequence is done when `size` of its hypotheses have ended among the best `size` continuations of a step; at its
    limit, where all beams are made to end; or, since that changes no result, as soon as no beam can become one of the
    `nbest` best under the length penalty.
    """

    columns: Tensor | None = None  # tokens that logits are of; None: all

    def __init__(
        self, config: Beam, symbols: Symbols, forced: ForcedEos, batch_size: int, longest: int, nbest: int = 1
    ) -> None:
        self.symbols, self.forced, self.beams, self.nbest = symbols, forced, config.size, max(nbest, 1)
        device = forced.limit.device

        def full(*shape: int, dtype: torch.dtype = torch.long, fill: float = 0) -> Tensor:
            return torch.full((batch_size, *shape), fill, dtype=dtype, device=device)

        size, nbest = self.beams, self.nbest
        self.done = full(dtype=torch.bool, fill=True)
        self.generated = full()  # tokens of each beam
        self.finished_count = full()
        self.score = full(size, dtype=torch.float64)  # log-probabilities of the beams
        self.backpointers = full(size, longest + 2)  # of every step: token · size + the beam that it continues
        self.finished_score = full(nbest, dtype=torch.float64, fill=-torch.inf)  # under the penalty, best first
        self.finished_at = full(nbest)  # when each ended and on which beam: step · size + beam
        self.penalties = [length_penalty(n, config) for n in range(1, longest + 4)]  # of n tokens and the end
        self.penalty = torch.tensor(self.penalties, dtype=torch.float64, device=device)
        self.penalty_grows = self.penalties[-1] >= self.penalties[0]
        self.first = torch.arange(2 * size, device=device) == 0

    def use_columns(self, columns: Tensor | None) -> None:
        self.columns = columns

    def begin(self, slots: Tensor, requests: list[GenerationRequest]) -> None:
        self.forced.begin(slots, requests)
        self.done[slots] = False
        for zeroed in (self.generated, self.finished_count):
            zeroed[slots] = 0
        self.finished_score[slots] = self.score[slots] = -torch.inf
        self.score[slots, 0] = 0.0  # all beams of a sequence begin alike: let one of them count

    def select(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        score, beam, token = self._candidates(logits)  # [B, 2·size] each
        ends, active = token == self.symbols.eos, ~self.done
        self._collect(ends[:, : self.beams] & active[:, None], score[:, : self.beams], beam[:, : self.beams])
        self.score, order = self._unfinished(score.masked_fill(ends, -torch.inf), ends)
        beam, token = beam.gather(1, order), token.gather(1, order)  # [B, size]
        step = self.generated[:, None, None].expand(-1, self.beams, 1)
        self.backpointers.scatter_(2, step, torch.add(beam, token, alpha=self.beams)[..., None])
        at_limit = self.generated >= self.forced.limit
        self.generated = self.generated + active
        self.done = self.done | at_limit | self._enough() | self._decided()
        return token.flatten(), beam

    def _candidates(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The best 2·size continuations: score, beam, token [B, 2·size]. So `size` are unfinished even if all end."""
        forces, only = (x[:, None, None] for x in self.forced.next(self.generated))
        named = only.expand(-1, self.beams, 1).flatten(0, 1)
        best = top_tokens(logits, self.symbols, 2 * self.beams, named, self.columns)
        logp, token, forced = (x.unflatten(0, (-1, self.beams)) for x in (best.logp, best.tokens, best.extra))
        alone = forced.masked_fill(~self.first[: logp.shape[-1]], -torch.inf)
        total = (self.score[..., None] + torch.where(forces, alone, logp)).flatten(1)  # [B, size · 2·size]
        score, index = total.topk(min(2 * self.beams, total.shape[1]), dim=1)
        return score, index // logp.shape[-1], torch.where(forces, only, token).flatten(1).gather(1, index)

    def _unfinished(self, score: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
        """Scores and indices of the best `size` candidates that have not ended; −∞ where there are too few."""
        return score.topk(self.beams, dim=1)

    def _collect(self, new: Tensor, score: Tensor, beam: Tensor) -> None:
        """Keep the `nbest` best of the finished hypotheses and the new ones [B, size]."""
        ranked = torch.where(new, score / self.penalty[self.generated][:, None], -torch.inf)
        finished, order = torch.cat([self.finished_score, ranked], 1).sort(dim=1, descending=True, stable=True)
        self.finished_score = finished[:, : self.nbest]
        here = torch.add(beam, self.generated[:, None], alpha=self.beams)
        self.finished_at = torch.cat([self.finished_at, here], 1).gather(1, order[:, : self.nbest])
        self.finished_count = self.finished_count + (ranked > -torch.inf).sum(-1)

    def _enough(self) -> Tensor:
        """Whether as many have ended as the beam is wide."""
        return self.finished_count >= self.beams

    def _decided(self) -> Tensor:
        """Whether no beam can still beat the worst finished one that is kept: log p ≤ 0 only falls."""
        penalty = self.penalty[self.forced.limit if self.penalty_grows else self.generated]
        return self.score.amax(-1) <= self.finished_score[:, -1] * penalty

    def reorder(self, index: Tensor) -> None:
        self.forced.reorder(index)
        self.done, self.generated, self.score = self.done[index], self.generated[index], self.score[index]
        self.backpointers, self.finished_count = self.backpointers[index], self.finished_count[index]
        self.finished_score, self.finished_at = self.finished_score[index], self.finished_at[index]

    def hypotheses(self, slots: list[int], record: AttentionRecord | None) -> list[list[Hypothesis]]:
        fetched = rows_to_host(slots, self.backpointers, self.finished_at, self.finished_score)
        results = []
        for slot, backpointers, ends, scores in zip(slots, *(x.tolist() for x in fetched), strict=True):
            hypotheses = []
            for end, score in zip(ends, scores, strict=True):
                if score > float("-inf"):
                    length, beam = divmod(end, self.beams)
                    tokens, path = _trace(backpointers, length, beam)
                    attention = None if record is None else record.trace([slot * self.beams + k for k in path])
                    hypotheses.append(Hypothesis(tokens, score, score * self.penalties[length], attention))
            results.append(hypotheses)
        return results


def _trace(backpointers: list[list[int]], length: int, beam: int) -> tuple[list[int], list[int]]:
    """The tokens of a hypothesis that ended on this beam, and its beam at each step, the end's too."""
    tokens, path = [], [beam]
    for step in range(length - 1, -1, -1):
        token, beam = divmod(backpointers[beam][step], len(backpointers))
        tokens.append(token)
        path.append(beam)
    return tokens[::-1], path[::-1]
