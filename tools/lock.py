"""requirements.lock: the tested versions of constraints.txt with the sha256 of every file that pip would install.

python tools/lock.py, with network; docs/security.md says how to install with it. Torch is not in it, nor what torch
alone needs: its builds differ by machine. The files are those for Linux on x86-64, for each Python that is supported.
Knows no address: pip's own settings say where packages come from, and the lock says what they must be.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SOURCES = ("jieba", "seqeval")  # of which there are no wheels; they need nothing that the others do not need
LOCK, PYTHONS = ROOT / "requirements.lock", ("3.11", "3.12")
HEADER = "# Made by tools/lock.py from constraints.txt: Linux, x86-64, Python 3.11 and 3.12.\n"


def requirements() -> list[str]:
    """What the package and its extras for users need; constraints.txt chooses the versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = [
        entry
        for name, entries in project["optional-dependencies"].items()
        if name not in ("dev", "docs")
        for entry in entries
    ]  # those are for developers
    return [each for each in (*project["dependencies"], *extras) if not re.match(r"torch\b", each)]


def report(python: str) -> list[dict[str, Any]]:
    """What pip would install, on a machine that has nothing yet."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["-c", str(ROOT / "constraints.txt"), "--target", folder, "--report", str(path)]
        items = []
        wheels = [requirement for requirement in requirements() if not requirement.startswith(SOURCES)]
        for options in (["--python-version", python, "--only-binary=:all:", *wheels], ["--no-deps", *SOURCES]):
            subprocess.run([*command, *options], check=True)
            items += json.loads(path.read_text("utf-8"))["install"]
        return items


def lock_text(reports: list[list[dict[str, Any]]]) -> str:
    hashes: dict[str, set[str]] = {}
    for item in (item for items in reports for item in items):
        name = re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower()
        sha256 = item["download_info"]["archive_info"]["hashes"]["sha256"]
        hashes.setdefault(f"{name}=={item['metadata']['version']}", set()).add(sha256)
    lines = [
        " \\\n    ".join([requirement, *(f"--hash=sha256:{sha256}" for sha256 in sorted(found))])
        for requirement, found in sorted(hashes.items())
    ]
    return HEADER + "\n".join(lines) + "\n"


if __name__ == "__main__":
    LOCK.write_text(lock_text([report(python) for python in PYTHONS]), encoding="utf-8")
