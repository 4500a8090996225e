"""Two clauses joined by a conjunction: weil, dass, wenn, obwohl, während, bevor, ob, und, aber, ohne."""

from random import Random

from tools.grammar import german
from tools.grammar.constructions import Draft, construction, draft
from tools.grammar.lexicon import ADJECTIVES, FITTING, Noun, nouns, rows, table
from tools.grammar.phrases import (
    ACTIONS, HE, KIN, MOMENTARY, NAMES, PERSONS, SEXED, SHE, SIMPLE, THEY, WE, YOU, I, Phrase, actor, adjectives,
    be, chance, de_be, de_infinitive, de_perfect, de_present, do, event, nominative, np, ongoing, pick, simple,
    thing, told, who,
)  # fmt: skip
from tools.grammar.relations import activity
from tools.grammar.statements import be_adjective, degree, described
from tools.grammar.verbs import INTRANSITIVE, TRANSITIVE, Verb, chosen, without

_BACK = {"he": HE, "she": SHE, "they": THEY, "I": I, "you": YOU, "we": WE}


def again(s: Phrase) -> Phrase:
    """The personal pronoun for someone already named."""
    return _BACK[s.again]


def someone(r: Random, pronouns: float = 0.2) -> Phrase:
    """A person whom he, she or they can stand for."""
    x = r.random()
    if x < pronouns:
        return pick(r, (I, WE, HE, SHE, THEY))
    return pick(r, NAMES) if x < pronouns + 0.2 else who(r, SEXED, 0.1)


def other(r: Random, besides: Phrase) -> tuple[Phrase, Verb, Noun]:
    """An event whose people differ from someone already named."""
    s, v, n = event(r, ACTIONS, pronouns=0.0)
    while s.lemma == besides.lemma or n.english == besides.lemma:
        s, v, n = event(r, ACTIONS, pronouns=0.0)
    return s, v, n


_FEELINGS = adjectives("happy sad angry nervous")


@construction(1.2)
def because_event(r: Random) -> Draft:
    s = someone(r)
    a = pick(r, _FEELINGS)
    t, v, n = other(r, s)
    o = thing(r, n, ("the", "a"), v)
    past = chance(r, 0.5)
    english = f"{s.subject} {be(s, past)} {a.english} because {t.subject} {v.past} {o.object}"
    german_ = f"{de_be(s, a.german, past=past)}, weil {de_perfect(t, v, o.acc, order='final')}"
    return draft(english, german_, s, a, t, v, n)


_CAUSES = table("""
sleep: tired sick; cry: sad tired nervous hungry; laugh: happy; sing: happy; dance: happy; cook: hungry
smile: happy friendly; stay: sick tired lazy
""")


@construction(0.8)
def because_state(r: Random) -> Draft:
    v = INTRANSITIVE[pick(r, (*_CAUSES, "stay"))]
    s = someone(r)
    while s.lemma == "cook":
        s = someone(r)
    a = ADJECTIVES[pick(r, _CAUSES[v.lemma].split())]
    word, word_de = pick(r, (("", ""), ("very", "sehr"), ("so", "so")))
    home = v.lemma == "stay"
    past = home or chance(r, 0.5)
    pronoun = again(s)
    reason = f"{be(s, past)} {word + ' ' if word else ''}{a.english}"
    english, main = told(s, v, past, "zu Hause" if home else "")
    german_ = f"{main}, weil {de_be(pronoun, word_de, a.german, past=past, order='final')}"
    return draft(f"{english}{' at home' if home else ''} because {pronoun.subject} {reason}", german_, s, v, a)


_SAYING = (("know", "knows", german.forms("weiß weißt weiß wissen wissen")),
           ("think", "thinks", german.forms("glaube glaubst glaubt glauben glauben")),
           ("hope", "hopes", german.forms("hoffe hoffst hofft hoffen hoffen")),
           ("say", "says", german.forms("sage sagst sagt sagen sagen")))  # fmt: skip


def _speakers(base: str) -> tuple[Phrase, ...]:
    return (I, WE, THEY, HE, SHE) if base != "say" else (THEY, HE, SHE)


@construction(1.2)
def that_past(r: Random) -> Draft:
    base, third, forms = pick(r, _SAYING)
    s = pick(r, _speakers(base)) if chance(r, 0.5) else who(r, PERSONS + KIN, 0.0)
    t, v, n = other(r, s)
    while base == "hope" and v.lemma in ("lose", "forget", "hide"):
        t, v, n = other(r, s)
    o = thing(r, n, ("the", "a"), v)
    english = f"{s.subject} {third if s.person == 'er' else base} that {t.subject} {v.past} {o.object}"
    return draft(english, f"{s.nom} {forms[s.person]}, dass {de_perfect(t, v, o.acc, order='final')}", s, base, t, v, n)


@construction(1.2)
def that_is(r: Random) -> Draft:
    base, third, forms = pick(r, _SAYING[:2] + _SAYING[3:])
    name = pick(r, _speakers(base)) if chance(r, 0.4) else pick(r, NAMES) if chance(r, 0.3) else None
    s = name or who(r, PERSONS + KIN, 0.0)
    n, a = described(r)
    while "kin" in n.classes:
        n, a = described(r)
    t = np(n, "the", n.german_plural != "-" and chance(r, 0.25))
    word, word_de = degree(r, a, ("very", "too", "", "not"))
    middle, _ = be_adjective(t, a, word, word_de)
    german_ = f"{s.nom} {forms[s.person]}, dass {de_be(t, word_de, a.german, order='final')}"
    return draft(f"{s.subject} {third if s.person == 'er' else base} that {middle}", german_, s, base, n, a)


_WHEN = rows("""
tired|drink|coffee tea; sick|drink|tea milk juice water; thirsty|drink|drink; hungry|eat|food -meat; happy|sing|song
sad|read|book poem letter; nervous|eat|apple cake bread; happy|bake|cake bread; sad|call|friend mother father
""")


@construction(0.8)
def when_state(r: Random) -> Draft:
    state, verb, selector = pick(r, _WHEN)
    s, a, v = someone(r), ADJECTIVES[state], TRANSITIVE[verb]
    n = pick(r, nouns(selector))
    o = np(n, again(s).own if "kin" in n.classes else "a")
    pronoun = again(s)
    english = f"when {s.subject} {be(s)} {a.english}, {pronoun.subject} {simple(s, v)} {o.object}"
    german_ = f"wenn {de_be(s, a.german, order='final')}, {de_present(pronoun, v, o.acc, order='first')}"
    return draft(english, german_, s, a, v, n)


@construction()
def although_state(r: Random) -> Draft:
    s, v, where, wo, lemma = activity(r, pronouns=0.2)
    while not s.again or s.again == "it" or v.lemma in ("sleep", "cry"):
        s, v, where, wo, lemma = activity(r, pronouns=0.2)
    a = ADJECTIVES[pick(r, ("tired", "sick", "hungry", "nervous", "sad", "angry"))]
    word, word_de = pick(r, (("", ""), ("very", "sehr")))
    pronoun = again(s)
    state = f"{be(s, True)} {word + ' ' if word else ''}{a.english}"
    german_ = (f"obwohl {de_be(s, word_de, a.german, past=True, order='final')}, "
               f"{de_perfect(pronoun, v, wo, order='first')}")  # fmt: skip
    return draft(f"although {s.subject} {state}, {pronoun.subject} {v.past} {where}", german_, s, a, v, lemma)


@construction()
def while_past(r: Random) -> Draft:
    v = pick(r, SIMPLE)
    s = actor(r, v, pronouns=0.1, plural=0.1)
    t, w, n = other(r, s)
    while w.lemma in ("lose", "forget", "find"):
        t, w, n = other(r, s)
    o = thing(r, n, ("the", "a"), w)
    was = be(s, True)
    german_ = f"während {de_perfect(s, v, order='final')}, {de_perfect(t, w, o.acc, order='first')}"
    return draft(f"while {s.subject} {was} {v.progressive}, {t.subject} {w.past} {o.object}", german_, s, v, t, w, n)


@construction()
def before_past(r: Random) -> Draft:
    v = INTRANSITIVE[pick(r, tuple(_FIRST))]
    w = TRANSITIVE[pick(r, _FIRST[v.lemma])]
    s = someone(r)
    o = thing(r, pick(r, w.objects), ("the", "a"), w)
    pronoun = again(s)
    german_ = f"bevor {de_perfect(s, v, order='final')}, {de_perfect(pronoun, w, o.acc, order='first')}"
    return draft(f"before {s.subject} {v.past}, {pronoun.subject} {w.past} {o.object}", german_, s, v, w, o)


_FIRST = {
    "fall asleep": ("read", "eat", "drink", "close", "call", "turn off", "wash", "feed"),
    "come back": ("buy", "visit", "pick up", "eat", "drink", "call"),
    "arrive": ("buy", "eat", "drink", "call", "lose"),
}


_UNSURE = {"whether": "ob", "why": "warum", "when": "wann"}


@construction()
def indirect_question(r: Random) -> Draft:
    w = pick(r, tuple(_UNSURE))
    s = pick(r, (I, WE, HE, SHE, THEY)) if chance(r, 0.6) else who(r, PERSONS + KIN, 0.0)
    t, v, n = other(r, s)
    o = thing(r, n, ("the", "a"), v)
    know = _SAYING[0][2][s.person]
    english = f"{s.subject} {do(s, negative=True)} know {w} {t.subject} {v.past} {o.object}"
    return draft(english, f"{s.nom} {know} nicht, {_UNSURE[w]} {de_perfect(t, v, o.acc, order='final')}", s, w, t, v, n)


@construction()
def and_clause(r: Random) -> Draft:
    v = pick(r, SIMPLE)
    s = actor(r, v, pronouns=0.1)
    t, w, n = other(r, s)
    while w.lemma in MOMENTARY:
        t, w, n = other(r, s)
    o = thing(r, n, ("the", "a"), w)
    german_ = f"{de_present(s, v)} und {de_present(t, w, o.acc)}"
    return draft(f"{s.subject} {ongoing(s, v)} and {t.subject} {ongoing(t, w)} {o.object}", german_, s, v, t, w, n)


@construction(0.9)
def and_subject(r: Random) -> Draft:
    s, v, where, wo, lemma = activity(r, pronouns=0.0, plural=0.0)
    t = actor(r, v, pronouns=0.0, plural=0.1)
    while t.lemma == s.lemma:
        t = actor(r, v, pronouns=0.0, plural=0.1)
    both = nominative(f"{s.subject} and {t.subject}", f"{s.nom} und {t.nom}", "sie", "", "p")
    english, german_ = told(both, v, chance(r, 0.4), wo)
    return draft(f"{english} {where}", german_, s, t, v, lemma)


_LACKING = {"time": "keine Zeit", "money": "kein Geld"}


_WANTED = without(ACTIONS, "lose, forget, find, cross, hide")


@construction()
def wanted_but(r: Random) -> Draft:
    s, v, n = someone(r), pick(r, _WANTED), None
    lack = pick(r, ("time", "time", "money"))
    if lack == "money":
        v = TRANSITIVE[pick(r, ("buy", "build", "visit"))]
    while n is None or n.english == s.lemma:
        n = pick(r, v.objects)
    o, pronoun = thing(r, n, ("the", "a"), v), again(s)
    english = f"{s.subject} wanted to {v.base} {o.object}, but {pronoun.subject} had no {lack}"
    excuse = f"{pronoun.nom} {german.HATTE[pronoun.person]} {_LACKING[lack]}"
    return draft(english, f"{de_infinitive(s, german.MODALS['wanted'], v, o.acc)}, aber {excuse}", s, v, n, lack)


_OMITTED = chosen("close, read, eat, drink, feed, clean, call, tidy up, turn off, answer, find")


@construction(0.8)
def without_doing(r: Random) -> Draft:
    s = actor(r, INTRANSITIVE["go"], pronouns=0.25)
    v = pick(r, _OMITTED)
    n = pick(r, v.objects)
    o = thing(r, n, ("the",), v)
    home = chance(r, 0.5)
    main = f"{s.subject} {'went home' if home else 'fell asleep'}"
    haupt = de_perfect(s, INTRANSITIVE["go"], "nach Hause") if home else de_perfect(s, INTRANSITIVE["fall asleep"])
    return draft(
        f"{main} without {v.progressive} {o.object}", f"{haupt}, ohne {o.acc} {v.zu}", s, main.split()[-1], v, n
    )


@construction(0.8)
def not_but(r: Random) -> Draft:
    n = pick(r, nouns("clothes car bicycle bag suitcase sofa door flower apple"))
    colours = [a for a in FITTING[n.english] if a.english in ("red", "blue", "green", "black", "white")]
    one = pick(r, colours)
    two = pick(r, [c for c in colours if c is not one])
    owned = n.english not in ("door", "flower", "apple")
    s = np(n, pick(r, ("the", "my", "your", "his", "her") if owned else ("the", "this")), chance(r, 0.2))
    english = f"{s.subject} {be(s, negative=True)} {one.english} but {two.english}"
    return draft(english, f"{de_be(s, 'nicht', one.german)}, sondern {two.german}", n, one, two)
