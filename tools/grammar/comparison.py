"""Main clauses that compare, possess or repeat: als, wie, genitives, für, mit, schon, gern, habits."""

from random import Random

from tools.grammar import german
from tools.grammar.constructions import Draft, construction, draft
from tools.grammar.lexicon import FITTING, FREQUENCY, NOUNS, Adjective, Noun, nouns, table, words
from tools.grammar.phrases import (
    ACTIONS, NAMES, PERSONS, Phrase, actor, be, chance, de_perfect, de_present, event, have, nominative, np,
    ongoing, perhaps, pick, simple, thing, who,
)  # fmt: skip
from tools.grammar.relations import activity
from tools.grammar.statements import be_adjective, degree
from tools.grammar.verbs import INTRANSITIVE, TRANSITIVE, Verb, chosen


@construction()
def comparative(r: Random) -> Draft:
    a, one, two = comparable(r)
    dets = pick(r, (("the", "the"), ("this", "the"), ("my", "your"), ("your", "my"), ("his", "her")))
    if one.classes & _NOBODYS or {one.english, two.english} & {"bus", "train", "animal"}:
        dets = pick(r, (("the", "the"), ("this", "the")))
    if one.classes & {"person"}:
        dets = ("the", "the")
    elif "kin" in one.classes and dets[0] in ("the", "this"):
        dets = ("my", "your")
    s, o = np(one, dets[0]), np(two, dets[1])
    english = f"{s.subject} is {a.english_comparative} than {o.subject}"
    return draft(english, german.clause(s.nom, "ist", [a.german_comparative, "als", o.nom]), one, a, two, "than")


_COMPARED = words("""person kin beast text work food drink clothes furniture vehicle device container building
area town inside way nature idea""")
_NOBODYS = set(words("way nature building town area inside food drink work idea"))


def _comparisons() -> list[tuple[Adjective, Noun, Noun]]:
    found = []
    for one in NOUNS.values():
        for two in NOUNS.values():
            shared = [c for c in _COMPARED if c in one.classes and c in two.classes]
            for a in FITTING[one.english]:
                goods = a.english in ("expensive", "cheap") and "good" in one.classes and "good" in two.classes
                same = one is not two and a in FITTING[two.english] and a.english_comparative != "~"
                if same and (shared or goods) and a.english not in ("new", "dark", "bright"):
                    found.append((a, one, two))
    return found


_COMPARISONS = _comparisons()


def comparable(r: Random) -> tuple[Adjective, Noun, Noun]:
    """An adjective and two different nouns of one class that it describes."""
    return pick(r, _COMPARISONS)


@construction()
def as_as(r: Random) -> Draft:
    a, one, two = comparable(r)
    det = "my" if "kin" in one.classes else "the"
    s, o = np(one, det), np(two, det if det == "the" else pick(r, ("my", "your")))
    negative = chance(r, 0.5)
    german_ = german.clause(s.nom, "ist", [f"{'nicht so' if negative else 'so'} {a.german} wie {o.nom}"])
    return draft(f"{s.subject} {be(s, negative=negative)} as {a.english} as {o.subject}", german_, one, a, two, "as")


_OWNED_THINGS = tuple(n for n in nouns("good house room garden office key") if len(FITTING[n.english]) > 2)
_OWNERS = tuple(n for n in PERSONS if n.english not in ("child", "girl", "guest")) + nouns("kin")


@construction(1.2)
def genitive_owner(r: Random) -> Draft:
    n = pick(r, _OWNED_THINGS)
    a = pick(r, FITTING[n.english])
    if chance(r, 0.2):
        owner = pick(r, [x for x in NAMES if x.subject[-1] not in "sx"])
        de_subject = f"{owner.gen} {n.german}"
    else:
        owner = who(r, _OWNERS, 0.0)
        de_subject = f"{np(n).nom} {owner.gen}"
    past = chance(r, 0.3)
    word, word_de = degree(r, a, ("very", "too", "", "not"))
    s = nominative(f"{owner.subject}'s {n.english}", de_subject, "er", n.english, n.gender)
    english, german_ = be_adjective(s, a, word, word_de, past)
    return draft(english, german_, owner, n, a, "'s")


_PARTS = nouns("part garden kitchen room")
_WHOLES = nouns("house school church hotel hospital museum theatre library restaurant")


@construction(0.8)
def genitive_part(r: Random) -> Draft:
    part, whole = pick(r, _PARTS), pick(r, _WHOLES)
    while "part" not in part.classes and whole.english not in ("house", "hotel", "restaurant", "hospital", "school"):
        part, whole = pick(r, _PARTS), pick(r, _WHOLES)
    a = pick(r, FITTING[part.english] or (FITTING["house"][0],))
    w = np(whole, "the", False, perhaps(r, 0.3, whole))
    many = part.english == "room" or (part.english in ("window", "door") and chance(r, 0.5))
    p = np(part, "the", many)
    s = nominative(f"{p.subject} of {w.object}", f"{p.nom} {w.gen}", p.person, part.english, part.gender)
    english, german_ = be_adjective(s, a, *degree(r, a, ("very", "too", "", "not")), past=chance(r, 0.3))
    return draft(english, german_, part, whole, a, "of")


_STRANGERS = nouns("teacher child woman man girl boy guest")


def _companion(r: Random, s: Phrase, kin: str) -> Phrase:
    """One of the subject's own, or a stranger where no possessive would say whose."""
    return np(pick(r, nouns(kin)), s.own) if s.own else who(r, _STRANGERS)


@construction()
def for_someone(r: Random) -> Draft:
    v = pick(r, [TRANSITIVE[x] for x in ("buy", "bake", "write", "draw")])
    s, n = actor(r, v), pick(r, v.objects)
    while n.english in ("horse", "bread", "cat", "sentence"):
        n = pick(r, v.objects)
    to = _companion(r, s, "mother father brother sister friend daughter son aunt uncle")
    o = np(n, "a")
    german_ = de_perfect(s, v, o.acc, f"für {to.acc}")
    return draft(f"{s.subject} {v.past} {o.object} for {to.object}", german_, s, v, n, to)


@construction()
def with_someone(r: Random) -> Draft:
    v = INTRANSITIVE[pick(r, ("play", "dance", "sing", "work", "cook", "swim", "laugh"))]
    s = actor(r, v)
    to = _companion(r, s, "brother sister friend daughter uncle aunt grandmother neighbour")
    while to.lemma == s.lemma:
        to = who(r, _STRANGERS, 0.3)
    return draft(f"{s.subject} {ongoing(s, v)} with {to.object}", de_present(s, v, f"mit {to.dat}"), s, v, "with", to)


@construction()
def already(r: Random) -> Draft:
    s, v, n = event(r, ACTIONS, you=1)
    o = thing(r, n, ("the",), v)
    if chance(r, 0.5):
        english = f"{s.subject} {have(s)} already {v.participle} {o.object}"
        return draft(english, de_perfect(s, v, o.acc, "schon"), s, v, n, "already")
    english = f"{s.subject} {have(s)}n't {v.participle} {o.object} yet"
    return draft(english, de_perfect(s, v, o.acc, "noch nicht"), s, v, n, "yet")


# What people do again and again, and with what.
_HABITS = table("""
buy: food newspaper; read: newspaper; write: letter poem story; eat: food; drink: drink
visit: museum city school friend uncle aunt grandmother; clean: kitchen window room house office mirror; wash: car
use: computer machine bicycle camera; bake: cake bread; draw: house tree flower horse cat bird
feed: dog cat horse rabbit goat donkey duck; tidy up: room kitchen office; call: mother father friend neighbour
forget: key bag umbrella
""")
DAILY = ("read", "eat", "drink", "feed", "forget", "wash", "clean", "tidy up", "use", "buy")


def routine(r: Random, besides: str = "") -> tuple[Phrase, Verb, Phrase]:
    """Someone, a verb and an object for sentences about what happens often."""
    v = TRANSITIVE[pick(r, [h for h in _HABITS if h != besides])]
    s, n = actor(r, v), pick(r, nouns(_HABITS[v.lemma]))
    while n.english == s.lemma:
        s = actor(r, v)
    own = s.own or "the"
    if "kin" in n.classes or v.lemma in ("forget", "wash"):
        return s, v, np(n, own if own != "the" or "kin" not in n.classes else "my")
    return (s, v, np(n, "a" if v.lemma in ("buy", "write", "eat", "drink", "bake", "draw") or n.mass else "the"))


@construction()
def habit(r: Random) -> Draft:
    s, v, o = routine(r)
    t = pick(r, tuple(FREQUENCY))
    return draft(f"{s.subject} {t} {simple(s, v)} {o.object}", de_present(s, v, FREQUENCY[t], o.acc), s, t, v, o)


_ENJOYED = chosen("read, eat, drink, visit, feed, draw, bake, watch")


@construction()
def likes_to(r: Random) -> Draft:
    """gern, where English has a verb of its own."""
    if chance(r, 0.4):
        s, v, where, wo, lemma = activity(r)
        while v.lemma in ("cry", "wait", "laugh") or not v.subjects[0].classes & {"person"}:
            s, v, where, wo, lemma = activity(r)
        middle = ("gern", wo)
    else:
        s, v, n = event(r, _ENJOYED)
        generic = v.lemma not in ("visit", "drink") and n.german_plural != "-" and n.english not in ("cake", "salad")
        o = np(n, "", generic) if v.lemma != "visit" else thing(r, n, ("the",), v)
        where, lemma, middle = o.object, n.english, ("gern", o.acc)
    verb = "likes to" if s.person == "er" else "like to"
    return draft(f"{s.subject} {verb} {v.base} {where}", de_present(s, v, *middle), s, "gern", v, lemma)


_JOBS = nouns("job")


@construction(0.6)
def becomes(r: Random) -> Draft:
    kin = np(pick(r, nouns("kin")), pick(r, ("my", "your", "his", "her", "our")))
    s = pick(r, NAMES) if chance(r, 0.3) else kin
    job = pick(r, [j for j in _JOBS if j.gender == s.column])
    kind = pick(r, ("is", "was", "wants"))
    a = np(job, "a").object
    if kind == "wants":
        german_ = german.clause(s.nom, "will", [job.german], "werden")
        return draft(f"{s.subject} wants to become {a}", german_, s, job, "become")
    german_ = german.clause(s.nom, "ist" if kind == "is" else "war", [job.german])
    return draft(f"{s.subject} {kind} {a}", german_, s, job, kind)
