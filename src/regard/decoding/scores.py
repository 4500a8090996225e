"""Log-probabilities of logits, and the most likely tokens. The plain twins are `log_softmax` and `topk`."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.accel.topk import topk
from regard.decoding.contract import Symbols

CHUNK = {"cpu": 1 << 18}  # logits turned into log-probabilities at once: what a core's own cache holds


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
