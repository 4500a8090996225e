"""Items of work as processes side by side: each with a time limit, all of them with a total one.

An item is a command that reports rows (`report.py`). One that hangs is killed with all that it has started; what an
item was expected to report and did not is named as "not run". Knows nothing of what the items do. Imports no torch.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.gpu.report import VARIABLE

TAIL = 25  # lines of an item's output that are told where it failed
FINE = ("passed", "skipped", "refused")


@dataclass
class Item:
    area: str
    name: str  # unique
    command: list[str]
    expects: list[str]  # rows that it reports
    group: str = ""  # the line of the table that its rows are counted in; none: its name
    estimate: float = 30.0  # seconds
    limit: float = 150.0  # seconds, after which it is killed
    after: tuple[str, ...] = ()  # items whose results it needs
    note: str = ""  # for the table, such as what was made


@dataclass
class Row:
    area: str
    group: str
    what: str
    status: str  # passed, skipped, refused, failed or not run
    seconds: float = 0.0
    note: str = ""
    tail: str = ""  # the end of its output, where it failed

    @property
    def fine(self) -> bool:
        return self.status in FINE


@dataclass
class Running:
    item: Item
    process: subprocess.Popen[bytes]
    begun: float
    log: Path
    results: Path
    killed: str = ""  # why

    def kill(self, why: str) -> None:
        self.killed = self.killed or why
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)


def _say(line: str) -> None:
    print(line, flush=True)


@dataclass
class Scheduler:
    items: list[Item]
    folder: Path  # of logs and results
    workers: int
    deadline: float  # on time.monotonic()
    say: Callable[[str], None] = _say
    rows: list[Row] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)  # of each item that has ended by itself
    ok: dict[str, bool] = field(default_factory=dict)

    def run(self) -> list[Row]:
        self.folder.mkdir(parents=True, exist_ok=True)
        waiting, running = self._in_order(), list[Running]()
        self.begun = time.monotonic()
        try:
            while waiting or running:
                for item in self._startable(waiting, self.workers - len(running)):
                    waiting.remove(item)
                    running.append(self._start(item))
                self._enforce(running)
                for one in [one for one in running if one.process.poll() is not None]:
                    running.remove(one)
                    self._finish(one)
                if time.monotonic() > self.deadline:
                    for item in waiting:
                        self._give_up(item, "no time was left")
                    waiting = []
                for item in [i for i in waiting if any(self.ok.get(name) is False for name in i.after)]:
                    waiting.remove(item)
                    self._give_up(item, f"{', '.join(item.after)} failed")
                time.sleep(0.02)
        finally:
            for one in running:
                one.kill("the run was stopped")
        return self.rows

    def _in_order(self) -> list[Item]:
        """Those first that begin the longest chains, so that none is left over at the end."""
        by_name = {item.name: item for item in self.items}
        followers: dict[str, list[Item]] = {}
        for item in self.items:
            for name in item.after:
                assert name in by_name, f"{item.name} is after {name}, which is not planned"
                followers.setdefault(name, []).append(item)

        def chain(item: Item) -> float:
            return item.estimate + max((chain(each) for each in followers.get(item.name, [])), default=0.0)

        return sorted(self.items, key=lambda item: -chain(item))

    def _startable(self, waiting: list[Item], free: int) -> list[Item]:
        return [item for item in waiting if all(self.ok.get(name) for name in item.after)][: max(0, free)]

    def _start(self, item: Item) -> Running:
        stem = "".join(c if c.isalnum() or c in "-_." else "_" for c in item.name)
        log, results = self.folder / f"{stem}.log", self.folder / f"{stem}.jsonl"
        with open(log, "wb") as file:
            process = subprocess.Popen(
                item.command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=os.environ | {VARIABLE: str(results)},
                start_new_session=True,  # so that all it starts can be killed with it
            )
        return Running(item, process, time.monotonic(), log, results)

    def _enforce(self, running: list[Running]) -> None:
        now = time.monotonic()
        for one in running:
            if now - one.begun > one.item.limit:
                one.kill(f"killed after its limit of {one.item.limit:.0f} s")
            elif now > self.deadline:
                one.kill("killed when the time of the whole run was over")

    def _finish(self, one: Running) -> None:
        one.kill("")  # what it has left running
        item, seconds = one.item, time.monotonic() - one.begun
        code, lines = one.process.returncode, list(_lines(one.results))
        ended = [line for line in lines if "what" in line]
        found = [Row(**{"area": item.area, "group": item.group or item.name, **line}) for line in ended]
        done = {row.what for row in found}
        for row in found:
            if row.note == "" and row.fine:
                row.note = item.note
        why = one.killed or (f"its process ended with {code}" if code else "")
        if one.killed or (code and all(row.fine for row in found)):
            begun = [line["begin"] for line in lines if "begin" in line and line["begin"] not in done]
            what = begun[-1] if begun else "(the process)"
            done.add(what)
            found.append(Row(item.area, item.group or item.name, what, "failed", round(seconds, 2), why))
        for what in item.expects:
            if what not in done:
                note = why or "it never came to it"
                found.append(Row(item.area, item.group or item.name, what, "not run", 0.0, note))
        for row in found:
            if row.status == "failed":
                row.tail = _tail(one.log)
        self.rows += found
        self.ok[item.name] = all(row.fine for row in found)
        if not one.killed:
            self.seconds[item.name] = round(seconds, 1)
        bad = [row for row in found if not row.fine]
        first = f": {bad[0].what}: {bad[0].note}" if bad else ""
        fine = ", ".join(f"{sum(row.status == name for row in found)} {name}" for name in FINE)
        state = f"{len(bad)} of {len(found)} not passed{first}" if bad else fine
        self.say(f"[{time.monotonic() - self.begun:5.0f} s] {item.area:10} {item.name}: {state}, {seconds:.0f} s")

    def _give_up(self, item: Item, why: str) -> None:
        self.ok[item.name] = False
        self.rows += [Row(item.area, item.group or item.name, what, "not run", 0.0, why) for what in item.expects]
        self.say(f"[{time.monotonic() - self.begun:5.0f} s] {item.area:10} {item.name}: not run, {why}")


def _lines(path: Path) -> Iterator[dict]:
    """A line that a kill has cut short is left out."""
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                yield json.loads(line)


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL:])
