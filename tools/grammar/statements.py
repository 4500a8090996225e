"""Main clauses around one verb: tense, negation, adjectives, modals, possessives."""

from random import Random

from tools.grammar import german
from tools.grammar.constructions import Draft, construction, draft
from tools.grammar.lexicon import (
    ADJECTIVES, FITTING, FUTURE_TIMES, NOUNS, PAST_TIMES, Adjective, Noun, nouns, words,
)  # fmt: skip
from tools.grammar.phrases import (
    ACTIONS, LASTING, MOMENTARY, SIMPLE, WILLED, Phrase, anyone, attribute, be, chance, de_be, de_infinitive,
    de_perfect, de_present, do, english_modal, event, have, np, ongoing, ongoing_not, past_time, perhaps, pick,
    thing, told,
)  # fmt: skip
from tools.grammar.verbs import chosen


@construction()
def object_now(r: Random) -> Draft:
    s, v, n = event(r, LASTING)
    o = thing(r, n, ("the", "a"), v)
    return draft(f"{s.subject} {ongoing(s, v)} {o.object}", de_present(s, v, o.acc), s, v, n)


@construction()
def object_past(r: Random) -> Draft:
    s, v, n = event(r, you=1)
    o = thing(r, n, ("the", "a"), v)
    return draft(f"{s.subject} {v.past} {o.object}", de_perfect(s, v, o.acc), s, v, n)


@construction(1.2)
def adjective_object(r: Random) -> Draft:
    s, v, n = event(r, you=1)
    while (a := attribute(r, n)) is None or "kin" in n.classes:
        s, v, n = event(r, you=1)
    o = np(n, pick(r, ("the", "a", "a", "this")), False, a)
    return draft(f"{s.subject} {v.past} {o.object}", de_perfect(s, v, o.acc), s, v, a, n)


@construction()
def object_past_not(r: Random) -> Draft:
    s, v, n = event(r, you=1)
    o = thing(r, n, ("the", "this"), v)
    return draft(f"{s.subject} didn't {v.base} {o.object}", de_perfect(s, v, o.acc, "nicht"), s, v, n)


@construction()
def object_now_not(r: Random) -> Draft:
    s, v, n = event(r, LASTING)
    o = thing(r, n, ("the",), v)
    return draft(f"{s.subject} {ongoing_not(s, v)} {o.object}", de_present(s, v, o.acc, "nicht"), s, v, n)


_OWNED = nouns("good pet horse cow garden house key plan")


@construction()
def has_no(r: Random) -> Draft:
    s = anyone(r, 0.3)
    n = pick(r, _OWNED)
    a = perhaps(r, 0.3, n)
    o, none = np(n, "a", False, a), np(n, "no", False, a)
    german_ = german.clause(s.nom, german.HABEN[s.person], [none.acc])
    return draft(f"{s.subject} {do(s, negative=True)} have {o.object}", german_, s, "have", n, a)


@construction(1.2)
def has_adjective(r: Random) -> Draft:
    s = anyone(r, 0.3)
    n = pick(r, _OWNED)
    a = attribute(r, n)
    while a is None or a.english in _TEMPORARY[:7]:
        n = pick(r, _OWNED)
        a = attribute(r, n)
    past = chance(r, 0.3)
    o = np(n, "a", False, a)
    german_ = german.clause(s.nom, (german.HATTE if past else german.HABEN)[s.person], [o.acc])
    return draft(f"{s.subject} {'had' if past else have(s)} {o.object}", german_, s, "have", n, a)


@construction(1.9)
def this_is_a(r: Random) -> Draft:
    n, a = described(r)
    while not a.attributive or n.mass or "kin" in n.classes:
        n, a = described(r)
    many = chance(r, 0.25) and n.german_plural != "-"
    o = np(n, "a", many, a)
    start, beginn = ("that was", "das war") if chance(r, 0.4) else ("this is", "das ist")
    if many:
        start, beginn = "these are", "das sind"
    return draft(f"{start} {o.object}", f"{beginn} {o.nom}", "this", n, a, "many" if many else start)


_NO_VERBS = chosen("buy, find, read, write, eat, drink, sell, see, bake, build")


@construction()
def no_object(r: Random) -> Draft:
    s, v, n = event(r, _NO_VERBS, you=1)
    o = np(n, "a")
    english = f"any {o.object}" if n.mass else o.object
    return draft(f"{s.subject} didn't {v.base} {english}", de_perfect(s, v, np(n, "no").acc), s, v, n, "no")


@construction(1.2)
def plural_object(r: Random) -> Draft:
    s, v, n = event(r, LASTING)
    while n.german_plural == "-" or "kin" in n.classes or n.english == "language":
        s, v, n = event(r, LASTING)
    a = perhaps(r, 0.6, n)
    o = np(n, pick(r, ("the", "", "this")), True, a)
    return draft(f"{s.subject} {ongoing(s, v)} {o.object}", de_present(s, v, o.acc), s, v, n, a)


_DEGREES = {"very": "sehr", "too": "zu", "": "", "not": "nicht", "still": "noch", "not very": "nicht sehr"}
_UNGRADED = ("empty", "red", "blue", "green", "black", "white", "broken", "round")
_DESCRIBED = tuple(n for n in NOUNS.values() if len(FITTING[n.english]) > 1)


def degree(r: Random, a: Adjective, choices: tuple[str, ...] = tuple(_DEGREES)) -> tuple[str, str]:
    """A degree word for the adjective and its German; colours are not very, and nothing is too beautiful."""
    word = pick(r, choices)
    if a.english in _UNGRADED and word not in ("", "not", "still"):
        word = "not" if "not" in word else ""
    if word == "too" and a.english in _WELCOME:
        word = "very"
    if word == "still" and a.english not in _TEMPORARY:
        word = "very" if a.english not in _UNGRADED else ""
    return word, _DEGREES[word]


_WELCOME = words("new young beautiful famous fresh clever friendly happy good comfortable")
_TEMPORARY = words("tired hungry thirsty sick angry nervous sad wet hot cold warm fresh dirty clean empty full broken "
                   "weak young small dark")  # fmt: skip


def be_adjective(s: Phrase, a: Adjective, word: str, word_de: str, past: bool = False) -> tuple[str, str]:
    negative = word.startswith("not")
    rest = [w for w in (word.removeprefix("not").strip(), a.english) if w]
    return f"{s.subject} {be(s, past, negative)} {' '.join(rest)}", de_be(s, word_de, a.german, past=past)


_DESCRIBES = {a: tuple(n for n in _DESCRIBED if a in FITTING[n.english]) for a in ADJECTIVES.values()}


def described(r: Random) -> tuple[Noun, Adjective]:
    """A noun and an adjective for it; every adjective is as likely as any other."""
    a = pick(r, tuple(_DESCRIBES))
    return pick(r, _DESCRIBES[a]), a


@construction(1.7)
def is_adjective(r: Random) -> Draft:
    n, a = described(r)
    many = chance(r, 0.3) and n.german_plural != "-"
    s = np(n, pick(r, ("my", "your", "his", "our")) if "kin" in n.classes else "the", many)
    past = chance(r, 0.4)
    english, german_ = be_adjective(s, a, *degree(r, a), past=past)
    return draft(english, german_, s, a)


_PUBLIC = {"way", "nature", "building", "town", "area", "food", "inside", "barrier"}


@construction(1.7)
def this_adjective(r: Random) -> Draft:
    n, a = described(r)
    while n.classes & {"kin", "person"}:
        n, a = described(r)
    many = chance(r, 0.4) and n.german_plural != "-"
    s = np(n, pick(r, ("this", "this", "my", "your", "her", "their")), many)
    if (
        n.mass
        or n.classes & _PUBLIC
        or n.english in ("train", "bus", "fox", "mouse", "animal", "ship", "word", "exam", "problem")
    ):
        s = np(n, "this", many)
    english, german_ = be_adjective(s, a, *degree(r, a))
    return draft(english, german_, n, a)


@construction(1.2)
def adjective_subject(r: Random) -> Draft:
    v = pick(r, SIMPLE)
    n = pick(r, v.subjects)
    a = attribute(r, n)
    while a is None or (
        a.english in ("nervous", "sick", "hungry", "thirsty", "dirty", "wet", "famous") and "kin" in n.classes
    ):
        n = pick(r, v.subjects)
        a = attribute(r, n)
    many = chance(r, 0.35)
    det = pick(r, ("my", "your", "our")) if "kin" in n.classes else pick(r, ("the", "the", "a"))
    s = np(n, det, many and det != "a", a)
    return draft(*told(s, v, chance(r, 0.4)), n, a, v)


_MASS_VERBS = chosen("drink, eat, buy, cut")


@construction(0.8)
def strong_adjective(r: Random) -> Draft:
    s, v, _ = event(r, _MASS_VERBS)
    n = pick(r, [o for o in v.objects if o.mass or "fruit" in o.classes or o.english == "egg"])
    a = attribute(r, n)
    assert a is not None
    o = np(n, "", not n.mass, a)
    english, german_ = told(s, v, chance(r, 0.4), o.acc)
    return draft(f"{english} {o.object}", german_, s, v, a, n)


@construction(1.2)
def time_first_past(r: Random) -> Draft:
    s, v, n = event(r, ACTIONS, you=1)
    t = past_time(r, v)
    o = thing(r, n, ("the", "a"), v)
    return draft(f"{t} {s.subject} {v.past} {o.object}", de_perfect(s, v, o.acc, front=PAST_TIMES[t]), s, v, n, t)


@construction()
def time_first_future(r: Random) -> Draft:
    s, v, n = event(r, ACTIONS, you=1)
    t = pick(r, tuple(FUTURE_TIMES))
    o = thing(r, n, ("the", "a"), v)
    german_ = de_infinitive(s, german.WERDEN, v, o.acc, front=FUTURE_TIMES[t])
    return draft(f"{t} {s.subject} will {v.base} {o.object}", german_, s, v, n, t)


@construction()
def will(r: Random) -> Draft:
    s, v, n = event(r, ACTIONS, you=1)
    o = thing(r, n, ("the", "a", "this"), v)
    negative = chance(r, 0.4) and o.object.startswith(("the ", "this "))
    word = "won't" if negative else "will"
    german_ = de_infinitive(s, german.WERDEN, v, o.acc, "nicht" if negative else "")
    return draft(f"{s.subject} {word} {v.base} {o.object}", german_, s, v, n, word)


@construction(1.3)
def modal(r: Random) -> Draft:
    s, v, n = event(r, WILLED, you=1)
    m = pick(r, ("can", "must", "want", "may", "should"))
    o = thing(r, n, ("the", "a"), v)
    english = f"{s.subject} {english_modal(m, s)} {v.base} {o.object}"
    return draft(english, de_infinitive(s, german.MODALS[m], v, o.acc), s, m, v, n)


@construction()
def modal_past(r: Random) -> Draft:
    s, v, n = event(r, WILLED, you=1)
    m = pick(r, ("could", "had", "wanted"))
    o = thing(r, n, ("the",), v)
    verb, negation = ("couldn't", "nicht") if m == "could" else (english_modal(m, s), "")
    english = f"{s.subject} {verb} {v.base} {o.object}"
    return draft(english, de_infinitive(s, german.MODALS[m], v, o.acc, negation), s, m, v, n)


_OWN_VERBS = chosen(
    "sell, lose, look for, wash, repair, forget, put on, take off, tidy up, open, close, paint, find, carry"
)
_OWNABLE = frozenset(n.english for n in nouns("good key house room office letter knife present garden door fence"))


@construction(1.2)
def own_object(r: Random) -> Draft:
    s, v, n = event(r, _OWN_VERBS, pronouns=0.3)
    while not s.own or n.english not in _OWNABLE or (s.person in ("wir", "sie") and "clothes" in n.classes):
        s, v, n = event(r, _OWN_VERBS, pronouns=0.3)
    o = np(n, s.own)
    english, german_ = told(s, v, chance(r, 0.6) or v.lemma in MOMENTARY, o.acc)
    return draft(f"{english} {o.object}", german_, s, v, n, s.own)
