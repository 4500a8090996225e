"""Strict parsing: a tree of Nodes becomes nested dataclasses, and back.

Every mistake is one sentence that names the file, the line, the key and the nearest valid key. Where a type is the base
class of a slot, `kind` names one of its choices.
"""

import contextlib
import dataclasses
import difflib
import math
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import yaml

from regard.config.options import Presets, field_values, join_key
from regard.config.registry import SLOTS, Choice, choices, is_slot
from regard.config.tree import COMMAND_LINE, Node, descendants, find_key, to_node
from regard.errors import RegardError
from regard.io.files import shown

T = TypeVar("T")
SHOWN = 60  # characters of a value in a message: a file that is no recipe may hold secrets


def parse_config(cls: type[T], node: Node | Mapping[str, object], path: str = "") -> T:
    """The Node as an instance of the dataclass `cls`; strict about keys, types and impossible values."""
    return _dataclass(cls, to_node(node, "config"), path)


def to_choice(slot: str | type[Choice], value: object, where: str = "", name: str = "") -> Any:
    """What a kind, a mapping with its kind, or a choice itself means in a slot: `to_choice("position", "rotary")`.

    A slot is its name or its base class. `where` and `name` say in an error what was given, and as what.
    """
    known = choices(slot)
    base = SLOTS[slot] if isinstance(slot, str) else slot
    if isinstance(value, base):
        return value
    if isinstance(value, str) and hasattr(base, "from_text"):
        return base.from_text(value)
    return _choose(known, to_node(value, where or base.slot), name)


def _fail(node: Node, path: str, problem: str) -> RegardError:
    return RegardError(f"{node.where}: {path or 'the recipe'} {shown(problem, 600)}")


def nearest(word: str, known: Iterable[str]) -> str:
    """`did you mean …?`, or the list of what is known."""
    known = [str(k) for k in known]
    close = difflib.get_close_matches(str(word), known, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"


def lookup(table: Mapping[str, T], name: str, where: str) -> T:
    """What a table of choices has under a name; a RegardError, with the nearest one, where it has nothing."""
    if name not in table:
        raise RegardError(f"{where} is {name!r}; {nearest(name, table)}")
    return table[name]


def _dataclass(cls: type[T], node: Node, path: str) -> T:
    node = _without_kind(cls, _long_form(cls, node, path), path)
    known = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    names = ["kind", *known] if issubclass(cls, Choice) and cls.kind else list(known)
    for key, child in node.value.items():
        if key not in known:
            raise RegardError(f"{child.where}: {join_key(path, key)[:SHOWN]} is not a known key; {nearest(key, names)}")
    hints = typing.get_type_hints(cls)
    values = {
        key: _value(hints[key], _default_kind(known[key], child), join_key(path, key))
        for key, child in node.value.items()
    }
    for name, field in known.items():
        if name not in values and field.default is MISSING and field.default_factory is MISSING:
            raise _fail(node, path, f"needs the key {name} ({field.metadata.get('help', 'no default')})")
    try:
        return cls(**values)
    except ValueError as error:
        raise _fail(_cause(node, str(error)), path, f"is impossible: {error}") from None


def _without_kind(cls: type, node: Node, path: str) -> Node:
    """A mapping without the `kind` that chose its class."""
    if not issubclass(cls, Choice) or not cls.kind or "kind" not in node.value:
        return node
    chosen = node.value["kind"]
    if chosen.value != cls.kind:
        raise _fail(chosen, join_key(path, "kind"), f"is {_show(chosen)}; known: {cls.kind}")
    return Node({key: child for key, child in node.value.items() if key != "kind"}, node.where)


def _cause(node: Node, problem: str) -> Node:
    """The likeliest cause of an impossible section: of the keys that the problem names, the last that the command line
    changed; where it changed none of them, all that it did change; and without overrides the key named first.
    """
    first = re.split(r"[ :]", problem, maxsplit=1)[0]
    named = [
        child for key in (first, *re.findall(r"[a-z_]+(?:\.[a-z_0-9]+)+", problem)) if (child := find_key(node, key))
    ]
    if changed := [part for key in named for part in (key, *descendants(key)) if part.where.startswith(COMMAND_LINE)]:
        return changed[-1]
    if every := dict.fromkeys(part.where for part in descendants(node) if part.where.startswith(COMMAND_LINE)):
        return Node(None, f"{COMMAND_LINE}, {' '.join(where.removeprefix(f'{COMMAND_LINE}, ') for where in every)}")
    return named[0] if named else node


def _default_kind(field: dataclasses.Field, node: Node) -> Node:
    """`schedule: {warmup: 30}` without a kind means the kind that the field has by default."""
    factory: object = field.default_factory
    if not isinstance(node.value, dict) or "kind" in node.value:
        return node
    kind = factory.kind if isinstance(factory, type) and issubclass(factory, Choice) else ""
    return Node({"kind": to_node(kind, node.where), **node.value}, node.where) if kind else node


def _long_form(cls: type, node: Node, path: str) -> Node:
    """Undo short forms: `shorthand` for a scalar or list, `expand` for a mapping, `preset` for named defaults."""
    if isinstance(node.value, str) and issubclass(cls, Choice) and not hasattr(cls, "shorthand"):
        node = Node({"kind": Node(node.value, node.where, node.raw)}, node.where)
    if not isinstance(node.value, dict):
        if not hasattr(cls, "shorthand") or node.value is None:
            raise _fail(node, path, f"must be a mapping of keys, not {_show(node) if path else 'text'}")
        try:
            node = to_node(cls.shorthand(node.plain()), node.where)
        except ValueError as error:
            raise _fail(node, path, str(error)) from None
    if hasattr(cls, "expand"):
        plain = node.plain()
        try:
            expanded = cls.expand(dict(plain))
        except ValueError as error:
            raise _fail(node, path, str(error)) from None
        node = _merge_locations(node, plain, expanded)
    presets: Presets = cls.presets if hasattr(cls, "presets") else {}
    if presets and (chosen := node.value.get("preset")) is not None and chosen.value is not None:
        if chosen.value not in presets:
            raise _fail(chosen, join_key(path, "preset"), f"is {chosen.raw!r}; {nearest(chosen.raw, presets)}")
        defaults = {k: to_node(v, chosen.where) for k, v in presets[chosen.value].items()}
        node = Node({**defaults, **node.value}, node.where)
    return node


def _merge_locations(node: Node, old: object, new: object) -> Node:
    """The node with a new plain value; what is the same in it keeps its location, at any depth."""
    if old == new:
        return node
    if not isinstance(old, dict) or not isinstance(new, dict):
        return to_node(new, node.where)
    known = {k: _merge_locations(node.value[k], old[k], v) for k, v in new.items() if k in old}
    return Node({k: known[k] if k in known else to_node(v, node.where) for k, v in new.items()}, node.where)


def _value(hint: object, node: Node, path: str) -> object:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _union(args, node, path)
    if origin is Literal:
        for choice in args:
            if (node.value == choice and type(node.value) is type(choice)) or node.raw == choice:
                return choice
        raise _fail(node, path, f"is {_show(node)}; {nearest(node.raw, args)}")
    if origin in (list, tuple):
        items = node.value if isinstance(node.value, list) else [node]  # one value is a list of one
        return [_value(args[0], child, f"{path}.{i}") for i, child in enumerate(items)]
    if origin is dict or hint is dict:
        if not isinstance(node.value, dict):
            raise _fail(node, path, f"must be a mapping, not {_show(node)}")
        return {k: _value(args[1] if args else object, child, join_key(path, k)) for k, child in node.value.items()}
    if is_slot(hint):
        return _choose(choices(hint), node, path)
    if dataclasses.is_dataclass(hint):
        return _dataclass(hint, node, path)  # type: ignore[arg-type]
    if hint in (Any, object):
        return node.plain()
    return _number_or_text(hint, node, path)


def _number_or_text(hint: object, node: Node, path: str) -> object:
    value = node.value
    if hint is str and not isinstance(value, dict | list) and value is not None:
        return node.raw
    if hint is float and not isinstance(value, bool):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            if math.isfinite(number := float(value)):  # YAML reads 1e-9 as text
                return number
    if hint is int and isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = float(value)
    if hint is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is hint and (hint is not float or math.isfinite(value)) and (hint is not int or abs(value) < 2**63):
        return value
    names: dict[object, str] = {int: "a whole number", float: "a finite number", str: "text", bool: "true or false"}
    raise _fail(node, path, f"must be {names.get(hint, hint)}, not {_show(node)}")


def _union(args: tuple[object, ...], node: Node, path: str) -> object:
    if node.value is None and type(None) in args:
        return None
    args = tuple(a for a in args if a is not type(None))
    problem: RegardError | None = None
    for arg in args:
        if isinstance(node.value, list) != (get_origin(arg) in (list, tuple)) and len(args) > 1:
            continue
        try:
            return _value(arg, node, path)
        except RegardError as error:
            problem = problem or error
    raise problem or _fail(node, path, f"cannot be {_show(node)}")


def _choose(known: Mapping[str, type[Choice]], node: Node, path: str) -> Choice:
    if isinstance(node.value, str):  # `position: rotary`
        node = Node({"kind": Node(node.value, node.where, node.raw)}, node.where)
    if not isinstance(node.value, dict):
        raise _fail(node, path, f"must be a mapping of keys, not {_show(node)}")
    chosen = node.value.get("kind")
    if chosen is None:
        raise _fail(node, path, f"needs a kind; known: {', '.join(known)}")
    if chosen.value not in known:
        raise _fail(chosen, join_key(path, "kind"), f"is {chosen.raw!r}; {_nearest_kind(chosen.raw, known)}")
    return _dataclass(known[chosen.value], node, path)


def _nearest_kind(text: str, known: Mapping[str, type[Choice]]) -> str:
    """As `nearest`; of `hard(3)`, as patterns are written, what says the same here."""
    match = re.fullmatch(r"(\w+)\((.+)\)", text)
    if match is None or match[1] not in known:
        return nearest(text, known)
    own = vars(known[match[1]]).get("__annotations__", {})
    keys = ", ".join(f"{name}: {value.strip()}" for name, value in zip(own, match[2].split(","), strict=False))
    return f"write {{kind: {match[1]}, {keys}}}" if keys else f"write {match[1]}"


def _show(node: Node) -> str:
    if isinstance(node.value, dict):
        return "a mapping"
    if isinstance(node.value, list):
        return "a list"
    if node.value is None:
        return "empty"
    text = repr(node.raw or node.value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


# --- writing -----------------------------------------------------------------------------------------------------


def to_plain(value: object) -> Any:
    """A config instance as dicts, lists and scalars, which `parse_config` reads back to an equal instance."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = {"kind": value.kind} if isinstance(value, Choice) and value.kind else {}
        return kind | {name: to_plain(child) for name, child in field_values(value).items()}
    if isinstance(value, list | tuple):
        return [to_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: to_plain(v) for k, v in value.items()}
    return value


def plugins_of(value: object) -> Iterator[str]:
    """The plugins that the choices in a config come from; a text may name choices, where it is a slot's own form."""
    if isinstance(value, Choice) and value.plugin:
        yield value.plugin
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for name, child in field_values(value).items():
            texts = [child] if isinstance(child, str) else child if isinstance(child, list) else []
            words = re.findall(r"\w+", " ".join(map(str, texts))) if name in SLOTS else []
            yield from (c.plugin for word in words if (c := choices(name).get(word)) and c.plugin)
            yield from plugins_of(child)
    elif isinstance(value, list | tuple):
        for child in value:
            yield from plugins_of(child)


def dump_yaml(value: object) -> str:
    return yaml.safe_dump(to_plain(value), sort_keys=False, allow_unicode=True, width=110)


def changed_keys(old: object, new: object, path: str = "") -> Iterator[tuple[str, object, object]]:
    """(key, old, new) of every key in which two plain trees differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(k for k in new if k not in old)]:
            yield from changed_keys(old.get(key), new.get(key), join_key(path, key))
    elif old != new:
        yield path, old, new


def describe_changes(old: object, new: object, path: str = "") -> Iterator[str]:
    """`key: old → new` of every key in which two plain trees differ."""
    return (f"{key}: {before} → {after}" for key, before, after in changed_keys(old, new, path))
