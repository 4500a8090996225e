"""The table of constructions and what one of them returns. Knows no grammar."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol


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


class Word(Protocol):
    @property
    def lemma(self) -> str: ...


def draft(source: str, target: str, *slots: Word | str | None, held: tuple[Word, ...] = ()) -> Draft:
    """A full stop ends what has no other mark; a slot that was left empty (no adjective) has no lemma."""
    lemmas = tuple(x if isinstance(x, str) else x.lemma for x in slots if x)
    return Draft(_ended(source), _ended(target), lemmas, tuple(x.lemma for x in held) or lemmas)


def capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _ended(text: str) -> str:
    return text if text[-1] in "?!" else text + "."
