"""What a run tells: log.jsonl always, TensorBoard if installed, and a progress bar or plain lines for the person."""

import json
import math
import time
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from regard.console import Console
from regard.errors import whole
from regard.io.run_folder import LOG
from regard.training.checkpoint import json_safe

QUIET = 15.0  # seconds between plain lines where there is no terminal


class Log:
    def __init__(self, run: Path, step: int, steps: int, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.path = run / LOG
        self._forget_after(step)
        self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115
        self._board = _tensorboard(run, step)
        self._said, self._began, self._first = 0.0, time.monotonic(), step
        self.bar: Bar | None = None
        if self.console.is_terminal:
            self.bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
                TimeRemainingColumn(),
                console=self.console,
                transient=True,
            )
            self.bar.start()
            self._task = self.bar.add_task("Training", total=steps, completed=step, note="")

    def _forget_after(self, step: int) -> None:
        """A run that was killed and resumed repeats steps: their first telling goes, so that each stands once. So does
        the end of a run."""
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
        with whole(self.path) as file:
            file.writelines(line + "\n" for line in kept)

    def write(self, kind: str, step: int, **values: Any) -> None:
        self._file.write(json.dumps(json_safe({"kind": kind, "step": step, **values}), ensure_ascii=False) + "\n")
        self._file.flush()
        if self._board:
            for name, value in values.items():
                if isinstance(value, int | float) and math.isfinite(value):
                    self._board.add_scalar(f"{kind}/{name}", value, step)

    def train(self, step: int, steps: int, loss: float, rate: float, speed: str) -> None:
        note = f"training loss {loss:.3f}  {speed}"
        if self.bar:
            self.bar.update(self._task, note=note)
        elif time.monotonic() - self._said > QUIET or step == steps:
            self._said = time.monotonic()
            self.say(f"step {step:,} of {steps:,}  {note}  rate {rate:.2e}  {self._left(step, steps)}")

    def _left(self, step: int, steps: int) -> str:
        """How long the rest will take at the pace so far, validations included."""
        pace = (time.monotonic() - self._began) / max(step - self._first, 1)
        minutes, seconds = divmod(round(pace * (steps - step)), 60)
        return f"{minutes // 60}:{minutes % 60:02}:{seconds:02} left"

    def advance(self, step: int) -> None:
        if self.bar:
            self.bar.update(self._task, completed=step)

    def note(self, what: str, done: int, total: int) -> None:
        """Something else than a step is going on."""
        if self.bar:
            self.bar.update(self._task, note=f"{what} {done:,}" + (f" of {total:,}" if total else ""))

    def say(self, sentence: str) -> None:
        self.console.print(sentence, highlight=False, markup=False, emoji=False, soft_wrap=True)

    def close(self) -> None:
        if self.bar:
            self.bar.stop()
        self._file.close()
        if self._board:
            self._board.close()


class Silence(Log):
    """The log of a process that another speaks for."""

    def __init__(self) -> None:
        self.bar = None

    def write(self, kind: str, step: int, **values: Any) -> None:
        pass

    def train(self, step: int, steps: int, loss: float, rate: float, speed: str) -> None:
        pass

    def say(self, sentence: str) -> None:
        pass

    def close(self) -> None:
        pass


def _tensorboard(run: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(run / "tensorboard"), purge_step=step + 1)
