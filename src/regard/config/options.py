"""Options of config classes: how a dataclass declares them, checks their values and lists them for `--help`."""

import dataclasses
import re
import typing
from collections.abc import Iterator
from dataclasses import MISSING
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, get_args, get_origin

from regard.config.registry import Choice, choices, is_slot

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Presets = dict[str, dict[str, int | float | str | bool]]  # values of config keys, by the name of the preset


def option(default: Any = MISSING, help: str = "") -> Any:
    """A dataclass field with a line of help. Without a default the key is required; mutable defaults are copied."""
    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata={"help": help})
    if isinstance(default, type) and dataclasses.is_dataclass(default):
        return dataclasses.field(default_factory=default, metadata={"help": help})
    return dataclasses.field(default=default, metadata={"help": help})


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


def field_values(instance: "DataclassInstance") -> dict[str, Any]:
    """The fields of a dataclass instance by name; the values themselves, where `asdict` copies."""
    return {field.name: getattr(instance, field.name) for field in dataclasses.fields(instance)}


def describe_options(cls: type, path: str = "", known: set[type] | None = None) -> Iterator[tuple[str, str, str, str]]:
    """(key, type, default, help) of every option, choices included; each class is listed once."""
    known = set() if known is None else known
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        name, hint = join_key(path, field.name), hints[field.name]
        members = [a for a in (get_args(hint) or (hint,)) for a in (get_args(a) or (a,))]
        slots = [choices(a).values() if is_slot(a) else [a] for a in members]
        classes: list[type] = list(dict.fromkeys(a for slot in slots for a in slot if _is_config(a)))
        value: object = field.default if field.default_factory is MISSING else field.default_factory()
        classes = [c for c in classes if c is type(value)] + [c for c in classes if c is not type(value)]
        shown = "required" if value is MISSING else str(value)
        if field.default is MISSING and _is_config(section := type(value)):
            shown = section.kind if issubclass(section, Choice) else ""
        kinds = [c.kind for c in classes if issubclass(c, Choice) and c.kind]
        yield name, " | ".join(kinds) or _type_name(hint), shown, field.metadata.get("help", "")
        for c in [c for c in classes if c not in known]:
            known.add(c)
            yield from describe_options(
                c, f"{name}({c.kind})" if len(kinds) > 1 and issubclass(c, Choice) else name, known
            )


def _is_config(hint: object) -> TypeGuard[type]:
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def _type_name(hint: object) -> str:
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
