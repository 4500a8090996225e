"""A small corpus and recipe that train in a second or two, for tests of the loop, the run folder and the commands."""

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.processes import run_command

WORDS = [f"w{i}" for i in range(20)]


def write_corpus(folder: Path, train: int = 400, valid: int = 30) -> None:
    """The target is the source reversed and in capitals."""
    draw = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", train), ("valid", valid)):
        rows = [[draw.choice(WORDS) for _ in range(draw.randint(1, 7))] for _ in range(count)]
        (folder / f"{split}.en").write_text("".join(" ".join(r) + "\n" for r in rows), encoding="utf-8")
        (folder / f"{split}.de").write_text("".join(" ".join(r[::-1]).upper() + "\n" for r in rows), encoding="utf-8")


def recipe(folder: Path, steps: int = 12, **training: Any) -> dict[str, Any]:
    return {
        "data": {
            "train": [str(folder / "train.en"), str(folder / "train.de")],
            "valid": [str(folder / "valid.en"), str(folder / "valid.de")],
            "cache": str(folder / "cache"),
        },
        "text": {"kind": "word"},
        "model": {"init": "xavier", "layers": 1, "size": 16, "inner": 32, "heads": 2, "dropout": 0.1},
        "training": {
            "steps": steps,
            "tokens_per_batch": 200,
            "schedule": {"kind": "noam", "warmup": 10, "peak": 3e-3},
            "log_every": 2,
            "validation": {"every": 4, "lines": 10},
            "checkpoints": {"every": 2, "keep": 3},
            **training,
        },
        "decoding": {"kind": "greedy"},
    }


def write_recipe(folder: Path, **keys: Any) -> Path:
    import yaml

    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe(folder, **keys)), encoding="utf-8")
    return path


def regard(
    *arguments: Any, stdin: str | bytes | None = None, timeout: float = 120, **options: Any
) -> subprocess.CompletedProcess:
    """Run the command line as a user does; with options of `subprocess.run` by an interpreter of its own, else a fork.

    The two differ by two seconds, in which an interpreter imports torch.
    """
    given = stdin.encode() if isinstance(stdin, str) else stdin
    texts = [str(argument) for argument in arguments]
    if options:
        options["env"] = {**os.environ, **options.get("env", {})}
        command = [sys.executable, "-m", "regard", *texts]
        found = subprocess.run(command, input=given, capture_output=True, timeout=timeout, **options)
    else:
        found = run_command(texts, given or b"", timeout)
    found.stdout, found.stderr = found.stdout.decode(), found.stderr.decode()
    return found
