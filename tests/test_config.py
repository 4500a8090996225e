"""Strictness and round trips of the config, on small classes of its own and on the whole recipe."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import config, recipe
from regard.config import Choice, choice, option
from regard.config import parse as parse_module
from regard.errors import RegardError


class Temperature(Choice, slot="temperature"):
    pass


@choice("warm")
class Warm(Temperature):
    steps: int = 10


@choice("cold")
class Cold(Temperature):
    rate: float = 0.5


@dataclass(frozen=True)
class Inner:
    presets: ClassVar = {"wide": {"size": 99}}
    preset: str | None = None
    size: int = 4
    name: str = "x"
    flag: bool = False

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("size must not be negative")


@dataclass(frozen=True)
class Root:
    inner: Inner = option(Inner)
    choice: Temperature = option(Warm)
    many: list[Cold] = option([])
    mode: Literal["a", "b"] = "a"
    maybe: int | None = None


def parse(text: str, *overrides: str) -> Root:
    return config.parse_config(Root, config.apply_overrides(config.parse_yaml(text, "r.yaml"), overrides))


def test_values_choices_presets_and_overrides() -> None:
    root = parse(
        "inner: {preset: wide, name: no}\nchoice: cold\nmany: {rate: 1e-3}\n", "inner.flag=true", "choice.rate=2"
    )
    assert root == Root(Inner("wide", 99, "no", True), Cold(rate=2.0), [Cold(rate=0.001)])


def test_a_missing_kind_is_the_default_one() -> None:
    assert parse("choice: {steps: 3}").choice == Warm(steps=3)
    assert parse("mode: a", "choice.steps=4").choice == Warm(steps=4)


def test_given_key_wins_over_preset() -> None:
    assert parse("inner: {preset: wide, size: 3}").inner.size == 3


@pytest.mark.parametrize(
    "text, parts",
    [
        ("inner:\n  siez: 3\n", ["r.yaml, line 2", "inner.siez", "did you mean size?"]),
        ("mode: a\ninner:\n  size: many\n", ["r.yaml, line 3", "inner.size", "whole number", "'many'"]),
        ("inner: {flag: 1}", ["line 1", "inner.flag", "true or false"]),
        ("choice: worm", ["line 1", "choice.kind", "did you mean warm?"]),
        ("choice: {rate: 1}", ["line 1", "choice.rate", "known: kind, steps"]),
        ("mode: !!foo 1", ["r.yaml, line 1", "not valid YAML"]),
        ("? [a, b]\n: 1", ["line 1", "a key must be a word"]),
        ("inner: &a {b: *a}", ["r.yaml, line 1", "an alias, which is not read"]),
        ("maybe: 2024-99-99", ["line 1", "maybe", "whole number", "2024-99-99"]),
        ("\n\nmode: c", ["line 3", "mode", "'c'", "known: a, b"]),
        ("inner: {size: -1}", ["line 1", "inner", "must not be negative"]),
        ("inner: {preset: wode}", ["inner.preset", "did you mean wide?"]),
        ("inner: 3", ["line 1", "inner", "must be a mapping"]),
        ("mode: a\nmode: b", ["line 2", "mode is given twice"]),
        ("a: [", ["r.yaml, line 1", "not valid YAML"]),
        ("", ["r.yaml", "empty"]),
    ],
)
def test_mistakes_name_place_key_and_remedy(text: str, parts: list[str]) -> None:
    with pytest.raises(RegardError) as caught:
        parse(text)
    for part in parts:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "override, part",
    [
        ("inner.siez=3", "did you mean size?"),
        ("inner", "key.subkey=value"),
        ("many.3.rate=1", "not an index"),
        ("mode=[", "YAML"),
    ],
)
def test_mistaken_overrides_name_the_command_line(override: str, part: str) -> None:
    with pytest.raises(RegardError, match="command line") as caught:
        parse("many: []", override)
    assert part in str(caught.value)


@pytest.mark.parametrize(
    "overrides, blamed",
    [
        (["inner.size=-1", "mode=b"], "inner.size=-1"),  # it is named
        (["inner.name=y", "mode=b"], "inner.name=y mode=b"),  # what is named was not changed: one of these, or both
        ([], "r.yaml, line 1"),
    ],
)
def test_an_impossible_recipe_blames_what_the_problem_names(overrides: list[str], blamed: str) -> None:
    """A check of the whole sees keys of several sections; what was given last need not be what is wrong."""
    node = config.apply_overrides(config.parse_yaml("inner: {size: -1}\nmode: a\n", "r.yaml"), overrides)
    said = parse_module._cause(node, "inner.size must not be negative, as mode has it").where
    assert said == (blamed if blamed.startswith("r.yaml") else f"command line, {blamed}")


WHOLE = 2**63 - 1  # the largest whole number that a config takes


@given(
    st.builds(
        Root,
        st.builds(Inner, st.none(), st.integers(0, 99), st.text("no yes1e5 :#{}é中", max_size=8), st.booleans()),
        st.builds(Warm, steps=st.integers(-WHOLE, WHOLE))
        | st.builds(Cold, rate=st.floats(allow_nan=False, allow_infinity=False)),
        st.lists(st.builds(Cold, rate=st.floats(0, 1e9)), max_size=3),
        st.sampled_from(["a", "b"]),
        st.none() | st.integers(-WHOLE, WHOLE),
    )
)
def test_round_trip(root: Root) -> None:
    assert config.parse_config(Root, config.parse_yaml(config.dump_yaml(root), "saved.yaml")) == root


@pytest.mark.parametrize("path", sorted(Path("recipes").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_recipe_parses_and_round_trips(path: Path) -> None:
    loaded = recipe.load_recipe(path)
    again = config.parse_config(recipe.Recipe, config.parse_yaml(config.dump_yaml(loaded), "saved.yaml"))
    assert again == loaded


def test_there_are_recipes_to_parse() -> None:
    assert {"quickstart", "multi30k-en-de", "tatoeba-en-de"} <= set(recipe.shipped_recipes())


def test_a_recipe_that_was_replaced_is_named() -> None:
    with pytest.raises(RegardError, match=r"not shipped any more: .*use bert-cpu"):
        recipe.find_recipe("bert-tiny-wikitext2")
    assert "bert-cpu" in recipe.shipped_recipes()


def test_recipe_mistakes_that_cross_sections() -> None:
    with pytest.raises(RegardError, match="shared"):
        recipe.load_recipe({"data": {"train": ["a", "b"]}, "text": {"kind": "word", "shared": False}})
    with pytest.raises(RegardError, match="heads do not divide"):
        recipe.load_recipe({"data": {"train": ["a", "b"]}, "model": {"size": 10, "heads": 3}})


def test_flat_attention_block_means_all_three() -> None:
    loaded = recipe.load_recipe(
        {"data": {"train": ["a", "b"]}, "model": {"attention": {"dropout": 0.25, "cross": {"dropout": 0.5}}}}
    )
    found = loaded.model.attention
    assert (found.encoder.dropout, found.decoder.dropout, found.cross.dropout) == (0.25, 0.25, 0.5)


def test_describe_lists_every_key() -> None:
    keys = {row[0] for row in config.describe_options(recipe.Recipe)}
    assert {
        "model(transformer).layers",
        "training.schedule",
        "training.schedule(noam).warmup",
        "training.fast",
        "data.train.weight",
        "text(bpe).size",
    } <= keys


def test_the_fast_path_is_a_choice_of_any_recipe() -> None:
    assert recipe.load_recipe("quickstart").training.fast
    for wanted in (True, False):
        given = [f"training.fast={str(wanted).lower()}", "training.steps=2"]
        assert recipe.load_recipe("quickstart", given).training.fast is wanted
    with pytest.raises(RegardError, match=r"training\.fast"):
        recipe.load_recipe("quickstart", ["training.fast=maybe"])


def test_another_kind_begins_anew() -> None:
    """Keys that the file gives to one kind mean nothing to another; those of the command line stay, in any order."""
    text = "schedule: {kind: warm, steps: 3}"
    for given_in in (["schedule.kind=cold", "schedule.rate=0.2"], ["schedule.rate=0.2", "schedule.kind=cold"]):
        node = config.apply_overrides(config.parse_yaml(text, "a.yaml"), given_in)
        assert node.plain() == {"schedule": {"kind": "cold", "rate": 0.2}}
    same = config.apply_overrides(config.parse_yaml(text, "a.yaml"), ["schedule.kind=warm"])
    assert same.plain() == {"schedule": {"kind": "warm", "steps": 3}}
