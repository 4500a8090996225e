"""Configs of other libraries against ours: names of activations, and refusals that list everything at once.

Where another library's config says all of a model, it is written and read again, and must come back as it went; else a
table says which of our choices the library supports.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor

from regard.config import Choice, to_plain
from regard.errors import RegardError
from regard.io.files import shown

HFConfig = Mapping[str, Any]  # the mapping of a config.json
ACTIVATIONS = {  # Hugging Face's names; the first of ours that is listed is written
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "silu": "swish",
    "swish": "swish",
}
# not of weights, and heads that only our own blockwise search uses
TRAINING_KEYS = ("preset", "init", "embedding_dropout", "word_dropout", "output_dropout", "dropped", "proposals")


def activation_from_hf(name: str, origin: object) -> str:
    if name not in ACTIVATIONS:
        raise RegardError(f"{origin}: the activation {shown(name)} is not one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def activation_to_hf(name: str) -> str | None:
    """None where Hugging Face has no such activation."""
    return next((theirs for theirs, ours in ACTIVATIONS.items() if ours == name), None)


def check_fixed(hf_config: HFConfig, fixed: Mapping[str, object], origin: object) -> None:
    """Refuse a config in which any of these keys is there and has another value."""
    wrong = [
        f"{key} is {shown(hf_config[key])}, not {value}"
        for key, value in fixed.items()
        if hf_config.get(key, value) != value
    ]
    if wrong:
        raise RegardError(f"{origin}: this kind of model cannot be read ({'; '.join(wrong)})")


def config_differences(config: object, other: object, ignored: tuple[str, ...] = (), path: str = "") -> list[str]:
    """The keys in which two configs differ, and the value of the first."""
    if type(config) is not type(other) or not is_dataclass(config):
        return [] if config == other else [f"{path} is {config.kind if isinstance(config, Choice) else config}"]
    differences = []
    for f in fields(config):
        if f.name not in ignored:
            below = f"{path}.{f.name}" if path else f.name
            differences += config_differences(getattr(config, f.name), getattr(other, f.name), (), below)
    return differences


def check_round_trip(config: object, restored: object, family: str) -> None:
    """Refuse to write a model that the other library's config cannot express: it must come back as it went."""
    lost = config_differences(config, restored, TRAINING_KEYS)
    if lost:
        raise RegardError(f"the model cannot be written as {family}: it has no way to say that {', '.join(lost)}")


def without_proposals(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a model without its proposal heads."""
    return {name: value for name, value in weights.items() if not name.startswith("proposals.")}


# --- by a table -----------------------------------------------------------------------------------------------------


def unsupported_choices(model: object, supported: Mapping[str, Iterable[str]], library: str) -> list[str]:
    """Why a library cannot express a model: each choice, at a dotted path, that is not among those it supports."""
    reasons: list[str] = []
    plain = to_plain(model)
    for path, names in supported.items():
        value = plain
        for key in path.split("."):
            if reasons and key not in value:  # another kind of model has other keys
                return reasons
            value = value[key]
        for name in dict.fromkeys(_kinds(value)):
            if name not in names:
                reasons.append(f"model.{path} is {name}, where {library} has {' or '.join(names)}")
    return reasons


def _kinds(value: object) -> list[str]:
    """The names of a choice; of each, where a list is tiled over the layers."""
    if isinstance(value, list):
        return [name for item in value for name in _kinds(item)]
    return ["none" if value is None else str(value["kind"] if isinstance(value, dict) else value)]


def refuse_unsupported(reasons: list[str], origin: object, library: str) -> None:
    if reasons:
        raise RegardError(f"{origin}: {library} cannot express this model: {'; '.join(reasons)}")
