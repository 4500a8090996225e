"""The one exception for mistakes that a user can mend, and files, which many of them are about."""

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any


class RegardError(Exception):
    """One plain sentence: what is wrong, where, and what to write instead. Commands print it and exit with 2."""


def listed(given: object, call: str, what: str = "texts", nested: bool = False) -> None:
    """Refuses what is no list of texts, or of groups of texts (`nested`); `call` shows how it is written.

    A string would be read letter by letter.
    """
    name = call.partition("(")[0]
    if isinstance(given, str) or not (hasattr(given, "__len__") and hasattr(given, "__iter__")):
        shown = "one string" if isinstance(given, str) else given
        if not isinstance(given, str | int | float | None):
            shown = f"a {type(given).__name__}"
        raise RegardError(f"{name} takes a list of {what}, not {shown}; write {call}")
    for number, item in enumerate(given, 1):
        if not _is_text(item, nested):
            raise RegardError(f"{name} takes a list of {what}; number {number} is {item!r}, which is not text")


def _is_text(item: object, nested: bool) -> bool:
    return isinstance(item, str) or (nested and isinstance(item, Iterable) and all(_is_text(x, True) for x in item))


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
    except BrokenPipeError:
        raise  # its reader has seen enough, which is no mistake: commands end as other tools do
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
    """A file that takes its place by one rename when all is written; what stood there may be read until then.

    A symbolic link stays, its target is replaced. What is not a regular file (a FIFO, a device, the >(command) of a
    shell) is written into.
    """
    encoding = None if "b" in mode else "utf-8"
    with telling(path, "written"):
        into = _written_into(path)
        if into is not None:
            with open(into, mode, encoding=encoding) as file:
                yield file
            return
        place = Path(os.path.realpath(path))
        temporary = place.with_name(f".{place.name}.{os.getpid()}")
        try:
            with open(temporary, mode, encoding=encoding) as file:
                yield file
            os.replace(temporary, place)
        finally:
            with contextlib.suppress(OSError):  # of a folder that is not one, which the error says
                temporary.unlink()


def _written_into(path: Path) -> Path | int | None:
    """What to open instead of replacing the path: a descriptor, or what is not a regular file; None: it is replaced."""
    try:
        mode = path.stat().st_mode  # of what links lead to; those that lead in a circle are an error
    except FileNotFoundError:
        return None
    descriptor = _descriptor(path)
    if descriptor is not None:
        return os.dup(descriptor)  # to open the name would empty a file that /dev/stdout goes to
    return None if stat.S_ISREG(mode) else path


def _descriptor(path: Path) -> int | None:
    """The number of a descriptor of this process that /dev/fd/63, /dev/stdout or a link to them names."""
    own = ("/dev/fd", f"/proc/{os.getpid()}/fd")  # on Linux the first is a link to the second
    while not (path.name.isdigit() and os.path.realpath(path.parent) in own):
        if not path.is_symlink():
            return None
        path = path.parent / os.readlink(path)
    return int(path.name)
