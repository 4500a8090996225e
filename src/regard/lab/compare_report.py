"""A comparison as a table, as Markdown and as charts."""

import math
import statistics

from regard.lab.charts import Chart, Row, Series, curves, intervals
from regard.lab.compare import ArmResult, Comparison, describe
from regard.lab.statistics import mean_interval, significant_digits

POINTS = 200  # of a curve


def table_rows(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """The header, and a row for every arm; the first is what the others are compared with."""
    first, metric = comparison.arms[0], comparison.metric
    beside = next((name for name in ("bleu", "accuracy", "perplexity") if name in first.beside), None)
    header = ["arm", "seeds", "parameters", "steps", "seconds", metric, "difference, 95%"]
    header += ["bootstrap", "verdict", *([beside] if beside else [])]
    rows = []
    for arm in comparison.arms:
        difference = None if arm is first else arm.difference(first)
        count = f"{len(arm.values)}" + (f", {len(arm.errors)} failed" if arm.errors else "")
        row = [arm.arm.name, count]
        if not arm.values:
            rows.append([*row, *["–"] * (len(header) - 4), "failed", *(["–"] if beside else [])])
            continue
        mean = mean_interval(list(arm.values.values()))
        row += [f"{arm.parameters:,}", f"{arm.steps:,}", f"{statistics.mean(arm.seconds):,.0f}", f"{mean.mean:.4f}"]
        if difference is None:
            row += ["–", "–", "–"]
        elif difference.count < 2:
            row += [f"{difference.mean:+.4f}", "–", comparison.verdict(arm)]
        else:
            digits = max(2, significant_digits(difference))
            low, high = difference.bootstrap or (math.nan, math.nan)
            row += [f"{difference.mean:+.{digits}f} [{difference.low:+.{digits}f}, {difference.high:+.{digits}f}]"]
            row += [f"[{low:+.{digits}f}, {high:+.{digits}f}]", comparison.verdict(arm)]
        rows.append(row + ([f"{statistics.mean(arm.beside[beside]):.2f}"] if beside else []))
    return header, rows


WIDE = ("parameters", "steps", "seconds", "bootstrap")  # left out where columns are few


def narrow(header: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """The table for a terminal; the whole one is in table.md."""
    kept = [n for n, name in enumerate(header) if name not in WIDE]
    return [header[n] for n in kept], [[row[n] for n in kept] for row in rows]


def markdown(comparison: Comparison) -> str:
    header, rows = table_rows(comparison)
    lines = [f"# {comparison.base}: {comparison.metric} on the validation data", ""]
    lines += ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows]
    notes = [*comparison.notes, *describe(comparison)]
    return "\n".join([*lines, "", *(f"- {sentence}" for sentence in notes)]) + "\n"


def difference_chart(comparison: Comparison) -> str:
    """Paired differences to the first arm, with their intervals and the value of every seed."""
    first, margin = comparison.arms[0], comparison.options.margin
    rows = []
    for arm in comparison.arms[1:]:
        difference = arm.difference(first)
        if difference is None:
            continue
        points = [arm.values[s] - first.values[s] for s in first.values if s in arm.values]
        wanted = (-margin, margin)
        label = f"{difference.mean:+.4f} · {comparison.verdict(arm)}"
        rows.append(Row(arm.arm.name, difference.mean, difference.low, difference.high, label, wanted, points))
    return intervals(rows, f"{comparison.metric}: difference to {first.arm.name}, 95%", True) if rows else ""


def loss_curves(comparison: Comparison) -> str:
    """Training loss over steps: the mean of the seeds, and the least and the most of them."""
    series = [each for arm in comparison.arms if (each := _curve(arm)) is not None]
    return curves(Chart("training loss", "step", "", series)) if series else ""


def _curve(arm: ArmResult) -> Series | None:
    by_step: dict[int, list[float]] = {}
    for points in arm.curves.values():
        for step, loss in points:
            if isinstance(loss, float):
                by_step.setdefault(step, []).append(loss)
    steps = sorted(by_step)
    steps = steps[:: max(1, len(steps) // POINTS)]
    if not steps:
        return None
    values = [by_step[step] for step in steps]
    return Series(arm.arm.name, steps, [statistics.mean(v) for v in values], [*map(min, values)], [*map(max, values)])
