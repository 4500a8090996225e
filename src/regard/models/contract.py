"""The base of the configs of models, the section `model:` of a recipe."""

from typing import Any, ClassVar

from regard.config import Choice, Presets


class ModelConfig(Choice, slot="model"):
    """`check` takes the lengths, and `build` the vocabulary sizes, of source and target, or of the one text."""

    must_define = ("check", "build")
    presets: ClassVar[Presets] = {}
    check: Any  # raises ValueError where the choices cannot serve sequences of these lengths
    build: Any  # -> the module

    @property
    def segment_memory(self) -> int:
        """Tokens before a block whose states are remembered, when a text is read block by block."""
        return 0

    @property
    def rolls_back(self) -> bool:
        """Whether a step of decoding can be taken back: what it read is kept by position, and overwritten."""
        return False

    @property
    def proposals(self) -> Any:
        """The config of the heads that score the tokens after the next one too; None: it has none."""
        return None

    @property
    def carries(self) -> bool:
        """Whether states pass from batch to batch, whose rows then continue each other."""
        return False

    @property
    def bounded_past(self) -> bool:
        """Whether a token's layers see so many before it and no more, by their distances: a text then has no limit."""
        return False

    @property
    def further_targets(self) -> int:
        """How many tokens beyond the next are learned at every position, in the task lm."""
        return 0

    def predicting_layers(self, step: int, steps: int) -> int | None:
        """The lowest layer that predicts in a step of so many, counted from 1; None: the last alone, always."""
        return None
