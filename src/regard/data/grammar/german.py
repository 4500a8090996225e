"""German inflection and word order: articles, noun phrases, verbs, clauses. Knows no English."""

from collections.abc import Sequence
from typing import Literal

from regard.data.grammar.lexicon import Noun

Case = Literal["nom", "acc", "dat", "gen"]
Order = Literal["second", "first", "final"]
CASES: tuple[Case, ...] = ("nom", "acc", "dat", "gen")

# Columns m, f, n, plural; rows by case. The ein-words (mein, kein, ...) take the endings of ein and, in the
# plural, of kein.
_DEFINITE = {"nom": "der die das die", "acc": "den die das die", "dat": "dem der dem den", "gen": "des der des der"}
_DIESER = {"nom": "er e es e", "acc": "en e es e", "dat": "em er em en", "gen": "es er es er"}
_EIN = {"nom": "- e - e", "acc": "en e - e", "dat": "em er em en", "gen": "es er es er"}
_WEAK = {"nom": "e e e en", "acc": "en e e en", "dat": "en en en en", "gen": "en en en en"}
_MIXED = {"nom": "er e es en", "acc": "en e es en", "dat": "en en en en", "gen": "en en en en"}
_STRONG = {"nom": "er e es e", "acc": "en e es e", "dat": "em er em en", "gen": "en er en er"}
_COLUMN = {"m": 0, "f": 1, "n": 2, "p": 3}

Table = dict[str, tuple[str, ...]]


def _table(rows: dict[str, str]) -> Table:
    return {case: tuple("" if c == "-" else c for c in cells.split()) for case, cells in rows.items()}


DEFINITE, DIESER, EIN = _table(_DEFINITE), _table(_DIESER), _table(_EIN)
WEAK, MIXED, STRONG = _table(_WEAK), _table(_MIXED), _table(_STRONG)

POSSESSIVES = {"my": "mein", "your": "dein", "his": "sein", "her": "ihr", "its_m": "sein", "its_f": "ihr",
               "its_n": "sein", "our": "unser", "their": "ihr", "no": "kein", "a": "ein"}  # fmt: skip

PRONOUNS = {
    "ich": ("ich", "mich", "mir"), "du": ("du", "dich", "dir"), "m": ("er", "ihn", "ihm"),
    "f": ("sie", "sie", "ihr"), "n": ("es", "es", "ihm"), "wir": ("wir", "uns", "uns"),
    "sie": ("sie", "sie", "ihnen"),
}  # fmt: skip
REFLEXIVE = {"ich": "mich", "du": "dich", "er": "sich", "wir": "uns", "sie": "sich"}
RELATIVE = {"nom": ("der", "die", "das", "die"), "acc": ("den", "die", "das", "die"),
            "dat": ("dem", "der", "dem", "denen")}  # fmt: skip

_PERSONS = ("ich", "du", "er", "wir", "sie")


def _forms(words: str) -> dict[str, str]:
    return dict(zip(_PERSONS, words.split(), strict=True))


HABEN, SEIN = _forms("habe hast hat haben haben"), _forms("bin bist ist sind sind")
WERDEN, WURDE = _forms("werde wirst wird werden werden"), _forms("wurde wurdest wurde wurden wurden")
WAR, HATTE = _forms("war warst war waren waren"), _forms("hatte hattest hatte hatten hatten")
WUERDE = _forms("würde würdest würde würden würden")
HAETTE = _forms("hätte hättest hätte hätten hätten")
MODALS = {
    "can": _forms("kann kannst kann können können"), "must": _forms("muss musst muss müssen müssen"),
    "want": _forms("will willst will wollen wollen"), "may": _forms("darf darfst darf dürfen dürfen"),
    "should": _forms("soll sollst soll sollen sollen"),
    "could": _forms("konnte konntest konnte konnten konnten"),
    "had": _forms("musste musstest musste mussten mussten"),
    "wanted": _forms("wollte wolltest wollte wollten wollten"),
}  # fmt: skip

_CONTRACTIONS = {"in dem": "im", "in das": "ins", "an dem": "am", "zu dem": "zum", "zu der": "zur",
                 "von dem": "vom", "bei dem": "beim"}  # fmt: skip


def noun_form(noun: Noun, case: Case, plural: bool = False) -> str:
    if plural:
        return noun.german_plural + ("n" if case == "dat" and noun.german_plural[-1] not in "ns" else "")
    if noun.weak and case != "nom":
        return noun.german_plural  # der Junge, den Jungen: the oblique cases look like the plural
    if case == "gen" and noun.gender != "f":
        return noun.german + _genitive_ending(noun.german)
    return noun.german


def _genitive_ending(word: str) -> str:
    if word.endswith("us"):
        return "ses" if word == "Bus" else "es"
    syllables = sum(1 for a, b in zip("x" + word.lower(), word.lower(), strict=False)
                    if b in "aeiouäöüy" and a not in "aeiouäöü")  # fmt: skip
    if word.endswith(("s", "ß", "z", "x")):
        return "es"
    return "es" if syllables == 1 and word[-1] not in "aeiou" else "s"


def adjective_stem(word: str) -> str:
    """teuer -> teur-, dunkel -> dunkl-, müde -> müd-: the unstressed e goes before an ending."""
    return {"teuer": "teur", "dunkel": "dunkl"}.get(word, word.removesuffix("e"))


def noun_phrase(noun: Noun, determiner: str, case: Case, plural: bool = False, adjective: str = "") -> str:
    """Determiner (the, this, a, no, a possessive, or "" for none) + German adjective + noun, all agreeing."""
    column = _COLUMN["p" if plural else noun.gender]
    if determiner == "the":
        article, endings = DEFINITE[case][column], WEAK
    elif determiner == "this":
        article, endings = "dies" + DIESER[case][column], WEAK
    elif determiner == "":
        article, endings = "", STRONG
    else:
        article, endings = POSSESSIVES[determiner] + EIN[case][column], MIXED
    words = [article, adjective and adjective_stem(adjective) + endings[case][column], noun_form(noun, case, plural)]
    return " ".join(w for w in words if w)


def prepositional(preposition: str, phrase: str) -> str:
    """Preposition and noun phrase, contracted where spoken German contracts: in dem Haus -> im Haus."""
    text = f"{preposition} {phrase}"
    head, _, rest = text.partition(" ")
    article, _, tail = rest.partition(" ")
    short = _CONTRACTIONS.get(f"{head} {article}")
    return f"{short} {tail}" if short else text


def present(infinitive: str, third: str) -> dict[str, str]:
    """The five present forms without prefix: lesen, liest -> lese, liest, liest, lesen, lesen."""
    if infinitive.endswith("eln"):
        first = infinitive[:-3] + "le"
    elif infinitive.endswith("ern"):
        first = infinitive[:-1] + "e"
    else:
        first = infinitive[:-2] + "e"
    stem = third[:-1]
    second = stem + ("t" if stem[-1] in "sßzx" else "st")
    return dict(zip(_PERSONS, (first, second, third, infinitive, infinitive), strict=True))


def clause(subject: str, finite: str, middle: Sequence[str], tail: str = "", order: Order = "second",
           front: str = "", prefix: str = "") -> str:  # fmt: skip
    """One clause. `tail` is an infinitive or participle, `prefix` is separated from the finite verb."""
    inner = [w for w in middle if w]
    if order == "final":
        words = [subject, *inner, tail, prefix + finite]
    elif order == "first":
        words = [finite, subject, *inner, prefix, tail]
    elif front:
        words = [front, finite, subject, *inner, prefix, tail]
    else:
        words = [subject, finite, *inner, prefix, tail]
    return " ".join(w for w in words if w)
