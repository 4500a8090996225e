"""A model's attention to one text, or to two, as data, as a page and as a picture."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["logit_lens", "look", "look_pair", "patch_activations"]
_MODULES = {"look": "attention", "look_pair": "pair", "logit_lens": "lens", "patch_activations": "patching"}

if TYPE_CHECKING:
    from regard.look.attention import look
    from regard.look.lens import logit_lens
    from regard.look.pair import look_pair
    from regard.look.patching import patch_activations


def __getattr__(name: str) -> Any:
    """Imported on first use: the command line needs no torch."""
    if name in _MODULES:
        return getattr(import_module(f"regard.look.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'regard.look' has no attribute {name!r}")
