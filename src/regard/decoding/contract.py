"""The step contract: what a model must offer to generate, what a search must, and what it gives back."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

Words = tuple[int, ...]


class State(Protocol):
    """What a model remembers of B sentences, each of which has K rows once it is spread."""

    cache_positions: (
        Any  # what is known without asking the device (nn.cache.CachePositions); the compiled step needs it
    )

    def expand_beams(self, beams: int) -> None:
        """Every sentence goes on in K rows that begin alike."""

    def reorder_beams(self, beams: Tensor) -> None:
        """Row k of sentence b becomes what row beams[b, k] of it was. [B, K]"""

    def reorder(self, index: Tensor) -> None:
        """Sentence r becomes what sentence index[r] was."""

    def release(self, rows: list[int]) -> None:
        """Those sentences are done; until they are replaced, what becomes of them is of no interest."""

    def write(self, rows: Tensor, other: Any) -> None:
        """Replace sentences by those of another state, spread alike, that has no more room."""


class Generator(Protocol):
    """A model that generates. Rows of the state stay independent of each other."""

    def start(self, batch: Any, length: int, record: Any = None) -> Any:
        """Read the input, and give a `State` with room for `length` tokens a row.

        The input has a `device`, and `first_tokens(bos)` says what each row reads first: bos, or the end of its prompt.
        `record` requests attention weights: `record.trace(rows)` gives those of a sequence that stood in these rows,
        step by step since `record.mark_prefill()`.
        """

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Read tokens [B·K, T], T ≥ 1, and give the scores of what follows each [B·K, T, V]."""


@dataclass(frozen=True)
class Symbols:
    """The ids with a meaning for the search."""

    bos: int
    eos: int
    never: tuple[int, ...] = ()  # ids that may not be said: padding, start


@dataclass(frozen=True)
class Seams:
    """Where two pieces are in one word: where the first is `open` and the second one that `joins`."""

    open: frozenset[int] = frozenset()
    joins: frozenset[int] = frozenset()
    ends: frozenset[int] = frozenset()  # those that may be said and are not open

    def inside(self, piece: int, following: int) -> bool:
        return piece in self.open and following in self.joins


NO_SEAMS = Seams()  # every piece is a word


@dataclass(frozen=True)
class Hypothesis:
    tokens: list[int]  # without start and end
    score: float  # what the search ranks by: log-probability under the length penalty
    log_probability: float  # sum over the tokens and the end
    attention: dict[str, Tensor] | None = None  # by place [layers, H, T, K], where asked for; the last row is the end's


@dataclass(frozen=True)
class Asked:
    """What is asked of one sentence."""

    limit: int  # at most so many tokens
    key: int = 0  # its name, by which random draws are told apart
    prefix: tuple[int, ...] = ()  # how it must begin
    phrases: tuple[Words, ...] = ()  # what must appear in it, in any order
    ways: tuple[tuple[Words, ...], ...] = ()  # for each phrase others that may stand for it, none shorter

    def every(self) -> list[tuple[Words, ...]]:
        """For each phrase all ways to say it, itself first."""
        return [(phrase, *(self.ways[n] if self.ways else ())) for n, phrase in enumerate(self.phrases)]


class Search(Protocol):
    """What is known of B sentences while they are said, in tensors that stay on the device."""

    beams: int  # K, rows that a sentence has
    done: Tensor  # [B] True where nothing can change any more

    def begin(self, rows: Tensor, asked: list[Asked]) -> None:
        """Those places now hold other sentences."""

    def take(self, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        """Scores of what may come next [B·K, V] to what does [B·K], and which beams go on [B, K] where they branch."""

    def reorder(self, index: Tensor) -> None:
        """Sentence r becomes what sentence index[r] was."""

    def found(self, rows: list[int], record: Any) -> list[list[Hypothesis]]:
        """What came out for those places, best first."""


def log_probabilities(logits: Tensor, symbols: Symbols) -> Tensor:
    """[…, V], in at least float32. Forbidden ids get −∞ and take no mass from the others: scores stay the model's."""
    logp = torch.log_softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32))
    for word in symbols.never:
        logp[..., word].fill_(-torch.inf)
    return logp


def fetched(rows: list[int], *tensors: Tensor) -> list[Tensor]:
    """Those rows of tensors of 64 bits, on the host; the device is asked once."""
    at = torch.tensor(rows).to(tensors[0].device, non_blocking=True)
    parts = [tensor[at].reshape(len(rows), -1) for tensor in tensors]  # [n, …]
    whole = torch.cat([part.view(torch.long) for part in parts], 1).cpu()
    split = whole.split([part.shape[1] for part in parts], 1)
    return [
        part.contiguous().view(tensor.dtype).view(-1, *tensor.shape[1:])
        for part, tensor in zip(split, tensors, strict=True)
    ]
