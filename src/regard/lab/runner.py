"""Runs claims: a part is one seed of one claim, in a process of its own; finished parts are kept as files.

The same command goes on where it was stopped. A part counts only for the source it was computed by.
"""

import ast
import contextlib
import hashlib
import inspect
import json
import multiprocessing
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import torch

from regard import __version__
from regard.errors import RegardError
from regard.io.atomic import atomic_write
from regard.io.files import DamagedFile, os_errors_for, read_json
from regard.lab import corpus, tiny
from regard.lab.claim import Claim, Judged, Measurement, Setup, Verdict, judge
from regard.lab.registry import find_claim
from regard.lab.trainings import sigterm_interrupts
from regard.reporting import Json

BUDGETS = ("quick", "full")
Say = Callable[[str], None]


@dataclass
class ClaimResult:
    """A claim with its verdict, from the seeds that were measured; or why it has none."""

    claim: Claim
    verdict: Verdict | None = None
    judged: list[Judged] = field(default_factory=list)
    measurements: list[Measurement] = field(default_factory=list)
    error: str = ""
    seconds: float = 0.0

    @property
    def outcome(self) -> str:
        """In words: a screen is called so."""
        if self.error:
            return "failed"
        return {"screen": "screen: ", "text": "on text: "}.get(self.claim.kind, "") + str(self.verdict)

    def json(self) -> Json:
        claim = self.claim
        head: Json = {"id": claim.id, "title": claim.title, "sentence": claim.sentence, "source": claim.source}
        head |= {"kind": claim.kind, "verdict": self.verdict, "error": self.error, "seconds": round(self.seconds, 2)}
        head |= {"seeds": len(self.measurements), "depends_on": claim.depends_on}
        rows = []
        for each in self.judged:
            p = each.prediction
            row: Json = {"quantity": p.quantity, "sentence": p.sentence, "prediction": p.inequality}
            row |= {"low": p.low, "high": p.high, "setting": p.setting, "verdict": each.verdict}
            rows.append(row | {"interval": each.interval.json(), "values": each.values})
        return head | {"predictions": rows}


def run_claims(
    claims: Sequence[Claim], out: Path, setup: Setup, jobs: int, say: Say, seeds: int | None = None
) -> list[ClaimResult]:
    """Measure and judge; what was measured before, by the same source, is read from the folder."""
    for claim in claims:
        if setup.fault and setup.fault not in claim.faults:
            known = ", ".join(claim.faults) or "none"
            raise RegardError(f"{claim.id} has no fault {setup.fault!r}; it has {known}")
    with os_errors_for(out, "written"):
        (out / "parts").mkdir(parents=True, exist_ok=True)
    results = {claim.id: ClaimResult(claim) for claim in claims}
    with _pool(1 if all(claim.timed for claim in claims) else jobs) as pool:
        side_by_side = [claim for claim in claims if not claim.timed]
        alone = [[claim] for claim in claims if claim.timed]  # what measures time runs before, one by one
        for group in [*alone, side_by_side]:
            _measure_group(group, results, out, setup, pool, say, seeds)
    return [results[claim.id] for claim in claims]


def _measure_group(
    claims: Sequence[Claim],
    results: dict[str, ClaimResult],
    out: Path,
    setup: Setup,
    pool: ProcessPoolExecutor,
    say: Say,
    seeds: int | None,
) -> None:
    """First seeds of all, then one more for each claim that is undecided, until none is or all have had enough."""
    wanted = {claim.id: seeds or claim.seeds for claim in claims}
    open_claims = list(claims)
    while open_claims:
        parts = [
            (claim, seed)
            for claim in open_claims
            for seed in range(len(results[claim.id].measurements) + 1, wanted[claim.id] + 1)
        ]
        _measure_parts(parts, results, out, setup, pool)
        again = []
        for claim in open_claims:
            result = results[claim.id]
            if result.error:
                say(f"{claim.id} failed: {result.error}")
                continue
            result.verdict, result.judged = judge(claim, result.measurements)
            straddles = any(each.verdict == "undecided" for each in result.judged)
            if straddles and seeds is None and wanted[claim.id] < claim.most_seeds:
                wanted[claim.id] += 1
                again.append(claim)
            else:
                say(f"{claim.id} {result.outcome} ({len(result.measurements)} seeds, {result.seconds:.1f} s)")
        open_claims = again


def _measure_parts(
    parts: Sequence[tuple[Claim, int]],
    results: dict[str, ClaimResult],
    out: Path,
    setup: Setup,
    pool: ProcessPoolExecutor,
) -> None:
    futures: dict[Future[Json], tuple[Claim, int]] = {}
    found: dict[tuple[str, int], Json] = {}
    for claim, seed in parts:
        known = _read_part(_part_file(out, claim, seed, setup), claim)
        if known is None:
            futures[pool.submit(measure_part, claim.id, seed, setup)] = claim, seed
        else:
            found[claim.id, seed] = known
    for future in as_completed(futures):
        claim, seed = futures[future]
        try:
            part = future.result()
        except BrokenProcessPool:
            results[claim.id].error = "its process was ended from outside (out of memory?)"
            continue
        except Exception as error:  # a broken claim is a row, the others go on
            results[claim.id].error = f"{type(error).__name__}: {error}"
            continue
        part["digest"] = source_digest(claim)
        path = _part_file(out, claim, seed, setup)
        with os_errors_for(path, "written"), atomic_write(path) as file:
            file.write(json.dumps(part))
        found[claim.id, seed] = part
    for claim, seed in parts:  # in the order of seeds, whichever ended first
        if (done := found.get((claim.id, seed))) is not None:
            results[claim.id].measurements.append(Measurement(done["numbers"], done["curves"]))
            results[claim.id].seconds += done["seconds"]


def measure_part(name: str, seed: int, setup: Setup) -> Json:
    """One seed of one claim, as JSON; runs in a worker process."""
    claim = find_claim(name)
    torch.set_num_threads(1)  # the same numbers with any number of jobs
    torch.manual_seed(seed)
    began = time.process_time()
    measured = claim.measure(seed, setup)
    curves = {chart: {name: [list(p) for p in points] for name, points in lines.items()}
              for chart, lines in measured.curves.items()}  # fmt: skip
    numbers = {key: float(value) for key, value in measured.numbers.items()}
    return {"numbers": numbers, "curves": curves, "seconds": time.process_time() - began}


@contextlib.contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes, which end with this one however it ends; SIGTERM is as Ctrl-C."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, context, _end_with_parent, (os.getpid(),))
    with sigterm_interrupts():
        try:
            yield pool
        except BaseException:
            workers = list((pool._processes or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                worker.terminate()
            raise
        pool.shutdown()


def _end_with_parent(parent: int) -> None:
    """In a worker: a parent that was killed can tell it nothing."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _part_file(out: Path, claim: Claim, seed: int, setup: Setup) -> Path:
    fault = f"-{setup.fault.replace(' ', '-')}" if setup.fault else ""
    return out / "parts" / f"{claim.id}-{setup.device.replace(':', '')}{fault}-seed-{seed}.json"


def _read_part(path: Path, claim: Claim) -> Json | None:
    """What was measured before, unless by other source, or cut short."""
    if not path.exists():
        return None
    try:
        part: Json = read_json(path)
    except DamagedFile:
        return None
    return part if part.get("digest") == source_digest(claim) else None


def source_digest(claim: Claim) -> str:
    """Of the claim's own file and of what the tiny trainings share."""
    return _digest(inspect.getsourcefile(claim.measure) or "")


@cache
def _digest(path: str) -> str:
    """Of what is computed: not of comments, form, sentences and predictions, which change no number."""
    text = ""
    shared = (tiny, corpus) if Path(path).parent.name == "corpus" else (tiny,)
    for file in (Path(path), *(Path(inspect.getfile(module)) for module in shared)):
        body = ast.parse(file.read_text(encoding="utf-8")).body
        text += "".join(ast.dump(node) for node in body if "id='CLAIM'" not in ast.dump(node)[:80])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def measured_results(claims: Sequence[Claim], out: Path, setup: Setup) -> list[ClaimResult]:
    """The claims of which at least two seeds are there, judged; nothing is measured."""
    results = []
    for claim in claims:
        result = ClaimResult(claim)
        for seed in range(1, claim.most_seeds + 1):
            part = _read_part(_part_file(out, claim, seed, setup), claim)
            if part is not None:
                result.measurements.append(Measurement(part["numbers"], part["curves"]))
                result.seconds += part["seconds"]
        if len(result.measurements) > 1:
            result.verdict, result.judged = judge(claim, result.measurements)
            results.append(result)
    return results


def measured_seeds(out: Path, claim: Claim, setup: Setup) -> int:
    """How many seeds of a claim are there already."""
    seeds = range(1, claim.most_seeds + 1)
    return sum(_read_part(_part_file(out, claim, seed, setup), claim) is not None for seed in seeds)


def hardware() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} CPU cores ({platform.machine()}), torch {torch.__version__}, regard {__version__}"
