"""Several models that decide together are a model too: the mean of their log-probabilities, word by word."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from regard.decoding.contract import Generator
from regard.errors import RegardError


class Ensemble:
    """Models of one vocabulary. The product of their probabilities is what a search sees, made to sum to one by it."""

    def __init__(self, models: Sequence[Generator]) -> None:
        if not models:
            raise RegardError("an ensemble needs at least one model")
        self.models = list(models)

    @property
    def longest(self) -> int | None:
        """How many places all of them can tell apart, where there is a limit."""
        return min((most for m in self.models if (most := getattr(m, "longest", None)) is not None), default=None)

    def start(self, batch: Any, length: int, record: Any = None) -> "States":
        if record is not None:
            raise RegardError("the attention of several models cannot be recorded at once; give one model")
        return States([model.start(batch, length) for model in self.models])

    def step(self, tokens: Tensor, state: "States") -> tuple[Tensor, "States"]:
        total: Tensor | None = None
        for n, model in enumerate(self.models):
            logits, state.each[n] = model.step(tokens, state.each[n])
            if total is not None and logits.shape != total.shape:
                raise RegardError(
                    f"the models of an ensemble have vocabularies of {total.shape[-1]} and {logits.shape[-1]} words; "
                    "they must be the same"
                )
            logp = torch.log_softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32))
            total = logp if total is None else total + logp
        assert total is not None
        return total / len(self.models), state


class States:
    """What each model remembers; all of it moves alike."""

    def __init__(self, each: list[Any]) -> None:
        self.each = each

    @property
    def cache_positions(self) -> "_Places":
        return _Places([state.cache_positions for state in self.each])

    def expand_beams(self, beams: int) -> None:
        for state in self.each:
            state.expand_beams(beams)

    def reorder_beams(self, beams: Tensor) -> None:
        for state in self.each:
            state.reorder_beams(beams)

    def reorder(self, index: Tensor) -> None:
        for state in self.each:
            state.reorder(index)

    def release(self, rows: list[int]) -> None:
        for state in self.each:
            state.release(rows)

    def write(self, rows: Tensor, other: "States") -> None:
        for state, new in zip(self.each, other.each, strict=True):
            state.write(rows, new)


class _Places:
    """What the compiled step asks of all of them."""

    def __init__(self, each: list[Any]) -> None:
        self.each = each
        self.filled, self.length = max(p.filled for p in each), min(p.length for p in each)

    def advance_bounds(self, steps: int) -> None:
        for places in self.each:
            places.advance_bounds(steps)

    @contextmanager
    def assume_filled(self, filled: int) -> Iterator[None]:
        with ExitStack() as stack:
            for places in self.each:
                stack.enter_context(places.assume_filled(filled))
            yield
