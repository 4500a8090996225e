"""Commands of the lab."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from regard.cli.commands.app import lab
from regard.cli.commands.options import Json

Claims = Annotated[list[str] | None, Argument(metavar="CLAIM…", help="Numbers, as C4 C7; or all.")]
LabFolder = Annotated[Path, Option(help="What is measured is kept here; the same command goes on.")]
Jobs = Annotated[
    int, Option(min=0, help="Seeds side by side. Default: one a core; of --budget full, 10 trainings on a GPU.")
]
Budget = Annotated[str, Option(help="quick: on the CPU; full: on real text, for a GPU.")]
LabDevice = Annotated[
    str,
    Option(help="Default: the CPU; of --budget full what there is. quick: only of what measures time (C1 C2 C15 C21)."),
]
LabOverrides = Annotated[
    list[str],
    Option("--set", metavar="KEY=VALUE", help="Of --budget full: override every recipe; a trial without a verdict."),
]


@lab.command("list")
def lab_list(as_json: Json = False) -> None:
    """Every claim, and whether it has an experiment."""
    from regard.cli.lab.claims import list_claims

    list_claims(as_json)


@lab.command("plan")
def lab_plan(
    claims: Claims = None,
    budget: Budget = "quick",
    out: LabFolder = Path("lab"),
    device: LabDevice = "",
    jobs: Jobs = 0,
    overrides: LabOverrides = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Say what a run would take, in minutes, and what is measured already."""
    from regard.cli.lab.claims import plan_claims

    plan_claims(claims or [], budget, out, device, jobs, overrides, as_json)


@lab.command("run")
def lab_run(
    claims: Claims = None,
    budget: Budget = "quick",
    out: LabFolder = Path("lab"),
    device: LabDevice = "",
    jobs: Jobs = 0,
    overrides: LabOverrides = [],  # noqa: B006
    minutes: Annotated[
        float | None, Option(help="Of --budget full: save and end after so many, with status 3; run it again to go on.")
    ] = None,
    fault: Annotated[str, Option(help="Plant a fault that the claim names: its verdict must turn.")] = "",
    trees: Annotated[
        Path | None, Option(metavar="FILE", help="Of C26: a CoNLL-U file, in place of the embedded corpus's trees.")
    ] = None,
    seeds: Annotated[int | None, Option(min=1, help="So many. Default: 3 or 5, to 10 while undecided.")] = None,
    as_json: Json = False,
) -> None:
    """Measure claims, and say of each: confirmed, refuted, depends or undecided, with numbers and intervals."""
    from regard.cli.lab.claims import run_lab

    run_lab(claims or [], budget, out, device, jobs, fault, trees, seeds, as_json, overrides, minutes)


@lab.command("report")
def lab_report(
    out: Annotated[Path, Option("--from", help="The folder of `regard lab run`.")] = Path("lab"),
    page: Annotated[Path | None, Option("--output", "-o", help="Default: report.html in that folder.")] = None,
    as_json: Json = False,
) -> None:
    """Write one page of all that was measured: claim, prediction, verdict, plots; and the same as Markdown."""
    from regard.cli.lab.claims import report_lab

    report_lab(out, page, as_json)
