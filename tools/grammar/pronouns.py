"""Sentences whose pronoun could mean either of two nouns, and whose meaning decides which.

Where two nouns compete for `it`, they differ in gender and each is meant half of the time.
"""

from collections.abc import Sequence
from random import Random

from tools.grammar import german
from tools.grammar.constructions import Draft, capital, construction, draft
from tools.grammar.lexicon import NOUNS, Adjective, Noun, nouns, table
from tools.grammar.phrases import NAMES, adjectives, anyone, chance, de_infinitive, de_perfect, np, pick, who
from tools.grammar.places import place
from tools.grammar.verbs import INTRANSITIVE, TRANSITIVE, Verb, chosen


def it(noun: Noun, case: german.Case = "nom") -> str:
    """The marked German pronoun for the noun: er, sie, es and their other cases."""
    return german.PRONOUNS[noun.gender][german.CASES.index(case)] + "#"


def its(possessor: Noun, thing: Noun, case: german.Case, plural: bool = False) -> str:
    """its ball with the possessive marked: seinen# Ball, ihren# Ball."""
    return german.noun_phrase(thing, "its_" + possessor.gender, case, plural).replace(" ", "# ", 1)


def rivals(r: Random, subjects: Sequence[Noun], objects: Sequence[Noun]) -> tuple[Noun, Noun]:
    one, two = pick(r, subjects), pick(r, objects)
    while one.gender == two.gender:
        one, two = pick(r, subjects), pick(r, objects)
    return one, two


def mark(text: str, yes: bool = True) -> str:
    return text + "@" if yes else text


def _states(text: str) -> dict[str, tuple[Adjective, ...]]:
    """Rows of `noun: adjectives`: what can be said of one noun that could not be said of its rival."""
    return {noun: adjectives(words) for noun, words in table(text).items()}


_CROSS = _states("""
street: wide dangerous long; bridge: narrow dangerous long; river: wide deep cold; square: big loud; field: big long
""")
_EAT_MEAT = _states("""
cheese: soft salty hard; fish: salty cold hot; soup: hot cold salty; egg: hard hot cold; meat: salty hot cold
bread: hard salty
""")
_EAT_FRUIT = _states("""
bread: hard salty; tomato: soft hard cold; pear: hard soft sweet; apple: hard soft sweet; egg: hard hot cold
salad: salty cold
""")
_OVER = _states("""
wall: high thick; fence: high; river: wide deep cold; bench: wide high; gate: high wide; box: high wide
""")
_CARRY = _states("""
bag: heavy big full; suitcase: heavy big full; box: heavy big full; basket: heavy big full; package: heavy big
mirror: heavy big; bed: heavy wide; ladder: heavy long
""")

_TIRED = adjectives("tired weak lazy nervous sick hungry thirsty")
_UNWILLING = tuple(a for a in _TIRED if a.english not in ("hungry", "thirsty"))

Adjectives = tuple[Adjective, ...]
Frame = tuple[Verb, tuple[Noun, ...], tuple[Noun, ...], Adjectives, dict[str, Adjectives]]


def _frame(verb: str, subjects: tuple[Noun, ...], states: Adjectives, objects: dict[str, Adjectives]) -> Frame:
    v = INTRANSITIVE[verb] if verb == "jump" else TRANSITIVE[verb]
    return v, subjects, tuple(NOUNS[o] for o in objects), states, objects


CROSS = _frame("cross", nouns("beast"), _TIRED, _CROSS)
MEAT = _frame("eat", nouns("dog cat fox pig animal mouse"), _UNWILLING, _EAT_MEAT)
FRUIT = _frame("eat", nouns("horse cow goat donkey rabbit duck pig bird animal mouse"), _UNWILLING, _EAT_FRUIT)
OVER = _frame("jump", nouns("dog cat horse goat fox donkey rabbit animal cow"), _UNWILLING, _OVER)
CARRY = _frame("carry", nouns("big_animal"), _TIRED, _CARRY)


def case_of(r: Random, frame: Frame) -> tuple[Verb, Noun, Noun, bool, Adjective]:
    """Verb, subject, object, whether the pronoun means the subject, and the adjective that says so."""
    verb, subjects, objects, states, properties = frame
    one, two = rivals(r, subjects, objects)
    first = chance(r, 0.5)
    return verb, one, two, first, pick(r, states if first else properties[two.english])


def _because(r: Random, frame: Frame, failures: tuple[str, ...]) -> Draft:
    v, one, two, first, a = case_of(r, frame)
    s, o = np(one), np(two)
    over = v.lemma == "jump"
    object_en, object_de = (f"over {o.object}", f"über {o.acc}") if over else (o.object, o.acc)
    how = pick(r, failures)
    inner = ("nicht", object_de) if over else (object_de, "nicht")  # nicht stands before a direction
    if how == "didn't":
        english, main = f"didn't {v.base}", de_perfect(s, v, *inner)
    elif how == "couldn't":
        english, main = f"couldn't {v.base}", de_infinitive(s, german.MODALS["could"], v, *inner)
    else:
        english, main = f"didn't want to {v.base}", de_infinitive(s, german.MODALS["wanted"], v, *inner)
    subject_en, object_en = mark(s.subject, first), mark(object_en, not first)
    source = f"{subject_en} {english} {object_en} because it# was too {a.english}"
    return draft(source, f"{main}, weil {it(one if first else two)} zu {a.german} war", one, v, two, a, held=(one, two))


@construction(2.0)
def because_cross(r: Random) -> Draft:
    return _because(r, CROSS, ("didn't", "didn't", "couldn't", "didn't want to"))


@construction(2.0)
def because_eat(r: Random) -> Draft:
    return _because(r, pick(r, (MEAT, FRUIT)), ("didn't", "didn't", "couldn't", "didn't want to"))


@construction(1.3)
def because_jump(r: Random) -> Draft:
    return _because(r, OVER, ("didn't", "couldn't", "didn't want to"))


@construction(1.8)
def because_carry(r: Random) -> Draft:
    return _because(r, CARRY, ("didn't", "couldn't", "didn't want to"))


_FITS = (
    (nouns("book map hat camera bottle ball dress jacket lamp knife umbrella radio clock glass present"),
     nouns("container cupboard -package")),
    (nouns("table bed sofa cupboard bench mirror carpet machine bicycle ladder box suitcase"),
     nouns("car room kitchen truck bus ship office")),
)  # fmt: skip
_TOO_BIG = adjectives("big long wide")
_TOO_SMALL = adjectives("small full")


@construction(2.0)
def because_fit(r: Random) -> Draft:
    one, two = rivals(r, *pick(r, _FITS))
    first, past = chance(r, 0.5), chance(r, 0.5)
    a = pick(r, _TOO_BIG if first else _TOO_SMALL)
    s, (into, hinein) = np(one), place("into", two, "acc")
    main = f"{s.nom} hat nicht {hinein} gepasst" if past else f"{s.nom} passt nicht {hinein}"
    english, is_ = ("didn't fit", "was") if past else ("doesn't fit", "is")
    source = f"{mark(s.subject, first)} {english} {mark(into, not first)} because it# {is_} too {a.english}"
    target = f"{main}, weil {it(one if first else two)} zu {a.german} {'war' if past else 'ist'}"
    return draft(source, target, one, "fit", two, a, held=(one, two))


@construction(1.1)
def so_it(r: Random) -> Draft:
    """The referent comes first here, and the noun nearest to an object pronoun is the wrong one."""
    v, one, two, first, a = case_of(r, pick(r, (CROSS, CROSS, MEAT, FRUIT, CARRY, CARRY)))
    s, o = np(one), np(two)
    if first:
        source = f"{mark(s.subject)} was very {a.english}, so it# didn't {v.base} {o.object}"
        main = f"hat {it(one)} {o.acc} nicht {v.german_participle}"
        target = f"{s.nom} war sehr {a.german}, deshalb {main}"
    else:
        source = f"{mark(o.subject)} was very {a.english}, so {s.subject} didn't {v.base} it#"
        main = f"hat {s.nom} {it(two, 'acc')} nicht {v.german_participle}"
        target = f"{o.nom} war sehr {a.german}, deshalb {main}"
    return draft(source, target, one, v, two, a, held=(one, two))


@construction(2.0)
def although_it(r: Random) -> Draft:
    """The pronoun comes before its noun."""
    v, one, two, first, a = case_of(r, pick(r, (CROSS, CROSS, MEAT, FRUIT, CARRY, CARRY)))
    s, o = np(one), np(two)
    source = f"although it# was very {a.english}, {mark(s.subject, first)} {v.past} {mark(o.object, not first)}"
    main = de_perfect(s, v, o.acc, order="first")
    target = f"obwohl {it(one if first else two)} sehr {a.german} war, {main}"
    return draft(source, target, one, v, two, a, held=(one, two))


_SEATS = _states("""
table: new round modern; chair: new comfortable hard; bed: new comfortable modern; sofa: new comfortable modern
bench: new comfortable hard; carpet: new round modern
""")
_OUTSIDE = _states("""
fence: high new; wall: high thick; gate: high wide new; bench: new comfortable; river: deep wide; house: new modern
street: wide long
""")
_MOODS = adjectives("tired hungry thirsty sick young nervous lazy")
_INDOORS, _OUTDOORS = nouns("pet animal"), nouns("farm animal")
_LYING = {"sleep": ("is sleeping", "schläft"), "sit": ("is sitting", "sitzt"), "stand": ("is standing", "steht")}


@construction(1.8)
def two_sentences(r: Random) -> Draft:
    indoors = chance(r, 0.5)
    properties = _SEATS if indoors else _OUTSIDE
    one, two = rivals(r, _INDOORS if indoors else _OUTDOORS, [NOUNS[n] for n in properties])
    first, prep = chance(r, 0.5), pick(r, ("on", "next to") if indoors else ("next to", "in front of"))
    if two.english in ("river", "street"):
        prep = "next to"
    verb = pick(r, ("sleep", "sit") if indoors else ("sleep", "stand"))
    a = pick(r, _MOODS if first else properties[two.english])
    s, (where, wo) = np(one), place(prep, two)
    source = f"{mark(s.subject, first)} {_LYING[verb][0]} {mark(where, not first)}. It# is very {a.english}"
    pronoun = it(one if first else two).capitalize()
    target = f"{s.nom} {_LYING[verb][1]} {wo}. {pronoun} ist sehr {a.german}"
    if a.english == "round":
        source, target = source.replace("very round", "round"), target.replace("sehr rund", "rund")
    return draft(source, target, one, verb, two, a, held=(one, two))


_ITEMS = _states("""
letter: important short funny; book: exciting boring interesting; newspaper: interesting boring
camera: expensive modern; knife: dangerous dirty; coat: wet dirty; shirt: wet dirty; jacket: wet dirty
dress: wet dirty; present: expensive; map: expensive
""")
_EMPTY = adjectives("empty full")


@construction(2.8)
def put_it(r: Random) -> Draft:
    one, two = rivals(r, [NOUNS[n] for n in _ITEMS], nouns("container cupboard -package"))
    first = chance(r, 0.5)
    a = pick(r, _ITEMS[one.english] if first else _EMPTY)
    who_ = anyone(r, 0.3, 0.05)
    o, (into, hinein) = np(one), place("into", two, "acc")
    word, word_de = pick(r, (("very ", "sehr "), ("", "")))
    if a.english == "empty":
        word = word_de = ""
    source = f"{who_.subject} put {mark(o.object, first)} {mark(into, not first)}. It# was {word}{a.english}"
    pronoun = it(one if first else two).capitalize()
    main = f"{who_.nom} {german.HABEN[who_.person]} {o.acc} {hinein} gelegt"
    return draft(source, f"{main}. {pronoun} war {word_de}{a.german}", who_, one, two, a, held=(one, two))


_FOR_ANIMALS = chosen("feed, stroke")
_FOR_THINGS = chosen("repair, paint")
FED = nouns("dog cat bird rabbit goat donkey pig duck horse cow")
_NEAR = (
    (nouns("dog cat bird rabbit"), nouns("chair table bed bench"), "under", ("sleep", "sit")),
    (nouns("goat donkey pig horse cow duck dog"), nouns("fence gate wall door bench"), "next to", ("sleep", "stand")),
    (nouns("goat donkey pig horse cow cat"), nouns("fence gate wall door"), "behind", ("sleep", "stand")),
)
_WANTS = (("wants to", "want"), ("has to", "must"), ("is going to", ""))


@construction(2.2)
def object_it(r: Random) -> Draft:
    """The verb alone tells what it is: one feeds a cat and repairs a chair."""
    animals, things, prep, verbs = pick(r, _NEAR)
    one, two = rivals(r, animals, things)
    first = chance(r, 0.5)
    v = pick(r, _FOR_ANIMALS if first else _FOR_THINGS)
    if two.english == "bed" and not first:
        v = TRANSITIVE["repair"]
    person = pick(r, NAMES) if chance(r, 0.3) else who(r, nouns("man woman gardener farmer boy kin"), 0.0)
    lying, liegt = _LYING[pick(r, verbs)]
    s, (where, wo) = np(one), place(prep, two)
    modal, key = pick(r, _WANTS)
    forms = german.MODALS[key] if key else german.WERDEN
    wish = f"{capital(person.subject)} {modal} {v.base} it#"
    wunsch = f"{capital(person.nom)} {forms['er']} {it(one if first else two, 'acc')} {v.infinitive}"
    target = f"{s.nom} {liegt} {wo}. {wunsch}"
    return draft(
        f"{mark(s.subject, first)} {lying} {mark(where, not first)}. {wish}",
        target,
        one,
        two,
        person,
        v,
        held=(one, two),
    )
