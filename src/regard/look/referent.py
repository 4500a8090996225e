"""A pronoun in a text that is translated, the word that it refers to, and its translation: where their tokens stand.

The referent is given, known (the text is a sentence of the embedded corpus), or guessed by which nouns the corpus's
minimal pairs say such things of. Knows no attention: `look/route.py` finds the heads.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby

from regard.config import nearest
from regard.data import embedded
from regard.data.embedded import bare
from regard.errors import RegardError
from regard.text import Tokenizer

FORM = re.compile(r"([^/=]+)(?:/([^/=]+))?=([^/=]+)")
PRONOUNS: dict[
    str, frozenset[str]
] = {  # by language; of another language the translation is found only where it is given
    "de": embedded.FORMS,
    "en": frozenset("it its he him his she her they them their".split()),  # noqa: SIM905
    "fr": frozenset("il elle ils elles lui son sa ses leur leurs".split()),  # noqa: SIM905
    "es": frozenset("él ella ellos ellas lo la le su sus".split()),  # noqa: SIM905
    "zh": frozenset({"它", "他", "她", "它们", "他们", "她们", "其"}),
}
DETERMINERS = {  # by language; one that stands before a referent belongs to it
    "en": frozenset("the a an this that my your his her its our their".split()),  # noqa: SIM905
    "de": frozenset("der die das den dem ein eine einen einem einer".split()),  # noqa: SIM905
    "fr": frozenset("le la les un une des ce cette".split()),  # noqa: SIM905
    "es": frozenset("el la los las un una este esta".split()),  # noqa: SIM905
}
MARKS = ".,?!。，？！"
CHINESE = 0x2E80  # characters from here on are written without spaces
IT = {"it", "its"}  # the pronouns of the embedded corpus
Unit = tuple[str, list[int]]  # a word, and where its tokens stand


@dataclass(frozen=True)
class Reference:
    """Of a pronoun, its referent and its translation the words and the positions of their tokens."""

    how: str  # given, known or guessed
    pronoun: Unit
    referent: Unit
    translation: Unit | None  # positions of the decoder that predict it


def find_reference(
    tokenizers: tuple[Tokenizer, Tokenizer], source: list[int], target: list[int], text: str,
    languages: tuple[str, str], given: str | None,
) -> Reference | None:  # fmt: skip
    """The reference that is given (`it=goat` or `it/sie=goat`), or else known or guessed; None where there is none."""
    words, outputs = units(tokenizers[0], source), units(tokenizers[1], target)
    if given is not None:
        found = FORM.fullmatch(given)
        if not found:
            raise RegardError(f"the referent {given!r} is not PRONOUN=WORD; write it as it=goat, or it/sie=goat")
        names, how = (found[1], found[3], found[2]), "given"
    else:
        if languages[0] != "en" or not IT & {bare(word) for word in text.split()}:
            return None  # before the corpus is read
        own = known_reference(text)
        guess = own or guess_reference(text)
        if guess is None:
            return None
        names, how = (*guess, None), "known" if own else "guessed"
    pronoun, referent = find_word(names[0], words), find_noun(names[1], words, languages[0])
    for name, word in zip(names, (pronoun, referent), strict=False):
        if word is None:
            if given is None:
                return None
            raise RegardError(f"the referent {given!r}: the text has no word {name!r}; {nearest(name, _names(words))}")
    assert pronoun is not None
    assert referent is not None
    translation = _translation(names[2], words.index(pronoun) / len(words), outputs, languages[1], given)
    return Reference(how, pronoun, referent, translation)


def units(tokenizer: Tokenizer, ids: Sequence[int]) -> list[Unit]:
    """The words that these tokens make; of a word that is written without spaces (Chinese) every token."""
    numbered = [(word, n) for n, word in enumerate(tokenizer.words(ids)) if word >= 0]
    groups = [[n for _, n in group] for _, group in groupby(numbered, lambda each: each[0])]
    words: list[Unit] = []
    for group in groups:
        text = _word(tokenizer, [ids[n] for n in group])
        if len(group) > 1 and any(ord(c) > CHINESE for c in text):
            words += [(_word(tokenizer, [ids[n]]), [n]) for n in group]
        else:
            words.append((text, group))
    return words


def _word(tokenizer: Tokenizer, ids: list[int]) -> str:
    return tokenizer.decode(ids).strip().strip(MARKS)


def find_word(name: str, words: Sequence[Unit]) -> Unit | None:
    """The last word of that name."""
    return next((unit for unit in reversed(words) if bare(unit[0]) == bare(name.strip())), None)


def find_noun(name: str, words: Sequence[Unit], language: str) -> Unit | None:
    """The same with the determiner that stands before it: `the goat`."""
    noun = find_word(name, words)
    before = words[words.index(noun) - 1] if noun and words.index(noun) else ("", [])
    if noun is None or bare(before[0]) not in DETERMINERS.get(language, ()):
        return noun
    return f"{before[0]} {noun[0]}", before[1] + noun[1]


def _names(words: Sequence[Unit]) -> list[str]:
    return list(dict.fromkeys(text for text, _ in words if text))


def _translation(name: str | None, place: float, outputs: list[Unit], language: str, given: str | None) -> Unit | None:
    """The word of that name, or else the pronoun of the output that stands most nearly where the source's does."""
    if name is not None:
        word = find_word(name, outputs)
        if word is None:
            raise RegardError(
                f"the referent {given!r}: the output has no word {name!r}; {nearest(name, _names(outputs))}"
            )
        return word
    forms = PRONOUNS.get(language, frozenset())
    candidates = [(abs(n / len(outputs) - place), n) for n, (text, _) in enumerate(outputs) if bare(text) in forms]
    return outputs[min(candidates)[1]] if candidates else None


# --- the embedded corpus -------------------------------------------------------------------------------------------


def known_reference(text: str) -> tuple[str, str] | None:
    """Pronoun and referent of a sentence of the embedded corpus."""
    pair = embedded.find(text.strip())
    if pair is None or not pair.pronouns:
        return None
    words = pair.source.split()
    return bare(words[pair.pronouns[0].english]), bare(words[pair.pronouns[0].referent])


def guess_reference(text: str) -> tuple[str, str] | None:
    """The noun of the text of which the embedded minimal pairs most often say what is said here of `it`."""
    words, counts = [bare(word) for word in text.split()], _said_of()
    if "it" not in words:
        return None
    score = {noun: sum(counts[said, noun] for said in words) for noun in dict.fromkeys(words)}
    best = max(score, key=lambda noun: score[noun])
    return ("it", best) if score[best] and list(score.values()).count(score[best]) == 1 else None


@cache
def _said_of() -> Counter[tuple[str, str]]:
    """How often the word in which a minimal pair differs stands there for a noun: (thirsty, goat)."""
    counts: Counter[tuple[str, str]] = Counter()
    for pair in embedded.minimal_pairs():
        for each, noun in zip((pair.first, pair.second), pair.referents, strict=True):
            counts[bare(each.source.split()[pair.differs]), noun] += 1
    return counts
