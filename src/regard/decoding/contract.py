"""The step contract: what a model must offer to generate, and what a search gives back."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor


class Generator(Protocol):
    """A model that generates. Rows of the state stay independent of each other."""

    def start(self, batch: Any, length: int, record: Any = None) -> Any:
        """Read the input; room for `length` tokens a row. The state offers `reorder(index)`.

        The input has a `device`, and `first(bos)` says what each row reads first: bos, or the end of its prompt.
        `record` asks for attention weights: it moves with the rows, and `record.row(n)` gives those of one.
        """

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Read tokens [B, T], T ≥ 1, and give the scores of what follows each [B, T, V]."""


@dataclass(frozen=True)
class Symbols:
    """The ids with a meaning for the search."""

    bos: int
    eos: int
    never: tuple[int, ...] = ()  # ids that may not be said: padding, start


@dataclass(frozen=True)
class Hypothesis:
    tokens: list[int]  # without start and end
    score: float  # what the search ranks by: log-probability under the length penalty
    log_probability: float  # sum over the tokens and the end
    attention: dict[str, Tensor] | None = None  # by place [layers, H, T, K], where asked for; the last row is the end's


def log_probabilities(logits: Tensor, symbols: Symbols) -> Tensor:
    """[…, V], in at least float32. Forbidden ids get −∞ and take no mass from the others: scores stay the model's."""
    logp = torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), -1)
    if symbols.never:
        logp[..., list(symbols.never)] = -torch.inf
    return logp
