"""Drafts, what guesses the next tokens for parallel decoding: another model, its first layers, its heads, or n-grams.

A draft may be wrong: what it guesses is checked (`decoding/parallel.py`). It knows no kind of model.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from regard.decoding.contract import GenerationRequest

NGRAM = 3  # tokens that are looked for, at most


@runtime_checkable
class BlockReader(Protocol):
    """A generator whose steps can be taken back, since its state is kept by position: one with KV caches."""

    longest: int | None
    proposals: Any  # heads that score the tokens after the next one, as a function of states; None: it has none
    output: Any  # the logits of states

    def start(self, batch: Any, length: int, record: Any = None, *, bounded: bool = True) -> Any:
        """As any generator; not `bounded`: caches keep all of the past, so that steps can be taken back."""

    def read(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Read tokens [B, T] and give the states [B, T, D] that `output` scores what follows by."""

    def first_layers(self, count: int) -> "BlockReader": ...


@dataclass(frozen=True)
class Guesses:
    tokens: Tensor  # [B, T − 1]
    probabilities: Tensor | None = None  # [B, T − 1, V] by which they were drawn; None: they are certain


Draw = Callable[[Tensor, int], tuple[Tensor, Tensor | None]]  # (logits [B, V], which guess): tokens, probabilities


class Draft:
    """Guesses the `count` tokens after the one that is read next; what it keeps, it keeps for each slot."""

    def __init__(self, count: int) -> None:
        self.count = count

    def begin(self, slots: Tensor, requests: list[GenerationRequest]) -> None: ...

    def reorder(self, index: Tensor) -> None: ...

    def guess(self, tokens: Tensor, states: list[Any], generated: Tensor, draw: Draw) -> Guesses:
        """After tokens [B, 1]; `states` are the model's and the draft's, `generated` [B] counts the output's tokens."""
        raise NotImplementedError

    def observe(self, states: Tensor, block: Tensor, place: Tensor, count: Tensor) -> None:
        """What became of it: of a block [B, T] at places [B, T] of the output the first `count` [B] were kept."""


def _guess_stepwise(model: BlockReader, tokens: Tensor, state: Any, count: int, draw: Draw) -> tuple[Guesses, Tensor]:
    """One guess after the other, and the last, which was not read."""
    found, chances = [], []
    for n in range(count):
        states, state = model.read(tokens, state)
        token, probabilities = draw(model.output(states)[:, -1], n)
        tokens = token[:, None]
        found.append(tokens)
        chances += [] if probabilities is None else [probabilities]
    return Guesses(torch.cat(found, 1), torch.stack(chances, 1) if chances else None), tokens


class ModelDraft(Draft):
    """Another model, with a state of its own beside the model's."""

    def __init__(self, count: int, model: BlockReader) -> None:
        super().__init__(count)
        self.model = model

    def guess(self, tokens: Tensor, states: list[Any], generated: Tensor, draw: Draw) -> Guesses:
        guesses, last = _guess_stepwise(self.model, tokens, states[1], self.count, draw)
        self.model.read(last, states[1])  # so that all are read, however many will be kept
        return guesses


class LayersDraft(Draft):
    """The model's own first layers, under its own output; they write into its cache, as its next step will again."""

    def __init__(self, count: int, model: BlockReader, layers: int) -> None:
        super().__init__(count)
        self.model, self.layers = model.first_layers(layers), layers

    def guess(self, tokens: Tensor, states: list[Any], generated: Tensor, draw: Draw) -> Guesses:
        state = copy.copy(states[0])
        state.layers = state.layers[: self.layers]
        with state.cache_positions.trial():
            return _guess_stepwise(self.model, tokens, state, self.count, draw)[0]


class HeadsDraft(Draft):
    """The model's proposal heads, which scored the following tokens when it made the last one (Stern 2018, 5)."""

    def __init__(self, model: BlockReader, batch_size: int, device: torch.device) -> None:
        super().__init__(model.proposals.heads - 1)
        self.model = model
        self.tokens = torch.zeros(batch_size, self.count, dtype=torch.long, device=device)

    def begin(self, slots: Tensor, requests: list[GenerationRequest]) -> None:
        self.tokens[slots] = 0  # what is left of the request before might be near enough to be kept

    def reorder(self, index: Tensor) -> None:
        self.tokens = self.tokens[index]

    def guess(self, tokens: Tensor, states: list[Any], generated: Tensor, draw: Draw) -> Guesses:
        return Guesses(self.tokens)

    def observe(self, states: Tensor, block: Tensor, place: Tensor, count: Tensor) -> None:
        last = (count - 1).clamp(min=0)[:, None, None].expand(-1, 1, states.shape[-1])
        ahead = self.model.proposals(states.gather(1, last)[:, 0])  # [B, k − 1, D]
        self.tokens = self.model.output(ahead).argmax(-1)


class NgramDraft(Draft):
    """What followed the last few tokens where they stood before, in the prompt or in the output (prompt lookup)."""

    def __init__(self, count: int, batch_size: int, longest: int, lookup: int, device: torch.device) -> None:
        """For outputs of at most `longest` tokens, after at most `lookup` others."""
        super().__init__(count)
        self.lookup = lookup
        self.history = torch.full((batch_size, lookup + longest + count + 2), -1, device=device)
        self.before = torch.zeros(batch_size, dtype=torch.long, device=device)  # how many of them are no output

    def begin(self, slots: Tensor, requests: list[GenerationRequest]) -> None:
        width, most = self.history.shape[1], self.lookup
        texts = [(each.lookup or each.prompt)[-most:] if most else () for each in requests]
        rows = [[*text, *[-1] * (width - len(text))] for text in texts]
        self.history[slots] = torch.tensor(rows, device=slots.device)
        self.before[slots] = torch.tensor([len(text) for text in texts], device=slots.device)

    def reorder(self, index: Tensor) -> None:
        self.history, self.before = self.history[index], self.before[index]

    def guess(self, tokens: Tensor, states: list[Any], generated: Tensor, draw: Draw) -> Guesses:
        history, known = self.history, (self.before + generated)[:, None]  # [B, W], [B, 1]
        place = torch.arange(history.shape[1], device=history.device)
        same, run = torch.ones_like(history), torch.zeros_like(history)
        for n in range(NGRAM):  # `run` is how many tokens up to a place are the last ones
            token = history.gather(1, (known - 1 - n).clamp(min=0))
            same = same * (history.roll(n, 1) == token) * (place >= n) * (known > n)
            run = run + same
        run = run * (place < known - 1)  # something follows there
        best = (run * len(place) + place).masked_fill(run == 0, 0).argmax(1, keepdim=True)  # the longest, then the last
        period = (known - 1 - best).clamp(min=1)
        ahead = torch.arange(self.count, device=history.device)
        found = history.gather(1, best + 1 + ahead % period)  # what followed may go round in a circle
        return Guesses(found * run.amax(1, keepdim=True).clamp(max=1))  # nothing that is not part of the output yet

    def observe(self, states: Tensor, block: Tensor, place: Tensor, count: Tensor) -> None:
        self.history.scatter_(1, self.before[:, None] + place, block)
