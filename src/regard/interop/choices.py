"""Configs of other libraries against ours: the words they share, and refusals that say everything at once.

Where their config says all of a model, it is written and read again, and must come back as it went; else a table says
which of our choices they have.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from regard.config import to_plain
from regard.errors import RegardError

ACTIVATIONS = {  # their names; the first of ours that is listed is written
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "silu": "swish",
    "swish": "swish",
}
LEARNING = ("preset", "init", "embedding_dropout", "word_dropout", "output_dropout", "dropped")  # weights are there


def activation_here(name: str, origin: object) -> Any:
    if name not in ACTIVATIONS:
        raise RegardError(f"{origin}: the activation {name} is not one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def activation_there(name: str) -> str | None:
    """None where they have no such activation."""
    return next((theirs for theirs, ours in ACTIVATIONS.items() if ours == name), None)


def demand(theirs: Mapping[str, Any], wanted: Mapping[str, Any], origin: object) -> None:
    """Refuse a config of theirs in which any of these keys is there and says something else."""
    wrong = [f"{key} is {theirs[key]}, not {value}" for key, value in wanted.items() if theirs.get(key, value) != value]
    if wrong:
        raise RegardError(f"{origin}: this kind of model cannot be read ({'; '.join(wrong)})")


def differences(ours: Any, other: Any, ignored: tuple[str, ...] = (), path: str = "") -> list[str]:
    """The keys in which two configs differ, and what the first says."""
    if type(ours) is not type(other) or not is_dataclass(ours):
        return [] if ours == other else [f"{path} is {getattr(ours, 'kind', ours)}"]
    found = []
    for f in fields(ours):
        if f.name not in ignored:
            below = f"{path}.{f.name}" if path else f.name
            found += differences(getattr(ours, f.name), getattr(other, f.name), (), below)
    return found


def refuse_what_is_lost(ours: Any, returned: Any, family: str) -> None:
    """Refuse to write a model of which their form cannot say everything: it must come back as it went."""
    lost = differences(ours, returned, LEARNING)
    if lost:
        raise RegardError(f"the model cannot be written as {family}: it has no way to say that {', '.join(lost)}")


# --- by a table -----------------------------------------------------------------------------------------------------


def reasons(model: Any, allowed: Mapping[str, Iterable[str]], who: str) -> list[str]:
    """Why `who` cannot express a model: each choice, at a dotted path, that is not among those it has."""
    found: list[str] = []
    plain = to_plain(model)
    for path, known in allowed.items():
        if found and path.partition(".")[0] not in plain:  # another kind of model has other keys
            break
        value = plain
        for key in path.split("."):
            value = value[key]
        for name in dict.fromkeys(_kinds(value)):
            if name not in known:
                found.append(f"model.{path} is {name}, where {who} has {' or '.join(known)}")
    return found


def _kinds(value: Any) -> list[str]:
    """The names of a choice; of each, where a list is tiled over the layers."""
    if isinstance(value, list):
        return [name for item in value for name in _kinds(item)]
    return ["none" if value is None else str(value["kind"] if isinstance(value, dict) else value)]


def refuse(found: list[str], origin: object, who: str) -> None:
    if found:
        raise RegardError(f"{origin}: {who} cannot express this model: {'; '.join(found)}")
