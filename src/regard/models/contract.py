"""The base of the configs of models, the section `model:` of a recipe."""

from typing import Any, ClassVar

from regard.config import Choice, Presets


class ModelConfig(Choice, slot="model"):
    """`check` takes the lengths, and `build` the vocabulary sizes, of source and target, or of the one text."""

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
