"""A model's attention to one text, or to two, as data, as a page and as a picture."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["look", "look_pair"]
_MODULES = {"look": "attention", "look_pair": "pair"}

if TYPE_CHECKING:
    from regard.look.attention import look
    from regard.look.pair import look_pair


def __getattr__(name: str) -> Any:
    """Imported on first use: the command line needs no torch."""
    if name in _MODULES:
        return getattr(import_module(f"regard.look.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'regard.look' has no attribute {name!r}")
