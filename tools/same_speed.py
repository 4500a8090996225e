"""Compares the speed of the working tree with an older one: training and decoding, in processes of their own, in turn.

    git archive COMMIT src benchmarks | tar x -C FOLDER
    python tools/same_speed.py FOLDER [--device cpu] [--work training decoding] [--turns 2] [--json FILE]

Each tree's own `benchmarks/training.py` and `benchmarks/decoding.py` measure it, without their peers. The order is
turned round every time, so that a machine that slows down favours neither. Exits with 1 if a median is more than 3%
slower.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 1.03
SIZES = {  # the preset that is trained, and options of both benchmarks
    "cuda": ("base", "--rounds 7", "--beam 4 --batch 64 --file 0 --rounds 7"),
    "cpu": ("tiny", "--rounds 5", "--beam 1 4 --batch 16 --file 0 --rounds 5"),
}
DECODING = """
import sys
import decoding
sys.argv[0] = "decoding.py"
bf16 = decoding.torch.bfloat16
def engines(device, preset, batch):
    model = decoding.ours(decoding.marian(preset), preset)
    kinds = {"bf16": bf16} if device.type == "cuda" else {"float32": None, "bf16": bf16}
    return [lambda: {name: decoding.by_regard(model, device, dtype, batch) for name, dtype in kinds.items()}]
decoding.engines = engines
decoding.main()
"""


def speeds(tree: Path, work: str, device: str) -> dict[str, float]:
    """Tokens per second of each row that a benchmark of this tree prints."""
    preset, training, decoding = SIZES[device]
    benchmarks = tree / "benchmarks"
    flag = "--json" if (benchmarks / "common.py").exists() else "--out"
    if work == "training":
        command = [str(benchmarks / "training.py"), "--preset", preset, "--only", "regard", *training.split()]
    else:
        command = ["-c", DECODING, "--device", device, *decoding.split()]
    with tempfile.TemporaryDirectory() as folder:
        path = os.pathsep.join((str(tree / "src"), str(benchmarks)))
        target = Path(folder) / "speed.json"
        command = [sys.executable, *command, flag, str(target)]
        subprocess.run(command, cwd=tree, env=os.environ | {"PYTHONPATH": path}, check=True, stdout=subprocess.DEVNULL)
        found = json.loads(target.read_text(encoding="utf-8"))
    if isinstance(found, dict):
        return {name: row["tokens/s"] for name, row in found.items()}
    return {f"{row['work']}, beam {row['beam']}, {row['engine']}": row["tokens_per_second"] for row in found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="a folder with src/ and benchmarks/ of another commit")
    parser.add_argument("--device", choices=tuple(SIZES), default="cuda")
    parser.add_argument("--work", nargs="+", choices=("training", "decoding"), default=["training", "decoding"])
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    trees = {"old": options.old.resolve(), "new": ROOT}
    found: dict[str, dict[str, list[float]]] = {}
    for work in options.work:
        for turn in range(options.turns):
            for name in list(trees)[:: 1 if turn % 2 else -1]:
                for row, speed in speeds(trees[name], work, options.device).items():
                    found.setdefault(f"{work}: {row}", {}).setdefault(name, []).append(speed)
                    print(f"{work}: {row}: {name} {speed:,.0f} tokens/s", flush=True)
    slower = {row: statistics.median(each["old"]) / statistics.median(each["new"]) for row, each in found.items()}
    for row, ratio in slower.items():
        print(f"{row}: {ratio:.3f} × the time of before")
    if options.json:
        options.json.write_text(json.dumps({"speeds": found, "time": slower}, indent=1) + "\n", encoding="utf-8")
    return int(any(ratio > LIMIT for ratio in slower.values()))


if __name__ == "__main__":
    sys.exit(main())
