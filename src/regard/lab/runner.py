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
from regard.lab.trainings import hardware, sigterm_interrupts
from regard.reporting import Json

BUDGETS = ("quick", "full")
Say = Callable[[str], None]


@dataclass
class ClaimResult:
    """A claim with its verdict, from the seeds that were measured; or why it has none."""

    claim: Claim
    setup: Setup = field(default_factory=Setup)
    verdict: Verdict | None = None
    judged: list[Judged] = field(default_factory=list)
    measurements: list[Measurement] = field(default_factory=list)
    error: str = ""
    seconds: float = 0.0
    hardware: str = ""

    @property
    def outcome(self) -> str:
        """In words: a screen is called so."""
        if self.error:
            return "failed"
        return {"screen": "screen: ", "text": "on text: "}.get(self.claim.kind, "") + str(self.verdict)

    @property
    def name(self) -> str:
        """The claim's number, and what is not as usual of its measurement."""
        trees = Path(self.setup.trees).name
        unusual = [self.setup.device.replace(":", "")] * (self.setup.device != "cpu") + [trees] * bool(trees)
        return "-".join([self.claim.id, *["text"] * (self.claim.kind == "text"), *unusual])

    def add(self, part: Json) -> None:
        self.measurements.append(Measurement(part["numbers"], part["curves"]))
        self.seconds += part["seconds"]
        self.hardware = part["hardware"]

    def judge(self) -> None:
        self.verdict, self.judged = judge(self.claim, self.measurements)

    @property
    def straddles(self) -> bool:
        return any(each.verdict == "undecided" for each in self.judged)

    def json(self) -> Json:
        claim = self.claim
        head: Json = {"id": claim.id, "title": claim.title, "sentence": claim.sentence, "source": claim.source}
        head |= {"kind": claim.kind, "verdict": self.verdict, "error": self.error, "seconds": round(self.seconds, 2)}
        head |= {"seeds": len(self.measurements), "depends_on": claim.depends_on, "hardware": self.hardware}
        rows = []
        for each in self.judged:
            p = each.prediction
            row: Json = {"quantity": p.quantity, "sentence": p.sentence, "prediction": p.inequality}
            row |= {"low": p.low, "high": p.high, "setting": p.setting, "control": p.control, "verdict": each.verdict}
            rows.append(row | {"interval": each.interval.json(), "values": each.values})
        return head | vars(self.setup) | {"predictions": rows}


def run_claims(
    claims: Sequence[Claim], out: Path, setup: Setup, jobs: int, say: Say, seeds: int | None = None
) -> list[ClaimResult]:
    """Measure and judge; what was measured before, by the same source, is read from the folder."""
    for claim in claims:
        _check_setup(claim, setup)
    with os_errors_for(out, "written"):
        (out / "parts").mkdir(parents=True, exist_ok=True)
    results = [ClaimResult(claim, setup) for claim in claims]
    alone = [[result] for result in results if result.claim.timed]  # what measures time runs before, one by one
    with _workers(1 if len(alone) == len(results) else jobs) as workers:
        for group in [*alone, [result for result in results if not result.claim.timed]]:
            _measure_group(group, out, workers, say, seeds)
    return results


def _check_setup(claim: Claim, setup: Setup) -> None:
    if setup.fault and setup.fault not in claim.faults:
        known = ", ".join(claim.faults) or "none"
        raise RegardError(f"{claim.id} has no fault {setup.fault!r}; it has {known}")
    if setup.trees and claim.id != "C26":
        raise RegardError(f"{claim.id} reads no trees; --trees is for C26")
    if setup.trees and not Path(setup.trees).is_file():
        raise RegardError(f"{setup.trees}: there is no such file")
    if setup.device != "cpu" and not claim.timed:
        raise RegardError(f"{claim.id} is measured on the CPU; --device is for those that measure time: C1 C2 C15 C21")


def _measure_group(results: Sequence[ClaimResult], out: Path, workers: "_Workers", say: Say, seeds: int | None) -> None:
    """First seeds of all, then one more for each claim that is undecided, until none is or all have had enough."""
    wanted = {result.claim.id: seeds or result.claim.seeds[0] for result in results}
    while results:
        _add_parts(results, wanted, out, workers)
        again = []
        for result in results:
            claim, count = result.claim, len(result.measurements)
            if result.error:
                say(f"{claim.id} failed: {result.error}")
                continue
            result.judge()
            if result.straddles and seeds is None and count < claim.seeds[1]:
                wanted[claim.id] += 1
                again.append(result)
            else:
                say(f"{claim.id} {result.outcome} ({count} seeds, {result.seconds:.1f} s)")
        results = again


def _add_parts(results: Sequence[ClaimResult], wanted: dict[str, int], out: Path, workers: "_Workers") -> None:
    """Every seed that is missing: from the folder, or measured and kept there."""
    futures: dict[Future[Json], tuple[ClaimResult, int]] = {}
    parts: dict[tuple[str, int], Json] = {}
    todo = [(each, seed) for each in results for seed in range(len(each.measurements) + 1, wanted[each.claim.id] + 1)]
    for result, seed in todo:
        known = _read_part(_part_file(out, result.claim, seed, result.setup), result.claim)
        if known is None:
            futures[workers.submit(measure_part, result.claim.id, seed, result.setup)] = result, seed
        else:
            parts[result.claim.id, seed] = known
    for future in as_completed(futures):
        result, seed = futures[future]
        try:
            part = future.result()
        except BrokenProcessPool:
            result.error = "its process was ended from outside (out of memory?)"
        except RegardError as error:
            result.error = str(error)
        except Exception as error:  # a broken claim is a row, the others go on
            result.error = f"{type(error).__name__}: {error}"
        else:
            path = _part_file(out, result.claim, seed, result.setup)
            with os_errors_for(path, "written"), atomic_write(path) as file:
                file.write(json.dumps(part))
            parts[result.claim.id, seed] = part
    for result, seed in todo:  # in the order of seeds, whichever ended first
        if (done := parts.get((result.claim.id, seed))) is not None:
            result.add(done)


def measure_part(name: str, seed: int, setup: Setup) -> Json:
    """One seed of one claim, as JSON; runs in a worker process."""
    claim = find_claim(name)
    torch.set_num_threads(1)  # the same numbers with any number of jobs
    torch.manual_seed(seed)
    began = time.process_time()
    with torch.device(setup.device) if setup.device != "cpu" else contextlib.nullcontext():
        measured = claim.measure(seed, setup)
    curves = {figure: {name: [list(p) for p in points] for name, points in lines.items()}
              for figure, lines in measured.curves.items()}  # fmt: skip
    numbers = {key: float(value) for key, value in measured.numbers.items()}
    part: Json = {"claim": claim.id, "setup": vars(setup), "numbers": numbers, "curves": curves}
    part |= {"seconds": time.process_time() - began, "hardware": hardware(setup.device)}
    return part | {"digest": source_digest(claim)}


# --- worker processes ----------------------------------------------------------------------------------------------


class _Workers:
    """Processes that measure; new ones where one was killed, which breaks all that run beside it."""

    def __init__(self, jobs: int) -> None:
        self.jobs, self.pool = jobs, self._started(jobs)

    def _started(self, jobs: int) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _end_with_parent, (os.getpid(),))

    def submit(self, work: Callable[..., Json], *values: object) -> Future[Json]:
        try:
            return self.pool.submit(work, *values)
        except BrokenProcessPool:
            self.pool = self._started(self.jobs)
            return self.pool.submit(work, *values)


@contextlib.contextmanager
def _workers(jobs: int) -> Iterator[_Workers]:
    """They end with this process however it ends; SIGTERM is as Ctrl-C."""
    workers = _Workers(jobs)
    with sigterm_interrupts():
        try:
            yield workers
        except BaseException:
            running = list((workers.pool._processes or {}).values())
            workers.pool.shutdown(wait=False, cancel_futures=True)
            for process in running:
                process.terminate()
            raise
        workers.pool.shutdown()


def _end_with_parent(parent: int) -> None:
    """In a worker: a parent that was killed can tell it nothing."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# --- parts as files ------------------------------------------------------------------------------------------------


def _part_file(out: Path, claim: Claim, seed: int, setup: Setup) -> Path:
    names = [claim.id, setup.device.replace(":", "")]
    names += [setup.fault.replace(" ", "-")] if setup.fault else []
    if setup.trees:
        with os_errors_for(Path(setup.trees)):
            names.append(hashlib.sha256(Path(setup.trees).read_bytes()).hexdigest()[:8])
    return out / "parts" / f"{'-'.join(names)}-seed-{seed}.json"


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
    """Of the claim's own file, of what the tiny trainings share, and of the versions of regard and torch."""
    return _digest(inspect.getsourcefile(claim.measure) or "")


@cache
def _digest(path: str) -> str:
    """Of what is computed: not of comments, form, sentences and predictions, which change no number."""
    text = __version__ + torch.__version__
    for file in (Path(path), Path(inspect.getfile(tiny)), Path(inspect.getfile(corpus))):
        body = ast.parse(file.read_text(encoding="utf-8")).body
        text += "".join(ast.dump(node) for node in body if "id='CLAIM'" not in ast.dump(node)[:80])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def measured_results(claims: Sequence[Claim], out: Path) -> list[ClaimResult]:
    """The claims of which at least two seeds are there, in every setup, judged; nothing is measured."""
    results: dict[str, ClaimResult] = {}
    known = {claim.id: claim for claim in claims}
    for path in sorted(out.glob("parts/*-seed-*.json"), key=lambda path: (len(path.name), path.name)):
        claim = known.get(path.name.partition("-")[0])
        part = None if claim is None else _read_part(path, claim)
        if claim is None or part is None or part["setup"]["fault"]:
            continue
        name = path.name.rpartition("-seed-")[0]
        results.setdefault(name, ClaimResult(claim, Setup(**part["setup"]))).add(part)
    enough = [result for result in results.values() if len(result.measurements) > 1]
    for result in enough:
        result.judge()
    return enough


def measured_seeds(out: Path, claim: Claim, setup: Setup) -> int:
    """How many seeds of a claim are there already."""
    seeds = range(1, claim.seeds[1] + 1)
    return sum(_read_part(_part_file(out, claim, seed, setup), claim) is not None for seed in seeds)
