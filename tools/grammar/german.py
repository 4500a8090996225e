"""German inflection and word order: articles, noun phrases, verbs, clauses. Knows no English."""

from collections.abc import Sequence
from typing import Literal

from tools.grammar.lexicon import Noun

Case = Literal["nom", "acc", "dat", "gen"]
Order = Literal["second", "first", "final"]
CASES: tuple[Case, ...] = ("nom", "acc", "dat", "gen")


def _table(*rows: str) -> dict[str, dict[str, str]]:
    """Rows by case; columns m, f, n and p, the plural."""
    cells = [["" if c == "-" else c for c in row.split()] for row in rows]
    return {case: dict(zip("mfnp", row, strict=True)) for case, row in zip(CASES, cells, strict=False)}


# The ein-words (mein, kein, ...) take the endings of ein and, in the plural, of kein.
DEFINITE = _table("der die das die", "den die das die", "dem der dem den", "des der des der")
DIESER = _table("er e es e", "en e es e", "em er em en", "es er es er")
EIN = _table("- e - e", "en e - e", "em er em en", "es er es er")
WEAK = _table("e e e en", "en e e en", "en en en en", "en en en en")
MIXED = _table("er e es en", "en e es en", "en en en en", "en en en en")
STRONG = _table("er e es e", "en e es e", "em er em en", "en er en er")
RELATIVE = _table("der die das die", "den die das die", "dem der dem denen")

POSSESSIVES = {"my": "mein", "your": "dein", "his": "sein", "her": "ihr", "its_m": "sein", "its_f": "ihr",
               "its_n": "sein", "our": "unser", "their": "ihr", "no": "kein", "a": "ein"}  # fmt: skip

PRONOUNS = {
    "ich": ("ich", "mich", "mir"), "du": ("du", "dich", "dir"), "m": ("er", "ihn", "ihm"),
    "f": ("sie", "sie", "ihr"), "n": ("es", "es", "ihm"), "wir": ("wir", "uns", "uns"),
    "sie": ("sie", "sie", "ihnen"),
}  # fmt: skip
REFLEXIVE = {"ich": "mich", "du": "dich", "er": "sich", "wir": "uns", "sie": "sich"}

_PERSONS = ("ich", "du", "er", "wir", "sie")


def forms(words: str) -> dict[str, str]:
    return dict(zip(_PERSONS, words.split(), strict=True))


HABEN, SEIN = forms("habe hast hat haben haben"), forms("bin bist ist sind sind")
WERDEN, WURDE = forms("werde wirst wird werden werden"), forms("wurde wurdest wurde wurden wurden")
WAR, HATTE = forms("war warst war waren waren"), forms("hatte hattest hatte hatten hatten")
WUERDE = forms("würde würdest würde würden würden")
HAETTE = forms("hätte hättest hätte hätten hätten")
MODALS = {
    "can": forms("kann kannst kann können können"), "must": forms("muss musst muss müssen müssen"),
    "want": forms("will willst will wollen wollen"), "may": forms("darf darfst darf dürfen dürfen"),
    "should": forms("soll sollst soll sollen sollen"),
    "could": forms("konnte konntest konnte konnten konnten"),
    "had": forms("musste musstest musste mussten mussten"),
    "wanted": forms("wollte wolltest wollte wollten wollten"),
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
    column = "p" if plural else noun.gender
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
