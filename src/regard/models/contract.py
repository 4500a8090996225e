"""The base of the configs of models, the section `model:` of a recipe."""

from typing import Any, ClassVar

from regard.config import Choice, Presets


class ModelConfig(Choice, slot="model"):
    """`check` takes the lengths, and `build` the vocabulary sizes, of source and target, or of the one text."""

    presets: ClassVar[Presets] = {}
    check: Any  # raises ValueError where the choices cannot serve sequences of these lengths
    build: Any  # -> the module
