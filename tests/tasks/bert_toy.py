"""A small text of documents and a recipe for tests of pretraining."""

import random
from pathlib import Path
from typing import Any

TOPICS = [["cat", "mat", "purrs"], ["boat", "sea", "sails"], ["king", "throne", "rules"], ["sun", "sky", "shines"]]


def sentence(draw: random.Random, topic: list[str]) -> str:
    return " ".join(draw.choices(topic, k=draw.randint(3, 8))).capitalize() + " ."


def write_text(folder: Path, documents: int = 60) -> None:
    """Documents about one thing each, a blank line between them; now and then one has a single sentence."""
    draw = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", documents), ("valid", 24)):
        parts = []
        for n in range(count):
            topic = TOPICS[n % len(TOPICS)]
            lines = [
                " ".join(sentence(draw, topic) for _ in range(draw.randint(2, 4)))
                for _ in range(draw.choice((1, 2, 3)))
            ]
            parts.append("\n".join(lines) if n % 10 else sentence(draw, topic))
        (folder / f"{name}.txt").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def recipe(folder: Path, steps: int = 12, **task: Any) -> dict[str, Any]:
    return {
        "task": {"kind": "pretraining", "length": 32, **task},
        "data": {
            "train": str(folder / "train.txt"),
            "valid": str(folder / "valid.txt"),
            "cache": str(folder / "cache"),
        },
        "text": {"kind": "bert", "size": 62},
        "model": {
            "layers": 1,
            "size": 16,
            "inner": 32,
            "heads": 2,
            "init": "xavier",
            "position": {"kind": "learned", "length": 32},
        },
        "training": {
            "steps": steps,
            "tokens_per_batch": 256,
            "schedule": {"kind": "constant", "peak": 5e-3},
            "log_every": 2,
            "validation": {"every": 6},
            "checkpoints": {"every": 3},
        },
    }
