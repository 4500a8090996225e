"""Time and peak memory of preparing a large corpus: synthetic pairs from a Zipf vocabulary, the real tokenizer class.

python benchmarks/preparing.py [--pairs 2000000] [--json FILE]
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from common import arguments, process_status, write_json

from regard.data.config import Corpus, Filters
from regard.data.prepared import prepare_corpora
from regard.data.readers import read_lines
from regard.text import Bpe, train_tokenizer


def peak() -> float:
    """GiB, so far."""
    return process_status("VmHWM") / 1024


def write(path: Path, pairs: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = np.array(["".join(random.choice(letters, random.integers(2, 11))) for _ in range(60_000)])
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(0, pairs, 10_000):
            picked = words[np.minimum(random.zipf(1.3, size=(10_000, 24)), len(words)) - 1]
            for row, length in zip(picked, random.integers(4, 24, 10_000), strict=True):
                file.write(" ".join(row[:length]) + "\n")


def parser() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    parser.add_argument("--pairs", type=int, default=2_000_000)
    return parser


def main() -> None:
    options = parser().parse_args()
    pairs = options.pairs
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side, seed in (("source", 1), ("target", 2)):
            write(folder / side, pairs, seed)
        print(f"{pairs:,} pairs written; peak so far {peak():.2f} GiB")
        began = time.monotonic()
        tokenizer = train_tokenizer(Bpe(size=16_000, sample_lines=200_000), read_lines(folder / "source"))
        print(f"vocabulary: {time.monotonic() - began:.0f} s, peak {peak():.2f} GiB")
        began = time.monotonic()
        corpus = Corpus(source=str(folder / "source"), target=str(folder / "target"))
        found = prepare_corpora([corpus], {"source": tokenizer, "target": tokenizer}, Filters(), folder / "cache")
        seconds = time.monotonic() - began
        print(f"prepared: {seconds:.0f} s, peak {peak():.2f} GiB; {found.report_lines()[0][-60:]}")
    write_json(options.json, {"pairs": pairs, "seconds": seconds, "peak_gib": peak()})


if __name__ == "__main__":
    main()
