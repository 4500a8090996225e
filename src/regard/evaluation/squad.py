"""Metrics of answers, as SQuAD's own script counts them (Rajpurkar 2016, 6.1): exact match and F1 of words, in %.

Case, punctuation, the articles a, an and the, and white space do not count. Of several right answers the nearest does.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence

from regard.reporting import Json

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
SIGNATURE = "SQuAD's own normalisation and count"


def normalise_answer(text: str) -> str:
    """Articles go after punctuation: "a.m." is a word, "the-" an article."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, reference: str) -> float:
    return float(normalise_answer(prediction) == normalise_answer(reference))


def word_f1(prediction: str, reference: str) -> float:
    """F1 of the words; an empty answer is right beside an empty one alone."""
    a, b = normalise_answer(prediction).split(), normalise_answer(reference).split()
    if not a or not b:
        return float(a == b)
    shared = sum((Counter(a) & Counter(b)).values())
    return 2 * shared / (len(a) + len(b))


def answer_metrics(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, Json]:
    """Exact match and F1; a question has all its right answers as references, none where the text has no answer."""
    options = [[text for text in texts if normalise_answer(text)] or [""] for texts in references]
    values = {
        name: 100
        * sum(max(rate(a, b) for b in texts) for a, texts in zip(predictions, options, strict=True))
        / len(predictions)
        for name, rate in (("exact_match", exact_match), ("f1", word_f1))
    }
    return {name: {"value": round(value, 4), "signature": SIGNATURE} for name, value in values.items()}
