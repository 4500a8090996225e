"""Noun phrases and clauses in both languages at once, and how to draw them. Knows no construction.

A phrase carries its English and its German forms together, so that a construction chooses words once and
writes two sentences from them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from tools.grammar import german
from tools.grammar.lexicon import (
    ADJECTIVES, FEMININE_NAMES, FITTING, MASCULINE_NAMES, PAST_TIMES, Adjective, Noun, nouns, words,
)  # fmt: skip
from tools.grammar.verbs import INTRANSITIVE, TRANSITIVE, Verb, chosen, without

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Phrase:
    """A subject or object. `person` is the German verb form it takes (ich, du, er, wir, sie)."""

    subject: str
    object: str
    nom: str  # these four in German
    acc: str
    dat: str
    gen: str
    person: str
    lemma: str
    own: str  # the English possessive that refers back to it; "" where none is unambiguous
    column: str  # m, f, n or p: what relative pronouns and personal pronouns agree with
    again: str = ""  # English personal pronoun that refers back to it

    @property
    def pronoun(self) -> tuple[str, str, str]:
        """The German personal pronoun that refers back to the phrase: nominative, accusative, dative."""
        return german.PRONOUNS["sie" if self.column == "p" else self.column]


def _pronoun(english: str, obj: str, key: str, own: str, column: str) -> Phrase:
    person = "er" if key in "mf" else key
    return Phrase(english, obj, *german.PRONOUNS[key], "", person, english, own, column, english)


I, YOU = _pronoun("I", "me", "ich", "my", "ich"), _pronoun("you", "you", "du", "your", "du")  # noqa: E741
HE, SHE = _pronoun("he", "him", "m", "his", "m"), _pronoun("she", "her", "f", "her", "f")
WE, THEY = _pronoun("we", "us", "wir", "our", "wir"), _pronoun("they", "them", "sie", "their", "p")
PERSONAL = (I, YOU, HE, SHE, WE, THEY)
# Full verbs in the present are drawn without du, which would add a form of its own to every verb.
PRESENT = (I, HE, SHE, WE, THEY)


def name(word: str) -> Phrase:
    sex = "m" if word in MASCULINE_NAMES else "f"
    own, again = ("his", "he") if sex == "m" else ("her", "she")
    return Phrase(word, word, word, word, word, word + "s", "er", word, own, sex, again)


NAMES = tuple(name(n) for n in MASCULINE_NAMES + FEMININE_NAMES)


def nominative(english: str, german: str, person: str, lemma: str, column: str) -> Phrase:
    """What can only be a subject: a relative pronoun, two people, the roof of the church."""
    return Phrase(english, "", german, "", "", "", person, lemma, "", column)


def article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def np(noun: Noun, determiner: str = "the", plural: bool = False, adjective: Adjective | None = None) -> Phrase:
    """A noun phrase. "a" turns into no article for plurals and for nouns like milk."""
    if determiner == "a" and (plural or noun.mass):
        determiner = ""
    words = [adjective.english] if adjective else []
    words.append(noun.english_plural if plural else noun.english)
    if determiner:
        words.insert(0, article(words[0]) if determiner == "a" else _english_determiner(determiner, plural))
    text = " ".join(words)
    adjective_de = adjective.german if adjective else ""
    nom, acc, dat, gen = (german.noun_phrase(noun, determiner, c, plural, adjective_de) for c in german.CASES)
    sex = noun.sex
    own = "their" if plural else {"m": "his", "f": "her", None: ""}[sex]
    again = "they" if plural else {"m": "he", "f": "she", None: "it" if "person" not in noun.classes else ""}[sex]
    column = "p" if plural else noun.gender
    return Phrase(text, text, nom, acc, dat, gen, "sie" if plural else "er", noun.english, own, column, again)


def _english_determiner(determiner: str, plural: bool) -> str:
    if determiner == "this" and plural:
        return "these"
    return determiner.partition("_")[0]


def chance(r: Random, p: float) -> bool:
    return r.random() < p


def pick(r: Random, items: Sequence[T]) -> T:
    return items[int(r.random() * len(items))]  # several times faster than Random.choice


_ONE_EACH = ("mother", "father", "grandmother", "grandfather", "uncle", "aunt")


def who(r: Random, among: Sequence[Noun], plural: float = 0.15) -> Phrase:
    """A definite person or animal: the teacher, my sister, the children."""
    noun = pick(r, among)
    many = chance(r, plural) and noun.german_plural != "-"
    if "kin" not in noun.classes:
        return np(noun, "the", many)
    return np(noun, pick(r, ("my", "your", "our")), many and noun.english not in _ONE_EACH)


def actor(
    r: Random, verb: Verb, pronouns: float = 0.15, names: float = 0.12, plural: float = 0.15, you: float = 0.0
) -> Phrase:
    """Someone who can do what the verb says; `you` is allowed where the finite verb is an auxiliary."""
    x = r.random()
    if x < pronouns + names and verb.subjects[0].classes & {"person"}:
        return pick(r, PERSONAL if you else PRESENT) if x < pronouns else pick(r, NAMES)
    return who(r, verb.subjects, plural)


def anyone(r: Random, pronouns: float, plural: float = 0.15) -> Phrase:
    """Whoever one can speak of: a pronoun or a name with that probability, otherwise a person."""
    return pick(r, PERSONAL + NAMES) if chance(r, pronouns) else who(r, HUMANS, plural)


def attribute(r: Random, noun: Noun) -> Adjective | None:
    """An adjective that can stand before the noun."""
    fitting = [a for a in FITTING[noun.english] if a.attributive]
    return pick(r, fitting) if fitting else None


def perhaps(r: Random, p: float, noun: Noun) -> Adjective | None:
    return attribute(r, noun) if chance(r, p) else None


# Verbs whose object is known to both speakers: one closes the door, not a door.
_KNOWN = words("open, close, turn on, turn off, clean, tidy up, take off, put on, forget, cross, feed, stroke, answer, "
               "call, pick up, wash, understand, know, watch, hide")  # fmt: skip


def thing(r: Random, noun: Noun, determiners: Sequence[str], verb: Verb) -> Phrase:
    """A singular object of the verb; kinship terms get a possessor whatever the determiners say."""
    determiner = pick(r, ("my", "your", "his")) if "kin" in noun.classes else pick(r, determiners)
    return np(noun, "the" if determiner == "a" and verb.lemma in _KNOWN else determiner)


# What nobody remembers for long, and what takes longer than an hour.
QUICK = words("turn on, turn off, open, close, cut, put on, take off, try on, stroke, feed, eat, drink, wash, clean, "
              "tidy up, call, pick up, hide, bring along, look for, hear, carry")  # fmt: skip
SLOW = words("build learn paint plant sell visit repair write read cross")


def qualified(
    r: Random, p: float, verb: Verb, noun: Noun, determiners: Sequence[str], bare: Sequence[str]
) -> tuple[Adjective | None, Phrase]:
    """An object of the verb, perhaps with an adjective, which kinship terms never take; `bare`: determiners without."""
    a = attribute(r, noun) if chance(r, p) and "kin" not in noun.classes else None
    return a, np(noun, pick(r, determiners), False, a) if a else thing(r, noun, bare, verb)


def past_time(r: Random, verb: Verb) -> str:
    times = tuple(PAST_TIMES)
    return pick(r, [t for t in times if t != "last year"] if verb.lemma in QUICK else times)


TRANSITIVE_LIST = tuple(TRANSITIVE.values())
# One cannot be in the middle of finding something.
MOMENTARY = ("lose", "find", "forget")
LASTING = without(TRANSITIVE_LIST, "lose, find, forget")
ACTIONS = tuple(v for v in TRANSITIVE_LIST if not v.state)
WILLED = without(ACTIONS, "lose, forget")
SIMPLE = chosen("sleep, laugh, cry, work, dance, sing, play, cook, swim, wait, smile", INTRANSITIVE)


def event(r: Random, verbs: Sequence[Verb] = TRANSITIVE_LIST, **options: float) -> tuple[Phrase, Verb, Noun]:
    """A subject, a transitive verb and a noun that go together. Nobody visits or invites themselves."""
    verb = pick(r, verbs)
    subject = actor(r, verb, **options)
    noun = pick(r, verb.objects)
    while noun.english == subject.lemma:
        noun = pick(r, verb.objects)
    return subject, verb, noun


_BE = {"ich": "am", "er": "is"}
_WAS = {"ich": "was", "er": "was"}


def be(subject: Phrase, past: bool = False, negative: bool = False) -> str:
    word = _WAS.get(subject.person, "were") if past else _BE.get(subject.person, "are")
    if not negative:
        return word
    return "am not" if word == "am" else word + "n't"


def do(subject: Phrase, negative: bool = False) -> str:
    word = "does" if subject.person == "er" else "do"
    return word + "n't" if negative else word


def have(subject: Phrase) -> str:
    return "has" if subject.person == "er" else "have"


def simple(subject: Phrase, verb: Verb) -> str:
    """The simple present: he reads, they read."""
    return verb.third if subject.person == "er" else verb.base


def ongoing(subject: Phrase, verb: Verb) -> str:
    """What English says about now: is reading, knows."""
    return simple(subject, verb) if verb.state else f"{be(subject)} {verb.progressive}"


def ongoing_not(subject: Phrase, verb: Verb) -> str:
    if verb.state:
        return f"{do(subject, negative=True)} {verb.base}"
    return f"{be(subject, negative=True)} {verb.progressive}"


def english_modal(key: str, subject: Phrase) -> str:
    third = subject.person == "er"
    phrases = {"must": "has to" if third else "have to", "want": "wants to" if third else "want to", "had": "had to",
               "wanted": "wanted to", "may": f"{be(subject)} allowed to"}  # fmt: skip
    return phrases.get(key, key)


def _reflexive(subject: Phrase, verb: Verb, middle: Sequence[str]) -> list[str]:
    return [german.REFLEXIVE[subject.person], *middle] if verb.reflexive else list(middle)


def de_present(subject: Phrase, verb: Verb, *middle: str, order: german.Order = "second", front: str = "") -> str:
    inner = _reflexive(subject, verb, middle)
    return german.clause(subject.nom, verb.forms[subject.person], inner, "", order, front, verb.prefix)


def de_perfect(subject: Phrase, verb: Verb, *middle: str, order: german.Order = "second", front: str = "") -> str:
    inner = _reflexive(subject, verb, middle)
    return german.clause(subject.nom, verb.perfect[subject.person], inner, verb.german_participle, order, front)


def de_infinitive(subject: Phrase, auxiliary: dict[str, str], verb: Verb, *middle: str,
                  order: german.Order = "second", front: str = "") -> str:  # fmt: skip
    """A modal, werden or würde with the infinitive at the end."""
    inner = _reflexive(subject, verb, middle)
    return german.clause(subject.nom, auxiliary[subject.person], inner, verb.infinitive, order, front)


def de_be(subject: Phrase, *rest: str, past: bool = False, order: german.Order = "second", front: str = "") -> str:
    forms = german.WAR if past else german.SEIN
    return german.clause(subject.nom, forms[subject.person], rest, "", order, front)


def told(subject: Phrase, verb: Verb, past: bool, *middle: str, order: german.Order = "second") -> tuple[str, str]:
    """English subject and verb, and the German clause with its middle, of the past or of now."""
    if past:
        return f"{subject.subject} {verb.past}", de_perfect(subject, verb, *middle, order=order)
    return f"{subject.subject} {ongoing(subject, verb)}", de_present(subject, verb, *middle, order=order)


def at(preposition: str, phrase: Phrase, case: german.Case) -> str:
    return german.prepositional(preposition, getattr(phrase, case))


def adjectives(names: str) -> tuple[Adjective, ...]:
    return tuple(ADJECTIVES[name] for name in names.split())


PERSONS, KIN = nouns("person"), nouns("kin")
HUMANS = nouns("person kin")
# Where English refers back with he or she and German with er or sie; das Kind and das Mädchen would need es.
SEXED = tuple(n for n in HUMANS if n.sex)
