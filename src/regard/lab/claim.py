"""A claim of the notes as an experiment: its sentence, predictions written before the run, a measurement, a verdict.

A prediction is a range for a number. It is confirmed where the number's interval lies wholly inside, refuted where it
lies wholly outside, and else undecided. Knows no file and no process.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from regard.lab.statistics import Interval, mean_interval, side

Verdict = Literal["confirmed", "refuted", "depends", "undecided"]
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Setup:
    """How a claim is measured: on which device, with which fault planted, and with which trees (C26), if any."""

    device: str = "cpu"
    fault: str = ""
    trees: str = ""


@dataclass(frozen=True)
class Measurement:
    """What one seed gives: numbers by name, and curves by figure and name."""

    numbers: Mapping[str, float]
    curves: Mapping[str, Mapping[str, Points]] = field(default_factory=dict)


@dataclass(frozen=True)
class Figure:
    """The axes of a chart whose curves a measurement gives; `names` are those of the places 0, 1, … on the x axis."""

    name: str
    title: str
    x_label: str
    y_label: str
    log_x: bool = False
    log_y: bool = False
    names: Sequence[str] = ()


# --- predictions ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PredictedRange:
    """A range in which a measured number lies if the claim is right; written before the run.

    A claim may be predicted in several settings, and depends on them where they have opposite outcomes. A control says
    that the experiment can show anything: where it fails nothing follows.
    """

    quantity: str
    sentence: str  # what the number is
    low: float = -math.inf
    high: float = math.inf
    setting: str = ""
    control: bool = False

    @property
    def inequality(self) -> str:
        if self.low == self.high:
            return f"= {self.low:g}"
        if math.isinf(self.low):
            return f"≤ {self.high:g}"
        return f"≥ {self.low:g}" if math.isinf(self.high) else f"from {self.low:g} to {self.high:g}"

    @property
    def place(self) -> str:
        """Its setting in words, or that it is a control."""
        return ", ".join([self.setting] * bool(self.setting) + ["control"] * self.control)

    def verdict(self, values: Sequence[float], interval: Interval) -> Verdict:
        if not math.isfinite(interval.mean) or interval.count < 2:
            return "undecided"
        if self.low == self.high:  # what is exact has no exception
            return "confirmed" if all(value == self.low for value in values) else "refuted"
        names: dict[str, Verdict] = {"inside": "confirmed", "outside": "refuted"}
        return names.get(side(interval, self.low, self.high), "undecided")


def lower_bound(quantity: str, sentence: str, low: float, setting: str = "", control: bool = False) -> PredictedRange:
    return PredictedRange(quantity, sentence, low, math.inf, setting, control)


def upper_bound(quantity: str, sentence: str, high: float, setting: str = "") -> PredictedRange:
    return PredictedRange(quantity, sentence, -math.inf, high, setting)


def within(quantity: str, sentence: str, margin: float, setting: str = "") -> PredictedRange:
    """A difference that is none: at most `margin` to either side."""
    return PredictedRange(quantity, sentence, -margin, margin, setting)


def exactly(quantity: str, sentence: str, value: float, setting: str = "") -> PredictedRange:
    return PredictedRange(quantity, sentence, value, value, setting)


# --- claims --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TextExperiment:
    """A `regard compare` on real text, whose paired seeds take the verdict: arms are overrides of the recipe `base`.

    A prediction's quantity is an arm's metric, a difference as `one less other`, or one of `sums`: weights by arm. What
    is pretrained first, on every seed, is a recipe with overrides; an arm begins with it by `training.init=@NAME`.
    """

    base: str
    arms: Mapping[str, tuple[str, ...]]
    predictions: Sequence[PredictedRange]
    common: tuple[str, ...] = ()
    sums: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    pretrained: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    metric: str | None = None
    control: str = "steps"
    seeds: tuple[int, int] = (5, 10)  # at first, and at most, while a prediction is undecided
    seconds: float = 70.0  # an estimate of one run, beside others on an H200; of a pretraining too


@dataclass(frozen=True)
class Claim:
    """`kind` is exact, or screen: quality on a constructed task with a tiny model, which is no verdict on text; a claim
    whose verdict was taken on text is judged as one of the kind `text`. Number and kind are those of the registry."""

    title: str
    sentence: str  # as the notes say it
    source: str  # where
    predictions: Sequence[PredictedRange]
    measure: Callable[[int, Setup], Measurement]
    seconds: float  # of one seed, on a quiet core
    depends_on: str  # what the outcome hangs on, and what was not tried
    figures: Sequence[Figure] = ()
    faults: Mapping[str, str] = field(default_factory=dict)  # planted ones that must turn the verdict: name, meaning
    timed: bool = False  # measures time: nothing may run beside it, and other devices have other results
    seeds: tuple[int, int] = (5, 10)  # at first, and at most, while a prediction is undecided
    on_text: TextExperiment | None = None  # `--budget full`
    why_not_on_text: str = ""  # where there is none
    id: str = ""
    kind: Literal["exact", "screen", "text"] = "screen"


# --- verdicts ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """A prediction with what came of it."""

    prediction: PredictedRange
    interval: Interval
    values: list[float]
    verdict: Verdict

    @property
    def measured(self) -> str:
        """The number with its interval, or the one value of all seeds."""
        alike = len(set(self.values)) == 1 and self.interval.count > 1
        return f"{self.values[0]:g} on every seed" if alike else self.interval.format()


def judge(claim: Claim, measurements: Sequence[Measurement]) -> tuple[Verdict, list[Judged]]:
    """The claim's verdict, and that of every prediction."""
    judged = []
    for prediction in claim.predictions:
        values = [float(each.numbers[prediction.quantity]) for each in measurements]
        interval = mean_interval(values)
        judged.append(Judged(prediction, interval, values, prediction.verdict(values, interval)))
    return overall(judged), judged


def overall(judged: Sequence[Judged]) -> Verdict:
    """Confirmed or refuted where all settings are; a setting is refuted by one prediction; `depends` shows both.

    Where a control is not confirmed its setting is undecided, whatever the others are.
    """
    settings: dict[str, list[Judged]] = {}
    for each in judged:
        settings.setdefault(each.prediction.setting, []).append(each)
    outcomes = {_outcome(rows) for rows in settings.values()}
    if len(outcomes) == 1:
        return outcomes.pop()
    return "depends" if {"confirmed", "refuted"} <= outcomes else "undecided"


def _outcome(rows: Sequence[Judged]) -> Verdict:
    """Of one setting."""
    if any(each.prediction.control and each.verdict != "confirmed" for each in rows):
        return "undecided"
    verdicts = {each.verdict for each in rows}
    return "refuted" if "refuted" in verdicts else "confirmed" if verdicts == {"confirmed"} else "undecided"
