"""Pronouns that can mean only one noun, in every case: er, ihn, ihm, sein and their kin."""

from functools import cache
from random import Random

from tools.grammar import german
from tools.grammar.constructions import Draft, construction, draft
from tools.grammar.lexicon import ADJECTIVES, FITTING, NOUNS, Adjective, Noun, nouns, rows, table
from tools.grammar.phrases import (
    HUMANS, NAMES, PERSONAL, SEXED, WE, I, actor, be, chance, de_infinitive, de_perfect, nominative, np, pick, told,
    who,
)  # fmt: skip
from tools.grammar.places import place, posture, spot
from tools.grammar.pronouns import FED, it, its, mark
from tools.grammar.statements import be_adjective
from tools.grammar.verbs import DITRANSITIVE, TRANSITIVE


@construction(0.8)
def gave_it(r: Random) -> Draft:
    """The pronoun in the dative: ihm or ihr, with a person between it and its noun."""
    one = pick(r, FED + nouns("mouse animal"))
    person = pick(r, NAMES) if chance(r, 0.3) else who(r, HUMANS, 0.1)
    s, gave = np(one), f"{german.HABEN[person.person]} {person.nom}"
    kind = pick(r, ("hungry", "thirsty", "sick"))
    if kind == "sick":
        source = f"{mark(s.subject)} was sick, so {person.subject} helped it#"
        target = f"{s.nom} war krank, deshalb {gave} {it(one, 'dat')} geholfen"
        return draft(source, target, one, "sick", person, "help")
    hungry = "bread meat fish cheese" if one.english in ("dog", "cat") else "bread apple pear"
    food = pick(r, nouns(hungry if kind == "hungry" else "water milk"))
    o = np(food, "a")
    source = f"{mark(s.subject)} was {kind}, so {person.subject} gave it# {o.object}"
    a = ADJECTIVES[kind].german
    target = f"{s.nom} war {a}, deshalb {gave} {it(one, 'dat')} {o.acc} gegeben"
    return draft(source, target, one, kind, person, food)


@construction(0.8)
def but_it(r: Random) -> Draft:
    """The noun nearest to the pronoun belongs to a place and is not meant."""
    thing, here, _, support = spot(r)
    contrasts = _contrasts(thing)
    while thing.gender == support.gender or not contrasts:
        thing, here, _, support = spot(r)
        contrasts = _contrasts(thing)
    a, b = pick(r, contrasts)
    s = np(thing)
    where, wo = place(here, support)
    source = f"{mark(s.subject)} {where} is {a.english}, but it# isn't {b.english}"
    target = f"{s.nom} {wo} ist {a.german}, aber {it(thing)} ist nicht {b.german}"
    return draft(source, target, thing, here, support, a, b, held=(thing, support))


_OPPOSITES = """big small, new old, expensive cheap, clean dirty, long short, empty full, hard soft, \
fast slow, interesting boring, hot cold, exciting boring, new broken, old modern, interesting exciting"""
_COLOURS = ("red", "blue", "green", "black", "white", "round")
_UNGRADED = (*_COLOURS, "broken")


@cache
def _contrasts(thing: Noun) -> tuple[tuple[Adjective, Adjective], ...]:
    """Two qualities of which a thing can have one without the other, and that are not opposites."""
    graded = [a for a in FITTING[thing.english] if a.english not in _COLOURS]
    barred = {frozenset(p.split()) for p in _OPPOSITES.split(", ")}
    return tuple(
        (a, b) for a in graded for b in graded if a is not b and frozenset((a.english, b.english)) not in barred
    )


def _described(thing: Noun) -> list[Adjective]:
    return [a for a in FITTING[thing.english] if a.english not in ("full", "empty", "wet")]


@construction(0.8)
def if_cheaper(r: Random) -> Draft:
    word, verb, selector = pick(r, _IF)
    n, a, v = pick(r, nouns(selector)), ADJECTIVES[word], TRANSITIVE[verb]
    person = pick(r, (I, WE, *NAMES)) if chance(r, 0.35) else who(r, HUMANS, 0.1)
    s = np(n, pick(r, ("the", "this")))
    source = f"if {mark(s.subject)} were {a.english_comparative}, {person.subject} would {v.base} it#"
    main = de_infinitive(person, german.WUERDE, v, it(n, "acc"), order="first")
    return draft(source, f"wenn {s.nom} {a.german_comparative} wäre, {main}", n, a, person, v)


_IF = rows("""
cheap|buy|good -newspaper; cheap|buy|good -newspaper; big|buy|furniture container mirror carpet -package
small|carry|container; fast|buy|car bicycle computer; hot|drink|milk coffee tea water; sweet|eat|cake pear apple
cold|drink|water juice beer milk; short|read|story letter poem; interesting|read|book newspaper story
easy|learn|language game; new|use|camera computer map machine; comfortable|buy|chair bed sofa bench
""")

_REASONS = rows("""
not buy|good|expensive; not put on|coat jacket shirt|dirty wet old; not drink|drink|hot cold
not eat|soup fish cheese meat|salty cold; not eat|bread|hard; not read|book story newspaper|boring long
not read|letter poem|long; not carry|container|heavy big; not cross|street bridge|dangerous
not cross|river|deep wide; sell|car bicycle camera computer|slow old; wash|car shirt coat dress skirt|dirty
not understand|question sentence language problem|difficult; not visit|museum city|boring big
turn off|radio machine|loud; turn off|lamp|bright; not answer|question|difficult
""")


_ANIMAL_NAMES = frozenset(n.english for n in nouns("beast"))


@construction(1.3)
def person_because(r: Random) -> Draft:
    verb, selector, words = pick(r, _REASONS)
    negative, verb = verb.startswith("not "), verb.removeprefix("not ")
    v, n, a = TRANSITIVE[verb], pick(r, nouns(selector)), ADJECTIVES[pick(r, words.split())]
    if (n.english, a.english) == ("camera", "slow"):
        a = ADJECTIVES["old"]
    s, o = actor(r, v, pronouns=0.2), np(n)
    if s.lemma in _ANIMAL_NAMES:
        s = pick(r, NAMES)
    past = f"didn't {v.base}" if negative else v.past
    target = f"{de_perfect(s, v, o.acc, 'nicht' if negative else '')}, weil {it(n)} zu {a.german} war"
    return draft(f"{s.subject} {past} {mark(o.object)} because it# was too {a.english}", target, s, v, n, a)


_BOUGHT = nouns("good -newspaper -map")


@construction(0.8)
def who_says(r: Random) -> Draft:
    n = pick(r, _BOUGHT)
    v = TRANSITIVE[pick(r, ("buy", "sell", "use"))]
    if v.lemma == "use":
        n = pick(r, v.objects)
    a = pick(r, _described(n) or (ADJECTIVES["expensive"],))
    person = pick(r, nouns("person"))
    head, o = np(person), np(n)
    relative = german.RELATIVE["nom"][person.gender]
    too, zu = pick(r, (("too ", "zu "), ("very ", "sehr ")))
    if a.english in ("new", "young", "beautiful"):
        too, zu = "very ", "sehr "
    if a.english in _UNGRADED:
        too = zu = ""
    source = f"{head.subject} who {v.past} {mark(o.object)} says that it# is {too}{a.english}"
    clause = f"{relative} {o.acc} {v.german_participle} hat"
    return draft(source, f"{head.nom}, {clause}, sagt, dass {it(n)} {zu}{a.german} ist", person, v, n, a)


@construction(0.8)
def found_gave(r: Random) -> Draft:
    v = TRANSITIVE[pick(r, ("find", "buy", "repair", "wash"))]
    n = pick(r, [o for o in v.objects if o.classes & {"good", "small", "container"}])
    s = actor(r, v, pronouns=0.2)
    while not s.own:
        s = actor(r, v, pronouns=0.2)
    w = DITRANSITIVE[pick(r, ("give", "show", "bring", "send"))]
    if n.classes & {"furniture", "vehicle"} and w.lemma == "send":
        w = DITRANSITIVE["give"]
    kin = NOUNS[pick(r, ("mother", "father", "brother", "sister", "friend", "daughter", "aunt", "uncle"))]
    while kin.english == s.lemma:
        kin = NOUNS[pick(r, ("mother", "father", "brother", "sister"))]
    to, o = np(kin, s.own), np(n, pick(r, ("the", "a")))
    finite = german.HABEN[s.person]
    target = f"{s.nom} {finite} {o.acc} {v.german_participle} und {it(n, 'acc')} {to.dat} {w.german_participle}"
    return draft(f"{s.subject} {v.past} {mark(o.object)} and {w.past} it# to {to.object}", target, s, v, n, w, kin)


@construction(0.8)
def bought_it_is(r: Random) -> Draft:
    v = TRANSITIVE[pick(r, ("buy", "find", "read", "visit"))]
    n = pick(r, [o for o in v.objects if len(_described(o)) > 1 and not o.classes & {"kin", "person"}])
    s, a, o = actor(r, v, pronouns=0.25), pick(r, _described(n)), np(n, "a" if v.lemma != "visit" else "the")
    subject = nominative("It#", it(n).capitalize(), "er", "", n.gender)
    word = pick(r, (("very", "sehr"), ("", ""), ("not", "nicht")))
    if a.english in _UNGRADED:
        word = ("", "")
    english, german_ = be_adjective(subject, a, *word)
    source = f"{s.subject} {v.past} {mark(o.object)}. {english}"
    return draft(source, f"{de_perfect(s, v, o.acc)}. {german_}", s, v, n, a)


@construction(0.5)
def where_is_it(r: Random) -> Draft:
    thing, here, _, support = spot(r)
    s = np(thing, pick(r, ("the", "my", "your", "his", "her")))
    where, wo = place(here, support)
    verb = "liegt" if posture(thing) == "lie" else "steht"
    target = f"wo ist {s.nom}? {it(thing).capitalize()} {verb} {wo}"
    return draft(f"where is {mark(s.subject)}? It# is {where}", target, thing, here, support, "where")


_FAMED = table("""
city: church museum theatre bridge park library hotel; village: church bridge lake cheese bread restaurant
island: fish lake hotel church garden; park: lake flower bridge tree restaurant; hotel: garden restaurant soup cake
museum: garden library clock ship; restaurant: soup fish cake salad garden; school: library garden theatre
church: door window clock roof
""")


@construction(0.7)
def its_own(r: Random) -> Draft:
    """sein or ihr by the possessor, its ending by the thing possessed."""
    if chance(r, 0.55):
        one, two = (pick(r, FED + nouns("mouse fox animal")), pick(r, nouns("ball basket bed apple bread water")))
        v = TRANSITIVE[
            pick(r, ("look for", "lose", "find") if two.english in ("ball", "basket", "bed") else ("look for", "hide"))
        ]
        if two.english in ("water", "bed", "basket"):
            v = TRANSITIVE[pick(r, ("look for", "find"))]
        s = np(one)
        english, target = told(s, v, chance(r, 0.5), its(one, two, "acc"))
        source = f"{english.replace(s.subject, mark(s.subject), 1)} its# {two.english}"
        return draft(source, target, one, v, two, "its")
    one = NOUNS[pick(r, tuple(_FAMED))]
    two = pick(r, nouns(_FAMED[one.english]))
    many = two.english in ("flower", "tree", "window")
    s = np(one, "the")
    past = chance(r, 0.4)
    english = two.english_plural if many else two.english
    source = f"{mark(s.subject)} {be(s, past)} famous for its# {english}"
    target = f"{s.nom} {'war' if past else 'ist'} für {its(one, two, 'acc', many)} berühmt"
    return draft(source, target, one, "famous", two, "its")


_WHOLES = table("""
city: church museum theatre bridge park library station; village: church bridge lake school
hotel: garden kitchen restaurant roof; house: garden roof kitchen door; school: garden library roof door
church: roof door garden; museum: garden library roof; park: lake bridge restaurant
""")


@construction(0.8)
def and_its(r: Random) -> Draft:
    one = NOUNS[pick(r, tuple(_WHOLES))]
    two = pick(r, nouns(_WHOLES[one.english]))
    verbs = ("see", "draw") if one.english in ("house", "hotel") or two.classes & {"part"} else ("visit", "see", "draw")
    v = TRANSITIVE[pick(r, verbs)]
    s = pick(r, PERSONAL + NAMES) if chance(r, 0.4) else who(r, SEXED, 0.15)
    o = np(one)
    target = de_perfect(s, v, f"{o.acc} und {its(one, two, 'acc')}")
    return draft(f"{s.subject} {v.past} {mark(o.object)} and its# {two.english}", target, s, v, one, two)
