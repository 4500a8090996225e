"""What another library can express of a model's choices: a table of what it has, and every reason why not."""

from collections.abc import Iterable, Mapping
from typing import Any

from regard.config import to_plain
from regard.errors import RegardError


def kinds(value: Any) -> list[str]:
    """The names of a choice; of each, where a list is tiled over the layers."""
    if isinstance(value, list):
        return [name for item in value for name in kinds(item)]
    return ["none" if value is None else str(value["kind"] if isinstance(value, dict) else value)]


def chosen(model: Any, path: str) -> list[str]:
    """What a config chose at a dotted path, by name."""
    value = to_plain(model)
    for key in path.split("."):
        value = value[key]
    return kinds(value)


def reasons(model: Any, allowed: Mapping[str, Iterable[str]], who: str) -> list[str]:
    """Why `who` cannot express a model: each choice that is not among those it has."""
    found: list[str] = []
    for path, known in allowed.items():
        if found and path.partition(".")[0] not in to_plain(model):  # another kind of model has other keys
            break
        for name in dict.fromkeys(chosen(model, path)):
            if name not in known:
                found.append(f"model.{path} is {name}, where {who} has {' or '.join(known)}")
    return found


def refuse(found: list[str], origin: object, who: str) -> None:
    if found:
        raise RegardError(f"{origin}: {who} cannot express this model: {'; '.join(found)}")
