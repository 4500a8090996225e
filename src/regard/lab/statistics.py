"""Intervals of means over few seeds: Student's t, and a bootstrap beside it. Knows no experiment."""

import math
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from regard.reporting import Json

LEVEL = 0.95
RESAMPLES = 10_000


@dataclass(frozen=True)
class Interval:
    """A mean with the interval in which the true one lies, of so many values; `t` of Student, `bootstrap` beside."""

    mean: float
    low: float
    high: float
    count: int
    bootstrap: tuple[float, float] | None = None

    def json(self) -> Json:
        return asdict(self)

    def format(self, unit: str = "") -> str:
        """`0.123 [0.110, 0.136]`, with as many digits as the interval bears."""
        digits = significant_digits(self)
        numbers = [f"{value:,.{digits}f}" for value in (self.mean, self.low, self.high)]
        if max(abs(self.mean), abs(self.high - self.low)) < 1e-3 and self.mean:
            numbers = [f"{value:.2g}" for value in (self.mean, self.low, self.high)]
        return f"{numbers[0]}{unit} [{numbers[1]}, {numbers[2]}]"


def significant_digits(interval: Interval) -> int:
    """Digits after the point: two of the interval's width, or three of the mean where it has none."""
    width = interval.high - interval.low
    scale = width if width > 1e-12 else abs(interval.mean)
    if not math.isfinite(scale) or scale <= 0:
        return 2
    return min(6, max(0, (2 if width > 1e-12 else 3) - 1 - math.floor(math.log10(scale))))


def mean_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """mean ± t · s/√n; one value alone has an interval without ends."""
    count, mean = len(values), math.fsum(values) / len(values)
    if not all(map(math.isfinite, values)):
        return Interval(mean, -math.inf, math.inf, count)
    if count == 1:
        return Interval(mean, -math.inf, math.inf, 1)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    half = t_quantile((1 + level) / 2, count - 1) * deviation / math.sqrt(count)
    return Interval(mean, mean - half, mean + half, count, bootstrap_interval(values, level))


def paired_interval(first: Sequence[float], second: Sequence[float], level: float = LEVEL) -> Interval:
    """Of the differences second − first, value by value."""
    return mean_interval([b - a for a, b in zip(first, second, strict=True)], level)


def bootstrap_interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Percentiles of the means of samples with replacement; with few values it is too narrow, so t decides."""
    draw = random.Random(12345)
    means = sorted(math.fsum(draw.choices(values, k=len(values))) / len(values) for _ in range(RESAMPLES))
    cut = round((1 - level) / 2 * RESAMPLES)
    return means[cut], means[-1 - cut]


def t_quantile(p: float, freedom: int) -> float:
    """x with P(T ≤ x) = p for Student's t, p ≥ 1/2, by bisection."""
    low, high = 0.0, 2.0
    while t_cdf(high, freedom) < p:
        low, high = high, 2 * high
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, freedom) < p else (low, middle)
    return (low + high) / 2


def t_cdf(x: float, freedom: int) -> float:
    """P(T ≤ x), x ≥ 0, by the finite series for whole degrees of freedom (Abramowitz & Stegun 26.7.3, 26.7.4)."""
    angle = math.atan2(x, math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    if freedom % 2:
        term = total = cosine if freedom > 1 else 0.0
        for k in range(3, freedom - 1, 2):
            term *= (k - 1) / k * cosine**2
            total += term
        inside = 2 / math.pi * (angle + sine * total)
    else:
        term = total = 1.0
        for k in range(2, freedom - 1, 2):
            term *= (k - 1) / k * cosine**2
            total += term
        inside = sine * total
    return (1 + inside) / 2


# --- verdicts ------------------------------------------------------------------------------------------------------


def side(interval: Interval, low: float, high: float) -> str:
    """`inside` or `outside` where the interval lies wholly in or out of the range; else `undecided`."""
    if low <= interval.low and interval.high <= high:
        return "inside"
    if interval.high < low or interval.low > high:
        return "outside"
    return "undecided"
