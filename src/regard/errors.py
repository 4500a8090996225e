"""The one exception for mistakes that a user can mend, and files, which many of them are about."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any


class RegardError(Exception):
    """One plain sentence: what is wrong, where, and what to write instead. Commands print it and exit with 2."""


def listed(given: object, call: str, what: str = "texts") -> None:
    """Refuses a string where a list belongs, which would be read letter by letter; `call` shows how it is written."""
    if isinstance(given, str):
        raise RegardError(f"{call.partition('(')[0]} takes a list of {what}, not one string; write {call}")


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def whole_characters(text: str, what: str | None = None) -> str:
    """The text, which messages name as `what`; refused where it cannot be UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        what = what or repr(text.encode("utf-8", "replace").decode()[:40])
        raise RegardError(f"{what} holds half a character (a lone surrogate), so it is not UTF-8") from None
    return text


@contextlib.contextmanager
def characters(texts: Iterable[str]) -> Iterator[None]:
    """What a library makes of half a character, which a terminal or a caller may give, is a sentence."""
    try:
        yield
    except TypeError:
        for text in texts:
            if isinstance(text, str):
                whole_characters(text)
        raise


@contextlib.contextmanager
def telling(path: object, done: str = "read") -> Iterator[None]:
    """An error of the system inside says which path cannot be read, or whatever was to be `done` with it."""
    try:
        yield
    except OSError as error:
        raise RegardError(f"{path}: cannot be {done} ({error.strerror or error})") from None


def text_of(path: str | Path, encoding: str = "utf-8") -> str:
    try:
        with telling(path):
            return Path(path).read_text(encoding=encoding)
    except UnicodeDecodeError as error:
        raise RegardError(f"{path}: not UTF-8 text (byte {error.start})") from None


@contextlib.contextmanager
def whole(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """A file that takes its place by one rename when all is written; what stood there may be read until then."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with telling(path, "written"):
            with open(temporary, mode, encoding=None if "b" in mode else "utf-8") as file:
                yield file
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
