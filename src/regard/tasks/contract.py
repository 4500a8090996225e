"""The task contract: a task's section of a recipe, and the task that it prepares for the training loop."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from regard.config import Choice
from regard.data.config import Corpus
from regard.data.prepared import PreparedCorpus
from regard.examples.preparing import TOKENIZER, CorpusEncoder
from regard.examples.recipe_like import RecipeLike
from regard.models.batch import Batch
from regard.nn.attention import slow_paths
from regard.predict.base import Predictor
from regard.predict.options import EvaluateOptions
from regard.reporting import Json, Progress

Carry = dict[str, Tensor] | None  # named, so that a checkpoint can hold it


class TaskConfig(Choice, slot="task"):
    """A task's section of a recipe."""

    must_define = ("prepare", "load_predictor", "evaluate")
    models: ClassVar[tuple[str, ...]]  # kinds of models that can learn it
    metrics: ClassVar[Mapping[str, bool]] = {}  # what validation measures, and whether more is better
    has_text_output: ClassVar[bool] = False  # which `evaluation.metrics` can measure
    defaults: ClassVar[Json] = {}  # of other sections of a recipe
    evaluate_options: ClassVar[tuple[str, ...]] = ()  # of `regard evaluate`, besides the split

    @property
    def title(self) -> str:
        """Its name for people."""
        return self.kind

    def check(self, recipe: RecipeLike) -> None:
        """Raise ValueError, which names the key, where the sections do not go together; no file is read."""

    def prepare(self, recipe: RecipeLike, home: Path | None, progress: Progress) -> "Task":
        """The task with everything that training needs; `home` is a run that has the vocabulary and labels already."""
        raise NotImplementedError

    def load_predictor(self, recipe: RecipeLike, home: Path) -> Predictor:
        """The predictor of a trained model, whose weights are still to be loaded."""
        raise NotImplementedError

    def evaluate(
        self, predictor: Any, split: str | None, options: EvaluateOptions, progress: Progress | None = None
    ) -> Json:
        """The report of `regard evaluate`: `data`, sizes (`lines`, `tokens` …), `metrics` and `notes`, as JSON.

        `predictor` comes from `load_predictor`, `options` are some of `evaluate_options`; without a split, test if
        there is one.
        """
        raise NotImplementedError


class View(Protocol):
    """An epoch's examples: masking, random segments and sampled segmentation are done before batches are planned."""

    def plan(self, budget: int, seed: int, epoch: int) -> list[np.ndarray]:
        """The micro-batches in their global order, as indices of examples; `budget` is in padded target tokens."""

    def collate(self, indices: np.ndarray) -> Batch:
        """The batch of these examples of the view."""

    def targets(self, indices: np.ndarray) -> int:
        """The number of targets in these examples; the loss of a step is divided by their sum."""


class Task(Protocol):
    fingerprint: str  # of the prepared data: a run resumes only on the same
    goal: str  # the validation metric that decides which weights are best
    higher_is_better: bool
    target_unit: str  # what a view's targets are: tokens, examples

    def report(self) -> list[str]:
        """What was read, kept and dropped, as lines of the log."""

    def build_model(self) -> nn.Module:
        """With fresh weights."""

    def notes(self, model: nn.Module) -> list[str]:
        """Lines of the log after the first step: attentions that run on a slow path."""

    def initial_weights(self, model: nn.Module, tensors: Mapping[str, Tensor], origin: object) -> Mapping[str, Tensor]:
        """The weights of a run that `training.init` names, as the model takes them; `origin` is for messages."""

    def view(self, seed: int, epoch: int) -> View:
        """The epoch's examples: a function of (seed, epoch) alone."""

    def begin_step(self, step: int, steps: int) -> bool:
        """Step `step` of so many begins, counted from 1; True where its loss has other terms than the step before."""

    def loss(self, model: nn.Module, batch: Any, carry: Carry) -> tuple[Tensor, Carry]:
        """The loss summed over the batch's targets, and what passes on to the next batch, detached (None for most)."""

    def static_batch(self, model: nn.Module, batch: Any) -> Batch | None:
        """The batch with tensors of few, repeated shapes, for a CUDA graph; None where the model cannot use it so."""

    def describe(self, batch: Any) -> str:
        """The origin of the batch's examples, to find a bad one."""

    def validate(self, model: nn.Module, device: torch.device, progress: Progress | None = None) -> dict[str, float]:
        """The metrics of the validation data, while training."""

    def evaluate(self, model: nn.Module, progress: Progress | None = None) -> Json:
        """The report of a finished model on the validation data, as JSON; empty without such data."""

    def save(self, folder: Path) -> None:
        """Write the files of a trained model besides its weights and config: tokenizers, labels."""


class BaseTask:
    """Defaults of the methods of a task."""

    fingerprint: str
    target_unit = "tokens"

    def __init__(self, recipe: RecipeLike) -> None:
        self.recipe, self.goal, self.smoothing = recipe, recipe.training.goal, recipe.training.label_smoothing
        own = {metric.kind: metric.higher_is_better for metric in recipe.evaluation.metrics}
        self.higher_is_better = {**recipe.task.metrics, **own}[self.goal]

    def notes(self, model: nn.Module) -> list[str]:
        return slow_paths(model)

    def initial_weights(self, model: nn.Module, tensors: Mapping[str, Tensor], origin: object) -> Mapping[str, Tensor]:
        """Those of the run; proposal heads that it lacks begin with their own."""
        own = {name: value for name, value in model.state_dict().items() if name.startswith("proposals.")}
        return {**own, **tensors}

    def begin_step(self, step: int, steps: int) -> bool:
        return False

    def loss(self, model: nn.Module, batch: Any, carry: Carry) -> tuple[Tensor, Carry]:
        return model(batch, None, self.smoothing), carry

    def evaluate(self, model: nn.Module, progress: Progress | None = None) -> Json:
        corpora = self.recipe.data.valid
        return self.evaluate_corpora(model, corpora, progress) if corpora else {}

    def evaluate_corpora(self, model: nn.Module, corpora: Sequence[Corpus], progress: Progress | None = None) -> Json:
        raise NotImplementedError


class PreparedTask(BaseTask):
    """A task whose training data is in prepared form."""

    def __init__(self, recipe: RecipeLike, prepared: PreparedCorpus) -> None:
        super().__init__(recipe)
        self.prepared, self.fingerprint = prepared, prepared.fingerprint

    def origin(self, row: int) -> str:
        """The line and corpus of a prepared row."""
        return f"line {self.prepared.number[row]} of {self.recipe.data.train[int(self.prepared.corpus[row])].name}"


class EncodedTask(PreparedTask):
    """A prepared task with one tokenizer, in an encoder with the task's own rules."""

    def __init__(self, recipe: RecipeLike, prepared: PreparedCorpus, encoder: CorpusEncoder) -> None:
        super().__init__(recipe, prepared)
        self.tokenizer = encoder.tokenizer

    def report_lines(self) -> list[str]:
        """What every such task reports: the vocabulary where it is not as asked for, and the corpora."""
        return self.tokenizer.notes() + self.prepared.report_lines()

    def save(self, folder: Path) -> None:
        self.tokenizer.save(folder / TOKENIZER)
