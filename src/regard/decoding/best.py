"""The likeliest words of a vocabulary, with their log-probabilities. The plain twins are `log_softmax` and `topk`."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.decoding.contract import Symbols, log_probabilities
from regard.nn.topk import topk

CHUNK = {"cpu": 1 << 18}  # scores turned into log-probabilities at once: what a core's own cache holds


@dataclass(frozen=True)
class Best:
    logp: Tensor  # [N, count] log-probabilities, best first
    words: Tensor  # [N, count]
    wanted: Tensor  # [N, W] log-probabilities of words that were asked for


def best(logits: Tensor, symbols: Symbols, count: int, wanted: Tensor) -> Best:
    """The `count` likeliest words of each row [N, V], and those wanted [N, W].

    Some rows at a time: log-probabilities of all words are not worth a way to memory.
    """
    rows = max(1, CHUNK.get(logits.device.type, logits.numel()) // logits.shape[1])
    found = []
    for part, asked in zip(logits.split(rows), wanted.split(rows), strict=True):
        logp = log_probabilities(part, symbols)
        found.append((*topk(logp, count), logp.gather(1, asked)))
    return Best(*(each[0] if len(found) == 1 else torch.cat(each) for each in zip(*found, strict=True)))
