"""Compares the working tree with a commit, bit by bit: weights, losses and outputs of tiny runs of every kind.

    python tools/same_bits.py COMMIT [NAME ...]

Both train the recipes of `toy_runs` on this machine, side by side, each in a process with one thread, and the models
answer the same commands. Only what users see is used (`regard.train`, `python -m regard` and files), so that modules
may move and be renamed between the two. Exits with 1 if anything differs.
"""

import argparse
import contextlib
import hashlib
import json
import os
import runpy
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from toy_runs import ASKED, RUNS, losses

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = ("initial weights", "20 steps", "outputs")
Found = dict[str, dict[str, Any]]  # by column, then by the name of what was looked at


# --- in one tree -----------------------------------------------------------------------------------------------------


def work(tree: Path, folder: Path, names: list[str]) -> None:
    """Everything of one tree, in this process; `folder/NAME.json` says what came of a run."""
    import torch

    import regard

    assert Path(regard.__file__).is_relative_to(tree), f"{regard.__file__} is not of {tree}"
    torch.set_num_threads(1)
    for name in names:
        home = folder / name
        RUNS[name].prepare(home)
        os.chdir(home)
        for origin in RUNS[name].origin:
            regard.train(f"{origin}.yaml", out=origin, device="cpu")
        still = {"training.steps": 1, "training.schedule": {"kind": "constant", "peak": 0.0}, "training.ema": 0.0}
        still["training.checkpoints.average"] = 0
        regard.train("recipe.yaml", out="initial", overrides=still, device="cpu")  # a step that changes nothing
        regard.train("recipe.yaml", out="run", device="cpu")
        found: Found = {
            "initial weights": hashes(home / "initial" / "last", "model.safetensors"),
            "20 steps": hashes(home / "run" / "last") | hashes(home / "run", "model.safetensors"),
            "outputs": {command: output(command) for command in RUNS[name].commands},
        }
        found["20 steps"] |= {f"{kind} loss, step {step}": loss for kind, step, loss in losses(home / "run")}
        (folder / f"{name}.json").write_text(json.dumps(found), encoding="utf-8")


def hashes(folder: Path, pattern: str = "*.safetensors") -> dict[str, str]:
    """Of every tensor in the files of a folder, by file and name: its type, its shape and a hash of its bytes."""
    from safetensors.numpy import load_file

    return {
        f"{folder.name}/{path.name}: {name}": f"{value.dtype} {value.shape} {hashlib.sha256(value).hexdigest()}"
        for path in sorted(folder.glob(pattern))
        for name, value in sorted(load_file(path).items())
    }


def output(command: str) -> str:
    """What `regard COMMAND` prints, and its exit code if that is not 0, without a process of its own."""
    sys.argv = ["regard", *shlex.split(command.replace("RUN", "run")), "--device", "cpu"]
    code = 0
    with redirected() as printed:
        try:
            runpy.run_module("regard", run_name="__main__")
        except SystemExit as end:
            code = end.code
    text = printed.read_text(encoding="utf-8")
    if code:
        raise SystemExit(f"regard {command}: exit code {code}\n{text}")
    return text.replace(str(Path.cwd()), "FOLDER")


@contextlib.contextmanager
def redirected() -> Iterator[Path]:
    """Standard input is the file of questions, standard output another, as real files: commands may ask for those."""
    printed, before = Path("printed.txt"), (sys.stdin, sys.stdout)
    with open(ASKED, encoding="utf-8") as sys.stdin, open(printed, "w", encoding="utf-8") as sys.stdout:
        try:
            yield printed
        finally:
            sys.stdout.flush()
            sys.stdin, sys.stdout = before


# --- both trees ------------------------------------------------------------------------------------------------------


def start(tree: Path, folder: Path, names: list[str]) -> subprocess.Popen:
    folder.mkdir()
    own = {"PYTHONPATH": str(tree / "src"), "REGARD_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    own["PYTHONDONTWRITEBYTECODE"] = "1"
    arguments = [sys.executable, __file__, "--work", str(tree), str(folder), *names]
    with open(folder / "said.txt", "w", encoding="utf-8") as said:
        return subprocess.Popen(arguments, env=os.environ | own, stdout=said, stderr=said)


def compare(commit: str, names: list[str]) -> int:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        other, git = folder / "tree", ["git", "-C", str(ROOT), "worktree"]
        if subprocess.run([*git, "add", "--quiet", "--detach", str(other), commit], check=False).returncode:
            return 2  # git has said why
        trees = {commit: other, "the working tree": ROOT}
        homes = {title: folder / str(n) for n, title in enumerate(trees)}
        processes = {title: start(tree, homes[title], names) for title, tree in trees.items()}
        try:
            failed = [title for title, process in processes.items() if process.wait() != 0]
            for title in failed:
                said = (homes[title] / "said.txt").read_text(encoding="utf-8").splitlines()
                print(f"{title} failed:", *said[-25:], sep="\n  ")
            return 1 if failed else tell([read(home, names) for home in homes.values()], names)
        finally:
            for process in processes.values():  # where one is interrupted, both end
                process.kill()
                process.wait()
            subprocess.run([*git, "remove", "--force", str(other)], check=True)


def read(home: Path, names: list[str]) -> dict[str, Found]:
    return {name: json.loads((home / f"{name}.json").read_text(encoding="utf-8")) for name in names}


def tell(found: list[dict[str, Found]], names: list[str]) -> int:
    """A table, and below it what differs first; the exit code."""
    rows, notes = [("run", *COLUMNS)], []
    for name in names:
        before, after = (one[name] for one in found)
        different = {column: differing(before[column], after[column]) for column in COLUMNS}
        cells = (f"DIFFERENT ({len(keys)} of {len(before[c])})" if keys else "same" for c, keys in different.items())
        rows.append((name, *cells))
        for column, keys in different.items():
            if keys:
                shown = first_lines(*(str(one[column].get(keys[0], "(absent)")) for one in (before, after)))
                notes.append(f"{name}, {column}: {keys[0]}\n  - {shown[0]}\n  + {shown[1]}")
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for note in notes:
        print(note)
    return 1 if notes else 0


def first_lines(before: str, after: str) -> tuple[str, str]:
    """The first lines of two texts that differ, each as far as a person reads."""
    lines = zip_longest(before.splitlines(), after.splitlines(), fillvalue="(the end)")
    a, b = next((a, b) for a, b in lines if a != b)
    return a[:300], b[:300]


def differing(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    keys = dict.fromkeys([*before, *after])
    return [key for key in keys if key not in before or key not in after or before[key] != after[key]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit", help="what the working tree is compared with")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(RUNS)}; none: all")
    asked = parser.parse_args()
    if unknown := [name for name in asked.names if name not in RUNS]:
        parser.error(f"{unknown[0]}: there is no such run; there are {', '.join(RUNS)}")
    return compare(asked.commit, asked.names or list(RUNS))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
    else:
        sys.exit(main())
