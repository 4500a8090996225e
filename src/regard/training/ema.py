"""A running mean of the weights, which is what is measured and kept; what is trained goes on beside it."""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from regard.io.tensors import local


class RunningMean:
    """m ← m + (1 − β)(w − m) after every step (Polyak 1992; β as in Adam), of all weights that a model learns.

    `shown()` puts the mean into the model, where its weights stay what they are in memory: recorded launches know
    them by their places.
    """

    def __init__(self, model: nn.Module, memory: float) -> None:
        self.memory = memory
        self.weights = {name: p.detach() for name, p in model.named_parameters()}
        self.values: dict[str, Tensor] = {name: w.clone() for name, w in self.weights.items()}

    def update(self, step: int) -> None:
        """Early on it forgets faster: what a model begins with is nothing to remember."""
        memory = min(self.memory, step / (step + 9))
        torch._foreach_lerp_(*self._pairs(), 1 - memory)

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """The model has the mean, and `values` what is trained, within."""
        self.swap()
        try:
            yield
        finally:
            self.swap()

    def swap(self) -> None:
        for value, weight in zip(*self._pairs(), strict=True):
            kept = weight.clone()
            weight.copy_(value)
            value.copy_(kept)

    def _pairs(self) -> tuple[list[Tensor], list[Tensor]]:
        """Mean and weights, of each what this process holds."""
        return [local(v) for v in self.values.values()], [local(w) for w in self.weights.values()]
