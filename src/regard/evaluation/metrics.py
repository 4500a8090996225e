"""Metrics of outputs against references: BLEU, chrF, TER (sacreBLEU), exact match; distinct n-grams; perplexity."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from regard.config import Choice
from regard.errors import RegardError
from regard.reporting import Json

TOKENISERS = {"zh": "zh", "lzh": "zh", "ja": "char", "ko": "char"}  # by target language; anything else: 13a


@dataclass(frozen=True)
class Metric:
    name: str
    value: float
    signature: str = ""

    def json(self) -> Json:
        return {"value": self.value, "signature": self.signature} if self.signature else {"value": self.value}


class MetricConfig(Choice, slot="metric"):
    """A metric beside those of a task whose output is text; its kind is its name."""

    must_define = ("score",)
    higher_is_better: ClassVar[bool] = True

    def score(self, outputs: Sequence[str], references: Sequence[str], sources: Sequence[str]) -> float:
        raise NotImplementedError


def own_metrics(
    chosen: Sequence[MetricConfig], outputs: Sequence[str], references: Sequence[str], sources: Sequence[str]
) -> dict[str, Metric]:
    """The metrics that `evaluation.metrics` names."""
    scores = {metric.kind: float(metric.score(outputs, references, sources)) for metric in chosen}
    return {name: Metric(name, round(value, 4)) for name, value in scores.items()}


def text_metrics(
    outputs: Sequence[str], references: Sequence[str], language: str, tokenise: str | None = None, full: bool = True
) -> dict[str, Metric]:
    """BLEU with the tokeniser the language asks for (or `tokenise`); with `full`, also chrF, TER and exact match."""
    from sacrebleu.metrics import BLEU, CHRF, TER

    if len(outputs) != len(references):
        raise RegardError(f"{len(outputs)} outputs cannot be measured against {len(references)} references")
    if not outputs:
        raise RegardError("there is nothing to measure: no line of output")
    tokenise = tokenise or tokeniser_of(language)
    measures: list[tuple[str, Any]] = [("bleu", BLEU(tokenize=tokenise, force=True))]
    if full:
        asian = tokenise in ("zh", "char")
        measures += [("chrf", CHRF()), ("ter", TER(normalized=asian, asian_support=asian))]
    result = {}
    for name, measure in measures:
        value = measure.corpus_score(list(outputs), [list(references)]).score
        result[name] = Metric(name, round(value, 4), str(measure.get_signature()))
    if full:
        same = sum(o == r for o, r in zip(outputs, references, strict=True))
        result["exact_match"] = Metric("exact_match", round(100 * same / len(outputs), 4))
    return result


def distinct(outputs: Sequence[str], language: str, tokenise: str | None = None) -> dict[str, Metric]:
    """How varied outputs are: different words, and pairs of words, in % of all (Li 2016, distinct-1 and distinct-2)."""
    from sacrebleu.metrics import BLEU

    name = tokenise or tokeniser_of(language)
    tokens = BLEU(tokenize=name, force=True).tokenizer
    rows = [tokens(output).split() for output in outputs]
    metrics = {}
    for n in (1, 2):
        grams = [gram for row in rows for gram in zip(*(row[i:] for i in range(n)), strict=False)]
        value = round(100 * len(set(grams)) / max(1, len(grams)), 4)
        metrics[f"distinct_{n}"] = Metric(f"distinct_{n}", value, f"n-grams:{len(grams)}|tok:{name}")
    return metrics


def tokeniser_of(language: str) -> str:
    """sacreBLEU's, for a language."""
    return TOKENISERS.get(language.split("-")[0].lower(), "13a")


def perplexity(nll: float, count: int) -> float:
    """exp of the mean negative log-probability of a token; infinite rather than an overflow."""
    mean = nll / max(count, 1)
    return math.exp(mean) if mean < 700 else math.inf
