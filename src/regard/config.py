"""Strict typed configuration: YAML and dotted overrides become nested dataclasses, and back.

Every mistake is one sentence that names the file, the line, the key and the nearest valid key. This module knows
no component: a config class is any dataclass, a choice is a union of dataclasses told apart by their `kind`.
"""

import contextlib
import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import yaml

from regard.errors import RegardError, telling, text_of

T = TypeVar("T")
CLI = "command line"  # where a value stands that was given there
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
    """A frozen dataclass that is one choice of several: its number among them, what it computes, and whose it is."""

    def made(cls: Any) -> Any:
        cls.id, cls.formula, cls.paper = id, formula, paper
        return dataclass(frozen=True)(cls)

    return made


def at_least(config: object, least: int, *names: str) -> None:
    """Raise ValueError where one of these is less; one that is none is left to its default."""
    for name in names:
        if (value := getattr(config, name)) is not None and value < least:
            raise ValueError(f"{name} must be at least {least}, not {value}")


def below_one(config: object, *names: str) -> None:
    """Raise ValueError where one of these is no share of something that is left."""
    for name in names:
        if not 0 <= (getattr(config, name) or 0.0) < 1:
            raise ValueError(f"{name} must be in [0, 1), not {getattr(config, name)}")


@dataclass
class Node:
    """A YAML value that remembers where it stood. `value` is a dict or list of Nodes, or a scalar."""

    value: Any
    where: str
    raw: str = ""  # a scalar as it was written: `no` is a language, not False, where text is expected

    def plain(self) -> Any:
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value


def wrap(value: Any, where: str) -> Node:
    if isinstance(value, Node):
        return value
    if isinstance(value, dict):
        return Node({str(key): wrap(child, where) for key, child in value.items()}, where)
    if isinstance(value, list | tuple):
        return Node([wrap(child, where) for child in value], where)
    return Node(value, where, raw="" if value is None else str(value))


# --- reading -----------------------------------------------------------------------------------------------------


def read(path: str | Path) -> Node:
    """The YAML file as Nodes, with the line of each."""
    with telling(path):
        if not Path(path).exists():
            raise RegardError(f"{path}: there is no such file")
    return read_text(text_of(path, "utf-8-sig"), str(path))


def read_text(text: str, name: str) -> Node:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is None:
            raise RegardError(f"{name}: the file is empty")
        return _from_yaml(root, name)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise RegardError(f"{name}{line}: not valid YAML ({getattr(error, 'problem', error)})") from None
    except RecursionError:
        raise RegardError(f"{name}: a YAML alias contains itself") from None


def _from_yaml(node: yaml.Node, name: str) -> Node:
    where = f"{name}, line {node.start_mark.line + 1}"
    if isinstance(node, yaml.MappingNode):
        children: dict[str, Node] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise RegardError(
                    f"{name}, line {key.start_mark.line + 1}: a key must be a word, not a list or mapping"
                )
            if key.value in children:
                raise RegardError(f"{name}, line {key.start_mark.line + 1}: {key.value} is given twice")
            children[key.value] = _from_yaml(value, name)
            children[key.value].where = f"{name}, line {key.start_mark.line + 1}"
        return Node(children, where)
    if isinstance(node, yaml.SequenceNode):
        return Node([_from_yaml(child, name) for child in node.value], where)
    try:
        value = yaml.SafeLoader("").construct_object(node, deep=True)
    except ValueError:  # looks like a date, and is none
        value = node.value
    return Node(value, where, raw=node.value)


def override(root: Node, assignments: typing.Sequence[str]) -> Node:
    """Set `model.layers=4` and the like on the tree, in order."""
    for text in assignments:
        path, equals, value = text.partition("=")
        where = f"{CLI}, {text}"
        if not equals or not path.strip():
            raise RegardError(f"{where}: write key.subkey=value")
        node = root
        *parents, last = path.strip().split(".")
        for key in parents:
            node = _descend(node, key, where)
        if isinstance(node.value, list):
            node.value[_index(node, last, where)] = _scalar(value, where)
            continue
        keys = _as_mapping(node)
        if last == "kind" and "kind" in keys and keys["kind"].raw != value.strip():
            _begin_anew(keys)
        keys[last] = _scalar(value, where)
    return root


def rename(root: Node, table: typing.Mapping[str, str]) -> list[str]:
    """Put what stands under old keys under their new ones (dotted, old → new); a sentence for each."""
    sentences = []
    for old, new in table.items():
        if (child := _removed(root, old.split("."))) is None:
            continue
        *parents, last = new.split(".")
        node = root
        for key in parents:
            node = _descend(node, key, child.where)
        if last in _as_mapping(node):
            raise RegardError(f"{child.where}: {old} is called {new} now, which is given too; leave {old} out")
        node.value[last] = child
        sentences.append(f"{child.where}: {old} is called {new} now")
    return sentences


def _removed(node: Node, path: list[str]) -> Node | None:
    for key in path[:-1]:
        if not isinstance(node.value, dict) or key not in node.value:
            return None
        node = node.value[key]
    return node.value.pop(path[-1], None) if isinstance(node.value, dict) else None


def rename_assignment(text: str, table: typing.Mapping[str, str]) -> str:
    """`old.key=value` as `new.key=value`."""
    path, equals, value = text.partition("=")
    for old, new in table.items():
        if f"{path.strip()}.".startswith(f"{old}."):
            return f"{new}{path.strip()[len(old) :]}{equals}{value}"
    return text


def _begin_anew(keys: dict[str, Node]) -> None:
    """Another kind has other keys: what the file said about the old one goes, what the command line says stays."""
    for key in [key for key, child in keys.items() if not child.where.startswith(CLI)]:
        del keys[key]


def _scalar(value: str, where: str) -> Node:
    if not value.strip():
        return Node("", where)
    try:
        node = yaml.compose(value, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        raise RegardError(f"{where}: the value is not valid YAML") from None
    return _relocate(_from_yaml(node, ""), where) if node is not None else Node(None, where)


def _relocate(node: Node, where: str) -> Node:
    for part in (node, *_below(node)):
        part.where = where
    return node


def _as_mapping(node: Node) -> dict[str, Node]:
    if not isinstance(node.value, dict):  # `position: rotary` is short for `position: {kind: rotary}`
        short = node.value
        node.value = {} if short is None else {"kind": Node(short, node.where, node.raw)}
    return node.value


def _index(node: Node, key: str, where: str) -> int:
    if not key.isdigit() or int(key) >= len(node.value):
        raise RegardError(f"{where}: {key} is not an index of a list of {len(node.value)}")
    return int(key)


def _descend(node: Node, key: str, where: str) -> Node:
    if isinstance(node.value, list):
        return node.value[_index(node, key, where)]
    return _as_mapping(node).setdefault(key, Node(None, where))


# --- parsing -----------------------------------------------------------------------------------------------------


def parse(cls: type[T], node: Node | dict[str, Any], path: str = "") -> T:
    """The Node as an instance of the dataclass `cls`; strict about keys, types and impossible values."""
    return _dataclass(cls, wrap(node, "config"), path)


def _fail(node: Node, path: str, problem: str) -> RegardError:
    return RegardError(f"{node.where}: {path or 'the recipe'} {problem}")


def nearest(word: str, known: typing.Iterable[str]) -> str:
    """`; did you mean …?`, or the list of what is known."""
    known = [str(k) for k in known]
    close = difflib.get_close_matches(str(word), known, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"


def _dataclass(cls: type[T], node: Node, path: str) -> T:
    node = _long_form(cls, node, path)
    known = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key, child in node.value.items():
        if key not in known:
            raise RegardError(f"{child.where}: {_join(path, key)} is not a known key; {nearest(key, known)}")
    hints = typing.get_type_hints(cls)
    values = {
        key: _value(hints[key], _default_kind(known[key], child), _join(path, key)) for key, child in node.value.items()
    }
    for name, field in known.items():
        if name not in values and field.default is MISSING and field.default_factory is MISSING:
            raise _fail(node, path, f"needs the key {name} ({field.metadata.get('help', 'no default')})")
    try:
        return cls(**values)
    except ValueError as error:
        raise _fail(_cause(node, str(error)), path, f"is impossible: {error}") from None


def _cause(node: Node, problem: str) -> Node:
    """The likeliest cause of an impossible section: of the keys that the problem names, the last that the command line
    changed; where it changed none of them, all that it did change; and without a command line the key named first.
    """
    first = re.split(r"[ :]", problem, maxsplit=1)[0]
    named = [found for key in (first, *re.findall(r"[a-z_]+(?:\.[a-z_0-9]+)+", problem)) if (found := _at(node, key))]
    if changed := [part for key in named for part in (key, *_below(key)) if part.where.startswith(CLI)]:
        return changed[-1]
    if every := dict.fromkeys(part.where for part in _below(node) if part.where.startswith(CLI)):
        return Node(None, f"{CLI}, {' '.join(where.removeprefix(f'{CLI}, ') for where in every)}")
    return named[0] if named else node


def _at(node: Node, key: str) -> Node | None:
    """What stands at `key.subkey`, or at the part of it that is there; none where not even its beginning is."""
    found = None
    for part in key.split("."):
        if not isinstance(node.value, dict) or part not in node.value:
            break
        found = node = node.value[part]
    return found


def _below(node: Node) -> Iterator[Node]:
    if isinstance(node.value, dict | list):
        for child in node.value.values() if isinstance(node.value, dict) else node.value:
            yield child
            yield from _below(child)


def _default_kind(field: dataclasses.Field, node: Node) -> Node:
    """`schedule: {warmup: 30}` without a kind means the kind that the field has by default."""
    factory = field.default_factory
    if not isinstance(node.value, dict) or "kind" in node.value or factory is MISSING:
        return node
    kind = _kind(factory) if isinstance(factory, type) and dataclasses.is_dataclass(factory) else None
    return Node({"kind": wrap(kind, node.where), **node.value}, node.where) if kind else node


def _long_form(cls: type, node: Node, path: str) -> Node:
    """Undo short forms: `shorthand` for a scalar or list, `expand` for a mapping, `preset` for named defaults."""
    if isinstance(node.value, str) and _kind(cls) and not hasattr(cls, "shorthand"):
        node = Node({"kind": Node(node.value, node.where, node.raw)}, node.where)
    if not isinstance(node.value, dict):
        if not hasattr(cls, "shorthand") or node.value is None:
            raise _fail(node, path, f"must be a mapping of keys, not {_show(node)}")
        try:
            node = wrap(cls.shorthand(node.plain()), node.where)
        except ValueError as error:
            raise _fail(node, path, str(error)) from None
    if hasattr(cls, "expand"):
        plain = node.plain()
        try:
            expanded = cls.expand(dict(plain))
        except ValueError as error:
            raise _fail(node, path, str(error)) from None
        node = _rewritten(node, plain, expanded)
    presets: dict[str, dict[str, Any]] = getattr(cls, "presets", {})
    if presets and (chosen := node.value.get("preset")) is not None and chosen.value is not None:
        if chosen.value not in presets:
            raise _fail(chosen, _join(path, "preset"), f"is {chosen.raw!r}; {nearest(chosen.raw, presets)}")
        defaults = {k: wrap(v, chosen.where) for k, v in presets[chosen.value].items()}
        node = Node({**defaults, **node.value}, node.where)
    return node


def _rewritten(node: Node, old: Any, new: Any) -> Node:
    """A node whose plain value has changed; what is the same in it keeps its line, however deep."""
    if old == new:
        return node
    if not isinstance(old, dict) or not isinstance(new, dict):
        return wrap(new, node.where)
    known = {k: _rewritten(node.value[k], old[k], v) for k, v in new.items() if k in old}
    return Node({k: known[k] if k in known else wrap(v, node.where) for k, v in new.items()}, node.where)


def beneath(given: Any, defaults: Any) -> Any:
    """A plain tree with the defaults of what it does not say; a section of another `kind` takes none of them."""
    if not isinstance(given, dict) or not isinstance(defaults, dict):
        return given
    if "kind" in defaults and given.get("kind", defaults["kind"]) != defaults["kind"]:
        return given
    kept = {key: beneath(value, defaults[key]) if key in defaults else value for key, value in given.items()}
    return kept | {key: value for key, value in defaults.items() if key not in given}


def complete(node: Node, defaults: dict[str, Any], where: str) -> None:
    """Give a mapping the defaults of what it does not say, however deep, in place.

    A part of another `kind`, and one in a short form (it has keys that the defaults do not have), takes none.
    """
    keys = _as_mapping(node)
    if any(key not in defaults for key in keys) or ("kind" in keys and keys["kind"].value != defaults["kind"]):
        return
    for key, value in defaults.items():
        if key not in keys:
            keys[key] = wrap(value, where)
        elif isinstance(value, dict) and isinstance(keys[key].value, dict):
            complete(keys[key], value, where)


def kinds(union: Any) -> tuple[Any, ...]:
    """The classes of a choice, be it a union or a single one."""
    return get_args(union) or (union,)


def _value(hint: Any, node: Node, path: str) -> Any:
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
        return {k: _value(args[1] if args else Any, child, _join(path, k)) for k, child in node.value.items()}
    if dataclasses.is_dataclass(hint):
        return _dataclass(hint, node, path)  # type: ignore[arg-type]
    if hint is Any:
        return node.plain()
    return _number_or_text(hint, node, path)


def _number_or_text(hint: Any, node: Node, path: str) -> Any:
    value = node.value
    if hint is str and not isinstance(value, dict | list) and value is not None:
        return node.raw
    if hint is float and not isinstance(value, bool):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            return float(value)  # YAML reads 1e-9 as text
    if hint is int and isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = float(value)
    if hint is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is hint:
        return value
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    raise _fail(node, path, f"must be {names.get(hint, hint)}, not {_show(node)}")


def _union(args: tuple[Any, ...], node: Node, path: str) -> Any:
    if node.value is None and type(None) in args:
        return None
    args = tuple(a for a in args if a is not type(None))
    kinds = {_kind(a): a for a in args if dataclasses.is_dataclass(a)}
    if len(kinds) > 1 or (kinds and None not in kinds):
        if isinstance(node.value, str) and not any(a is str for a in args):
            node = Node({"kind": Node(node.value, node.where, node.raw)}, node.where)
        if isinstance(node.value, dict):
            return _choose(kinds, node, path)
    problem: RegardError | None = None
    for arg in args:
        if isinstance(node.value, list) != (get_origin(arg) in (list, tuple)) and len(args) > 1:
            continue
        try:
            return _value(arg, node, path)
        except RegardError as error:
            problem = problem or error
    raise problem or _fail(node, path, f"cannot be {_show(node)}")


def _choose(kinds: dict[str | None, Any], node: Node, path: str) -> Any:
    names = [k for k in kinds if k]
    chosen = node.value.get("kind")
    if chosen is None:
        raise _fail(node, path, f"needs a kind; known: {', '.join(names)}")
    if chosen.value not in kinds:
        raise _fail(chosen, _join(path, "kind"), f"is {chosen.raw!r}; {nearest(chosen.raw, names)}")
    return _dataclass(kinds[chosen.value], node, path)


def _kind(cls: Any) -> str | None:
    hint = typing.get_type_hints(cls).get("kind")
    return get_args(hint)[0] if get_origin(hint) is Literal else None


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _show(node: Node) -> str:
    if isinstance(node.value, dict):
        return "a mapping"
    if isinstance(node.value, list):
        return "a list"
    return "empty" if node.value is None else repr(node.raw or node.value)


# --- writing -----------------------------------------------------------------------------------------------------


def to_plain(value: Any) -> Any:
    """A config instance as dicts, lists and scalars: what `parse` reads back to an equal instance."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, list | tuple):
        return [to_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: to_plain(v) for k, v in value.items()}
    return value


def dump(value: Any) -> str:
    return yaml.safe_dump(to_plain(value), sort_keys=False, allow_unicode=True, width=110)


def changes(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(key, old, new) of every place where two plain trees differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(k for k in new if k not in old)]:
            yield from changes(old.get(key), new.get(key), _join(path, key))
    elif old != new:
        yield path, old, new


def differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """`key: old → new` for every place where two plain trees differ."""
    return (f"{key}: {before} → {after}" for key, before, after in changes(old, new, path))


def describe(cls: Any, path: str = "", known: set[Any] | None = None) -> Iterator[tuple[str, str, str, str]]:
    """(key, type, default, help) of every field, choices included; a class that comes again is told once."""
    known = set() if known is None else known
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        name, hint = _join(path, field.name), hints[field.name]
        members = [a for a in (get_args(hint) or (hint,)) for a in (get_args(a) or (a,))]
        classes = [a for a in members if dataclasses.is_dataclass(a)]
        if field.default is not MISSING:
            shown = str(field.default)
        elif field.default_factory is not MISSING:
            made = field.default_factory()
            shown = str(getattr(made, "kind", "")) if dataclasses.is_dataclass(made) else str(made)
        else:
            shown = "required"
        kinds = [k for c in classes if (k := _kind(c))]
        yield name, " | ".join(kinds) or _type_name(hint), shown, field.metadata.get("help", "")
        for c in [c for c in classes if c not in known]:
            known.add(c)
            label = f"{name}({_kind(c)})" if len(kinds) > 1 else name
            yield from (row for row in describe(c, label, known) if not row[0].endswith(".kind"))


def _type_name(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " | ".join(str(a) for a in get_args(hint))
    if dataclasses.is_dataclass(hint):
        return "section"
    text = (
        re.sub(r"[\w.]+\.(\w+)", lambda found: found[1].lower(), str(hint))
        if not isinstance(hint, type)
        else hint.__name__
    )
    return text.replace("None", "none")
