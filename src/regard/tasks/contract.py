"""What a task must offer: its section of a recipe to the commands, and what that prepares to the one training loop."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from regard.examples.recipe_like import RecipeLike
from regard.nn.attention import slow_paths
from regard.reporting import Progress

Carry = dict[str, Tensor] | None  # named, so that a checkpoint can hold it


class Settings(Protocol):
    """A task's section of a recipe: a frozen dataclass, told from the others by `kind`."""

    kind: str
    models: ClassVar[tuple[str, ...]]  # kinds of models that can learn it
    metrics: ClassVar[Mapping[str, bool]]  # what validation measures: whether more is better
    defaults: ClassVar[Mapping[str, Any]]  # what other sections of a recipe say where it says nothing
    asks: ClassVar[tuple[str, ...]]  # what `regard evaluate` may be told, besides the split

    @property
    def title(self) -> str:
        """What `regard info` calls it."""

    def check(self, recipe: RecipeLike) -> None:
        """Raise ValueError, which names the key, where the sections do not go together; no file is read."""

    def prepare(self, recipe: RecipeLike, home: Path | None, progress: "Progress") -> "Task":
        """Everything that training needs; `home` is a run that has the vocabulary (and labels) already."""

    def open(self, recipe: RecipeLike, home: Path) -> Any:
        """What `regard.load` gives, with a `model` whose weights are still to be loaded, and the `recipe`."""

    def evaluate(
        self, made: Any, split: str | None, given: Mapping[str, Any], progress: "Progress | None" = None
    ) -> dict[str, Any]:
        """What `regard evaluate` reports: `data`, how much (`lines`, `tokens` …), `metrics` and `notes`, as JSON.

        `made` comes from `open`, `given` has some of what the task `asks`; without a split, test if there is one.
        """


class View(Protocol):
    """An epoch's examples: masking, partners and sampled segmentation are done here, before batches are planned."""

    def plan(self, budget: int, seed: int, epoch: int) -> list[np.ndarray]:
        """The micro-batches in their global order, as indices of examples; `budget` is in padded target tokens."""

    def collate(self, indices: np.ndarray) -> Any:
        """The batch of these examples of the view."""

    def targets(self, indices: np.ndarray) -> int:
        """How many places of these examples are learned from; the loss of a step is divided by their sum."""


class Task(Protocol):
    fingerprint: str  # of the prepared data: a run resumes only on the same
    goal: str  # the validation metric that decides which weights are best
    higher_is_better: bool
    counted: str  # what a view's targets are: tokens, examples

    def report(self) -> list[str]:
        """What was read, kept and dropped, in sentences."""

    def build_model(self) -> nn.Module:
        """With fresh weights."""

    def notes(self, model: nn.Module) -> list[str]:
        """What is worth saying once the model has computed its first step, in sentences."""

    def view(self, seed: int, epoch: int) -> View:
        """The epoch's examples: a function of (seed, epoch) alone."""

    def loss(self, model: nn.Module, batch: Any, carry: Carry) -> tuple[Tensor, Carry]:
        """The loss summed over the batch's targets, and what passes on to the next batch, detached (None for most)."""

    def fixed(self, model: nn.Module, batch: Any) -> Any | None:
        """The batch with few tensors of shapes that come again, where the model can learn from it so; else None."""

    def describe(self, batch: Any) -> str:
        """Where the batch's examples came from, for a person looking for a bad one."""

    def validate(self, model: nn.Module, device: torch.device, progress: Progress | None = None) -> dict[str, float]:
        """Measured on the validation data; windows and choices of one example are joined first (`merge`)."""

    def measure(self, model: nn.Module, split: str, progress: Progress | None = None) -> dict[str, Any]:
        """Everything that can be measured of a finished model on the recipe's `valid` or `test` data, as JSON."""

    def save(self, folder: Path) -> None:
        """Write what a trained model needs besides its weights and config: tokenizers, labels."""


class BaseTask:
    """What tasks do alike, unless they do it in their own way."""

    fingerprint: str
    counted = "tokens"

    def __init__(self, recipe: RecipeLike) -> None:
        self.recipe, self.goal, self.smoothing = recipe, recipe.training.goal, recipe.training.label_smoothing
        self.higher_is_better = recipe.task.metrics[self.goal]

    def notes(self, model: nn.Module) -> list[str]:
        return slow_paths(model)

    def loss(self, model: nn.Module, batch: Any, carry: Carry) -> tuple[Tensor, Carry]:
        return model(batch, None, self.smoothing), carry
