"""Minimal pairs: two sentences of one construction that differ in one word, on which depends what `it` refers to.

The animal didn't cross the street because it was too tired / too wide. Knows no grammar: sentences are drawn from the
constructions in which two nouns compete, and those alike but for one word are put together.
"""

from collections import Counter
from random import Random

from regard.data.embedded import Split
from tools.grammar.constructions import TABLE
from tools.grammar.corpus import RAREST, SEED, Pair, corpus, pair_of, split_of, words_of

# Where the word stands that decides; so_it has no such word, it says the two in another order.
_DECIDES = dict.fromkeys(("because_cross", "because_eat", "because_jump", "because_carry", "because_fit"), -1)
_DECIDES |= {"although_it": 4, "two_sentences": -1, "put_it": -1, "object_it": -2}
_DRAWN = 6_000  # sentences of each construction
_FRAMES = 3  # at most, of each two nouns in each construction: didn't cross, couldn't cross, ...
_KNOWN = frozenset(  # from the literature, and therefore preferred to others in their place
    f"{start} because it was too {word}."
    for start, words in (
        ("The animal didn't cross the street", ("tired", "wide")),
        ("The suitcase didn't fit into the car", ("big", "small")),
    )
    for word in words
)


def minimal_pairs() -> list[tuple[Split, Pair, Pair]]:
    """The split in which the nouns compete, and both sentences; in the first, `it` is the noun that comes first."""
    count = Counter(w for p in corpus()["train"] for w in words_of(p))
    chosen: list[tuple[Split, Pair, Pair]] = []
    for construction in _DECIDES:
        random = Random(f"{SEED} minimal {construction}")
        frames: Counter[tuple[str, ...]] = Counter()
        for held, referents in _frames(construction, random).values():
            known = [[p for p in found.values() if all(count[w] >= RAREST for w in words_of(p))] for found in referents]
            if frames[held] < _FRAMES and len(known) == 2 and all(known):
                frames[held] += 1
                first, second = (_pick(random, options) for options in known)
                chosen.append((split_of(held), first, second))
    return chosen


def _frames(construction: str, random: Random) -> dict[str, tuple[tuple[str, ...], list[dict[str, Pair]]]]:
    """By the sentence without its deciding word: the two nouns, and the sentences that mean the one and the other."""
    drawn: dict[str, tuple[tuple[str, ...], dict[int, dict[str, Pair]]]] = {}
    for _ in range(_DRAWN):
        draft = TABLE[construction][0](random)
        pair = pair_of(draft, construction)
        words = pair.source.split()
        words[_DECIDES[construction]] = "_"
        _, referents = drawn.setdefault(" ".join(words), (draft.held, {}))
        referents.setdefault(pair.pronouns[0].referent, {})[pair.source] = pair
    return {frame: (held, [found[place] for place in sorted(found)]) for frame, (held, found) in drawn.items()}


def _pick(random: Random, options: list[Pair]) -> Pair:
    drawn = options[int(random.random() * len(options))]
    return next((p for p in options if p.source in _KNOWN), drawn)
