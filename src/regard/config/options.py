"""Options of config classes: how a dataclass declares them, checks their values and lists them for `--help`."""

import dataclasses
import re
import typing
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass
from typing import Any, Literal, TypeVar, get_args, get_origin

T = TypeVar("T")
Presets = dict[str, dict[str, int | float | str | bool]]  # values of config keys, by the name of the preset


def option(default: Any = MISSING, help: str = "") -> Any:
    """A dataclass field with a line of help. Without a default the key is required; mutable defaults are copied."""
    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata={"help": help})
    if isinstance(default, type) and dataclasses.is_dataclass(default):
        return dataclasses.field(default_factory=default, metadata={"help": help})
    return dataclasses.field(default=default, metadata={"help": help})


@typing.dataclass_transform(frozen_default=True)
def mechanism(id: str, formula: str, paper: str) -> Callable[[type[T]], type[T]]:
    """A frozen dataclass that is one choice of several: its number in docs/mechanisms.md, formula and paper."""

    def decorate(cls: Any) -> Any:
        cls.id, cls.formula, cls.paper = id, formula, paper
        return dataclass(frozen=True)(cls)

    return decorate


def at_least(config: object, least: int, *names: str) -> None:
    """Raise ValueError where one of these options is less; None is left to its default."""
    for name in names:
        if (value := vars(config)[name]) is not None and value < least:
            raise ValueError(f"{name} must be at least {least}, not {value}")


def below_one(config: object, *names: str) -> None:
    """Raise ValueError where one of these options is not in [0, 1)."""
    for name in names:
        if not 0 <= (value := vars(config)[name] or 0.0) < 1:
            raise ValueError(f"{name} must be in [0, 1), not {value}")


def kinds(union: Any) -> tuple[Any, ...]:
    """The classes of a choice: the members of a union, or the one class."""
    return get_args(union) or (union,)


def kind_of(cls: Any) -> str | None:
    """The `kind` that a config class is chosen by, if it has one."""
    hint = typing.get_type_hints(cls).get("kind")
    return get_args(hint)[0] if get_origin(hint) is Literal else None


def describe_options(cls: Any, path: str = "", known: set[Any] | None = None) -> Iterator[tuple[str, str, str, str]]:
    """(key, type, default, help) of every option, choices included; each class is listed once."""
    known = set() if known is None else known
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        name, hint = join_key(path, field.name), hints[field.name]
        members = [a for a in (get_args(hint) or (hint,)) for a in (get_args(a) or (a,))]
        classes = [a for a in members if dataclasses.is_dataclass(a)]
        if field.default is not MISSING:
            shown = str(field.default)
        elif field.default_factory is not MISSING:
            value = field.default_factory()
            shown = str(getattr(value, "kind", "")) if dataclasses.is_dataclass(value) else str(value)
        else:
            shown = "required"
        kinds = [k for c in classes if (k := kind_of(c))]
        yield name, " | ".join(kinds) or _type_name(hint), shown, field.metadata.get("help", "")
        for c in [c for c in classes if c not in known]:
            known.add(c)
            label = f"{name}({kind_of(c)})" if len(kinds) > 1 else name
            yield from (row for row in describe_options(c, label, known) if not row[0].endswith(".kind"))


def _type_name(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " | ".join(str(a) for a in get_args(hint))
    if dataclasses.is_dataclass(hint):
        return "section"
    text = (
        re.sub(r"[\w.]+\.(\w+)", lambda match: match[1].lower(), str(hint))
        if not isinstance(hint, type)
        else hint.__name__
    )
    return text.replace("None", "none")


def join_key(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
