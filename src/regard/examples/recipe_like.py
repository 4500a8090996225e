"""RecipeLike: what examples, predictors and tasks know of a recipe.

`recipe.Recipe` joins the config classes of all parts and stands above them; what lies below takes these protocols.
Attributes are read-only, as those of frozen dataclasses are.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from torch import nn

from regard.data.config import DataConfig
from regard.decoding.config import DecodingConfig
from regard.evaluation.metrics import MetricConfig
from regard.text.config import TextConfig


class ModelSettings(Protocol):
    """The section `model:`. `build` takes vocabulary sizes, `check` lengths: one, or those of source and target."""

    @property
    def kind(self) -> str: ...
    @property
    def build(self) -> Callable[..., nn.Module]: ...
    @property
    def check(self) -> Callable[..., None]: ...
    @property
    def segment_memory(self) -> int: ...
    @property
    def carries(self) -> bool: ...


class ValidationSettings(Protocol):
    @property
    def lines(self) -> int: ...
    @property
    def decode(self) -> bool: ...
    @property
    def decoding(self) -> DecodingConfig: ...


class TrainingSettings(Protocol):
    @property
    def goal(self) -> str: ...
    @property
    def label_smoothing(self) -> float: ...
    @property
    def tokens_per_batch(self) -> int: ...
    @property
    def init(self) -> str | None: ...
    @property
    def validation(self) -> ValidationSettings: ...


class EvaluationSettings(Protocol):
    @property
    def tokenise(self) -> str | None: ...
    @property
    def form(self) -> str: ...
    @property
    def metrics(self) -> Sequence[MetricConfig]: ...


class TaskSection(Protocol):
    """The section `task:`, as far as every task has it; tasks/contract.py says what a task's own section offers."""

    @property
    def kind(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def metrics(self) -> Mapping[str, bool]: ...


class RecipeLike(Protocol):
    @property
    def data(self) -> DataConfig: ...
    @property
    def task(self) -> TaskSection: ...
    @property
    def text(self) -> TextConfig: ...
    @property
    def model(self) -> ModelSettings: ...
    @property
    def training(self) -> TrainingSettings: ...
    @property
    def decoding(self) -> DecodingConfig: ...
    @property
    def evaluation(self) -> EvaluationSettings: ...
    @property
    def seed(self) -> int: ...
