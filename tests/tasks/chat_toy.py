"""Small dialogues and recipes for tests of chat: one thing is talked about, which every reply must name."""

import random
from pathlib import Path
from typing import Any

WORDS = ["tea", "rain", "music", "cats", "bread", "snow"]


TURNS = ("do you like {}", "yes I like {}", "will you have {} now", "no {} later", "then I take {}", "enjoy {}")


def dialogue(draw: random.Random, turns: int) -> list[str]:
    word = draw.choice(WORDS)
    return [turn.format(word) for turn in TURNS[:turns]]


def write(folder: Path, train: int = 60, valid: int = 6) -> None:
    draw = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", train), ("valid", valid)):
        rows = [dialogue(draw, draw.randint(2, 6)) for _ in range(count)]
        lines = [" __eou__ ".join(turns) + " __eou__\n" for turns in rows]
        (folder / f"{name}.txt").write_text("".join(lines), encoding="utf-8")


def recipe(folder: Path, model: str = "transformer", steps: int = 12, **keys: Any) -> dict[str, Any]:
    """`keys` are those of the task, but for `text`, `position` and `training`, which are the sections of that name."""
    text, position = keys.pop("text", "word"), keys.pop("position", "rotary")
    training = keys.pop("training", {})
    return {
        "task": {"kind": "chat", "length": 24, **keys},
        "data": {
            "train": str(folder / "train.txt"),
            "valid": str(folder / "valid.txt"),
            "cache": str(folder / "cache"),
        },
        "text": text,
        "model": {"kind": model, "layers": 1, "size": 32, "dropout": 0.0}
        | ({"position": position, "inner": 64, "heads": 2, "residual": "pre_norm"} if model != "rnn" else {}),
        "training": {
            "steps": steps,
            "tokens_per_batch": 256,
            "schedule": {"kind": "constant", "peak": 5e-3},
            "label_smoothing": 0.0,
            "log_every": 4,
            "validation": {"every": 5},
            "checkpoints": {"every": 5},
            **training,
        },
        "decoding": {"kind": "sample", "max_extra": 12},
    }
