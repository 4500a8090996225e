"""The log of a run: log.jsonl always, TensorBoard if installed, and a progress bar or plain lines on the console."""

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar
from torch import Tensor

from regard.console import Console
from regard.io.atomic import atomic_write
from regard.io.files import json_safe
from regard.io.run_folder import LOG
from regard.language import localise

PLAIN_INTERVAL = 15.0  # seconds between plain lines without a terminal


class TrainingLog:
    def __init__(self, run: Path, step: int, steps: int, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.path = run / LOG
        self._truncate_after(step)
        self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115
        self._tensorboard = _tensorboard(run, step)
        self._printed, self._began, self._first_step = 0.0, time.monotonic(), step
        self.bar: ProgressBar | None = None
        if self.console.is_terminal:
            self.bar = ProgressBar(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
                TimeRemainingColumn(),
                console=self.console,
                transient=True,
            )
            self.bar.start()
            self._task = self.bar.add_task(localise("Training"), total=steps, completed=step, note="")

    def _truncate_after(self, step: int) -> None:
        """Drops the entries after the checkpoint that a run resumes from, so that each step is logged once, and the
        entry of a run's end."""
        if not self.path.exists():
            return
        kept = []
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                entry = json.loads(line)
                if entry.get("step", 0) <= step and entry.get("kind") != "done":
                    kept.append(line)
            except ValueError:
                pass  # a line cut by the kill
        with atomic_write(self.path) as file:
            file.writelines(line + "\n" for line in kept)

    def write(self, kind: str, step: int, **values: object) -> None:
        self._file.write(json.dumps(json_safe({"kind": kind, "step": step, **values}), ensure_ascii=False) + "\n")
        self._file.flush()
        if self._tensorboard:
            for name, value in values.items():
                if isinstance(value, int | float) and math.isfinite(value):
                    self._tensorboard.add_scalar(f"{kind}/{name}", value, step)

    def log_step(self, step: int, steps: int, loss: float, rate: float, speed: str) -> None:
        note = f"training loss {loss:.3f}  {speed}"
        if self.bar:
            self.bar.update(self._task, note=localise(note))
        elif time.monotonic() - self._printed > PLAIN_INTERVAL or step == steps:
            self._printed = time.monotonic()
            self.info(f"step {step:,} of {steps:,}  {note}  rate {rate:.2e}  {self._time_left(step, steps)}")

    def _time_left(self, step: int, steps: int) -> str:
        """At the pace so far, validations included."""
        pace = (time.monotonic() - self._began) / max(step - self._first_step, 1)
        minutes, seconds = divmod(round(pace * (steps - step)), 60)
        return f"{minutes // 60}:{minutes % 60:02}:{seconds:02} left"

    def show_step(self, step: int) -> None:
        if self.bar:
            self.bar.update(self._task, completed=step)

    def show_progress(self, what: str, done: int, total: int) -> None:
        """Progress of other work than steps, such as a validation."""
        if self.bar:
            count = localise(f"{done:,} of {total:,}") if total else f"{done:,}"
            self.bar.update(self._task, note=f"{localise(what)} {count}")

    def info(self, sentence: str) -> None:
        self.console.print(sentence, highlight=False, markup=False, emoji=False, soft_wrap=True)

    def close(self) -> None:
        if self.bar:
            self.bar.stop()
        self._file.close()
        if self._tensorboard:
            self._tensorboard.close()


class NullLog(TrainingLog):
    """The log of a process other than the main one: it writes nothing."""

    def __init__(self) -> None:
        self.bar = None

    def write(self, kind: str, step: int, **values: object) -> None:
        pass

    def log_step(self, step: int, steps: int, loss: float, rate: float, speed: str) -> None:
        pass

    def info(self, sentence: str) -> None:
        pass

    def close(self) -> None:
        pass


def _tensorboard(run: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(run / "tensorboard"), purge_step=step + 1)


class ThroughputMeter:
    """Loss and tokens per second since the last reading, without waiting for the device; validation is not counted."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self._losses: list[Tensor] = []
        self._tokens, self._spent, self._lap, self._waited = 0, 0.0, 0.0, 0.0
        self._since: float | None = now()

    def add(self, loss: Tensor, tokens: int) -> None:
        self._losses.append(loss)
        self._tokens += tokens

    def stop(self) -> None:
        if self._since is not None:
            passed = self.now() - self._since
            self._spent, self._lap, self._since = self._spent + passed, self._lap + passed, None

    def start(self) -> None:
        self._since = self.now()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Time spent waiting for data."""
        began = self.now()
        yield
        self._waited += self.now() - began

    def read(self) -> tuple[float, float, float]:
        """Since the last reading: mean loss, tokens per second, and the share of time spent waiting for data."""
        loss = float(torch.stack(self._losses).mean())
        self.stop()
        spent = max(self._spent, 1e-9)
        speed, waited = self._tokens / spent, self._waited / spent
        self._losses, self._tokens, self._spent, self._waited = [], 0, 0.0, 0.0
        self.start()
        return loss, speed, waited

    def lap(self) -> float:
        """Seconds of training since the last lap."""
        running = self._since is not None
        self.stop()
        passed, self._lap = self._lap, 0.0
        if running:
            self.start()
        return passed
