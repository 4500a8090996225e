"""The exception for a user's mistakes, and checks that raise it."""

import contextlib
from collections.abc import Iterable, Iterator


class RegardError(Exception):
    """One plain sentence: what is wrong, where, and what to write instead. Commands print it and exit with 2."""


def require_list(value: object, call: str, what: str = "texts", nested: bool = False) -> None:
    """Refuses anything but a list of texts, or of groups of texts (`nested`); `call` shows how to write it.

    A string would be read letter by letter.
    """
    name = call.partition("(")[0]
    if isinstance(value, str) or not (hasattr(value, "__len__") and hasattr(value, "__iter__")):
        shown = "one string" if isinstance(value, str) else value
        if not isinstance(value, str | int | float | None):
            shown = f"a {type(value).__name__}"
        raise RegardError(f"{name} takes a list of {what}, not {shown}; write {call}")
    for number, item in enumerate(value, 1):
        if not _is_text(item, nested):
            raise RegardError(f"{name} takes a list of {what}; number {number} is {item!r}, which is not text")


def _is_text(item: object, nested: bool) -> bool:
    return isinstance(item, str) or (nested and isinstance(item, Iterable) and all(_is_text(x, True) for x in item))


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def check_utf8(text: str, what: str | None = None) -> str:
    """The text, if it can be encoded as UTF-8; messages call it `what`."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        what = what or repr(text.encode("utf-8", "replace").decode()[:40])
        raise RegardError(f"{what} holds half a character (a lone surrogate), so it is not UTF-8") from None
    return text


@contextlib.contextmanager
def utf8_errors(texts: Iterable[str]) -> Iterator[None]:
    """Turns the TypeError of a tokenizer library for a lone surrogate in one of the texts into a RegardError."""
    try:
        yield
    except TypeError:
        for text in texts:
            if isinstance(text, str):
                check_utf8(text)
        raise
