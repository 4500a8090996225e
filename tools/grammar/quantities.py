"""Numbers, ages, prices, clock times, dates and how much there is of something."""

from random import Random

from tools.grammar import german
from tools.grammar.comparison import DAILY, routine
from tools.grammar.constructions import Draft, construction, draft
from tools.grammar.lexicon import NOUNS, NUMBERS, UNITS, WEEKDAYS, Noun, nouns, table, words
from tools.grammar.phrases import (
    ACTIONS, HUMANS, NAMES, QUICK, SLOW, Phrase, actor, anyone, be, chance, de_perfect, de_present, do, event, have,
    nominative, np, perhaps, pick, simple, thing, told, who,
)  # fmt: skip
from tools.grammar.places import place
from tools.grammar.relations import activity
from tools.grammar.verbs import INTRANSITIVE, chosen

SMALL = tuple(list(NUMBERS)[:11])  # two to twelve
MIDDLE = tuple(list(NUMBERS)[:13])  # two to thirty
TENS = tuple(list(NUMBERS)[11:])
_COMPOUNDS = "twenty-one thirty-two forty-five fifty-three sixty-four seventy-two eighty-six ninety-eight"


def number(word: str) -> str:
    """German for an English number word: twenty-one -> einundzwanzig."""
    ten, _, one = word.partition("-")
    return f"{'ein' if one == 'one' else NUMBERS[one]}und{NUMBERS[ten]}" if one else NUMBERS[word]


LARGE = TENS + tuple(_COMPOUNDS.split())


def counted(
    r: Random, n: Noun, numbers: tuple[str, ...], adjective: float = 0.4
) -> tuple[Phrase, str, tuple[str, ...]]:
    """Several of something: the phrase without its number, the number, and the lemmas."""
    a = perhaps(r, adjective, n)
    word = pick(r, numbers)
    return np(n, "", True, a), word, (n.english, word) + ((a.english,) if a else ())


def _countable(n: Noun) -> bool:
    return n.german_plural != "-" and "kin" not in n.classes and n.english != "word"


_ONE_AT_ONCE = words("put on, take off, turn on, turn off, cross, open, close, forget, lose")


@construction(1.2)
def number_object(r: Random) -> Draft:
    s, v, n = event(r, ACTIONS, you=1)
    while not _countable(n) or v.lemma in _ONE_AT_ONCE:
        s, v, n = event(r, ACTIONS, you=1)
    o, word, lemmas = counted(r, n, SMALL)
    return draft(f"{s.subject} {v.past} {word} {o.object}", de_perfect(s, v, f"{number(word)} {o.acc}"), s, v, *lemmas)


_HAD = nouns("good container small")
_FARM = nouns("farm dog cat")


@construction(0.8)
def number_has(r: Random) -> Draft:
    n = pick(r, _HAD + _FARM)
    if "farm" in n.classes:
        s = np(NOUNS["farmer"], "the") if chance(r, 0.5) else np(pick(r, nouns("uncle neighbour grandfather")), "my")
    else:
        s = anyone(r, 0.4, 0.1)
    past = chance(r, 0.3)
    o, word, lemmas = counted(r, n, MIDDLE if "farm" in n.classes else SMALL[:6])
    finite = (german.HATTE if past else german.HABEN)[s.person]
    german_ = german.clause(s.nom, finite, [number(word), o.acc])
    return draft(f"{s.subject} {'had' if past else have(s)} {word} {o.object}", german_, s, "have", *lemmas)


@construction(1.8)
def age(r: Random) -> Draft:
    x = r.random()
    if x < 0.55:
        s, numbers = (who(r, HUMANS, 0.0) if chance(r, 0.7) else pick(r, NAMES)), LARGE
        if s.lemma in ("child", "boy", "girl"):
            numbers = SMALL
    elif x < 0.75:
        n, numbers = pick(r, nouns("dog cat horse cow donkey son daughter")), SMALL
        s = np(n, pick(r, ("my", "your", "our")))
    else:
        n = pick(r, nouns("church house school bridge tree ship clock hotel museum theatre car wall"))
        s, numbers = np(n, pick(r, ("the", "this"))), LARGE
    word = pick(r, numbers)
    german_ = german.clause(s.nom, german.SEIN[s.person], [number(word), "Jahre alt"])
    return draft(f"{s.subject} {be(s)} {word} years old", german_, s, "age", word)


@construction(2.0)
def price(r: Random) -> Draft:
    n = pick(r, nouns("good -car -bicycle -newspaper"))
    s = np(n, pick(r, ("the", "this", "your")), False, perhaps(r, 0.4, n))
    word = pick(r, LARGE if chance(r, 0.8) else SMALL)
    past = chance(r, 0.3)
    finite, tail = ("hat", "gekostet") if past else ("kostet", "")
    german_ = german.clause(s.nom, finite, [number(word), "Euro"], tail)
    return draft(f"{s.subject} {'cost' if past else 'costs'} {word} euros", german_, n, "cost", word)


_HOURS = ("one", *SMALL)


def clock(r: Random) -> tuple[str, str, str]:
    """English and German of a time of day; half past three is halb vier."""
    i = int(r.random() * 12)
    word = _HOURS[i]
    here, following = (NUMBERS.get(_HOURS[k % 12], "eins") for k in (i, i + 1))
    kind = pick(r, ("full", "full", "half", "past", "to"))
    if kind == "full":
        return f"at {word} o'clock", f"um {'ein' if word == 'one' else here} Uhr", word
    if kind == "half":
        return f"at half past {word}", f"um halb {following}", word
    return f"at a quarter {kind} {word}", f"um Viertel {'nach' if kind == 'past' else 'vor'} {here}", word


_CLOCKED = chosen("start, end, get up, wake up, fall asleep, arrive, leave, come back", INTRANSITIVE)


@construction(1.5)
def at_time(r: Random) -> Draft:
    v = pick(r, _CLOCKED)
    s = actor(r, v, plural=0.1) if v.lemma not in ("start", "end", "leave") else np(pick(r, v.subjects), "the")
    time, um, word = clock(r)
    past = chance(r, 0.5)
    german_ = (de_perfect if past else de_present)(s, v, um)
    return draft(f"{s.subject} {v.past if past else simple(s, v)} {time}", german_, s, v, word)


@construction(0.5)
def when_on_day(r: Random) -> Draft:
    v = pick(r, _CLOCKED)
    s = actor(r, v, pronouns=0.3) if v.lemma not in ("start", "end", "leave") else np(pick(r, v.subjects), "the")
    day = pick(r, tuple(WEEKDAYS))
    german_ = f"wann {de_present(s, v, 'am ' + WEEKDAYS[day], order='first')}?"
    return draft(f"when {do(s)} {s.subject} {v.base} on {day}?", german_, s, v, day)


@construction()
def weekday_first(r: Random) -> Draft:
    s, v, n = event(r, ACTIONS, you=1)
    day = pick(r, tuple(WEEKDAYS))
    o = thing(r, n, ("the", "a"), v)
    german_ = de_perfect(s, v, o.acc, front="am " + WEEKDAYS[day])
    return draft(f"on {day} {s.subject} {v.past} {o.object}", german_, s, v, n, day)


def duration(r: Random, units: tuple[str, ...]) -> tuple[str, str, str, str]:
    """Two years, in the German dative: English, German, number and unit lemmas."""
    unit = pick(r, units)
    word = pick(r, SMALL[:3] if unit == "hour" else SMALL[:9])
    return f"{word} {UNITS[unit][2]}", f"{NUMBERS[word]} {UNITS[unit][1]}", word, unit


@construction()
def ago(r: Random) -> Draft:
    s, v, n = event(r, ACTIONS, you=1)
    recent, distant = ("minute", "hour"), ("week", "month", "year")
    units = () if v.lemma in SLOW else recent
    time, zeit, word, unit = duration(r, (*units, "day") if v.lemma in QUICK else (*units, "day", *distant))
    o = thing(r, n, ("the", "a"), v)
    german_ = de_perfect(s, v, o.acc, front="vor " + zeit)
    return draft(f"{time} ago {s.subject} {v.past} {o.object}", german_, s, v, n, word, unit)


_LIVED = nouns("city village house hotel")


@construction()
def since(r: Random) -> Draft:
    """What still goes on is in the German present: wohnt seit drei Jahren."""
    if chance(r, 0.35):
        v, prep, n = INTRANSITIVE["live"], "in", pick(r, _LIVED)
        s = actor(r, v)
        where, wo = place(prep, n)
        lemma = n.english
    else:
        s, v, where, wo, lemma = activity(r)
        while v.lemma in ("cry", "laugh", "run"):
            s, v, where, wo, lemma = activity(r)
    long = v.lemma in ("live", "work")
    time, zeit, word, unit = duration(r, ("month", "year", "week") if long else ("minute", "hour"))
    english = f"{s.subject} {have(s)} been {v.progressive} {where} for {time}"
    return draft(english, de_present(s, v, "seit " + zeit, wo), s, v, lemma, word, unit)


_CONTENTS = table("""
city: church school hotel museum theatre park bridge library station restaurant hospital shop
village: church school hotel shop restaurant bridge lake library; garden: tree flower bench table lamp
kitchen: table chair lamp clock radio cupboard window; room: bed table chair lamp mirror carpet cupboard window
park: lake bridge bench tree restaurant; museum: library clock ship picture; hotel: restaurant kitchen garden
school: library garden kitchen theatre; library: book map newspaper computer
""")


_MANY = ("book", "tree", "flower", "newspaper", "picture", "shop", "restaurant")


@construction(1.2)
def there_is(r: Random) -> Draft:
    inside = pick(r, tuple(_CONTENTS))
    n = pick(r, nouns(_CONTENTS[inside]))
    where, wo = place("in", NOUNS[inside])
    kind = pick(r, ("one", "one", "many", "no"))
    if kind == "many":
        o, word, lemmas = counted(r, n, LARGE if n.english in _MANY else SMALL)
        english, german_ = f"there are {word} {o.object} {where}", f"{wo} gibt es {number(word)} {o.acc}"
        return draft(english, german_, "there", inside, *lemmas)
    a = perhaps(r, 0.6, n)
    o = np(n, "a" if kind == "one" else "no", False, a)
    german_ = f"{wo} gibt es {o.acc}"
    return draft(f"there is {o.object} {where}", german_, "there", inside, n, a, kind)


@construction(0.8)
def how_many(r: Random) -> Draft:
    s, v, n = event(r, ACTIONS, pronouns=0.35, you=1)
    while not _countable(n) or v.lemma in _ONE_AT_ONCE[:5]:
        s, v, n = event(r, ACTIONS, pronouns=0.35, you=1)
    german_ = f"wie viele {german.noun_form(n, 'acc', True)} {de_perfect(s, v, order='first')}?"
    return draft(f"how many {n.english_plural} did {s.subject} {v.base}?", german_, "many", s, v, n)


_EVERY = table("""
day: jeden Tag; week: jede Woche; month: jeden Monat; year: jedes Jahr; evening: jeden Abend; morning: jeden Morgen
""")


@construction()
def every(r: Random) -> Draft:
    s, v, o = routine(r, "forget")
    if v.lemma in ("visit", "draw", "write"):
        unit = pick(r, ("week", "month", "year"))
    else:
        unit = pick(r, ("day", "morning", "evening", "week") if v.lemma in DAILY else ("day", "week", "month"))
    german_ = de_present(s, v, o.acc, front=_EVERY[unit])
    return draft(f"every {unit} {s.subject} {simple(s, v)} {o.object}", german_, s, v, o, unit)


@construction(0.7)
def number_subject(r: Random) -> Draft:
    s, v, where, wo, lemma = activity(r, pronouns=0.0, names=0.0, plural=0.0)
    n = NOUNS[s.lemma]
    while "kin" in n.classes:
        s, v, where, wo, lemma = activity(r, pronouns=0.0, names=0.0, plural=0.0)
        n = NOUNS[s.lemma]
    subject, word, lemmas = counted(r, n, SMALL[:9], 0.3)
    many = nominative(f"{word} {subject.subject}", f"{number(word)} {subject.nom}", "sie", s.lemma, "p")
    english, german_ = told(many, v, chance(r, 0.4), wo)
    return draft(f"{english} {where}", german_, *lemmas, v, lemma)
