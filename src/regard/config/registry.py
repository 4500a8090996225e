"""The registry: what a recipe's `kind` may name. A slot is a base class, and its choices are classes under that base.

`@choice` registers them, in this package and in plugins alike. Knows no component.
"""

import sys
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, TypeGuard, TypeVar

from regard.errors import RegardError


class Choice:
    """The base of all choices. `class PositionConfig(Choice, slot="position")` opens a slot."""

    slot: ClassVar[str] = ""
    kind: ClassVar[str] = ""  # as a recipe names it; empty where it is not chosen by name
    id: ClassVar[str] = "—"  # its number in docs/mechanisms.md
    formula: ClassVar[str] = "—"
    paper: ClassVar[str] = "—"
    plugin: ClassVar[str] = ""  # the module of somebody else's that registered it
    must_define: ClassVar[tuple[str, ...]] = ()  # methods of a slot that each of its choices has itself

    def __init_subclass__(cls, slot: str = "", **options: object) -> None:
        super().__init_subclass__(**options)
        if slot:
            cls.slot, SLOTS[slot], _CHOICES[slot] = slot, cls, {}


SLOTS: dict[str, type[Choice]] = {}  # the base class of each slot
C = TypeVar("C", bound=Choice)
_CHOICES: dict[str, dict[str, type[Choice]]] = {}  # by slot and kind
_plugin = ""  # the plugin that is being imported


@typing.dataclass_transform(frozen_default=True)
def choice(kind: str, id: str = "—", formula: str = "—", paper: str = "—") -> Callable[[type[C]], type[C]]:
    """A frozen dataclass that is the choice `kind` of the slot of its base; an empty kind is listed, never chosen."""

    def register(cls: type[C]) -> type[C]:
        if not (isinstance(cls, type) and issubclass(cls, Choice) and cls.slot):
            raise RegardError(f"{cls.__module__}.{cls.__qualname__}: @choice is for subclasses of {_bases()}")
        ours = cls.__module__.split(".")[0] in ("regard", "__main__")
        cls.kind, cls.id, cls.formula, cls.paper = kind, id, formula, paper
        cls.plugin = _plugin or ("" if ours else cls.__module__)
        cls = dataclass(frozen=True)(cls)
        if kind:
            _check_methods(cls)
            known = _CHOICES[cls.slot].get(kind)
            if known is not None and (known.__qualname__ != cls.__qualname__ or cls.__module__ != "__main__"):
                raise RegardError(
                    f"the {cls.slot} {kind!r} is registered twice, by {known.__module__}.{known.__qualname__} and "
                    f"{cls.__module__}.{cls.__qualname__}; give one of them another name"
                )
            _CHOICES[cls.slot][kind] = cls
        return cls

    return register


def _check_methods(cls: type[Choice]) -> None:
    base = SLOTS[cls.slot]
    own = set().union(*(vars(each) for each in cls.__mro__ if each not in base.__mro__))
    for name in base.must_define:
        if name not in own:
            raise RegardError(
                f"{cls.__module__}.{cls.__qualname__} has no method {name}, which every choice of the slot {cls.slot} "
                "needs; see docs/plugins.md"
            )


def choices(slot: str | type[Choice]) -> dict[str, Any]:
    """The classes of a slot by kind, in the order of their registration; a slot is its name or its base class."""
    name = slot if isinstance(slot, str) else slot.slot
    if name not in _CHOICES:
        raise RegardError(f"{name} is not a slot; known: {', '.join(SLOTS)}")
    return _CHOICES[name]


def is_slot(hint: object) -> TypeGuard[type[Choice]]:
    """Whether a type is the base class of a slot."""
    return isinstance(hint, type) and issubclass(hint, Choice) and SLOTS.get(hint.slot) is hint


@contextmanager
def registering_for(plugin: str) -> Iterator[None]:
    """What is registered inside belongs to this plugin, and is forgotten if its import fails."""
    global _plugin
    outer, _plugin = _plugin, plugin
    try:
        yield
    except BaseException:
        for known in _CHOICES.values():
            for kind in [kind for kind, cls in known.items() if cls.__module__ not in sys.modules]:
                del known[kind]
        raise
    finally:
        _plugin = outer


def _bases() -> str:
    return ", ".join(f"{base.__name__} ({slot})" for slot, base in SLOTS.items())
