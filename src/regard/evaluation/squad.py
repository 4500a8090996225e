"""How right answers are, as SQuAD's own script counts it (Rajpurkar 2016, 6.1): exact match and F1 of words, in %.

Case, punctuation, the articles a, an and the, and white space do not count. Of several right answers the nearest does.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
SIGNATURE = "SQuAD's own normalisation and count"


def normalise(text: str) -> str:
    """Articles go after punctuation: "a.m." is a word, "the-" an article."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact(said: str, right: str) -> float:
    return float(normalise(said) == normalise(right))


def overlap(said: str, right: str) -> float:
    """F1 of the words; an empty answer is right beside an empty one alone."""
    a, b = normalise(said).split(), normalise(right).split()
    if not a or not b:
        return float(a == b)
    shared = sum((Counter(a) & Counter(b)).values())
    return 2 * shared / (len(a) + len(b))


def answer_metrics(said: Sequence[str], right: Sequence[Sequence[str]]) -> dict[str, dict[str, Any]]:
    """`right` has all answers that are; none means that nothing should be said."""
    options = [[text for text in texts if normalise(text)] or [""] for texts in right]
    values = {
        name: 100 * sum(max(rate(a, b) for b in texts) for a, texts in zip(said, options, strict=True)) / len(said)
        for name, rate in (("exact_match", exact), ("f1", overlap))
    }
    return {name: {"value": round(value, 4), "signature": SIGNATURE} for name, value in values.items()}
