"""The step contract: what a model must offer to generate, what a search must, and the requests and results of both."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from regard.accel.decoding_graph import StepPositions

TokenIds = tuple[int, ...]


class InputBatch(Protocol):
    """A batch that a model reads before it generates."""

    @property
    def device(self) -> torch.device: ...

    def first_tokens(self, bos: int) -> Tensor:
        """The first token that each row's first step reads [B, 1]: bos, or the end of its prompt."""


class AttentionRecord(Protocol):
    """Attention weights of all rows, step by step."""

    def mark_prefill(self) -> None:
        """Steps are counted from here."""

    def trace(self, rows: list[int]) -> dict[str, Tensor]:
        """Weights of the sequence that was in these rows, one row for each step."""


class DecodingState(Protocol):
    """A model's state for B sequences, each of which has K rows (beams) once its beams are expanded."""

    @property
    def cache_positions(self) -> StepPositions:
        """Known without asking the device; needed for steps in fixed storage."""

    def expand_beams(self, beams: int) -> None:
        """Repeat every sequence in K rows."""

    def reorder_beams(self, beams: Tensor) -> None:
        """Row k of sequence b becomes what row beams[b, k] of it was. [B, K]"""

    def reorder(self, index: Tensor) -> None:
        """Sequence r becomes what sequence index[r] was."""

    def release(self, rows: list[int]) -> None:
        """Those sequences are done; until they are replaced, their contents do not matter."""

    def write(self, rows: Tensor, other: Self) -> None:
        """Replace sequences by those of another state, with as many beams, that has no more room."""


class Generator(Protocol):
    """A model that generates. Rows of the state stay independent of each other."""

    @property
    def longest(self) -> int | None:
        """The most positions that it knows, where there is a limit."""

    def start(self, batch: Any, length: int, record: Any = None) -> DecodingState:
        """Read the input (an `InputBatch`), and give a state with room for `length` tokens a row.

        `record` (an `AttentionRecord`) receives attention weights.
        """

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, DecodingState]:
        """Read tokens [B·K, T], T ≥ 1, and give the logits of what follows each [B·K, T, V]."""


@dataclass(frozen=True)
class Symbols:
    """Special token ids of the search."""

    bos: int
    eos: int
    suppressed: TokenIds = ()  # never generated: padding, start


@dataclass(frozen=True)
class WordBoundaries:
    """Which subword pieces make one word: one that is `unfinished`, followed by one of `continuations`."""

    unfinished: frozenset[int] = frozenset()
    continuations: frozenset[int] = frozenset()
    final: frozenset[int] = frozenset()  # pieces that may be generated and are not unfinished

    def inside_word(self, piece: int, following: int) -> bool:
        return piece in self.unfinished and following in self.continuations


WHOLE_WORDS = WordBoundaries()  # every piece is a word


@dataclass(frozen=True)
class Hypothesis:
    tokens: list[int]  # without start and end
    score: float  # by which the search ranks: log-probability under the length penalty
    log_probability: float  # sum over the tokens and the end
    attention: dict[str, Tensor] | None = None  # by place [layers, H, T, K], where recorded; the last row is the end's


class StreamedToken(NamedTuple):
    """The newest token of a request."""

    id: int
    token: int
    log_probability: float  # of all its tokens so far
    ended: Literal["end", "limit"] | None  # by the model's end, which is this token, or by the number of tokens


@dataclass(frozen=True)
class GenerationRequest:
    """One sequence to generate, and its constraints."""

    limit: int  # at most so many tokens
    key: int = 0  # with the seed, determines its random numbers
    prefix: TokenIds = ()  # it must begin with these tokens
    phrases: tuple[TokenIds, ...] = ()  # they must appear in it, in any order
    variants: tuple[tuple[TokenIds, ...], ...] = ()  # for each phrase others that count as it, none shorter
    seed: int | None = None  # None: the search's
    prompt: TokenIds = ()  # tokens before it: a repetition penalty counts them, and a full context is cut from them
    lookup: TokenIds = ()  # tokens among which a draft of n-grams looks, before those of the output; empty: the prompt

    def phrase_variants(self) -> list[tuple[TokenIds, ...]]:
        """For each phrase all its variants, itself first."""
        return [(phrase, *(self.variants[n] if self.variants else ())) for n, phrase in enumerate(self.phrases)]


class Search(Protocol):
    """The state of a search over B sequences, in tensors that stay on the device."""

    beams: int  # K, rows that a sequence has
    done: Tensor  # [B] True where nothing can change any more

    def begin(self, slots: Tensor, requests: list[GenerationRequest]) -> None:
        """Those slots now hold other requests."""

    def select(self, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        """The next tokens [B·K] by their logits [B·K, V], and which beams they continue [B, K] where beams branch."""

    def reorder(self, index: Tensor) -> None:
        """Sequence r becomes what sequence index[r] was."""

    def hypotheses(self, slots: list[int], record: AttentionRecord | None) -> list[list[Hypothesis]]:
        """The results of those slots, best first."""
