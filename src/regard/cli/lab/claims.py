"""`regard lab`: list, plan, run and report claims."""

import json
import os
from pathlib import Path

from rich.table import Table

from regard.cli.streams import warn
from regard.console import Console
from regard.errors import RegardError, plural
from regard.io.atomic import atomic_write
from regard.io.files import json_safe
from regard.lab.claim import Claim, PlannedClaim, Setup
from regard.lab.registry import chosen_claims, claim_ids, find_claim
from regard.lab.report import html_page, markdown_report, page_data
from regard.lab.runner import BUDGETS, ClaimResult, measured_results, measured_seeds, run_claims


def list_claims(as_json: bool) -> None:
    claims = [find_claim(name) for name in claim_ids()]
    if as_json:
        rows = []
        for claim in claims:
            kind = "planned" if isinstance(claim, PlannedClaim) else str(claim.kind)
            row = {"id": claim.id, "title": claim.title, "sentence": claim.sentence, "kind": kind}
            rows.append(row | ({"reason": claim.reason} if isinstance(claim, PlannedClaim) else {}))
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    table = Table()
    for name in ("", "claim", "what there is"):
        table.add_column(name, overflow="fold")
    for claim in claims:
        kind = f"planned: {claim.reason}" if isinstance(claim, PlannedClaim) else str(claim.kind)
        table.add_row(claim.id, claim.sentence, kind)
    Console().print(table)


def plan_claims(names: list[str], out: Path, device: str, jobs: int, as_json: bool) -> None:
    """What a run would take, before it is one."""
    rows, left = [], 0.0
    for claim in chosen_claims(names or ["all"]):
        done = measured_seeds(out, claim, Setup(device))
        seconds = claim.seconds * max(0, claim.seeds - done)
        left += seconds / (1 if claim.timed else _jobs(jobs))
        most = claim.seconds * (claim.most_seeds - min(claim.seeds, claim.most_seeds))
        rows.append({"id": claim.id, "title": claim.title, "kind": claim.kind, "seeds": claim.seeds, "measured": done,
                     "seconds": round(seconds, 1), "seconds_while_undecided": round(most, 1)})  # fmt: skip
    if as_json:
        print(json.dumps({"minutes": round(left / 60, 2), "claims": rows}, indent=1))
        return
    table = Table()
    for name in ("", "claim", "kind", "seeds", "done", "seconds"):
        table.add_column(name, justify="right" if name in ("seeds", "done", "seconds") else "left")
    for row in rows:
        table.add_row(*(str(row[key]) for key in ("id", "title", "kind", "seeds", "measured", "seconds")))
    console = Console()
    console.print(table)
    console.print(
        f"about {left / 60:.1f} minutes on {_jobs(jobs)} quiet cores, more where seeds are added", soft_wrap=True
    )


def run_lab(
    names: list[str], budget: str, out: Path, device: str, jobs: int, fault: str, seeds: int | None, as_json: bool
) -> None:
    if budget not in BUDGETS:
        raise RegardError(f"--budget is {budget!r}; write {' or '.join(BUDGETS)}")
    if budget == "full":
        raise RegardError(
            "--budget full: no claim has its full experiment yet; `regard lab report` names, for each, the `regard "
            "compare` that takes the verdict on text; write --budget quick"
        )
    if device != "cpu":
        raise RegardError(f"--device {device}: the quick experiments are measured on the CPU; leave it out")
    if seeds == 1:
        raise RegardError("one seed gives no verdict; leave --seeds out, or give 2 or more")
    claims = chosen_claims(names)
    results = run_claims(claims, out, Setup(device, fault), _jobs(jobs), warn, seeds)
    if as_json:
        print(json.dumps(json_safe(page_data(results)), indent=1, ensure_ascii=False))
    else:
        print_results(results)
    if not fault:
        warn(f"`regard lab report --from {out}` makes a page of all that is measured")
    if any(result.error for result in results):
        raise SystemExit(1)


def print_results(results: list[ClaimResult]) -> None:
    """A claim, and under it each prediction with what was measured."""
    console, colours = Console(), {"confirmed": "green", "refuted": "red", "depends": "yellow"}
    for result in results:
        colour = colours.get(str(result.verdict), "")
        console.print(f"{result.claim.id}  {result.claim.title}: ", style="bold", end="", highlight=False)
        console.print(result.outcome, style=f"bold {colour}", end="", highlight=False)
        console.print(f"  ({plural(len(result.measurements), 'seed')})", style="dim", highlight=False)
        if result.error:
            console.print(f"    {result.error}", highlight=False, markup=False, soft_wrap=True)
        for each in result.judged:
            p = each.prediction
            setting = f" ({p.setting})" if p.setting else ""
            console.print(f"    {each.verdict:9}  ", style=colours.get(each.verdict, ""), end="", highlight=False)
            console.print(f"{p.sentence}{setting}", highlight=False, markup=False, soft_wrap=True)
            found = f"predicted {p.inequality}, measured {each.interval.format()}"
            console.print(f"               {found}", highlight=False, markup=False, soft_wrap=True)


def report_lab(out: Path, page: Path | None, as_json: bool) -> None:
    """The page of everything that the folder has measured; nothing is measured for it."""
    if not (out / "parts").is_dir():
        raise RegardError(f"{out}: nothing was measured there; begin with `regard lab run all --out {out}`")
    claims = [claim for name in claim_ids() if isinstance(claim := find_claim(name), Claim)]
    results = measured_results(claims, out, Setup())
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
