"""Config trees: YAML as Nodes that know their file and line, changed by dotted overrides. Knows no config class."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from regard.errors import RegardError
from regard.io.files import os_errors_for, read_text

MAX_YAML = 1 << 18  # bytes; a recipe has some 5,000, and each 100,000 take a second
MAX_DEPTH = 40
COMMAND_LINE = "command line"  # the location of a value that an override set


@dataclass
class Node:
    """A YAML value with its location, `FILE, line N`. `value` is a dict or list of Nodes, or a scalar."""

    value: Any
    where: str
    raw: str = ""  # a scalar as it was written: `no` is a language, not False, where text is expected

    def plain(self) -> Any:
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value


ROLES = ("encoder", "decoder", "cross")  # for which a section may be given apart; beside them, a key is for all


def to_node(value: object, where: str) -> Node:
    if isinstance(value, Node):
        return value
    if isinstance(value, dict):
        return Node({str(key): to_node(child, where) for key, child in value.items()}, where)
    if isinstance(value, list | tuple):
        return Node([to_node(child, where) for child in value], where)
    return Node(value, where, raw="" if value is None else str(value))


def read_yaml(path: str | Path) -> Node:
    """The tree of a YAML file."""
    with os_errors_for(path):
        if not Path(path).exists():
            raise RegardError(f"{path}: there is no such file")
    return parse_yaml(read_text(path, "utf-8-sig", MAX_YAML), str(path))


class _Loader(yaml.SafeLoader):
    """YAML without aliases, by which a short text can stand for a huge one, and of bounded depth."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise yaml.MarkedYAMLError(
                problem="an alias, which is not read; write out what it stands for",
                problem_mark=event.start_mark,  # type: ignore[arg-type]
            )
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem="nested too deeply", problem_mark=event.start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def parse_yaml(text: str, name: str) -> Node:
    try:
        root = yaml.compose(text, Loader=_Loader)
        if root is None:
            raise RegardError(f"{name}: the file is empty")
        return _from_yaml(root, name)
    except yaml.YAMLError as error:
        marked = error if isinstance(error, yaml.MarkedYAMLError) else None
        line = f", line {marked.problem_mark.line + 1}" if marked and marked.problem_mark else ""
        raise RegardError(f"{name}{line}: not valid YAML ({str(marked.problem if marked else error)[:80]})") from None
    except RecursionError:
        raise RegardError(f"{name}: not valid YAML (nested too deeply)") from None


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
                raise RegardError(f"{name}, line {key.start_mark.line + 1}: {key.value[:40]} is given twice")
            children[key.value] = _from_yaml(value, name)
            children[key.value].where = f"{name}, line {key.start_mark.line + 1}"
        return Node(children, where)
    if isinstance(node, yaml.SequenceNode):
        return Node([_from_yaml(child, name) for child in node.value], where)
    try:
        value = yaml.SafeLoader("").construct_object(node, deep=True)
    except (ValueError, LookupError, AttributeError, TypeError, OverflowError):  # looks like a date, and is none
        value = node.value
    return Node(value, where, raw=node.value)


def apply_overrides(root: Node, assignments: Sequence[str]) -> Node:
    """Set `model.layers=4` and the like on the tree, in order."""
    for text in assignments:
        path, equals, value = text.partition("=")
        where = f"{COMMAND_LINE}, {text}"
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
            _drop_file_keys(keys)
        _override_roles(keys, last)
        keys[last] = _scalar(value, where)
    return root


def _override_roles(keys: dict[str, Node], name: str) -> None:
    """A key given for all roles wins over those of the file for each, which a run's complete config always has."""
    for role in ROLES:
        child = keys.get(role)
        if child is None or child.where.startswith(COMMAND_LINE):
            continue
        if name == "kind":
            del keys[role]
        elif isinstance(child.value, dict) and not child.value.get(name, child).where.startswith(COMMAND_LINE):
            child.value.pop(name, None)


def _drop_file_keys(keys: dict[str, Node]) -> None:
    """Another kind has other keys: those of the file are dropped, those of the command line stay."""
    for key in [key for key, child in keys.items() if not child.where.startswith(COMMAND_LINE)]:
        del keys[key]


def _scalar(value: str, where: str) -> Node:
    if not value.strip():
        return Node("", where)
    try:
        node = yaml.compose(value, Loader=_Loader)
    except yaml.YAMLError:
        raise RegardError(f"{where}: the value is not valid YAML") from None
    return _relocate(_from_yaml(node, ""), where) if node is not None else Node(None, where)


def _relocate(node: Node, where: str) -> Node:
    for part in (node, *descendants(node)):
        part.where = where
    return node


def _as_mapping(node: Node) -> dict[str, Node]:
    if not isinstance(node.value, dict):  # `position: rotary` is short for `position: {kind: rotary}`
        kind = node.value
        node.value = {} if kind is None else {"kind": Node(kind, node.where, node.raw)}
    return node.value


def _index(node: Node, key: str, where: str) -> int:
    if not key.isdigit() or int(key) >= len(node.value):
        raise RegardError(f"{where}: {key} is not an index of a list of {len(node.value)}")
    return int(key)


def _descend(node: Node, key: str, where: str) -> Node:
    if isinstance(node.value, list):
        return node.value[_index(node, key, where)]
    return _as_mapping(node).setdefault(key, Node(None, where))


def rename_keys(root: Node, table: Mapping[str, str]) -> list[str]:
    """Move the values of old keys to their new ones (dotted, old → new), in place; a sentence for each."""
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


def rename_override(text: str, table: Mapping[str, str]) -> str:
    """`old.key=value` as `new.key=value`."""
    path, equals, value = text.partition("=")
    for old, new in table.items():
        if f"{path.strip()}.".startswith(f"{old}."):
            return f"{new}{path.strip()[len(old) :]}{equals}{value}"
    return text


def with_defaults(mapping: object, defaults: object) -> Any:
    """A plain tree with defaults for the keys it lacks; a section of another `kind` takes none of them."""
    if not isinstance(mapping, dict) or not isinstance(defaults, dict):
        return mapping
    if "kind" in defaults and mapping.get("kind", defaults["kind"]) != defaults["kind"]:
        return mapping
    kept = {key: with_defaults(value, defaults[key]) if key in defaults else value for key, value in mapping.items()}
    return kept | {key: value for key, value in defaults.items() if key not in mapping}


def fill_missing(node: Node, defaults: Mapping[str, object], where: str) -> None:
    """Give a mapping defaults for the keys it lacks, at any depth, in place.

    A section of another `kind`, and one in a short form (it has keys that the defaults do not have), takes none.
    """
    keys = _as_mapping(node)
    if any(key not in defaults for key in keys) or ("kind" in keys and keys["kind"].value != defaults["kind"]):
        return
    for key, value in defaults.items():
        if key not in keys:
            keys[key] = to_node(value, where)
        elif isinstance(value, dict) and isinstance(keys[key].value, dict):
            fill_missing(keys[key], value, where)


def find_key(node: Node, key: str) -> Node | None:
    """The node at `key.subkey`, or at the longest prefix of it that exists, if any."""
    nearest = None
    for part in key.split("."):
        if not isinstance(node.value, dict) or part not in node.value:
            break
        nearest = node = node.value[part]
    return nearest


def descendants(node: Node) -> Iterator[Node]:
    if isinstance(node.value, dict | list):
        for child in node.value.values() if isinstance(node.value, dict) else node.value:
            yield child
            yield from descendants(child)
