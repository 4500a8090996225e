"""What a model's attention does with one text: as data, as a page to look at, as a picture."""

from typing import TYPE_CHECKING, Any

__all__ = ["look"]

if TYPE_CHECKING:
    from regard.look.recording import look


def __getattr__(name: str) -> Any:
    """Imported when it is asked for: the command line names it without torch."""
    if name == "look":
        from regard.look.recording import look

        return look
    raise AttributeError(f"module 'regard.look' has no attribute {name!r}")
