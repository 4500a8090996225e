"""Measure the headline figures of docs/results.md again, part by part, and write its table.

    python benchmarks/all.py --list                          # the parts: command, minutes, needs, targets, last figure
    python benchmarks/all.py tatoeba training-base           # some parts, or one run of them, as tatoeba-2
    python benchmarks/all.py "sst2-*"                        # the parts whose names begin so
    python benchmarks/all.py                                 # all; what cannot run here is said and left out
    python benchmarks/all.py --table                         # docs/results.md and zh/ from benchmarks/results/*.json

A run takes at most nine minutes. Its figures are kept as one JSON file in --into before the next begins, and a run that
was measured at this commit is not repeated, so the same command goes on where it was stopped. To publish figures, copy
their files to benchmarks/results and write the table. Exit code 1: something failed.
"""

import argparse
import datetime
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from fnmatch import filter as matching
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from common import hardware, write_json
from languages import CHINESE, ENGLISH, English
from parts import PARTS, Figures, Part, Run

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PUBLISHED = HERE / "results"
PAGES = {ROOT / "docs" / "results.md": ENGLISH, ROOT / "docs" / "zh" / "results.md": CHINESE}
LIMIT = 9 * 60  # seconds of one run
BEGIN, END = "<!-- the table of benchmarks/all.py begins -->", "<!-- the table ends -->"
Result = dict[str, Any]


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="PART", help="parts or runs of --list, or patterns; none: all")
    parser.add_argument("--list", action="store_true", help="print the parts and run nothing")
    parser.add_argument("--table", action="store_true", help="write the tables from the published figures")
    parser.add_argument("--device", choices=["cuda", "cpu"], help="only the parts for a GPU, or only those for a CPU")
    parser.add_argument("--commit", help="where the code is not in a git checkout: the commit it is of")
    parser.add_argument("--into", type=Path, default=ROOT / "runs" / "benchmarks" / "results", help="for JSON and logs")
    parser.add_argument("--again", action="store_true", help="measure again what was measured at this commit")
    parser.add_argument("--published", type=Path, default=PUBLISHED, help="the folder of published figures")
    parser.add_argument("--page", type=Path, help="write the English table there, and no other")
    return parser


def main(argv: Sequence[str] | None = None, parts: Sequence[Part] = PARTS) -> int:
    options = parser().parse_args(argv)
    options.into = options.into.resolve()  # parts run in the repository's root
    runs = chosen(options, parts)
    if options.list:
        show(list(dict.fromkeys(run.part for run in runs)), options)
    elif options.table:
        for page, language in ({options.page: ENGLISH} if options.page else PAGES).items():
            text = page.read_text(encoding="utf-8")
            page.write_text(with_table(text, table(parts, options.published, language)), encoding="utf-8")
    else:
        return measure_all(runs, options)
    return 0


def chosen(options: argparse.Namespace, parts: Sequence[Part]) -> list[Run]:
    runs = [run for part in parts for run in part.runs() if options.device in (None, "cuda" if part.gpu else "cpu")]
    names = {run: {run.name, run.part.name} for run in runs}
    unknown = [wanted for wanted in options.names if not any(matching(own, wanted) for own in names.values())]
    if unknown:
        sys.exit(f"all.py: there is no part {', '.join(sorted(unknown))}; --list prints them")
    return [run for run in runs if not options.names or any(matching(names[run], wanted) for wanted in options.names)]


# --- measuring -----------------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    run: Run
    status: str  # measured, kept, skipped: …, failed: …
    figures: Figures | None = None


def measure_all(runs: list[Run], options: argparse.Namespace) -> int:
    commit = options.commit or current_commit()
    outcomes = []
    for run in runs:
        outcomes.append(measure(run, options, commit))
        print(line(outcomes[-1]), flush=True)
    counts = {word: sum(one.status.startswith(word) for one in outcomes) for word in
              ("measured", "kept", "skipped", "failed")}  # fmt: skip
    for part in dict.fromkeys(one.run.part for one in outcomes if one.figures):
        figures = mean(results(part, options.into))  # of all seeds that are there
        for target in part.targets:
            print(f"{part.name:20} {target}: {'reached' if target.reached(figures) else 'MISSED'}")
    print(f"at {commit}: " + ", ".join(f"{n} {word}" for word, n in counts.items()) + f"; results in {options.into}")
    return int(counts["failed"] > 0)


def line(outcome: Outcome) -> str:
    figures = "" if outcome.figures is None else outcome.run.part.figure.format(**outcome.figures)
    return f"{outcome.run.name:20} {outcome.status}  {figures}".rstrip()


def measure(run: Run, options: argparse.Namespace, commit: str) -> Outcome:
    """One run in a process of its own. What it printed is in a log beside its JSON."""
    home = ROOT / "runs" / "benchmarks"
    folder, after = home / f"{run.name}-{commit}", home / f"{run.part.after}-{commit}"
    kept, path = settled(commit) and not options.again, options.into / f"{run.name}.json"
    if kept and (result := read(path)) and result["commit"] == commit:
        return Outcome(run, "kept", result["figures"])
    if missing := lacks(run.part, after):
        return Outcome(run, f"skipped: {missing}")
    if not kept:
        shutil.rmtree(folder, ignore_errors=True)  # a training of other code would be taken for this one's
    options.into.mkdir(parents=True, exist_ok=True)
    raw, log = options.into / f"{run.name}.raw", options.into / f"{run.name}.log"
    raw.unlink(missing_ok=True)
    words = [str(HERE / run.part.script), *run.words(str(folder), str(after)), "--json", str(raw)]
    began = time.monotonic()
    problem = finished([sys.executable, *words], log, hide_gpu=not run.part.gpu)
    seconds = time.monotonic() - began
    if problem:
        return Outcome(run, f"failed: {problem} ({log})")
    try:
        figures = run.part.read(json.loads(raw.read_text(encoding="utf-8")))
        outcome = Outcome(run, "measured", figures)
        line(outcome)  # a figure may be missing or not be a number
    except (OSError, ValueError, LookupError, TypeError) as error:
        return Outcome(run, f"failed: its figures could not be read: {error!r} ({log})")
    raw.unlink()
    result = {"part": run.part.name, "command": run.command(), "commit": commit, "seed": run.seed}
    result |= {"date": datetime.date.today().isoformat(), "hardware": machine(run.part), "seconds": round(seconds, 1)}
    write_json(path, result | {"figures": figures})
    return outcome


def lacks(part: Part, after: Path) -> str:
    """What the part needs and this machine does not have; nothing if it can run."""
    import torch

    from regard.data import catalog

    if part.gpu and not torch.cuda.is_available():
        return "no GPU"
    for name in part.libraries:
        if find_spec(name) is None:
            return f"no library {name}"
    for name in part.data:
        if catalog.set_folder(catalog.find_set(name)) is None:
            return f"no data set {name} in REGARD_DATA"
    if part.folder and not (ROOT / part.folder).is_dir():
        return f"no folder {part.folder} (docs/recipes.md, Fine-tuning)"
    if part.program and not shutil.which(part.program):
        return f"no program {part.program}"
    return f"run the part {part.after} first" if part.after and not (after / "results.json").is_file() else ""


def finished(command: list[str], log: Path, hide_gpu: bool) -> str:
    """Runs a command and says what went wrong, if anything did. Whatever it started ends with it."""
    environment = os.environ | ({"CUDA_VISIBLE_DEVICES": ""} if hide_gpu else {})
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT, env=environment, start_new_session=True
        )
        try:
            code = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            return f"not done after {LIMIT // 60} minutes"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return (lines[-1] if lines else f"exit code {code}") if code else ""


def machine(part: Part) -> str:
    import torch

    gpu = part.gpu or not torch.cuda.is_available()  # a CPU part on a machine with a GPU did not use it
    return f"{hardware() if gpu else f'CPU, {torch.get_num_threads()} threads'}, torch {torch.__version__}"


def current_commit() -> str:
    """Of the code; `-dirty` where files were changed since, other than documents and results."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    if shutil.which("git") is None:
        return "unknown"
    head = git("rev-parse", "--short=7", "HEAD")
    changed = git("status", "--porcelain", "-uno", "--", ".", ":!docs", ":!benchmarks/results")
    return f"{head}-dirty" if head and changed else head or "unknown"


def settled(commit: str) -> bool:
    """Whether the name says which code it was."""
    return commit != "unknown" and not commit.endswith("-dirty")


# --- what is known -------------------------------------------------------------------------------------------------


def read(path: Path) -> Result | None:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def results(part: Part, folder: Path) -> list[Result]:
    return [result for run in part.runs() if (result := read(folder / f"{run.name}.json"))]


def mean(found: list[Result]) -> dict[str, float]:
    """Of every figure that is a number, over the seeds."""
    rows = [result["figures"] for result in found]
    names = [key for key, value in rows[0].items() if isinstance(value, int | float)]
    return {key: statistics.mean(row[key] for row in rows) for key in names}


def figure(part: Part, found: list[Result], language: English = ENGLISH) -> str:
    """The mean of the seeds, and the first figure of each."""
    figures = mean(found)
    shown = language.figure(part).format(**figures)
    if len(found) > 1:
        seeds = language.comma.join(str(result["seed"]) for result in found)
        each = " / ".join(f"{result['figures'][next(iter(figures))]:.2f}" for result in found)
        shown += language.seeds.format(seeds=seeds, each=each)
    notes = dict.fromkeys(language.note(result["note"]) for result in found if "note" in result)
    return language.semicolon.join([shown, *notes])


def commit_of(result: Result, language: English = ENGLISH) -> str:
    return language.by.format(**result) if result.get("commit_not_recorded") else result["commit"]


def distinct(values: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(values))


def provenance(found: list[Result], language: English = ENGLISH) -> list[str]:
    """Hardware, commits and dates."""
    return [
        distinct(language.hardware(result["hardware"]) for result in found),
        distinct(commit_of(result, language) for result in found),
        distinct(result["date"] for result in found),
    ]


def show(parts: list[Part], options: argparse.Namespace) -> None:
    for part in parts:
        each = f" for each of seeds {', '.join(map(str, part.seeds))}" if part.seeds else ""
        print(f"{part.name}: {part.title}\n  command   {part.runs()[0].command()}")
        print(f"  expected  about {part.minutes:g} min{each}")
        print(f"  needs     {', '.join(part.needs()) or 'nothing else'}")
        if part.targets:
            print(f"  target    {', '.join(map(str, part.targets))}")
        for name, folder in (("published", options.published), ("measured", options.into)):
            if found := results(part, folder):
                _, commits, dates = provenance(found)
                print(f"  {name:9} {figure(part, found)} [{commits}, {dates}]")
            elif name == "published":
                print("  published nothing yet")


def table(parts: Sequence[Part], folder: Path, language: English = ENGLISH) -> str:
    """Markdown: a row for each part that has figures, then the signatures of their metrics."""
    lines = [f"| {' | '.join(language.head)} |", "|---" * len(language.head) + "|"]
    signatures: dict[str, list[str]] = {}
    for part in parts:
        if found := results(part, folder):
            cells = [language.title(part), figure(part, found, language), *provenance(found, language)]
            lines.append("| " + " | ".join([*cells, f"`{found[0]['command']}`"]) + " |")
            for result in found:
                if signature := result["figures"].get("signature"):
                    signatures.setdefault(signature, []).append(part.name)
    for signature, names in signatures.items():
        shown = language.comma.join(dict.fromkeys(names))
        lines += ["", language.signature.format(names=shown, signature=signature)]
    return "\n".join(lines)


def with_table(text: str, made: str) -> str:
    before, begin, rest = text.partition(BEGIN)
    _, end, behind = rest.partition(END)
    if not (begin and end):
        sys.exit(f"all.py: the page has no lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{behind}"


if __name__ == "__main__":
    sys.exit(main())
