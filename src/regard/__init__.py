"""The Transformer, complete: train, read, measure and serve attention models.

regard.train("recipe.yaml", out="run")
regard.load("run").translate(["A man is walking."])
regard.nn.MultiHeadAttention(512, 8, position="rotary", causal=True)(x)
"""

import os
from typing import TYPE_CHECKING, Any

# Threads that wait busily starve each other where cores are shared: two trainings on two cores ran 20 times slower.
# GNU OpenMP reads this when torch is imported.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")

__version__ = "0.1.0"
__all__ = ["RegardError", "__version__", "load", "models", "nn", "train"]

if TYPE_CHECKING:
    from regard import models, nn
    from regard.api import load, train
    from regard.errors import RegardError

_HOMES = {"load": "regard.api", "train": "regard.api", "RegardError": "regard.errors"}


def __getattr__(name: str) -> Any:
    """Import what is asked for only then, so that `import regard` stays cheap."""
    import importlib

    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in ("models", "nn"):
        return importlib.import_module(f"regard.{name}")
    raise AttributeError(f"module 'regard' has no attribute {name!r}")
