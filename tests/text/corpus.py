"""Small text made for these tests, and where the real text is, if it is there."""

import gzip
import os
import random
from pathlib import Path

import pytest

ENGLISH = [
    "A man is walking his dog in the park.",
    "Two women are talking near the old house.",
    "The children don't like walking in the rain!",
    "A dog runs after the other dogs, barking loudly.",
    "Walking dogs is what the man's women like, talking about it.",
] * 4
GERMAN = ["Ein Mann geht mit seinem Hund spazieren.", "Zwei Frauen reden vor dem alten Haus."] * 4
CHINESE = ["我爱中国", "我爱北京", "中国人爱中国。", "你好，世界", "我爱NLP"] * 4


def invented(lines: int, seed: int) -> list[str]:
    """Sentences of made-up stems and suffixes with Zipf's frequencies, regular enough to have pieces."""
    made = random.Random(7)
    syllables = [c + v + e for c in "bdfgklmnprstvz" for v in "aeiou" for e in ("", "n", "r", "s", "l")]
    stems = ["".join(made.choice(syllables) for _ in range(made.choice((1, 2, 2, 3)))) for _ in range(600)]
    weights = [1 / (i + 1) for i in range(len(stems))]
    suffixes = ["", "", "s", "ed", "ing", "er", "ung", "lich"]
    draw = random.Random(seed)
    return [
        " ".join(stem + draw.choice(suffixes) for stem in draw.choices(stems, weights, k=draw.randrange(4, 14)))
        + draw.choice(".?!")
        for _ in range(lines)
    ]


def real(name: str) -> Path:
    """A file of the shared data folder; skips the test where there is none."""
    root = os.environ.get("REGARD_DATA")
    if not root or not (path := Path(root) / name).exists():
        pytest.skip(f"needs {name} in the folder that REGARD_DATA names")
    return path


def real_lines(name: str) -> list[str]:
    with gzip.open(real(name), "rt", encoding="utf-8") as file:
        return [line.rstrip("\n") for line in file]
