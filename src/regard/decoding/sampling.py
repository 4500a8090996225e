"""One sequence a row: greedy choice and sampling, all of it in tensors."""

from typing import Any

import torch
from torch import Tensor

from regard.decoding.best import best
from regard.decoding.config import Sample
from regard.decoding.contract import Asked, Hypothesis, Symbols, fetched, log_probabilities
from regard.decoding.forced_tokens import Forced
from regard.decoding.logits_processors import Said, draw, streams


class Choice:
    """How one word is chosen from scores [B, V] when `said` [B] words have come: the likeliest."""

    def begin(self, rows: Tensor, asked: list[Asked]) -> None: ...

    def reorder(self, index: Tensor) -> None: ...

    def pick(self, logits: Tensor, said: Tensor, symbols: Symbols, other: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The words [B], their log-probabilities, and those of others [B]."""
        found = best(logits, symbols, 1, other[:, None])
        return found.words[:, 0], found.logp[:, 0], found.wanted[:, 0]


class Draw(Choice):
    """Drawn. Every sentence has a stream of its own."""

    def __init__(self, config: Sample, sentences: int, longest: int, device: torch.device) -> None:
        self.config = config
        self.draws = torch.zeros(sentences, longest + 1, dtype=torch.float64, device=device)  # in [0, 1)
        self.known: Said | None = None  # the words of each sentence, where they are to become less likely

    def begin(self, rows: Tensor, asked: list[Asked]) -> None:
        fresh = streams(self.config.seed, (each.key for each in asked), self.draws.shape[1])
        self.draws[rows] = fresh.to(self.draws.device)
        if self.known is not None:
            self.known.forget(rows)

    def reorder(self, index: Tensor) -> None:
        self.draws = self.draws[index]
        if self.known is not None:
            self.known.reorder(index)

    def pick(self, logits: Tensor, said: Tensor, symbols: Symbols, other: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logp = log_probabilities(logits, symbols)
        shaped, rows = logp, torch.arange(len(logits), device=logits.device)
        if self.config.repetition_penalty != 1:
            self.known = self.known or Said(
                self.config.repetition_penalty, said.new_empty(len(said), 0), logits.shape[1]
            )
            shaped = log_probabilities(self.known.apply(logits, rows), symbols)
        words = draw(shaped, self.config, self.draws.gather(1, said[:, None])[:, 0])
        if self.known is not None:
            self.known.add(rows, words)
        both = logp.gather(-1, torch.stack([words, other], -1))
        return words, both[:, 0], both[:, 1]


class SingleSearch:
    """One beginning of each of B sentences; done at its end or at its limit."""

    beams = 1

    def __init__(self, choice: Choice, symbols: Symbols, forced: Forced, sentences: int, longest: int) -> None:
        self.choice, self.symbols, self.forced = choice, symbols, forced
        device = forced.limit.device
        self.done = torch.ones(sentences, dtype=torch.bool, device=device)
        self.said = torch.zeros(sentences, dtype=torch.long, device=device)
        self.token = torch.zeros(sentences, longest + 1, dtype=torch.long, device=device)
        self.total = torch.zeros(sentences, dtype=torch.float64, device=device)

    def begin(self, rows: Tensor, asked: list[Asked]) -> None:
        self.done[rows], self.said[rows], self.total[rows] = False, 0, 0.0
        self.forced.begin(rows, asked)
        self.choice.begin(rows, asked)

    def take(self, logits: Tensor) -> tuple[Tensor, None]:
        must, only = self.forced.next(self.said)
        token, logp, forced = self.choice.pick(logits, self.said, self.symbols, only)
        token, logp = torch.where(must, only, token), torch.where(must, forced, logp)
        self.total = self.total + logp.masked_fill(self.done, 0.0)
        self.done = self.done | (token == self.symbols.eos)
        self.token.scatter_(1, self.said[:, None], token[:, None])  # of one that is done, it lies beyond the end
        self.said = self.said + ~self.done
        return token, None

    def reorder(self, index: Tensor) -> None:
        for name in ("done", "said", "token", "total"):
            setattr(self, name, getattr(self, name)[index])
        self.choice.reorder(index)
        self.forced.reorder(index)

    def found(self, rows: list[int], record: Any) -> list[list[Hypothesis]]:
        tokens, lengths, totals = (x.tolist() for x in fetched(rows, self.token, self.said, self.total))
        made = []
        for row, words, length, total in zip(rows, tokens, lengths, totals, strict=True):
            seen = None if record is None else record.trace([row] * (length + 1))
            made.append([Hypothesis(words[:length], total, total, seen)])
        return made
