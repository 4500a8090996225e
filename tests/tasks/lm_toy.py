"""A small text and recipe for tests of language models."""

import random
from pathlib import Path
from typing import Any

WORDS = ["the", "cat", "sat", "on", "a", "mat", "dog", "ran"]


def write_text(folder: Path, documents: int = 60) -> None:
    """Documents of a few lines, a blank line between them."""
    draw = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", documents), ("valid", 5)):
        parts = [
            "\n".join(" ".join(draw.choices(WORDS, k=draw.randint(1, 6))) for _ in range(draw.randint(1, 4)))
            for _ in range(count)
        ]
        (folder / f"{name}.txt").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def recipe(folder: Path, steps: int = 12, text: Any = "char", **task: Any) -> dict[str, Any]:
    return {
        "task": {"kind": "lm", "length": 16, **task},
        "data": {
            "train": str(folder / "train.txt"),
            "valid": str(folder / "valid.txt"),
            "cache": str(folder / "cache"),
        },
        "text": text,
        "model": {
            "layers": 1,
            "size": 16,
            "inner": 32,
            "heads": 2,
            "position": {"kind": "learned", "length": 32},
            "word_dropout": 0.1,
            "output_dropout": 0.1,
        },
        "training": {
            "steps": steps,
            "tokens_per_batch": 128,
            "schedule": {"kind": "constant", "peak": 1e-2},
            "log_every": 2,
            "validation": {"every": 6},
            "checkpoints": {"every": 6},
        },
    }
