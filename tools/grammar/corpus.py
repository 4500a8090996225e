"""Draws the corpus from the constructions: sampling, deduplication, splits. Knows no grammar.

A *combination* is the multiset of the lemmas that fill the slots of a sentence (nouns, verbs, adjectives,
names, numbers, personal pronouns). A hash of the combination decides the split, so that a combination of the
valid or test split never occurs in training, in whatever construction. Where two nouns compete for a pronoun,
the hash sees only those two: nouns that compete in the test split never do so in training.
"""

import zlib
from collections import Counter
from dataclasses import dataclass
from functools import cache
from random import Random

from regard.data.embedded import Pronoun, Split, bare
from tools.grammar import (  # noqa: F401  (each of these fills the table)
    comparison, pronouns, quantities, questions, reference, relations, relative, statements, subordinate,
)  # fmt: skip
from tools.grammar.constructions import TABLE, Draft, capital

SEED = 6  # of the seeds tried, one whose test split no rule of thumb about pronouns gets right
SIZES: dict[Split, int] = {"train": 52_000, "valid": 1_000, "test": 2_000}
_SURPLUS = 1.15  # drawn beyond the sizes, for what the filters below take out
RAREST = 12  # a sentence with a word that occurs less often than this in training is left out
_PUNCTUATION = str.maketrans("", "", ".,?!")


@dataclass(frozen=True, slots=True)
class Pair:
    """What is drawn: a row of the file before it has a tree, and the lemmas that decide its split."""

    source: str
    target: str
    construction: str
    pronouns: tuple[Pronoun, ...]
    lemmas: tuple[str, ...]


def split_of(held: tuple[str, ...]) -> Split:
    bucket = zlib.crc32(f"{SEED} {' '.join(sorted(held))}".encode()) % 1000
    return "test" if bucket < 80 else "valid" if bucket < 125 else "train"


def pair_of(draft: Draft, construction: str) -> Pair:
    if "#" not in draft.source:
        return Pair(capital(draft.source), capital(draft.target), construction, (), draft.lemmas)
    english, german = draft.source.split(), draft.target.split()
    referent = next(i for i, w in enumerate(english) if "@" in w)
    places = zip(
        [i for i, w in enumerate(english) if "#" in w], [i for i, w in enumerate(german) if "#" in w], strict=True
    )
    target = capital(draft.target.replace("#", ""))
    final = target.split()
    marked = tuple(Pronoun(e, referent, g, bare(final[g])) for e, g in places)
    return Pair(capital(draft.source.replace("#", "").replace("@", "")), target, construction, marked, draft.lemmas)


def _draw(construction: str, quota: dict[Split, int], seen: dict[str, str]) -> list[tuple[Split, Pair]]:
    """Up to `quota` new pairs for each split from one construction; fewer where it has no more."""
    maker = TABLE[construction][0]
    random = Random(f"{SEED} {construction}")
    left, drawn = dict(quota), []
    for _ in range(6 * sum(quota.values())):
        draft = maker(random)
        split = split_of(draft.held)
        if left[split] <= 0:
            continue
        pair = pair_of(draft, construction)
        if pair.source not in seen:
            seen[pair.source] = pair.target
            left[split] -= 1
            drawn.append((split, pair))
            if not any(n > 0 for n in left.values()):
                break
        elif seen[pair.source] != pair.target:
            raise AssertionError(f"two translations: {pair.source} -> {seen[pair.source]} / {pair.target}")
    return drawn


@cache
def corpus() -> dict[Split, list[Pair]]:
    """All three splits, each in a fixed shuffled order."""
    total = sum(weight for _, weight in TABLE.values())
    seen: dict[str, str] = {}
    splits: dict[Split, list[Pair]] = {"train": [], "valid": [], "test": []}
    for name, (_, weight) in sorted(TABLE.items()):
        quota: dict[Split, int] = {s: round(_SURPLUS * size * weight / total) for s, size in SIZES.items()}
        for split, pair in _draw(name, quota, seen):
            splits[split].append(pair)
    held = {_combination(p) for p in splits["valid"] + splits["test"]}
    splits["train"] = [p for p in splits["train"] if _combination(p) not in held]
    count = Counter(w for p in splits["train"] for w in words_of(p))
    for split, members in splits.items():
        common = [p for p in members if all(count[w] >= RAREST for w in words_of(p))]
        Random(f"{SEED} {split}").shuffle(common)
        splits[split] = common[: SIZES[split]]
    return splits


def _combination(pair: Pair) -> tuple[str, ...]:
    return tuple(sorted(pair.lemmas))


def words_of(pair: Pair) -> list[str]:
    return f"{pair.source} {pair.target}".lower().translate(_PUNCTUATION).split()


def pairs(split: Split) -> list[Pair]:
    return corpus()[split]
