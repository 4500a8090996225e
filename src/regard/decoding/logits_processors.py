"""Logits processors: log-probabilities, forced tokens, repetition penalty, temperature, top-k, top-p and min-p.

They know no model, search or text.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regard.accel.topk import topk
from regard.decoding.config import Sample
from regard.decoding.contract import GenerationRequest, Symbols

CHUNK = {"cpu": 1 << 18}  # logits turned into log-probabilities at once: what a core's own cache holds


# --- log-probabilities ---------------------------------------------------------------------------------------------


def log_probabilities(logits: Tensor, symbols: Symbols) -> Tensor:
    """[…, V], in at least float32. Suppressed ids get −∞ and take no mass from the others: scores stay the model's."""
    logp = torch.log_softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32))
    for token in symbols.suppressed:
        logp[..., token].fill_(-torch.inf)
    return logp


@dataclass(frozen=True)
class TopTokens:
    logp: Tensor  # [N, count] log-probabilities, best first
    tokens: Tensor  # [N, count]
    extra: Tensor  # [N, W] log-probabilities of the tokens that were named


def top_tokens(logits: Tensor, symbols: Symbols, count: int, named: Tensor) -> TopTokens:
    """The `count` most likely tokens of each row [N, V], and the log-probabilities of named ones [N, W].

    Some rows at a time: log-probabilities of the whole vocabulary are not worth a way to memory.
    """
    rows = max(1, CHUNK.get(logits.device.type, logits.numel()) // logits.shape[1])
    chunks = []
    for part, ids in zip(logits.split(rows), named.split(rows), strict=True):
        logp = log_probabilities(part, symbols)
        chunks.append((*topk(logp, count), logp.gather(1, ids)))
    return TopTokens(*(each[0] if len(chunks) == 1 else torch.cat(each) for each in zip(*chunks, strict=True)))


def rows_to_host(rows: list[int], *tensors: Tensor) -> list[Tensor]:
    """Those rows of tensors of 64 bits, on the host, by one transfer."""
    index = torch.tensor(rows).to(tensors[0].device, non_blocking=True)
    parts = [tensor[index].reshape(len(rows), -1) for tensor in tensors]  # [n, …]
    whole = torch.cat([part.view(torch.long) for part in parts], 1).cpu()
    split = whole.split([part.shape[1] for part in parts], 1)
    return [
        part.contiguous().view(tensor.dtype).view(-1, *tensor.shape[1:])
        for part, tensor in zip(split, tensors, strict=True)
    ]


# --- forced tokens -------------------------------------------------------------------------------------------------


class ForcedEos:
    """The end, when as many tokens have been generated as may be."""

    def __init__(self, eos: int, batch_size: int, device: torch.device) -> None:
        self.eos = torch.full((batch_size,), eos, device=device)
        self.limit = torch.zeros_like(self.eos)

    def begin(self, slots: Tensor, requests: list[GenerationRequest]) -> None:
        self.limit[slots] = torch.tensor([request.limit for request in requests], device=slots.device)

    def reorder(self, index: Tensor) -> None:
        self.eos, self.limit = self.eos[index], self.limit[index]

    def next(self, generated: Tensor) -> tuple[Tensor, Tensor]:
        """Where a token is forced [B], after so many generated ones [B], and the token [B] that it would be."""
        return generated >= self.limit, self.eos


class ForcedPrefix(ForcedEos):
    """The prefix of each sequence that has one, and the end."""

    def __init__(self, eos: int, batch_size: int, device: torch.device, longest: int) -> None:
        super().__init__(eos, batch_size, device)
        self.prefix = torch.full((batch_size, longest + 1), -1, device=device)  # -1: free

    def begin(self, slots: Tensor, requests: list[GenerationRequest]) -> None:
        super().begin(slots, requests)
        width = self.prefix.shape[1]
        padded = [[*request.prefix, *[-1] * (width - len(request.prefix))] for request in requests]
        self.prefix[slots] = torch.tensor(padded, device=slots.device)

    def reorder(self, index: Tensor) -> None:
        super().reorder(index)
        self.prefix = self.prefix[index]

    def next(self, generated: Tensor) -> tuple[Tensor, Tensor]:
        token = self.prefix.gather(1, generated.clamp(max=self.prefix.shape[1] - 1)[:, None])[:, 0]
        full, eos = super().next(generated)
        return full | (token >= 0), torch.where(token >= 0, token, eos)


# --- sampling ------------------------------------------------------------------------------------------------------


def penalise_repetition(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Logits [B, V] with those of the tokens in `seen` [B, N] less likely (Keskar 2019, 4.1); -1 stands for none."""
    size = logits.shape[-1]
    among = torch.zeros(len(logits), size + 1, dtype=torch.bool, device=logits.device)
    among = among.scatter_(1, seen.masked_fill(seen < 0, size), True)[:, :size]
    return torch.where(among, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


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


def sampling_distribution(logp: Tensor, config: Sample) -> Tensor:
    """The probabilities by which tokens are drawn [B, V], 0 for those that may not be."""
    if not config.top_k and config.top_p == 1 and not config.min_p:
        return (logp.double() / config.temperature).softmax(-1)
    best, ids, keep = filtered_distribution(logp, config)
    kept = best * keep
    return torch.zeros_like(kept).scatter_(1, ids, kept / kept.sum(-1, keepdim=True))


def draw_token(weights: Tensor, numbers: Tensor) -> Tensor:
    """One token a row [B], by weights [B, V] that need not sum to 1 and random numbers [B] in [0, 1)."""
    upto = weights.cumsum(-1)
    whole = upto[:, -1:]
    last = (upto < whole).sum(-1)  # the last of any weight, whatever is lost in rounding
    return torch.minimum((upto <= numbers[:, None] * whole).sum(-1), last)


def random_numbers(keys: Iterable[tuple[int, int]], count: int) -> Tensor:
    """So many random numbers in [0, 1) a row [B, count], made of its (seed, key) alone: batching changes nothing."""
    return torch.tensor(np.stack([np.random.default_rng(key).random(count) for key in keys]))
