"""An encoder without a task: what a BERT is that was trained elsewhere. Other tasks begin from it, by training.init."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from torch import nn

from regard.errors import RegardError
from regard.models.heads import Headless
from regard.tasks.contract import Progress, Task
from regard.text import Tokenizer

if TYPE_CHECKING:
    from regard.recipe import Recipe

WHY = "a model of the task encoder is a body without a head; begin another task from it, with training.init: {home}"


@dataclass(frozen=True)
class EncoderConfig:
    """A body without a head, as it was brought in from elsewhere; nothing is learned by it."""

    models: ClassVar[tuple[str, ...]] = ("bert",)
    metrics: ClassVar[dict[str, bool]] = {"loss": False}
    defaults: ClassVar[dict[str, Any]] = {
        "text": {"kind": "bert"},
        "model": {"kind": "bert"},
        "training": {"goal": "loss"},
    }
    asks: ClassVar[tuple[str, ...]] = ()

    kind: Literal["encoder"] = "encoder"

    @property
    def title(self) -> str:
        return self.kind

    def check(self, recipe: "Recipe") -> None:
        pass

    def prepare(self, recipe: "Recipe", home: Path | None, progress: Progress) -> Task:
        raise RegardError(WHY.format(home=home or "ITS FOLDER"))

    def open(self, recipe: "Recipe", home: Path) -> "Encoder":
        tokenizer = Tokenizer.load(home / "tokenizer" / "tokenizer.json")
        return Encoder(Headless(cast(Any, recipe.model).build(tokenizer.size)), tokenizer, recipe)

    def evaluate(
        self, made: "Encoder", split: str | None, given: Mapping[str, Any], progress: Progress | None = None
    ) -> dict[str, Any]:
        raise RegardError(WHY.format(home="ITS FOLDER"))


class Encoder:
    """`regard.load(folder)` gives one of these for a body without a head."""

    def __init__(self, model: nn.Module, tokenizer: Tokenizer, recipe: "Recipe") -> None:
        self.model, self.tokenizer, self.recipe = model, tokenizer, recipe
