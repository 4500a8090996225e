"""Relative clauses, infinitives with zu and conditions."""

from random import Random

from tools.grammar import german
from tools.grammar.constructions import Draft, construction, draft
from tools.grammar.lexicon import FITTING, NOUNS, Adjective, nouns, rows
from tools.grammar.phrases import (
    ACTIONS, HE, MOMENTARY, SEXED, SHE, THEY, WE, I, Phrase, actor, chance, de_infinitive, de_perfect, event,
    nominative, np, pick, thing, told, who,
)  # fmt: skip
from tools.grammar.places import place
from tools.grammar.statements import be_adjective, degree
from tools.grammar.subordinate import again, someone
from tools.grammar.verbs import DATIVE, INTRANSITIVE, TRANSITIVE, chosen


def _around(
    head: Phrase, english: str, clause: str, a: Adjective, word: str = "", word_de: str = ""
) -> tuple[str, str]:
    """What the head is, with a relative clause after the head: the man who is reading is tired."""
    whole, ganz = be_adjective(head, a, word, word_de)
    middle = f"{head.subject} {english}", f"{head.nom}, {clause},"
    return middle[0] + whole.removeprefix(head.subject), middle[1] + ganz.removeprefix(head.nom)


@construction()
def relative_subject(r: Random) -> Draft:
    v = pick(r, ACTIONS)
    n = pick(r, [p for p in v.subjects if "person" in p.classes])
    o = thing(r, pick(r, v.objects), ("the", "a"), v)
    while o.lemma == n.english:
        o = thing(r, pick(r, v.objects), ("the", "a"), v)
    head = np(n, "the", chance(r, 0.2))
    relative = nominative("who", german.RELATIVE["nom"][head.column], head.person, n.english, "")
    past = v.lemma in MOMENTARY or chance(r, 0.4)
    a = pick(r, FITTING[n.english])
    english, inner = told(relative, v, past, o.acc, order="final")
    return draft(*_around(head, f"{english} {o.object}", inner, a, *degree(r, a, ("very", "", "not"))), n, v, o, a)


@construction(1.3)
def relative_object(r: Random) -> Draft:
    s, v, n = event(r, pronouns=0.3)
    while not FITTING[n.english] or "kin" in n.classes:
        s, v, n = event(r, pronouns=0.3)
    head = np(n, "the", n.german_plural != "-" and chance(r, 0.2))
    relative = german.RELATIVE["acc"][head.column]
    past = v.lemma in MOMENTARY or chance(r, 0.6)
    english, inner = told(s, v, past, order="final")
    a = pick(r, FITTING[n.english])
    how = degree(r, a, ("very", "too", "", "not"))
    return draft(*_around(head, f"that {english}", f"{relative} {inner}", a, *how), n, s, v, a)


@construction()
def relative_dative(r: Random) -> Draft:
    v = DATIVE[pick(r, ("help", "thank", "follow", "congratulate", "trust", "listen to"))]
    s = actor(r, v, pronouns=0.3)
    n = pick(r, [o for o in v.objects if "person" in o.classes and o.english != s.lemma])
    head = np(n, "the", chance(r, 0.15))
    relative = german.RELATIVE["dat"][head.column]
    a = pick(r, FITTING[n.english])
    english, inner = told(s, v, chance(r, 0.5), order="final")
    return draft(*_around(head, f"that {english}", f"{relative} {inner}", a), n, s, v, a)


@construction(0.8)
def relative_place(r: Random) -> Draft:
    v, seats = pick(r, _SITTING)
    s, n = who(r, v.subjects, 0.1), pick(r, seats)
    prep = "in" if n.classes & {"inside", "building", "area", "town"} else "on"
    a = pick(r, FITTING[n.english])
    relative = german.RELATIVE["dat"][n.gender]
    english, inner = told(s, v, False, order="final")
    how, auf = degree(r, a, ("very", "too", "")), "in" if prep == "in" else "auf"
    return draft(*_around(np(n), f"{prep} which {english}", f"{auf} {relative} {inner}", a, *how), n, s, v, a)


_SITTING = (
    (INTRANSITIVE["sit"], nouns("chair sofa bench bed carpet")),
    (INTRANSITIVE["sleep"], nouns("bed sofa room carpet hotel")),
    (INTRANSITIVE["play"], nouns("room garden park street forest")),
    (INTRANSITIVE["work"], nouns("office kitchen hotel garden")),
    (INTRANSITIVE["live"], nouns("house city village hotel")),
    (INTRANSITIVE["cook"], nouns("kitchen restaurant")),
)


@construction()
def knows_who(r: Random) -> Draft:
    """The head in the accusative, its relative pronoun in the nominative."""
    base, past_, forms = pick(r, (("know", False, TRANSITIVE["know"]), ("see", True, TRANSITIVE["see"]),
                                  ("invite", True, TRANSITIVE["invite"])))  # fmt: skip
    s = pick(r, (I, WE, THEY, HE, SHE)) if chance(r, 0.5) else who(r, SEXED, 0.1)
    v = pick(r, ACTIONS)
    n = pick(r, [p for p in v.subjects if "person" in p.classes and p.english != s.lemma])
    o = thing(r, pick(r, v.objects), ("the", "a"), v)
    while o.lemma in (n.english, s.lemma):
        o = thing(r, pick(r, v.objects), ("the", "a"), v)
    head = np(n, "the")
    relative = nominative("who", german.RELATIVE["nom"][n.gender], "er", n.english, "")
    main, haupt = told(s, forms, past_, head.acc)
    german_ = f"{haupt}, {de_perfect(relative, v, o.acc, order='final')}"
    return draft(f"{main} {head.object} who {v.past} {o.object}", german_, s, base, n, v, o)


_TRYING = (
    ("is trying to", "are trying to", "am trying to", german.present("versuchen", "versucht"), None),
    ("tried to", "tried to", "tried to", None, "versucht"),
    ("forgot to", "forgot to", "forgot to", None, "vergessen"),
)


_TRIED = chosen(
    "open, close, repair, find, learn, explain, sell, carry, draw, bake, build, write, read, answer, "
    "paint, turn on, turn off, cross, hide"
)
_FORGOTTEN = chosen(
    "buy, close, feed, call, invite, turn off, answer, wash, clean, tidy up, bring along, pick up, read, write"
)


@construction(1.2)
def to_infinitive(r: Random) -> Draft:
    third, many, first, present, participle = pick(r, _TRYING)
    s, v, n = event(r, _FORGOTTEN if third == "forgot to" else _TRIED)
    o = thing(r, n, ("the", "a"), v)
    verb = {"er": third, "ich": first}.get(s.person, many)
    finite = f"{s.nom} {present[s.person]}" if present else f"{s.nom} {german.HABEN[s.person]} {participle}"
    return draft(f"{s.subject} {verb} {v.base} {o.object}", f"{finite}, {o.acc} {v.zu}", s, third, v, n)


_ERRANDS = rows("""
to|shop|buy|food lamp map clock ball newspaper umbrella; to|restaurant|eat|soup fish salad meat cake
to|station|pick up|friend guest package daughter; to|school|pick up|child daughter friend
to|library|read|book newspaper poem; to|library|look for|map; to|park|feed|duck bird; to|park|draw|tree flower bird
to|hotel|pick up|guest suitcase; to|museum|draw|house horse; into|kitchen|drink|drink; into|kitchen|bake|cake bread
into|kitchen|look for|knife key; into|kitchen|eat|fruit egg bread; into|garden|plant|tree flower
into|garden|feed|rabbit goat dog duck; into|garden|repair|bicycle fence gate; into|garden|paint|bench fence wall
into|room|look for|key bag umbrella hat camera; into|room|turn off|lamp radio computer
into|office|repair|computer lamp clock; into|office|read|letter newspaper; into|house|close|window door
into|forest|look for|dog ball; into|shop|sell|clock picture bicycle
""")


@construction()
def in_order_to(r: Random) -> Draft:
    prep, goal, verb, selector = pick(r, _ERRANDS)
    w, n, where_ = TRANSITIVE[verb], pick(r, nouns(selector)), NOUNS[goal]
    s = actor(r, INTRANSITIVE["go"], pronouns=0.25, you=1)
    while n.english == s.lemma:
        s = actor(r, w)
    where, wohin = place(prep, where_, "dat" if prep == "to" else "acc")
    o = thing(r, n, ("the", "a"), w)
    english = f"{s.subject} went {where} to {w.base} {o.object}"
    return draft(english, f"{de_perfect(s, INTRANSITIVE['go'], wohin)}, um {o.acc} {w.zu}", s, goal, w, n)


_IF_HAD = {"more time": "mehr Zeit", "more money": "mehr Geld", "a garden": "einen Garten", "a car": "ein Auto"}
_IF_VERBS = {"more money": ("buy", "build", "visit"), "a garden": ("plant",), "a car": ("pick up", "visit")}


@construction()
def if_had(r: Random) -> Draft:
    what = pick(r, tuple(_IF_HAD))
    what = pick(r, ("more time", what))
    verbs = _IF_VERBS.get(
        what, ("read", "write", "visit", "learn", "repair", "paint", "bake", "draw", "clean", "tidy up", "invite")
    )
    v, s = TRANSITIVE[pick(r, verbs)], someone(r, 0.4)
    n = pick(r, v.objects)
    while n.english == s.lemma or n.english in what:
        n = pick(r, v.objects)
    pronoun, o = again(s), thing(r, n, ("the", "a"), v)
    condition = german.clause(s.nom, german.HAETTE[s.person], [_IF_HAD[what]], order="final")
    german_ = f"wenn {condition}, {de_infinitive(pronoun, german.WUERDE, v, o.acc, order='first')}"
    return draft(f"if {s.subject} had {what}, {pronoun.subject} would {v.base} {o.object}", german_, s, what, v, n)
