"""Learning rate schedules: pure functions of the step, counted from 1."""

import math
from dataclasses import dataclass

from regard.config import Choice, at_least, choice, option


class ScheduleConfig(Choice, slot="schedule"):
    must_define = ("rate",)

    def rate(self, step: int, size: int, steps: int) -> float:
        """The learning rate of a step, counted from 1, of `steps`; `size` is the width of the model."""
        raise NotImplementedError


@choice("noam")
class NoamSchedule(ScheduleConfig):
    """peak · min(√(warmup/step), step/warmup): rises linearly, then falls as 1/√step (Vaswani 2017, eq. 3).

    Without a peak it is the paper's: factor · size^-0.5 · warmup^-0.5 at the top.
    """

    warmup: int = option(4000, "steps of linear warmup")
    peak: float | None = option(None, "the highest rate, reached at warmup; none: the paper's, from the model's size")
    factor: float = option(1.0, "multiplies the paper's rate")

    def __post_init__(self) -> None:
        at_least(self, 1, "warmup")
        _check_rates(self.peak, self.factor)

    def rate(self, step: int, size: int, steps: int) -> float:
        peak = self.peak if self.peak is not None else self.factor * (size * self.warmup) ** -0.5
        return peak * min((self.warmup / step) ** 0.5, step / self.warmup)


@dataclass(frozen=True, kw_only=True)
class _Warmup(ScheduleConfig):
    """Linear warmup to the peak, then `decay`, a function of the share of the remaining steps that is done."""

    peak: float = option(1e-3, "the highest rate")
    warmup: int = option(1000, "steps of linear warmup")

    def __post_init__(self) -> None:
        at_least(self, 0, "warmup")
        _check_rates(self.peak)

    def rate(self, step: int, size: int, steps: int) -> float:
        if step < self.warmup:
            return self.peak * step / self.warmup
        return self.peak * self.decay(min(1.0, (step - self.warmup) / max(1, steps - self.warmup)))

    def decay(self, done: float) -> float:
        raise NotImplementedError


@choice("cosine")
class CosineSchedule(_Warmup):
    """Rises linearly, then falls along half a cosine to `final` times the peak at the last step."""

    final: float = option(0.0, "share of the peak at the end")

    def decay(self, done: float) -> float:
        return self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * done))


@choice("linear")
class LinearSchedule(_Warmup):
    """Rises linearly, then falls linearly to `final` times the peak at the last step."""

    final: float = option(0.0, "share of the peak at the end")

    def decay(self, done: float) -> float:
        return 1 - (1 - self.final) * done


@choice("constant")
class ConstantSchedule(_Warmup):
    """The same rate, after rising linearly."""

    warmup: int = option(0, "steps of linear warmup")

    def decay(self, done: float) -> float:
        return 1.0


@choice("slanted_triangle")
class SlantedTriangleSchedule(ScheduleConfig):
    """Rises linearly for a short while, then falls linearly for the rest, to peak / ratio (Howard 2018, eq. 3).

    With cut = ⌊T · cut_frac⌋: p = t/cut before it, then 1 − (t − cut)/(cut · (1/cut_frac − 1));
    rate = peak · (1 + p · (ratio − 1)) / ratio.
    """

    peak: float = option(1e-3, "the highest rate")
    cut_frac: float = option(0.1, "share of the steps in which it rises")
    ratio: float = option(32.0, "how much smaller the lowest rate is")

    def __post_init__(self) -> None:
        if not 0 < self.cut_frac < 1:
            raise ValueError(f"cut_frac must be between 0 and 1, not {self.cut_frac}")
        if not 1 <= self.ratio < math.inf:
            raise ValueError(f"ratio must be at least 1, and finite, not {self.ratio}")
        _check_rates(self.peak)

    def rate(self, step: int, size: int, steps: int) -> float:
        cut = max(1, math.floor(steps * self.cut_frac))
        p = step / cut if step < cut else 1 - (step - cut) / (cut * (1 / self.cut_frac - 1))
        return self.peak * (1 + max(0.0, p) * (self.ratio - 1)) / self.ratio


def _check_rates(*rates: float | None) -> None:
    if not all(rate is None or 0 <= rate < math.inf for rate in rates):
        raise ValueError("a rate must be 0 or more, and finite")
