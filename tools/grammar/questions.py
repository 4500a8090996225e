"""Questions, requests and suggestions."""

from random import Random

from tools.grammar import german
from tools.grammar.constructions import Draft, construction, draft
from tools.grammar.lexicon import FITTING, PAST_TIMES, nouns, words
from tools.grammar.phrases import (
    ACTIONS, HE, LASTING, NAMES, SHE, THEY, WE, WILLED, YOU, I, adjectives, anyone, be, chance, de_infinitive,
    de_perfect, de_present, do, event, np, past_time, pick, qualified, thing,
)  # fmt: skip
from tools.grammar.verbs import DATIVE, Verb, chosen, without


@construction()
def yes_no_now(r: Random) -> Draft:
    s, v, n = event(r, LASTING)
    if s is I:
        s = SHE
    o = thing(r, n, ("the", "a"), v)
    if v.state:
        english = f"{do(s)} {s.subject} {v.base} {o.object}?"
    else:
        english = f"{be(s)} {s.subject} {v.progressive} {o.object}?"
    return draft(english, de_present(s, v, o.acc, order="first") + "?", s, v, n)


_ABOUT_YOU = chosen("know, understand, need, see, look for, read, eat, drink, visit, learn, buy, use, hear, write")


@construction(1.2)
def are_you(r: Random) -> Draft:
    v = pick(r, _ABOUT_YOU)
    n = pick(r, v.objects)
    o = thing(r, n, ("the", "a", "this"), v)
    english = f"do you {v.base} {o.object}?" if v.state else f"are you {v.progressive} {o.object}?"
    return draft(english, de_present(YOU, v, o.acc, order="first") + "?", "you", v, n)


@construction()
def yes_no_past(r: Random) -> Draft:
    s, v, n = event(r, pronouns=0.35, you=1)
    a, o = qualified(r, 0.25, v, n, ("the", "a"), ("the", "a"))
    return draft(f"did {s.subject} {v.base} {o.object}?", de_perfect(s, v, o.acc, order="first") + "?", s, v, n, a)


@construction(0.8)
def who_did(r: Random) -> Draft:
    _, v, n = event(r)
    a, o = qualified(r, 0.6, v, n, ("the", "this"), ("the",))
    t = past_time(r, v) if chance(r, 0.5) and not v.state else ""
    german_ = german.clause("wer", "hat", [PAST_TIMES.get(t, ""), o.acc], v.german_participle)
    return draft(f"who {v.past} {o.object}{' ' + t if t else ''}?", german_ + "?", "who", v, n, a, t)


_WHAT = chosen(
    "buy, eat, drink, read, write, find, lose, sell, forget, build, draw, hide, learn, repair, bring "
    "along, explain, hear, see"
)


@construction(0.8)
def what_did(r: Random) -> Draft:
    s, v, _ = event(r, _WHAT, pronouns=0.25, you=1)
    t = past_time(r, v)
    german_ = de_perfect(s, v, PAST_TIMES[t], order="first")
    return draft(f"what did {s.subject} {v.base} {t}?", f"was {german_}?", "what", s, v, t)


_WHERE = frozenset(words("buy find lose hide learn sell see hear wash read eat"))
_ASK = {"when": "wann", "where": "wo", "why": "warum"}


@construction(1.2)
def when_where_why(r: Random) -> Draft:
    w = pick(r, tuple(_ASK))
    s, v, n = event(r, ACTIONS, pronouns=0.25, you=1)
    while w == "where" and v.lemma not in _WHERE:
        s, v, n = event(r, ACTIONS, pronouns=0.25, you=1)
    o = thing(r, n, ("the", "this"), v)
    german_ = f"{_ASK[w]} {de_perfect(s, v, o.acc, order='first')}?"
    return draft(f"{w} did {s.subject} {v.base} {o.object}?", german_, w, s, v, n)


@construction()
def can_you(r: Random) -> Draft:
    m = pick(r, ("can", "must", "should", "may"))
    s = pick(r, (I, WE, HE, SHE, THEY, *NAMES)) if m != "can" else pick(r, (YOU, YOU, HE, SHE, THEY, *NAMES))
    v = pick(r, WILLED)
    while not v.subjects[0].classes & {"person"}:
        v = pick(r, WILLED)
    o = thing(r, pick(r, v.objects), ("the", "a"), v)
    if m == "must":
        english = f"{do(s)} {s.subject} have to {v.base} {o.object}?"
    elif m == "may":
        english = f"{be(s)} {s.subject} allowed to {v.base} {o.object}?"
    else:
        english = f"{m} {s.subject} {v.base} {o.object}?"
    german_ = de_infinitive(s, german.MODALS[m], v, o.acc, order="first")
    return draft(english, german_ + "?", m, s, v, o)


_MEASURES = adjectives(
    "old big expensive heavy long wide deep high fast hot cold important difficult dangerous thick strong"
)
_MEASURED = tuple(
    (a, n)
    for n in nouns(
        "beast building furniture vehicle clothes device good container town drink soup tree "
        "way nature barrier idea exam work area inside"
    )
    for a in FITTING[n.english]
    if a in _MEASURES
)


@construction(0.7)
def how_adjective(r: Random) -> Draft:
    a, n = pick(r, _MEASURED)
    mine = n.classes & {"clothes", "good", "container", "pet"}
    s = np(n, pick(r, ("the", "this", "your", "his")) if mine else pick(r, ("the", "this")),
           n.german_plural != "-" and chance(r, 0.25))  # fmt: skip
    past = chance(r, 0.3)
    finite = (german.WAR if past else german.SEIN)[s.person]
    return draft(f"how {a.english} {be(s, past)} {s.subject}?", f"wie {a.german} {finite} {s.nom}?", "how", a, n)


@construction()
def which_object(r: Random) -> Draft:
    s, v, n = event(r, pronouns=0.35, you=1)
    while "kin" in n.classes or n.mass:
        s, v, n = event(r, pronouns=0.35, you=1)
    many = n.german_plural != "-" and chance(r, 0.3)
    which = "welch" + german.DIESER["acc"]["p" if many else n.gender]
    noun = german.noun_form(n, "acc", many)
    english = f"which {n.english_plural if many else n.english} did {s.subject} {v.base}?"
    return draft(english, f"{which} {noun} {de_perfect(s, v, order='first')}?", "which", s, v, n)


_WEM: tuple[Verb, ...] = chosen("help, thank, follow, congratulate, trust, listen to", DATIVE)
_WEN = chosen("visit, invite, call, pick up, see, hear, look for")


@construction(0.8)
def whom(r: Random) -> Draft:
    v = pick(r, _WEM if chance(r, 0.6) else _WEN)
    s = anyone(r, 0.4)
    t = pick(r, ("", *PAST_TIMES))
    word = "wem" if v.case == "dat" else "wen"
    german_ = f"{word} {de_perfect(s, v, PAST_TIMES.get(t, ''), order='first')}?"
    return draft(f"who did {s.subject} {v.base}{' ' + t if t else ''}?", german_, "whom", s, v, t or "whom")


_IMPERATIVES = {"lesen": "lies", "essen": "iss", "vergessen": "vergiss", "geben": "gib", "sehen": "sieh",
                "helfen": "hilf"}  # fmt: skip


def imperative(v: Verb) -> str:
    """Du-imperative: lies, iss, vergiss where the stem changes e to i, otherwise with -e: kaufe, öffne."""
    return _IMPERATIVES.get(v.stem, v.forms["ich"])


_REQUESTS = without(ACTIONS, "lose, forget, cross, build, sell")


_NEW = ("buy", "write", "bake", "draw", "plant", "eat", "drink", "bring along", "read")


@construction()
def please_do(r: Random) -> Draft:
    v = pick(r, _REQUESTS)
    n = pick(r, v.objects)
    a, o = qualified(r, 0.5, v, n, ("the", "this"), ("the", "a") if v.lemma in _NEW else ("the",))
    german_ = german.clause("", imperative(v), [o.acc], prefix=v.prefix)
    return draft(f"please {v.base} {o.object}", f"bitte {german_}", "please", v, n, a)


@construction(0.8)
def do_not(r: Random) -> Draft:
    v = pick(r, ACTIONS)
    n = pick(r, v.objects)
    a, o = qualified(r, 0.5, v, n, ("the", "this"), ("the", "this"))
    german_ = german.clause("", imperative(v), [o.acc, "nicht"], prefix=v.prefix)
    return draft(f"don't {v.base} {o.object}!", german_ + "!", "don't", v, n, a)


@construction(0.7)
def lets(r: Random) -> Draft:
    v = pick(r, _REQUESTS)
    n = pick(r, v.objects)
    a, o = qualified(r, 0.5, v, n, ("the", "this"), ("the", "a") if v.lemma in _NEW else ("the",))
    return draft(f"let's {v.base} {o.object}", f"lass uns {o.acc} {v.infinitive}", "let's", v, n, a)


_WISHES = without(ACTIONS, "lose, forget, cross")
_MOECHTE = german.forms("möchte möchtest möchte möchten möchten")


@construction()
def would_like(r: Random) -> Draft:
    s, v, n = event(r, _WISHES, pronouns=0.3, you=1)
    o = thing(r, n, ("the", "a"), v)
    if chance(r, 0.4):
        s = YOU if s is I else s
        german_ = de_infinitive(s, _MOECHTE, v, o.acc, order="first")
        return draft(f"would {s.subject} like to {v.base} {o.object}?", german_ + "?", s, "would", v, n)
    german_ = de_infinitive(s, _MOECHTE, v, o.acc)
    return draft(f"{s.subject} would like to {v.base} {o.object}", german_, s, "would", v, n)
