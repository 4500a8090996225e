"""`regard compare`: trains the arms, prints the table, and writes table and charts into the folder."""

import json
import os
from dataclasses import replace
from pathlib import Path

from rich.table import Table

from regard.cli.streams import warn
from regard.console import Console
from regard.errors import RegardError
from regard.io.atomic import atomic_write
from regard.io.files import json_safe
from regard.lab.arms import grid, read_arms
from regard.lab.charts import standalone
from regard.lab.compare import CompareOptions, Comparison, compare_arms, describe
from regard.lab.compare_report import difference_chart, loss_curves, markdown, narrow, table_rows
from regard.lab.sweep import ARMS, sweep


def compare_recipes(
    base: str,
    overrides: list[str],
    vary: list[str],
    arms: Path | None,
    out: Path | None,
    options: CompareOptions,
    as_json: bool,
) -> None:
    if base and "=" in base:
        raise RegardError(f"the first argument is the recipe, and {base} is an override; write regard compare RECIPE")
    if bool(vary) == (arms is not None):
        raise RegardError("say what differs: --vary key='[one, other]', which may be repeated, or --arms FILE")
    chosen = grid(vary) if vary else read_arms(arms or Path())
    folder = out or Path("compare") / Path(base).stem
    options = replace(options, jobs=options.jobs or max(1, (os.cpu_count() or 1) // 2))
    comparison = compare_arms(base, chosen, folder, options, overrides, warn)
    for name, chart in (("differences.svg", difference_chart(comparison)), ("curves.svg", loss_curves(comparison))):
        if chart:
            with atomic_write(folder / name) as file:
                file.write(standalone(chart))
    with atomic_write(folder / "table.md") as file:
        file.write(markdown(comparison))
    if as_json:
        print(json.dumps(json_safe(comparison.json()), indent=1, ensure_ascii=False))
    else:
        print_comparison(comparison)
        warn(f"{folder} has the runs, table.md, compare.json, curves.svg and differences.svg")
    if any(not row.values for row in comparison.arms):
        raise SystemExit(1)


def search_ranges(
    base: str,
    overrides: list[str],
    ranges: list[str],
    given: list[str],
    out: Path | None,
    trials: int,
    halving: bool,
    metric: str | None,
    jobs: int,
    device: str,
    as_json: bool,
) -> None:
    """`--sweep`: candidates on one seed, and the command that takes the verdict."""
    if given:
        raise RegardError(f"--sweep searches on one seed and compares no arms; leave out {' and '.join(given)}")
    folder = out or Path("compare") / f"{Path(base).stem}-sweep"
    jobs = jobs or max(1, (os.cpu_count() or 1) // 2)
    name, found = sweep(base, ranges, folder, trials, halving, metric, jobs, device, overrides, warn)
    if as_json:
        rows = [{**vars(trial), "value": json_safe(trial.value)} for trial in found]
        print(json.dumps({"metric": name, "trials": rows}, indent=1, ensure_ascii=False))
        return
    table = Table()
    for title in ("trial", "steps", name, "keys"):
        table.add_column(title, justify="left" if title == "keys" else "right", overflow="fold")
    for trial in found:
        value = trial.error or f"{trial.value:.4f}"
        table.add_row(str(trial.number), f"{trial.steps:,}", value, " ".join(trial.overrides))
    Console().print(table)
    warn(f"one seed gives no verdict; for that: regard compare {base} --arms {folder / ARMS} --seeds 5")


def print_comparison(comparison: Comparison) -> None:
    console = Console()
    header, rows = table_rows(comparison)
    if console.width < 120:
        header, rows = narrow(header, rows)
    table = Table()
    for n, name in enumerate(header):
        table.add_column(name, justify="left" if n == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for sentence in describe(comparison):
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)
