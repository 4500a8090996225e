"""`regard lab`: list, plan, run and report claims."""

import json
import os
from pathlib import Path

from rich.table import Table

from regard.cli.streams import warn
from regard.console import Console
from regard.device import pick_device
from regard.errors import RegardError, plural
from regard.io.atomic import atomic_write
from regard.io.files import json_safe
from regard.lab.claim import Claim, Setup
from regard.lab.registry import chosen_claims, claim_ids, find_claim
from regard.lab.report import html_page, markdown_report, page_data
from regard.lab.runner import BUDGETS, ClaimResult, measured_results, measured_seeds, run_claims
from regard.lab.text import JOBS, TextRun, TextSetup, end_time, measured_text_results, run_text_claims, text_claims
from regard.reporting import Json

UNFINISHED = 3  # the exit status where the time was over before the work was done


def list_claims(as_json: bool) -> None:
    claims = [find_claim(name) for name in claim_ids()]
    if as_json:
        rows = [
            {"id": claim.id, "title": claim.title, "sentence": claim.sentence, "kind": claim.kind,
             "text": claim.on_text is not None, "reason": "" if claim.on_text else claim.why_not_on_text}
            for claim in claims
        ]  # fmt: skip
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    table = Table()
    for name in ("", "claim", "quick", "full"):
        table.add_column(name, overflow="fold")
    for claim in claims:
        full = claim.on_text.base if claim.on_text else claim.why_not_on_text
        table.add_row(claim.id, claim.sentence, claim.kind, full)
    Console().print(table)


def plan_claims(
    names: list[str], budget: str, out: Path, device: str, jobs: int, overrides: list[str], as_json: bool
) -> None:
    """What a run would take, before it is one."""
    _check_budget(budget, overrides, None)
    claims = chosen_claims(names or ["all"])
    columns: tuple[str, ...]
    if budget == "full":
        setup = TextSetup(device or "auto", jobs or JOBS, tuple(overrides))
        rows, minutes = _full_plan(text_claims(claims, "all" in names or not names), setup, out)
        beside = f"about {minutes:.0f} minutes on one H200, {setup.jobs} trainings side by side; an estimate"
        columns = ("id", "title", "base", "arms", "runs", "finished", "minutes")
    else:
        rows, minutes = _quick_plan(claims, out, _quick_device(device), jobs)
        beside = f"about {minutes:.1f} minutes on {_jobs(jobs)} quiet cores, more where seeds are added"
        columns = ("id", "title", "kind", "seeds", "measured", "seconds")
    if as_json:
        print(json.dumps({"minutes": round(minutes, 2), "claims": rows}, indent=1))
        return
    table = Table()
    for name in columns:
        shown = {"id": "", "title": "claim", "measured": "done", "finished": "done"}.get(name, name)
        table.add_column(shown, justify="left" if name in ("id", "title", "kind", "base") else "right")
    for row in rows:
        table.add_row(*(str(row[key]) for key in columns))
    console = Console()
    console.print(table)
    console.print(beside, soft_wrap=True)


def _quick_device(device: str) -> str:
    """By its own name, which parts are kept under; auto is what there is."""
    return str(pick_device(device or "cpu"))


def _quick_plan(claims: list[Claim], out: Path, device: str, jobs: int) -> tuple[list[Json], float]:
    rows, left = list[Json](), 0.0
    for claim in claims:
        done = measured_seeds(out, claim, Setup(device))
        seeds, most_seeds = claim.seeds
        seconds = claim.seconds * max(0, seeds - done)
        left += seconds / (1 if claim.timed else _jobs(jobs))
        most = claim.seconds * (most_seeds - seeds)
        rows.append({"id": claim.id, "title": claim.title, "kind": claim.kind, "seeds": seeds, "measured": done,
                     "seconds": round(seconds, 1), "seconds_while_undecided": round(most, 1)})  # fmt: skip
    return rows, left / 60


def _full_plan(claims: list[Claim], setup: TextSetup, out: Path) -> tuple[list[Json], float]:
    rows, left = list[Json](), 0.0
    for claim in claims:
        text = TextRun(claim, out, setup)
        text.check()
        runs, done, seconds = text.planned()
        left += seconds
        base, arms = text.experiment.base, len(text.experiment.arms)
        rows.append({"id": claim.id, "title": claim.title, "base": base, "arms": arms,
                     "runs": runs, "finished": done, "minutes": round(seconds / 60, 1)})  # fmt: skip
    return rows, left / 60


def _check_budget(budget: str, overrides: list[str], minutes: float | None) -> None:
    if budget not in BUDGETS:
        raise RegardError(f"--budget is {budget!r}; write {' or '.join(BUDGETS)}")
    if budget == "quick" and (overrides or minutes is not None):
        raise RegardError("--set and --minutes belong to --budget full; leave them out")


def run_lab(
    names: list[str], budget: str, out: Path, device: str, jobs: int, fault: str, trees: Path | None,
    seeds: int | None, as_json: bool, overrides: list[str], minutes: float | None,
) -> None:  # fmt: skip
    _check_budget(budget, overrides, minutes)
    if seeds == 1:
        raise RegardError("one seed gives no verdict; leave --seeds out, or give 2 or more")
    claims, done = chosen_claims(names), True
    if budget == "full":
        if fault or trees:
            raise RegardError("--fault and --trees are of the quick experiments; leave them out, or the --budget")
        side_by_side = jobs or (JOBS if pick_device(device or "auto").type == "cuda" else max(1, _jobs(0) // 2))
        setup = TextSetup(device or "auto", side_by_side, tuple(overrides), end_time(minutes))
        results, done = run_text_claims(text_claims(claims, "all" in names), out, setup, warn, seeds)
    else:
        quick = Setup(_quick_device(device), fault, str(trees or ""))
        results = run_claims(claims, out, quick, _jobs(jobs), warn, seeds)
    if as_json:
        print(json.dumps(json_safe(page_data(results)), indent=1, ensure_ascii=False))
    else:
        print_results(results)
    if overrides:
        warn("with --set this is a trial, and no verdict: the report leaves it out")
    elif not fault:
        warn(f"`regard lab report --from {out}` makes a page of all that is measured")
    if any(result.error for result in results):
        raise SystemExit(1)
    if not done:
        raise SystemExit(UNFINISHED)


def print_results(results: list[ClaimResult]) -> None:
    """A claim, and under it each prediction with what was measured."""
    console, colours = Console(), {"confirmed": "green", "refuted": "red", "depends": "yellow"}
    for result in results:
        colour = colours.get(str(result.verdict), "")
        console.print(f"{result.name}  {result.claim.title}: ", style="bold", end="", highlight=False)
        console.print(result.outcome, style=f"bold {colour}", end="", highlight=False)
        console.print(f"  ({plural(len(result.measurements), 'seed')})", style="dim", highlight=False)
        if result.error:
            console.print(f"    {result.error}", highlight=False, markup=False, soft_wrap=True)
        for each in result.judged:
            p = each.prediction
            setting = f" ({p.place})" if p.place else ""
            console.print(f"    {each.verdict:9}  ", style=colours.get(each.verdict, ""), end="", highlight=False)
            console.print(f"{p.sentence}{setting}", highlight=False, markup=False, soft_wrap=True)
            found = f"predicted {p.inequality}, measured {each.measured}"
            console.print(f"               {found}", highlight=False, markup=False, soft_wrap=True)


def report_lab(out: Path, page: Path | None, as_json: bool) -> None:
    """The page of everything that the folder has measured; nothing is measured for it."""
    if not (out / "parts").is_dir() and not (out / "full").is_dir():
        raise RegardError(f"{out}: nothing was measured there; begin with `regard lab run all --out {out}`")
    claims = [find_claim(name) for name in claim_ids()]
    results = [*measured_results(claims, out), *measured_text_results(claims, out)]
    results.sort(key=lambda result: int(result.claim.id[1:]))
    if not results:
        raise RegardError(f"{out}: no claim is measured by this version; run `regard lab run all --out {out}`")
    if as_json:
        print(json.dumps(json_safe(page_data(results)), indent=1, ensure_ascii=False))
        return
    target = page or out / "report.html"
    with atomic_write(target) as file:
        file.write(html_page(results))
    with atomic_write(target.with_suffix(".md")) as file:
        file.write(markdown_report(results))
    warn(f"{target} shows {len(results)} claims; open it in a browser ({target.stem}.md is the same as text)")


def _jobs(jobs: int) -> int:
    return jobs or max(1, os.cpu_count() or 1)
