"""Beam search, vectorised over sentences. Takes any model with `start` and `step`."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from regard.decoding.config import Beam
from regard.decoding.contract import Generator, Hypothesis, Symbols, log_probabilities


def penalty(length: int, config: Beam) -> float:
    """What a log-probability is divided by; `length` counts the end too."""
    if config.penalty == "gnmt":
        return ((5 + length) / 6) ** config.length_penalty  # Wu 2016, eq. 14
    return length**config.length_penalty


@dataclass
class _Ended:
    """The sentences of one input that have ended, best first, at most as many as asked for."""

    hypotheses: list[Hypothesis] = field(default_factory=list)
    count: int = 0

    def add(self, hypothesis: Hypothesis, keep: int) -> None:
        self.count += 1
        self.hypotheses = sorted([*self.hypotheses, hypothesis], key=lambda h: -h.score)[:keep]


@torch.inference_mode()
def beam_search(
    model: Generator, batch: Any, limits: list[int], symbols: Symbols, config: Beam, nbest: int = 1, record: Any = None
) -> list[list[Hypothesis]]:
    """For every row of the batch, its `nbest` best sequences (at most `config.size`), best first.

    A sentence is done when `size` of its hypotheses have ended among the best `size` continuations of a step, or at its
    limit, where what is left is made to end.
    """
    size, device = config.size, batch.device
    state = model.start(batch, max(limits) + 1, record)
    state.reorder(torch.arange(len(limits), device=device).repeat_interleave(size))  # [B·size]
    ended = [_Ended() for _ in limits]
    sentences = list(range(len(limits)))  # which input each group of `size` rows is
    score = torch.full((len(limits), size), -torch.inf, dtype=torch.float64, device=device)
    score[:, 0] = 0.0  # all beams of a sentence begin alike: let one of them count
    said = torch.empty(len(limits), size, 0, dtype=torch.long, device=device)
    last = batch.first(symbols.bos).repeat_interleave(size, 0)  # [B·size, 1]

    for step in range(max(limits) + 1):
        logits, state = model.step(last, state)
        logp = log_probabilities(logits[:, -1], symbols).unflatten(0, (-1, size))  # [B, size, V]
        full = torch.tensor([limits[s] <= step for s in sentences], device=device)
        if full.any():
            only_end = torch.full_like(logp, -torch.inf)
            only_end[..., symbols.eos] = logp[..., symbols.eos]
            logp = torch.where(full[:, None, None], only_end, logp)
        score, beam, token = _best(score, logp, 2 * size)  # [B, 2·size] each: enough that `size` go on even if all end
        _collect(ended, sentences, said, score, beam, token, symbols, config, nbest, record)
        going = [row for row, s in enumerate(sentences) if ended[s].count < size and limits[s] > step]
        if not going:
            break
        live = torch.tensor(going, device=device)
        score, beam, token = score[live], beam[live], token[live]
        on = (token == symbols.eos).long().argsort(dim=-1, stable=True)[:, :size]  # the best that have not ended
        score, beam, token = score.gather(1, on), beam.gather(1, on), token.gather(1, on)
        score = score.masked_fill(token == symbols.eos, -torch.inf)  # where too few go on
        sentences = [sentences[row] for row in going]
        said = torch.cat([said[live[:, None], beam], token[..., None]], -1)  # [B, size, step + 1]
        state.reorder((live[:, None] * size + beam).flatten())
        last = token.reshape(-1, 1)
    return [e.hypotheses for e in ended]


def _best(score: Tensor, logp: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best continuations of each sentence: their scores, the beam they come from, their token."""
    entries = logp.shape[-1]
    total = (score[..., None] + logp.double()).flatten(1)  # [B, size·V]
    best, place = total.topk(min(count, total.shape[1]), dim=1)
    return best, place // entries, place % entries


def _collect(
    ended: list[_Ended],
    sentences: list[int],
    said: Tensor,
    score: Tensor,
    beam: Tensor,
    token: Tensor,
    symbols: Symbols,
    config: Beam,
    nbest: int,
    record: Any,
) -> None:
    """Take note of what ends among the best `size` continuations."""
    ends = (token[:, : config.size] == symbols.eos) & (score[:, : config.size] > -torch.inf)
    row, rank = ends.nonzero(as_tuple=True)
    totals, tokens = score[row, rank].tolist(), said[row, beam[row, rank]].tolist()
    divisor = penalty(said.shape[-1] + 1, config)
    rows = (row * config.size + beam[row, rank]).tolist()  # of the state
    for r, at, total, words in zip(row.tolist(), rows, totals, tokens, strict=True):
        seen = None if record is None else record.row(at)
        ended[sentences[r]].add(Hypothesis(words, total / divisor, total, seen), max(nbest, 1))
