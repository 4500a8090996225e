"""An exponential moving average of the weights, which is measured and saved; the trained weights go on beside it."""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from regard.io.tensors import local_shard


class EMA:
    """m ← m + (1 − β)(w − m) after every step (Polyak 1992; β as in Adam), of all weights that a model learns.

    `swapped_out` is what the model has not: while it trains the average, inside `applied()` the trained weights.
    They are copied, since the weights keep their storage: CUDA graphs know them by address.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: p.detach() for name, p in model.named_parameters()}
        self.swapped_out: dict[str, Tensor] = {name: w.clone() for name, w in self.weights.items()}

    def update(self, step: int) -> None:
        """The decay is smaller in the first steps, so that the initial weights are soon forgotten."""
        decay = min(self.decay, step / (step + 9))
        torch._foreach_lerp_(*self._shards(), 1 - decay)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Inside, the model has the average, and `swapped_out` the trained weights."""
        self.swap()
        try:
            yield
        finally:
            self.swap()

    def swap(self) -> None:
        """The model gets what was swapped out, and gives up what it has."""
        for outside, weight in zip(*self._shards(), strict=True):
            inside = weight.clone()
            weight.copy_(outside)
            outside.copy_(inside)

    def _shards(self) -> tuple[list[Tensor], list[Tensor]]:
        """What is swapped out and what the model has, of each what this process holds."""
        return [local_shard(s) for s in self.swapped_out.values()], [local_shard(w) for w in self.weights.values()]
