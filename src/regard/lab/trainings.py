"""Trainings as processes of `regard train`, several side by side: a broken one is a row with its sentence.

Each run folder is an ordinary one, so a killed comparison goes on where it stopped. Knows no arms and no statistics.
"""

import contextlib
import json
import os
import platform
import runpy
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import torch

from regard import __version__
from regard.device import device_name, pick_device
from regard.errors import RegardError
from regard.io.atomic import atomic_write
from regard.io.files import DamagedFile, os_errors_for, read_json
from regard.io.lock import lock_folder
from regard.io.run_folder import LOG, RESULTS
from regard.recipe import Recipe, dump_recipe
from regard.reporting import Json


@dataclass(frozen=True)
class Training:
    """A recipe, and the run folder where it is trained."""

    recipe: Recipe
    run: Path

    def finished(self) -> bool:
        """Whether its results are there, of all its steps."""
        if not (self.run / RESULTS).exists():
            return False
        with contextlib.suppress(DamagedFile):
            results = read_json(self.run / RESULTS)
            stopped_early = self.recipe.training.validation.patience > 0
            return results.get("steps") == self.recipe.training.steps or stopped_early
        return False


@dataclass(frozen=True)
class Outcome:
    training: Training
    error: str = ""  # why there are no results
    seconds: float = 0.0

    def results(self) -> Json:
        return dict(read_json(self.training.run / RESULTS))

    def metric(self, name: str) -> float:
        """The metric of the final weights on the validation data."""
        report = self.results().get("valid") or {}
        value = report.get("metrics", {}).get(name, {}).get("value")
        if value is None:
            logged = [entry[name] for entry in self.log() if entry.get("kind") == "valid" and name in entry]
            if not logged:
                raise RegardError(f"{self.training.run}: its results have no {name}")
            value = logged[-1]
        return float(value)

    def log(self) -> list[Json]:
        entries = []
        with os_errors_for(self.training.run / LOG):
            lines = (self.training.run / LOG).read_text(encoding="utf-8").splitlines()
        for line in lines:
            with contextlib.suppress(ValueError):
                entries.append(json.loads(line))
        return entries


class OutOfTime(RegardError):
    """The time that was given is over; what ran has saved, and goes on where it stopped."""


class TrainingPool:
    """At most `jobs` processes at a time; those that run are stopped, and save, when the block ends early.

    Their recipes are files of `scratch` while they run. `deadline`: the time of `time.monotonic` at which they end.
    """

    def __init__(self, jobs: int, device: str, scratch: Path, deadline: float | None = None) -> None:
        self.jobs, self.device, self.scratch, self.deadline = jobs, device, scratch, deadline
        self._running: set[subprocess.Popen[str]] = set()
        self._lock, self._stopped = threading.Lock(), False

    def run(self, trainings: Sequence[Training], done: Callable[[Outcome], None]) -> list[Outcome]:
        """Train what is not finished; `done` is called, in this thread, as each ends."""
        with os_errors_for(self.scratch, "written"):
            self.scratch.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack, sigterm_interrupts(), ThreadPoolExecutor(self.jobs) as threads:
            stack.callback(shutil.rmtree, self.scratch, True)
            futures = {threads.submit(self._train, each): n for n, each in enumerate(trainings)}
            outcomes: dict[int, Outcome] = {}
            try:
                left = None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
                for future in as_completed(futures, left):
                    outcomes[futures[future]] = future.result()
                    done(outcomes[futures[future]])
            except BaseException as error:
                self._stop()
                for future in futures:
                    future.cancel()
                if isinstance(error, TimeoutError):
                    raise OutOfTime("the time is over; the same command goes on") from None
                raise
        return [outcomes[n] for n in range(len(trainings))]

    def _train(self, training: Training) -> Outcome:
        if training.finished():
            return Outcome(training)
        began = time.monotonic()
        config = self.scratch / f"{training.run.parent.name}-{training.run.name}.yaml"
        with atomic_write(config) as file:
            file.write(dump_recipe(training.recipe))
        start = f"from {__name__} import train_beside_parent; train_beside_parent()"
        command = [sys.executable, "-c", start, "train", str(config), "--out", str(training.run), "--json"]
        for plugin in training.recipe.plugins:
            command += ["--plugin", plugin]
        _wait_until_free(training.run)
        with self._process([*command, "--device", self.device]) as process:
            assert process.stderr is not None
            errors = process.stderr.read()
            process.wait()
        seconds = time.monotonic() - began
        if process.returncode == 0 and training.finished():
            return Outcome(training, "", seconds)
        lines = [line for line in errors.splitlines() if line.strip()]
        sentences = [line.removeprefix("regard: ") for line in lines if line.startswith("regard: ")]
        last = sentences[-1] if sentences else lines[-1] if lines else f"ended with code {process.returncode}"
        return Outcome(training, "stopped" if self._stopped else last, seconds)

    @contextlib.contextmanager
    def _process(self, command: list[str]) -> Iterator[subprocess.Popen[str]]:
        threads = str(max(1, (os.cpu_count() or 1) // self.jobs))
        environment = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, **os.environ}
        with self._lock:
            if self._stopped:
                raise RegardError("stopped")
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                env=environment,
            )  # fmt: skip
            self._running.add(process)
        try:
            yield process
        finally:
            self._running.discard(process)

    def _stop(self) -> None:
        """Ask those that run to save and end; the same command goes on."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                with contextlib.suppress(OSError):
                    process.terminate()


def train_beside_parent() -> None:
    """`regard train` as a process that saves and ends with the one that started it, which holds its standard input."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
    sys.argv[0] = "regard"
    runpy.run_module("regard", run_name="__main__")


def _wait_until_free(run: Path, seconds: int = 120) -> None:
    """Until a training of a killed comparison has saved and left the folder."""
    for _ in range(seconds):
        if not (run / ".lock").exists():
            return
        with lock_folder(run, run / ".lock") as free:
            if free:
                return
        time.sleep(1)


@contextlib.contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Inside, SIGTERM ends the work as Ctrl-C does: what runs saves and ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def hardware(device: str) -> str:
    """What a device is, and what computes on it."""
    kind = pick_device(device)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    name = f"{cores} CPU cores ({platform.machine()})" if kind.type == "cpu" else device_name(kind)
    return f"{name}, torch {torch.__version__}, regard {__version__}"
