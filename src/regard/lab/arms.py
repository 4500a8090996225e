"""Arms of a comparison: the same recipe with other keys, from `--vary`, or from a file. Trains nothing."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from regard import config
from regard.config import nearest
from regard.errors import RegardError
from regard.recipe import Recipe, load_recipe

OWN_KEYS = ("seed", "training.init")  # set by the comparison itself
MAX_ARMS = 100


@dataclass(frozen=True)
class Arm:
    """A name, and the overrides of the base recipe, as `model.position=rotary`."""

    name: str
    overrides: tuple[str, ...]

    @property
    def folder(self) -> str:
        return re.sub(r"[^\w.=-]+", "-", self.name).strip("-")[:80] or "arm"


def grid(choices: Sequence[str]) -> list[Arm]:
    """Every combination of `key=[a, b]`; the first is what the others are compared with."""
    keys = [_values(text) for text in choices]
    if twice := [key for n, (key, _) in enumerate(keys) if key in [other for other, _ in keys[:n]]]:
        raise RegardError(f"--vary {twice[0]} is given twice; write all its values in one list")
    arms = []
    for row in itertools.product(*(values for _, values in keys)):
        chosen = [(key, flow_text(value)) for (key, _), value in zip(keys, row, strict=True)]
        short = [text if len(keys) == 1 else f"{key.rpartition('.')[2]}={text}" for key, text in chosen]
        arms.append(Arm(" ".join(short), tuple(f"{key}={text}" for key, text in chosen)))
    return arms


def read_arms(path: Path) -> list[Arm]:
    """A YAML file of arms: each a name, and keys with their values, dotted or nested."""
    root = config.read_yaml(path)
    if not isinstance(root.value, dict):
        raise RegardError(f"{path}: must be a mapping of names of arms to their keys")
    arms = []
    for name, node in root.value.items():
        plain = node.plain()
        if plain is not None and not isinstance(plain, dict):
            raise RegardError(f"{node.where}: the arm {name} must be a mapping of keys, such as model.layers: 4")
        arms.append(Arm(name, tuple(f"{key}={flow_text(value)}" for key, value in _dotted(plain or {}))))
    return arms


def check_arms(base: str, arms: Sequence[Arm], common: Sequence[str]) -> list[Recipe]:
    """The recipe of every arm; RegardError for an unknown key, for too few arms, and for two that are the same."""
    if len(arms) < 2:
        raise RegardError("a comparison needs at least two arms; write --vary key='[one, other]', or --arms FILE")
    if len(arms) > MAX_ARMS:
        raise RegardError(f"{len(arms)} arms are more than {MAX_ARMS}; vary fewer keys, or search with --sweep")
    recipes = [load_recipe(base, [*common, *arm.overrides]) for arm in arms]
    for arm in arms:
        for key, value in (text.split("=", 1) for text in arm.overrides):
            if key in OWN_KEYS and not (key == "training.init" and ("{seed}" in value or value == "null")):
                raise RegardError(f"the arm {arm.name} sets {key}, which the comparison sets itself; leave it out")
    for n, recipe in enumerate(recipes):
        for m in range(n):
            if recipes[m] == recipe:
                raise RegardError(
                    f"the arms {arms[m].name} and {arms[n].name} are the same recipe, so there is nothing to compare"
                )
            if arms[m].folder == arms[n].folder:
                raise RegardError(f"two arms have the name {arms[n].name!r}; give each its own")
    return recipes


def check_metric(recipes: Sequence[Recipe], name: str | None) -> tuple[str, bool]:
    """The metric of a comparison, and whether more of it is better; by default the loss of the validation data."""
    first = recipes[0]
    if kinds := {recipe.task.kind for recipe in recipes} - {first.task.kind}:
        raise RegardError(
            f"the arms have the tasks {first.task.kind} and {', '.join(kinds)}, which no metric can compare"
        )
    if not all(recipe.data.valid for recipe in recipes):
        raise RegardError("the recipe names no data.valid, on which arms are compared; name a held-out corpus")
    known = {**first.task.metrics, **{m.kind: m.higher_is_better for m in first.evaluation.metrics}}
    chosen = name or ("loss" if "loss" in known else first.training.goal)
    if chosen not in known:
        raise RegardError(
            f"--metric {chosen}: the task {first.task.kind} has not that metric; {nearest(chosen, known)}"
        )
    if chosen in ("loss", "perplexity") and any(recipe.text != first.text for recipe in recipes):
        others = [m for m in known if m not in ("loss", "perplexity")]
        raise RegardError(
            f"the arms have different vocabularies, so {chosen} per token does not compare them; "
            f"choose --metric {' or '.join(others) if others else 'of text'}"
        )
    return chosen, known[chosen]


def _values(text: str) -> tuple[str, list[object]]:
    key, equals, value = text.partition("=")
    where = f"--vary {text}"
    if not equals or not key.strip():
        raise RegardError(f"{where}: write key='[one, other]'")
    parsed = config.parse_yaml(value or "''", where).plain()
    if not isinstance(parsed, list) or len(parsed) < 2:
        raise RegardError(f"{where}: give a list of at least two values, as {key}='[one, other]'")
    return key.strip(), parsed


def flow_text(value: object) -> str:
    """A value as YAML of one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...").strip()


def _dotted(mapping: Mapping[str, object], path: str = "") -> list[tuple[str, object]]:
    """Nested mappings as dotted keys; a mapping with its `kind` is one value."""
    found: list[tuple[str, object]] = []
    for key, value in mapping.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(value, dict) and value and "kind" not in value:
            found += _dotted(value, name)
        else:
            found.append((name, value))
    return found
