"""Results of one process of `make gpu`: a line of JSON in a file when something begins, and one when it has ended.

What has begun and has not ended when the process is gone is what it was killed in. Also a plugin of pytest
(`-p tests.gpu.report`), which writes the same lines for every test. Imports no torch.
"""

import contextlib
import json
import os
import time
import traceback
from collections.abc import Iterator
from typing import Any

VARIABLE = "REGARD_GPU_RESULTS"  # names the file


def write(**line: Any) -> None:
    with open(os.environ[VARIABLE], "a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


class Refused(Exception):
    """What the package itself says cannot be: told in the table, and no failure."""


class Step:
    """One row of the table while it is being worked on."""

    def __init__(self, note: str) -> None:
        self.note, self.ok = note, False


@contextlib.contextmanager
def step(what: str, note: str = "", **more: str) -> Iterator[Step]:
    """A row named `what`: passed, or failed where an exception is raised, which goes no further; `ok` says which.

    `more` may name the `group` of the table that it is counted in.
    """
    now, found = time.monotonic(), Step(note)
    write(begin=what)
    try:
        yield found
        status, found.ok = "passed", True
    except Refused as error:
        status, found.note = "refused", str(error)
    except Exception as error:
        traceback.print_exc()
        lines = str(error).strip().splitlines()
        status, found.note = "failed", f"{type(error).__name__}: {lines[-1] if lines else ''}"
    write(what=what, status=status, seconds=round(time.monotonic() - now, 2), note=found.note, **more)


# --- as a plugin of pytest -----------------------------------------------------------------------------------------


def pytest_runtest_logstart(nodeid: str) -> None:
    write(begin=nodeid)


def pytest_runtest_logreport(report: Any) -> None:
    """Set-up and tear-down count where they fail or skip; else the call alone, with the seconds of its set-up."""
    seconds = _SECONDS[report.nodeid] = _SECONDS.get(report.nodeid, 0.0) + report.duration
    if report.when == "call" or report.outcome != "passed":
        note = report.longrepr[2] if report.skipped and isinstance(report.longrepr, tuple) else ""
        if report.failed:
            note = str(report.longrepr).strip().splitlines()[-1]
        write(what=report.nodeid, status=report.outcome, seconds=round(seconds, 2), note=note)


_SECONDS: dict[str, float] = {}
