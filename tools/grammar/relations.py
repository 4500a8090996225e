"""Main clauses with receivers, places, passives and prepositions."""

from random import Random

from tools.grammar import german
from tools.grammar.constructions import Draft, construction, draft
from tools.grammar.lexicon import nouns
from tools.grammar.phrases import (
    ACTIONS, HUMANS, NAMES, PERSONAL, YOU, Phrase, actor, anyone, at, attribute, be, chance, de_perfect, de_present,
    event, np, ongoing, perhaps, pick, simple, thing, told, who,
)  # fmt: skip
from tools.grammar.places import ACTIVITIES, INTO, TO, place, posture, spot
from tools.grammar.verbs import DATIVE, DITRANSITIVE, INTRANSITIVE, PREPOSITIONAL, Verb, chosen, without


def _receiver(r: Random, besides: str) -> Phrase:
    p = who(r, HUMANS, 0.2)
    while p.lemma == besides:
        p = who(r, HUMANS, 0.2)
    return p


@construction(1.2)
def two_objects(r: Random) -> Draft:
    s, v, n = event(r, tuple(DITRANSITIVE.values()), you=1)
    to = _receiver(r, s.lemma)
    o = thing(r, n, ("the",) if n.english in ("house", "garden", "room") else ("the", "a"), v)
    return draft(f"{s.subject} {v.past} {to.object} {o.object}", de_perfect(s, v, to.dat, o.acc), s, v, to, n)


@construction(0.8)
def two_objects_pronoun(r: Random) -> Draft:
    s, v, n = event(r, tuple(DITRANSITIVE.values()), pronouns=0.2)
    to = pick(r, [p for p in PERSONAL if p.lemma != s.lemma])
    if {s.lemma, to.lemma} == {"I", "we"}:
        to = YOU
    o = thing(r, n, ("the", "a"), v)
    english = f"{s.subject} {ongoing(s, v)} {to.object} {o.object}"
    return draft(english, de_present(s, v, to.dat, o.acc), s, v, to.object, n)


_HELPING = chosen("help, help, thank, follow, congratulate, trust, listen to", DATIVE)


@construction(1.3)
def dative_verb(r: Random) -> Draft:
    s, v, n = event(r, _HELPING)
    a = attribute(r, n) if chance(r, 0.35) and "kin" not in n.classes else None
    det = pick(r, ("my", "your", "our")) if "kin" in n.classes else "the"
    o = np(n, det, chance(r, 0.2) and "kin" not in n.classes, a)
    english, german_ = told(s, v, chance(r, 0.5), o.dat)
    return draft(f"{english} {o.object}", german_, s, v, n, a)


@construction()
def belongs_to(r: Random) -> Draft:
    v = DATIVE["belong to"]
    n = pick(r, v.subjects)
    a = perhaps(r, 0.5, n)
    s = np(n, pick(r, ("the", "this")), chance(r, 0.25), a)
    to = pick(r, NAMES + PERSONAL) if chance(r, 0.25) else who(r, HUMANS, 0.1)
    return draft(f"{s.subject} {simple(s, v)} {to.object}", de_present(s, v, to.dat), n, v, to, a)


@construction()
def likes(r: Random) -> Draft:
    """The thing liked is the German subject: Das Bild gefällt der Frau."""
    v = DATIVE["please"]
    n = pick(r, v.subjects)
    a = perhaps(r, 0.4, n)
    s = np(n, pick(r, ("the", "this")), False, a)
    to = pick(r, NAMES) if chance(r, 0.2) else who(r, HUMANS, 0.15)
    english = f"{to.subject} {'likes' if to.person == 'er' else 'like'} {s.object}"
    return draft(english, de_present(s, v, to.dat), to, "like", n, a)


_POSTURE_FORMS = {"lie": german.present("liegen", "liegt"), "stand": german.present("stehen", "steht")}
_PUT = {"lie": "gelegt", "stand": "gestellt"}


@construction(1.2)
def is_somewhere(r: Random) -> Draft:
    n, here, _, support = spot(r)
    a = perhaps(r, 0.35, n)
    s = np(n, pick(r, ("the", "my", "your", "his", "her")), chance(r, 0.15), a)
    where, wo = place(here, support)
    german_ = german.clause(s.nom, _POSTURE_FORMS[posture(n)][s.person], [wo])
    return draft(f"{s.subject} {be(s)} {where}", german_, n, here, support, a)


@construction(1.2)
def put_somewhere(r: Random) -> Draft:
    n, _, there, support = spot(r)
    s = anyone(r, 0.3, 0.1)
    o = np(n, pick(r, ("the", "a")))
    where, wohin = place(there, support, "acc")
    german_ = german.clause(s.nom, german.HABEN[s.person], [o.acc, wohin], _PUT[posture(n)])
    return draft(f"{s.subject} put {o.object} {where}", german_, s, n, there, support)


_GO, _RUN = INTRANSITIVE["go"], INTRANSITIVE["run"]


@construction(1.2)
def goes_into(r: Random) -> Draft:
    if chance(r, 0.3):
        s, v = who(r, nouns("pet fox"), 0.1), pick(r, (_RUN, INTRANSITIVE["jump"]))
        prep, n = (("under", pick(r, nouns("table bed chair sofa bench"))) if v is _RUN
                   else ("onto", pick(r, nouns("table bed chair sofa bench wall"))))  # fmt: skip
    else:
        s, v = actor(r, _GO, names=0.15), pick(r, (_GO, _GO, _RUN))
        prep, n = ("into", pick(r, INTO)) if chance(r, 0.55) else ("to", pick(r, TO))
    where, wohin = place(prep, n, "dat" if prep == "to" else "acc")
    english, german_ = told(s, v, v is not _GO or chance(r, 0.6), wohin)
    return draft(f"{english} {where}", german_, s, v, prep, n)


def activity(r: Random, **options: float) -> tuple[Phrase, Verb, str, str, str]:
    """Someone doing something somewhere: subject, verb, English and German place, the place's lemma."""
    v = INTRANSITIVE[pick(r, tuple(ACTIVITIES))]
    s = actor(r, v, **options)
    prep, n = pick(r, ACTIVITIES[v.lemma])
    where, wo = place(prep, n)
    return s, v, where, wo, n.english


@construction(1.2)
def activity_somewhere(r: Random) -> Draft:
    s, v, where, wo, lemma = activity(r)
    english, german_ = told(s, v, chance(r, 0.5), wo)
    return draft(f"{english} {where}", german_, s, v, lemma)


_PASSIVE = without(
    ACTIONS, "put on, take off, try on, cross, watch, bring along, lose, look for, forget, learn, sing, hide"
)


@construction()
def passive_by(r: Random) -> Draft:
    s, v, n = event(r, _PASSIVE, pronouns=0.0)
    o = thing(r, n, ("the", "this"), v)
    german_ = german.clause(o.nom, german.WURDE[o.person], [at("von", s, "dat")], v.german_participle)
    return draft(f"{o.subject} {be(o, True)} {v.participle} by {s.object}", german_, n, v, s, "by")


_ADVERBS = {"today": "heute", "now": "jetzt", "again": "wieder"}
_PROCESS = chosen("repair, paint, clean, wash, build, open, close, sell, cut, bake, plant, feed, explain, write, read")


@construction(0.8)
def passive_now(r: Random) -> Draft:
    _, v, n = event(r, _PROCESS)
    many = chance(r, 0.4) and n.german_plural != "-"
    a = attribute(r, n) if chance(r, 0.4) and n.english != "word" else None
    o, t = np(n, "the", many, a), pick(r, tuple(_ADVERBS))
    english = f"{o.subject} {be(o)} being {v.participle} {t}"
    return draft(english, german.clause(o.nom, german.WERDEN[o.person], [_ADVERBS[t]], v.german_participle), n, v, t, a)


@construction(2.2)
def preposition_verb(r: Random) -> Draft:
    s, v, n = event(r, tuple(PREPOSITIONAL.values()), pronouns=0.4)
    det = (s.own or "the") if "kin" in n.classes or n.english == "holiday" else "the"
    if "kin" in n.classes and det == "the":
        det = "my"
    if v.lemma == "dream of" and det == "the":
        det = "a"
    o = np(n, det)
    past = chance(r, 0.4)
    en_verb = v.past if past else simple(s, v) if v.lemma == "remember" else ongoing(s, v)
    german_ = (de_perfect if past else de_present)(s, v, at(v.preposition, o, v.case))
    return draft(f"{s.subject} {en_verb} {o.object}", german_, s, v, n)
