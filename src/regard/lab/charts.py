"""Charts as SVG text, without any library: curves with bands, points with intervals. Light and dark by CSS.

Knows no experiment: it is given numbers and words.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

COLOURS = 6
STYLE = """
.chart { --c0: #2f6fb0; --c1: #c8621e; --c2: #3f8f57; --c3: #8b5bb5; --c4: #b0373f; --c5: #6b7280;
  --ink: #1a1d26; --soft: #5b6272; --line: #d9dde6; --zone: #3f8f5722;
  font: 13px system-ui, "Noto Sans", "Noto Sans CJK SC", "PingFang SC", sans-serif; }
.chart text { fill: var(--ink); } .chart .soft { fill: var(--soft); font-size: 12px; }
.chart .grid { stroke: var(--line); } .chart .axis { stroke: var(--soft); } .chart .zone { fill: var(--zone); }
.chart .margin { stroke: var(--soft); stroke-dasharray: 5 4; }
"""
DARK = """
  --c0: #86b4f0; --c1: #ffa26b; --c2: #7fcf97; --c3: #c7a3ea; --c4: #f08a90; --c5: #a0a7b8;
  --ink: #e7e9f0; --soft: #a0a7b8; --line: #343945; --zone: #7fcf9726;
"""


@dataclass(frozen=True)
class Series:
    """A curve: x, y, and for each point the ends of its interval where it has one."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    dashed: bool = False  # what theory predicts


@dataclass(frozen=True)
class Chart:
    """Curves over one axis."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    names: Sequence[str] = ()  # of the places 0, 1, … on the x axis, which no line joins


@dataclass(frozen=True)
class Row:
    """A number with its interval, and the range that was predicted for it."""

    name: str
    mean: float
    low: float
    high: float
    label: str = ""
    wanted: tuple[float, float] | None = None
    points: Sequence[float] = field(default=())  # of each seed


def standalone(svg: str) -> str:
    """The chart as a file of its own, which follows the reader's light or dark."""
    style = f"<style>{STYLE}@media (prefers-color-scheme: dark) {{ .chart {{{DARK}}} }}</style>"
    head, end, rest = svg.partition(">")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}{end}{style}{rest}\n'


class _Axis:
    """Numbers of one axis as places on the picture."""

    def __init__(self, values: Sequence[float], start: float, end: float, log: bool, pad: float = 0.04) -> None:
        good = [v for v in values if math.isfinite(v) and (v > 0 or not log)] or [1.0]
        self.log, self.start, self.end = log, start, end
        low, high = self._map(min(good)), self._map(max(good))
        spread = (high - low) or max(abs(high), 1e-9) * 0.2 or 1.0
        self.low, self.high = low - pad * spread, high + pad * spread

    def _map(self, value: float) -> float:
        return math.log10(max(value, 1e-300)) if self.log else value

    def __call__(self, value: float) -> float:
        share = (self._map(value) - self.low) / (self.high - self.low)
        return self.start + min(1.05, max(-0.05, share)) * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        if self.log:
            first, last = math.ceil(self.low), math.floor(self.high)
            powers = [10.0**n for n in range(first, last + 1)]
            if len(powers) >= 2:
                return powers[:: max(1, len(powers) // count)]
            return [10 ** (self.low + (self.high - self.low) * n / 3) for n in range(4)]
        step = (self.high - self.low) / count
        size = 10.0 ** math.floor(math.log10(step))
        step = next(size * n for n in (1, 2, 5, 10) if size * n >= step)
        first = math.ceil(self.low / step)
        return [n * step for n in range(first, math.floor(self.high / step) + 1)]


def number(value: float) -> str:
    """Short: 1,024 or 0.03 or 2e-07."""
    if value == 0:
        return "0"
    if abs(value) < 1e-3 or abs(value) >= 1e6:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def curves(chart: Chart, width: int = 480, height: int = 280) -> str:
    """Lines with their bands and a legend."""
    left, right, top = 58, width - 12, 46 + 18 * math.ceil(sum(bool(series.name) for series in chart.series) / 2)
    bottom = height - 42
    x = _Axis([v for s in chart.series for v in s.x], left, right, chart.log_x, 0.2 if chart.names else 0.04)
    y = _Axis([v for s in chart.series for v in (*s.y, *s.low, *s.high)], bottom, top, chart.log_y)
    parts = [_head(width, height, chart.title), _text(left, 18, chart.title, weight=600)]
    for value in y.ticks():
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        parts.append(_text(left - 6, y(value) + 4, number(value), "end", soft=True))
    few = chart.names or (chart.log_x and chart.series and len(chart.series[0].x) <= 8)
    for n, value in enumerate(chart.series[0].x if few else x.ticks(6)):
        parts.append(
            _text(x(value), bottom + 17, chart.names[n] if chart.names else number(value), "middle", soft=True)
        )
    parts.append(f'<line class="axis" x1="{left}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    parts.append(_text((left + right) / 2, height - 6, chart.x_label, "middle", soft=True))
    parts.append(_text(left, top - 8, chart.y_label, soft=True))
    for n, series in enumerate(chart.series):
        parts += (_dots if chart.names else _curve)(series, f"var(--c{n % COLOURS})", x, y)
        if not series.name:
            continue
        place = left + n % 2 * (right - left) / 2, 40 + 18 * (n // 2)
        dash = ' stroke-dasharray="5 4"' if series.dashed else ""
        parts.append(
            f'<line x1="{place[0]:.0f}" x2="{place[0] + 18:.0f}" y1="{place[1] - 4}" y2="{place[1] - 4}" '
            f'stroke="var(--c{n % COLOURS})" stroke-width="2.5"{dash}/>'
        )
        parts.append(_text(place[0] + 24, place[1], series.name))
    return "".join(parts) + "</svg>"


def _curve(series: Series, colour: str, x: Callable[[float], float], y: Callable[[float], float]) -> list[str]:
    good = [n for n, v in enumerate(series.y) if math.isfinite(v)]
    points = " ".join(f"{x(series.x[n]):.1f},{y(series.y[n]):.1f}" for n in good)
    dash = ' stroke-dasharray="5 4"' if series.dashed else ""
    parts = []
    if len(series.low) == len(series.y) and good:
        around = [(n, series.high) for n in good] + [(n, series.low) for n in reversed(good)]
        band = " ".join(f"{x(series.x[n]):.1f},{y(ends[n]):.1f}" for n, ends in around)
        parts.append(f'<polygon points="{band}" fill="{colour}" opacity="0.18"/>')
    parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
    if len(good) <= 24 and not series.dashed:
        parts += [f'<circle cx="{x(series.x[n]):.1f}" cy="{y(series.y[n]):.1f}" r="3" fill="{colour}"/>' for n in good]
    return parts


def _dots(series: Series, colour: str, x: Callable[[float], float], y: Callable[[float], float]) -> list[str]:
    """Each value with its number, and the range of the seeds as a bar."""
    parts = []
    for n, value in enumerate(series.y):
        place = f"{x(series.x[n]):.1f}"
        if series.low:
            parts.append(
                f'<line x1="{place}" x2="{place}" y1="{y(series.low[n]):.1f}" y2="{y(series.high[n]):.1f}" '
                f'stroke="{colour}" stroke-width="7" stroke-linecap="round" opacity="0.3"/>'
            )
        parts.append(f'<circle cx="{place}" cy="{y(value):.1f}" r="4.5" fill="{colour}"/>')
        parts.append(_text(x(series.x[n]) + 10, y(value) + 4, number(value)))
    return parts


def intervals(rows: Sequence[Row], title: str, shared: bool = False, width: int = 480) -> str:
    """A line for each number: its interval, the values of the seeds, and the range that was predicted, shaded.

    Each line has an axis of its own, unless they share one.
    """
    top, each = 34, 56
    height = top + each * len(rows) + 6
    parts = [_head(width, height, title), _text(10, 18, title, weight=600)]
    for n, row in enumerate(rows):
        middle = top + n * each + 30
        ends = [v for v in (row.wanted or ()) if math.isfinite(v)]
        x = _Axis(
            [v for each in (rows if shared else [row]) for v in _numbers(each)], 40, width - 40, log=False, pad=0.12
        )
        parts.append(_text(10, middle - 14, f"{row.name}"))
        if row.label:
            parts.append(_text(width - 10, middle - 14, row.label, "end", soft=True))
        if row.wanted:
            low, high = (x(v) if math.isfinite(v) else (20 if v < 0 else width - 20) for v in row.wanted)
            parts.append(
                f'<rect class="zone" x="{low:.1f}" y="{middle - 8}" width="{max(1.5, high - low):.1f}" height="16"/>'
            )
            for value in ends:
                parts.append(_vertical("margin", x(value), middle - 8, middle + 8))
                parts.append(_text(x(value), middle + 20, number(value), "middle", soft=True))
        parts.append(f'<line class="grid" x1="20" x2="{width - 20}" y1="{middle}" y2="{middle}"/>')
        low, high = (v if math.isfinite(v) else row.mean for v in (row.low, row.high))
        parts.append(
            f'<line x1="{x(low):.1f}" x2="{x(high):.1f}" y1="{middle}" y2="{middle}" stroke="var(--c0)" '
            'stroke-width="5" stroke-linecap="round"/>'
        )
        parts += [
            f'<circle cx="{x(v):.1f}" cy="{middle}" r="2.5" fill="var(--c1)"/>' for v in row.points if math.isfinite(v)
        ]
        parts.append(f'<circle cx="{x(row.mean):.1f}" cy="{middle}" r="5" fill="var(--c0)"/>')
    return "".join(parts) + "</svg>"


def _numbers(row: Row) -> list[float]:
    return [v for v in (row.low, row.high, row.mean, *row.points, *(row.wanted or ())) if math.isfinite(v)]


def _head(width: int, height: int, title: str) -> str:
    return (
        f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title, quote=True)}">'
    )


def _vertical(name: str, x: float, top: float, bottom: float) -> str:
    return f'<line class="{name}" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>'


def _text(x: float, y: float, text: str, anchor: str = "start", soft: bool = False, weight: int = 400) -> str:
    own = ' class="soft"' if soft else ""
    heavy = f' font-weight="{weight}"' if weight != 400 else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{own}{heavy}>{escape(text)}</text>'
