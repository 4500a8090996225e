"""A model's attention to one text, as data, as a page and as a picture."""

from typing import TYPE_CHECKING, Any

__all__ = ["look"]

if TYPE_CHECKING:
    from regard.look.attention import look


def __getattr__(name: str) -> Any:
    """Imported on first use: the command line needs no torch."""
    if name == "look":
        from regard.look.attention import look

        return look
    raise AttributeError(f"module 'regard.look' has no attribute {name!r}")
