"""Arguments of Python calls, checked against the type hints of the method: a wrong name or value is one sentence.

Knows no task. What a call is about (its first argument, where that is a list) the method checks itself.
"""

import functools
import inspect
import sys
import typing
import warnings
from collections.abc import Callable, Sequence
from itertools import chain
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, Unpack, get_args, get_origin

from regard.config import nearest
from regard.errors import RegardError

F = TypeVar("F", bound=Callable[..., Any])
UNIONS = (Union, UnionType)


def checked(method: F) -> F:
    """The method, which refuses arguments that it does not have, and values that its type hints do not allow."""
    call, names = method.__name__, list(inspect.signature(method).parameters)[1:]

    @functools.wraps(method)
    def check(self: Any, *values: Any, **options: Any) -> Any:
        known = _hints(method)
        for name, value in chain(zip(names, values, strict=False), options.items()):
            if name not in known:
                raise RegardError(f"{call} has no option {name}; {nearest(name, known)}")
            hint = known[name]
            is_data = name == names[0] and get_origin(hint) is Sequence
            if not is_data and not _allowed(hint, value):
                raise RegardError(f"{call}: {name} is {value!r}; {_instead(hint, value)}")
        return method(self, *values, **options)

    return typing.cast(F, check)


@functools.cache
def _hints(method: Callable[..., Any]) -> dict[str, Any]:
    """By name the type of each argument, of those in `**options: Unpack[…]` too."""
    hints = typing.get_type_hints(method)
    hints.pop("return", None)
    for name, hint in list(hints.items()):
        if get_origin(hint) is Unpack:
            del hints[name]
            hints |= typing.get_type_hints(get_args(hint)[0])
    return hints


def _allowed(hint: Any, value: Any) -> bool:
    """Whether a value is of a type; what cannot be told of it (functions, what lists hold) is allowed."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in UNIONS:
        return any(_allowed(each, value) for each in args)
    if origin is Literal:
        return isinstance(value, str) and value in args
    if origin is Sequence:
        listed = not isinstance(value, str) and hasattr(value, "__iter__")
        return listed and (get_origin(args[0]) is not Literal or all(_allowed(args[0], each) for each in value))
    if hint in (int, float):
        return isinstance(value, Integral if hint is int else Real) and not isinstance(value, bool)
    return not isinstance(hint, type) or isinstance(value, hint)


def _instead(hint: Any, value: Any) -> str:
    """What to write: a list, the nearest of the words that are known, or what the type is called."""
    kinds = [kind for kind in (get_args(hint) if get_origin(hint) in UNIONS else (hint,)) if kind is not NoneType]
    for kind in kinds:
        words, wrong = kind, [value]
        if get_origin(kind) is Sequence:
            if isinstance(value, str) or not hasattr(value, "__iter__"):
                return f"write a list: [{value!r}]"
            words, wrong = get_args(kind)[0], value
        if get_origin(words) is Literal:
            return nearest(next(each for each in wrong if each not in get_args(words)), get_args(words))
    return f"write {' or '.join(WORDS.get(kind, getattr(kind, '__name__', str(kind))) for kind in kinds)}"


WORDS: dict[Any, str] = {int: "a whole number", float: "a number", bool: "True or False", str: "a string"}


def warn_caller(sentence: str) -> None:
    """A Python warning that names the line outside of this package that made the call."""
    level = 1
    while sys._getframe(level).f_globals.get("__name__", "").split(".")[0] == "regard" and sys._getframe(level).f_back:
        level += 1
    warnings.warn(sentence, stacklevel=level + 1)
