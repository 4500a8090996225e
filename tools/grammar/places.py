"""Where things are, go and happen: prepositions and the nouns that fit. Knows no sentences."""

from random import Random

from tools.grammar.german import Case
from tools.grammar.lexicon import NOUNS, Noun, nouns, rows, table
from tools.grammar.phrases import at, np, pick

# Activity, then the places it happens at, each with its English preposition.
_ACTIVITIES = rows("""
sleep|in room, in garden, in house, in hotel, in park, on sofa, on bench
work|in hospital, in garden, in office, in school, in kitchen, in shop, in library, in hotel, in city
play|in garden, in park, in room, in forest, on street, in house, on bridge
dance|in kitchen, in garden, in restaurant, on street, in room, in hotel
sing|in church, in theatre, in garden, on street, in kitchen, in park
cook|in kitchen, in restaurant, in garden, in hotel
swim|in lake, in river
run|in park, in forest, on street, in garden
wait|at station, in hotel, in park, in shop, in office, in restaurant, on bridge, in car, in bus
cry|in kitchen, in room, in garden, on street, in church
laugh|in kitchen, in room, in garden, in theatre, in bus
""")
_GERMAN = table("""
in: in; on: auf; at: an; under: unter; behind: hinter; into: in; onto: auf; over: über; to: zu; next to: neben
in front of: vor
""")

ACTIVITIES: dict[str, tuple[tuple[str, Noun], ...]] = {
    verb: tuple((preposition, NOUNS[noun]) for preposition, noun in map(str.split, places.split(", ")))
    for verb, places in _ACTIVITIES
}

# Where a small thing can be or be put: English prepositions of place and of direction, supports, things.
SPOTS = (
    ("on", "on", nouns("table chair bed bench sofa"), nouns("lie small -stand -lamp")),
    ("on", "on", nouns("table cupboard"), nouns("stand small -bag -suitcase -box -basket")),
    ("under", "under", nouns("table bed chair bench sofa"), nouns("lie container ball bottle -package")),
    ("in", "into", nouns("container cupboard -package"), nouns("small")),
    ("behind", "behind", nouns("door cupboard sofa gate"), nouns("container umbrella lamp ball -package")),
    ("next to", "next to", nouns("bed door sofa chair"), nouns("container lamp radio bottle umbrella -package")),
)


def place(preposition: str, noun: Noun, case: Case = "dat") -> tuple[str, str]:
    """English and German of a prepositional phrase."""
    phrase = np(noun)
    return f"{preposition} {phrase.object}", at(_GERMAN[preposition], phrase, case)


def spot(r: Random) -> tuple[Noun, str, str, Noun]:
    """A thing, the English prepositions of place and of direction, and the noun it is on, in, under, ..."""
    here, there, supports, things = pick(r, SPOTS)
    thing, support = pick(r, things), pick(r, supports)
    while thing is support:
        thing = pick(r, things)
    return thing, here, there, support


def posture(thing: Noun) -> str:
    """German says whether a thing lies or stands where English has is and put."""
    return "lie" if "lie" in thing.classes or thing.english == "ball" else "stand"


INTO = nouns("inside building area town -station -city -village")
TO = nouns("building -house area town river lake bridge -hotel -city -village")
