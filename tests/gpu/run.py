"""`make gpu`: everything that only a machine with a GPU can show, in one command of at most eight minutes.

    PYTHONPATH=src python3 tests/gpu/run.py [--only AREA …] [--device cpu]

Areas: the tests of this folder (decoding, kernels, training), `recipes` (`recipes.py`), `choices` (`choices.py`)
and `serve` (`server.py`). It needs torch, transformers' tokenizers and pytest without plugins; no network, no data
sets, no weights. `--device cpu` runs the same commands with small models and a few choices, to try this machinery
without a GPU. What each test shows that a CPU cannot is listed in README.md beside this file.

The time: 16 cores and one GPU, on which about 12 processes work side by side. A start of torch and of CUDA costs
about 5 s. 26 recipes of 6 to 7 commands are about 180 starts, or 1,000 s; 300 choices of about 1 s, in 12 processes,
350 s; the tests, most of which compile kernels, about 900 s in one process, cut up by their measured seconds; 5
servers 150 s. Together 2,400 s, by 12 that is 200 s. Kernels are compiled once for all processes (Triton's cache is
a folder), so the first run takes the longest.
"""

import argparse
import contextlib
import datetime
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[0] = str(ROOT)  # run as a script; this folder's own names would hide others'
sys.path.insert(1, str(ROOT / "src"))

from tests.gpu import proof, recipes, stand_ins  # noqa: E402
from tests.gpu.scheduler import Item, Row, Scheduler  # noqa: E402

AREAS = {  # of the tests in this folder, and of those elsewhere that run our kernels on whatever device there is
    "tests/gpu/test_decoding_graph.py": "decoding",
    "tests/gpu/test_serving.py": "decoding",
    "tests/gpu/test_half.py": "kernels",
    "tests/gpu/test_tiles.py": "kernels",
    "tests/gpu/test_heads.py": "training",
    "tests/gpu/test_replay.py": "training",
    "tests/gpu/test_device.py": "training",
    "tests/nn/test_dropout.py": "kernels",
    "tests/nn/test_linear.py": "kernels",
    "tests/nn/test_loss.py": "kernels",
    "tests/nn/test_norm.py": "kernels",
    "tests/accel/test_packed_attention.py": "kernels",
    "tests/nn/position/test_rotary.py": "kernels",
    "tests/models/test_fast.py": "kernels",
}
OTHERS = ("recipes", "choices", "serve")
BUDGET, PART = 470.0, 175.0  # seconds of a whole run, and of a part of one
CHUNK = 25.0  # seconds of tests that a process is given, by what they took before
GUESS = 2.0  # seconds of a test that was never measured
PARTIAL = ROOT / "build" / "gpu-partial.json"
PYTEST = (
    *("-p", "no:cacheprovider", "-p", "tests.gpu.report", "-o", "addopts="),
    *("-W", "ignore::pytest.PytestConfigWarning"),  # of options of plugins that are not there
)
REDUCED = ("quickstart", "multi30k-en-de", "sst2-minilm")  # recipes on a CPU


# --- the plan ------------------------------------------------------------------------------------------------------


def collect(files: list[str]) -> list[str]:
    """Ids of the tests of these files; a file that cannot be imported has none, and is left to fail as an item."""
    command = [sys.executable, "-m", "pytest", *PYTEST, "--collect-only", "-q", *files]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    return [line for line in found.stdout.splitlines() if line.startswith("tests/") and "::" in line]


def chunks(ids: list[str], known: dict[str, float]) -> list[list[str]]:
    """The tests of a file in parts of about CHUNK seconds, neighbours together: they compile the same kernels."""
    parts: list[list[str]] = [[]]
    total = 0.0
    for id in ids:
        seconds = known.get(id, GUESS)
        if parts[-1] and total + seconds > CHUNK:
            parts.append([])
            total = 0.0
        parts[-1].append(id)
        total += seconds
    return parts


def test_items(areas: list[str], known: dict[str, float]) -> list[Item]:
    files = [file for file, area in AREAS.items() if area in areas and (ROOT / file).exists()]
    items = []
    ids = collect(files) if files else []
    for file in files:
        parts = chunks([id for id in ids if id.startswith(f"{file}::")] or [file], known)
        for n, part in enumerate(parts, 1):
            command = [sys.executable, "-m", "pytest", *PYTEST, "-q", "--tb=short", *part]
            name = f"{Path(file).stem} {n} of {len(parts)}"
            estimate = 6 + sum(known.get(id, GUESS) for id in part)
            items.append(Item(AREAS[file], name, command, part, Path(file).stem, estimate, limit=300))
    return items


def planned(given: argparse.Namespace, work: Path, known: dict[str, float]) -> list[Item]:
    from tests.gpu import choices, server

    areas = given.only or [*dict.fromkeys(AREAS.values()), *OTHERS]
    reduced = given.device == "cpu"
    items: list[Item] = []
    if set(areas) & set(OTHERS):
        made = recipes.prepare(work, real=not reduced)
    if "recipes" in areas:
        chosen = given.recipes or (list(REDUCED) if reduced else None)
        items += recipes.plan(work, given.device, reduced, made, chosen)
    if "choices" in areas:
        items += choices.plan(work, given.device, given.workers, given.few or (1 if reduced else None))
    if "serve" in areas:
        items += server.plan(work, given.device, reduced)
    return items + test_items(areas, known)


# --- what came of it -----------------------------------------------------------------------------------------------


def table(rows: list[Row], notes: dict[str, str]) -> str:
    """A line for each group of rows: area, what, status, seconds, and what was made or went wrong."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.area, row.group), []).append(row)
    lines = [("area", "what", "status", "seconds", "note")]
    for (area, group), each in sorted(groups.items()):
        counts = {status: sum(row.status == status for row in each) for status in STATUSES}
        status = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        bad = [row for row in each if not row.fine]
        note = "; ".join(f"{row.what}: {row.note}" for row in bad[:2]) or notes.get(group, "")
        lines.append((area, group, status, f"{sum(row.seconds for row in each):.0f}", note[:160]))
    wide = [max(len(line[n]) for line in lines) for n in range(4)]
    return "\n".join(
        f"{a:{wide[0]}}  {b:{wide[1]}}  {c:{wide[2]}}  {d:>{wide[3]}}  {e}".rstrip() for a, b, c, d, e in lines
    )


STATUSES = ("passed", "refused", "skipped", "failed", "not run")


def commit(given: str | None) -> str:
    if given:
        return given
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ["git", "rev-parse", "HEAD"]
        asked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=10, check=True)
        return asked.stdout.strip() or "unknown"
    return "unknown"


def record(given: argparse.Namespace, scheduler: Scheduler, seconds: float, source: dict[str, str]) -> dict[str, Any]:
    import torch

    device = torch.cuda.get_device_name() if given.device == "cuda" else f"{platform.machine()} CPU"
    rows = scheduler.rows
    whole = given.device == "cuda" and not (given.only or given.recipes or given.few)
    return {
        "complete": whole,
        "passed": all(row.fine for row in rows),
        "commit": commit(given.commit),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": device,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "seconds": round(seconds),
        "areas": given.only or "all",
        "counts": {status: sum(row.status == status for row in rows) for status in STATUSES},
        "failures": [asdict(row) for row in rows if not row.fine],
        "source": source,
        "items": scheduler.seconds,
        "rows": {f"{row.area}: {row.group}: {row.what}": [row.status, row.seconds] for row in rows},
    }


def known_seconds(last: dict[str, Any] | None) -> dict[str, float]:
    """Of each test, by its id, and of each item, as the last recorded run took them."""
    if last is None:
        return {}
    rows = {key.split(": ", 2)[2]: seconds for key, (_, seconds) in last.get("rows", {}).items()}
    return rows | last.get("items", {})


def main() -> int:
    given = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    begun, source = time.monotonic(), proof.hashes()
    os.environ.setdefault("OMP_NUM_THREADS", "1" if given.device == "cpu" else "2")
    path = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": os.pathsep.join(path)}
    os.chdir(ROOT)
    known = known_seconds(proof.read())
    work = Path(given.work or tempfile.mkdtemp(prefix="regard-gpu-")).absolute()
    try:
        stands = stand_ins.provide(work / "packages")
        os.environ["PYTHONPATH"] += f"{os.pathsep}{work / 'packages'}" if stands else ""
        items = planned(given, work, known)
        for item in items:
            if stands and item.area == "recipes" and item.name in recipes.names() and recipes.tags(item.name):
                item.note = f"{item.note}, {stands}"
        for item in items:
            item.estimate = known.get(item.name, item.estimate)
        print(f"{len(items)} items, {given.workers} at once, {given.budget:.0f} s at most; in {work}", flush=True)
        scheduler = Scheduler(items, work / "logs", given.workers, begun + given.budget)
        rows = scheduler.run()
        for row in rows:
            if given.device == "cuda" and row.status == "skipped" and "CUDA" in row.note:
                row.status = "failed"  # there is a GPU, and the test did not see it
    finally:
        if not given.work:
            shutil.rmtree(work, ignore_errors=True)
    result = record(given, scheduler, time.monotonic() - begun, source)
    target = given.proof or (proof.PROOF if result["complete"] else PARTIAL)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for row in [row for row in rows if row.tail][:6]:
        print(f"\n--- {row.area}: {row.group}: {row.what}\n{row.tail[-1200:]}")
    print(f"\n{table(rows, {item.group or item.name: item.note for item in items})}\n")
    said = ", ".join(f"{count} {status}" for status, count in result["counts"].items() if count)
    print(f"{said} in {result['seconds']} s on {result['device']}; {'' if result['complete'] else 'a part: '}{target}")
    return 0 if result["passed"] else 1


def arguments() -> argparse.Namespace:
    areas = [*dict.fromkeys(AREAS.values()), *OTHERS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=areas, metavar="AREA", help=f"of {', '.join(areas)}")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--workers", type=int, help="processes at once; default: three quarters of the cores")
    parser.add_argument("--budget", type=float, help=f"seconds; default: {BUDGET:.0f}, of a part {PART:.0f}")
    parser.add_argument("--recipes", nargs="+", metavar="NAME", help="these recipes alone")
    parser.add_argument("--few", type=int, help="so many choices of each slot")
    parser.add_argument("--commit", default=os.environ.get("COMMIT"), help="what the proof says was run")
    parser.add_argument("--proof", type=Path, help="write the result here")
    parser.add_argument("--work", help="keep logs and runs in this folder")
    given = parser.parse_args()
    if given.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            parser.error("torch sees no GPU; --device cpu tries the same commands in small")
    cores = os.cpu_count() or 1
    given.workers = given.workers or max(1, cores * 3 // 4 if given.device == "cuda" else cores // 2)
    given.budget = given.budget or (1800.0 if given.device == "cpu" else PART if given.only else BUDGET)
    return given


if __name__ == "__main__":
    sys.exit(main())
