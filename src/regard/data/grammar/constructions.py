"""The table of constructions and what one of them returns. Knows no grammar."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Draft:
    """One sentence pair. `it#` marks a pronoun in either language, `animal@` what it refers to."""

    source: str
    target: str
    lemmas: tuple[str, ...]  # what fills the slots, in slot order
    held: tuple[str, ...]  # the combination that decides the split


Maker = Callable[[Random], Draft]
TABLE: dict[str, tuple[Maker, float]] = {}


def construction(weight: float = 1.0) -> Callable[[Maker], Maker]:
    """Register a function under its own name; `weight` is its share of the corpus relative to the others."""

    def register(maker: Maker) -> Maker:
        assert maker.__name__ not in TABLE
        TABLE[maker.__name__] = (maker, weight)
        return maker

    return register


def draft(source: str, target: str, *lemmas: str, held: tuple[str, ...] = ()) -> Draft:
    return Draft(source, target, lemmas, held or lemmas)
