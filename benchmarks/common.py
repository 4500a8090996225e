"""What the benchmarks share: their arguments, JSON, the machine in words, memory, Marian, one training of a recipe.

Knows no benchmark. torch and transformers are imported where they are needed: `all.py --list` answers without them.
"""

import argparse
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any


def arguments(about: str | None) -> argparse.ArgumentParser:
    """A parser that every benchmark begins with; `--json` is for programs, `all.py` among them."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    return parser


def write_json(path: Path | None, value: Any) -> None:
    """Whole or not at all, so that a stop leaves no half of a file."""
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        part.replace(path)


def hardware() -> str:
    """The GPU, or the processor and its threads; no name of the machine."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    kind = "CPU"
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        kind = next(line for line in lines if line.startswith("model name")).partition(":")[2].strip()
    return f"{kind}, {torch.get_num_threads()} threads"


def process_status(key: str) -> float:
    """MiB of this process as Linux counts them, VmRSS or VmHWM; getrusage also counts what the parent had."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith(key):
                return int(line.split()[1]) / 1024
    return float("nan")


def marian(sizes: Any, entries: int, **keys: Any) -> Any:
    """Hugging Face's MarianMT of our sizes; 0 pads, 2 begins and 3 ends a sentence."""
    from transformers import MarianConfig, MarianMTModel

    sides = {"layers": sizes.layers, "ffn_dim": sizes.inner, "attention_heads": sizes.heads}
    sides = {f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in sides.items()}
    return MarianMTModel(MarianConfig(
        vocab_size=entries, d_model=sizes.size, **sides, scale_embedding=True, max_position_embeddings=512,
        pad_token_id=0, eos_token_id=3, decoder_start_token_id=2, **keys))  # fmt: skip


def train_recipe(recipe: str, overrides: list[str], out: Path, device: str = "auto", test: bool = True) -> dict:
    """`regard train` and `regard evaluate` in processes of their own: what both measured.

    A finished run is read, one that was stopped goes on. RuntimeError with the last line of its log if it fails.
    """
    commands = {"train": [recipe, *overrides, "--out", str(out)]}
    commands |= {"evaluate": [str(out), "--json"]} if test else {}
    measured, log = out / "test.json", Path(f"{out}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    for name, given in commands.items():
        if (measured if name == "evaluate" else out / "results.json").exists():
            continue
        whole = [sys.executable, "-m", "regard", name, *given, "--device", device]
        with log.open("ab") as file:
            done = subprocess.run(whole, stdout=subprocess.PIPE, stderr=file, check=False, env=os.environ)
        if done.returncode:
            lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise RuntimeError(lines[-1] if lines else f"regard {name} failed")
        if name == "evaluate":
            measured.write_bytes(done.stdout)
    found = json.loads((out / "results.json").read_text(encoding="utf-8"))
    return found | ({"test": json.loads(measured.read_text(encoding="utf-8"))} if test else {})
