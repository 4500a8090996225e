"""An ensemble of models as one model: the mean of their log-probabilities, token by token."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from regard.accel.decoding_graph import StepPositions
from regard.decoding.contract import AttentionRecord, DecodingState, Generator, InputBatch
from regard.errors import RegardError


class Ensemble:
    """Models of one vocabulary. A search normalises the product of their probabilities."""

    def __init__(self, models: Sequence[Generator]) -> None:
        if not models:
            raise RegardError("an ensemble needs at least one model")
        self.models = list(models)

    @property
    def longest(self) -> int | None:
        """The most positions that all of them know, where there is a limit."""
        return min((m.longest for m in self.models if m.longest is not None), default=None)

    def start(self, batch: InputBatch, length: int, record: AttentionRecord | None = None) -> "EnsembleState":
        if record is not None:
            raise RegardError("the attention of several models cannot be recorded at once; give one model")
        return EnsembleState([model.start(batch, length) for model in self.models])

    def step(self, tokens: Tensor, state: "EnsembleState") -> tuple[Tensor, "EnsembleState"]:
        total: Tensor | None = None
        for n, model in enumerate(self.models):
            logits, state.states[n] = model.step(tokens, state.states[n])
            if total is not None and logits.shape != total.shape:
                raise RegardError(
                    f"the models of an ensemble have vocabularies of {total.shape[-1]} and {logits.shape[-1]} words; "
                    "they must be the same"
                )
            logp = torch.log_softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32))
            total = logp if total is None else total + logp
        assert total is not None
        return total / len(self.models), state


class EnsembleState:
    """The state of each model; rows move alike in all of them."""

    def __init__(self, states: list[DecodingState]) -> None:
        self.states = states

    @property
    def cache_positions(self) -> StepPositions:
        return _EnsemblePositions([state.cache_positions for state in self.states])

    def expand_beams(self, beams: int) -> None:
        for state in self.states:
            state.expand_beams(beams)

    def reorder_beams(self, beams: Tensor) -> None:
        for state in self.states:
            state.reorder_beams(beams)

    def reorder(self, index: Tensor) -> None:
        for state in self.states:
            state.reorder(index)

    def release(self, rows: list[int]) -> None:
        for state in self.states:
            state.release(rows)

    def write(self, rows: Tensor, other: "EnsembleState") -> None:
        for state, new in zip(self.states, other.states, strict=True):
            state.write(rows, new)


class _EnsemblePositions:
    """The positions of all of them, for steps in fixed storage."""

    def __init__(self, each: list[StepPositions]) -> None:
        self.each = each
        self.filled, self.length = max(p.filled for p in each), min(p.length for p in each)

    def advance_bounds(self, steps: int, whole: bool = True) -> None:
        for positions in self.each:
            positions.advance_bounds(steps, whole)

    @contextmanager
    def assume_filled(self, filled: int) -> Iterator[None]:
        with ExitStack() as stack:
            for positions in self.each:
                stack.enter_context(positions.assume_filled(filled))
            yield
