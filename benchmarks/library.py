"""Attention as a library: `MultiHeadAttention` beside torch's kernel with projections written by hand, in one run.

    python benchmarks/library.py [--shape 1x16] [--device cuda] [--dtype bfloat16] [--json FILE]

512 × 8, for several lengths, forward alone and with gradients. The hand-written one has the same products: queries,
keys and values in one, the output. `torch` is `nn.MultiheadAttention`, for orientation. Rounds alternate between the
three, each of which begins in turn; a figure is the lower quartile of all rounds in microseconds, which other work on
the machine disturbs less than the median, the ratio is of these, and `more` is how many microseconds longer ours takes.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn import MultiHeadAttention

SIZE, HEADS = 512, 8
SHAPES = {"1x16": (1, 16), "8x64": (8, 64), "16x128": (16, 128), "4x512": (4, 512)}  # rows, length


class ByHand(nn.Module):
    """Projections and `F.scaled_dot_product_attention`, as one writes them in a model of one's own."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.query, self.key_value, self.output = (nn.Linear(SIZE, n * SIZE) for n in (1, 2, 1))
        self.causal = causal

    def forward(self, x: Tensor) -> Tensor:
        parts = (self.query(x), *self.key_value(x).chunk(2, -1))
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.output(out.transpose(1, 2).flatten(2))


class OfTorch(nn.MultiheadAttention):
    def __init__(self, causal: bool) -> None:
        super().__init__(SIZE, HEADS, batch_first=True)
        self.causal = causal

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], x.device, x.dtype) if self.causal else None
        return super().forward(x, x, x, attn_mask=mask, is_causal=self.causal, need_weights=False)[0]


def seconds(run: Callable[[], Any], repeats: int, device: str) -> float:
    """Of the clock on a GPU; of this process alone on a CPU, where others may work too."""
    clock = time.perf_counter if device == "cuda" else time.process_time
    start = clock()
    for _ in range(repeats):
        run()
    if device == "cuda":
        torch.cuda.synchronize()
    return (clock() - start) / repeats


def measure(
    rows: int, length: int, causal: bool, training: bool, device: str, dtype: torch.dtype, rounds: int
) -> dict[str, Any]:
    """Lower quartiles in microseconds, and how much longer ours takes than the hand-written one."""
    layers = {
        "regard": MultiHeadAttention(SIZE, HEADS, causal=causal),
        "by hand": ByHand(causal),
        "torch": OfTorch(causal),
    }
    x = torch.randn(rows, length, SIZE, device=device, dtype=dtype, requires_grad=training)

    def runner(layer: nn.Module) -> Callable[[], Any]:
        layer.to(device, dtype).train(training)
        return (lambda: layer(x).sum().backward()) if training else (lambda: layer(x))

    runs = {name: runner(layer) for name, layer in layers.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    with torch.set_grad_enabled(training):
        first = max(seconds(run, 3, device) for run in runs.values())
        repeats = max(1, int(0.004 / first))
        names = list(runs)
        for number in range(rounds):
            for name in names[number % 3 :] + names[: number % 3]:
                runs[name]()  # what the one before left in the caches is not this one's
                times[name].append(seconds(runs[name], repeats, device))
    shown = {name: round(statistics.quantiles(values)[0] * 1e6, 1) for name, values in times.items()}
    ours, peer = shown["regard"], shown["by hand"]
    case = {"rows": rows, "length": length, "causal": causal, "training": training}
    return case | shown | {"more": round(ours - peer, 1), "ratio": round(ours / peer, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--shape", nargs="+", choices=SHAPES, help="rows and length; all unless given")
    parser.add_argument("--threads", type=int, default=0, help="0: torch's own choice")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    results = []
    for training in (False, True):
        for name in args.shape or SHAPES:
            rows, length = SHAPES[name]
            for causal in (False, True):
                dtype = getattr(torch, args.dtype)
                results.append(measure(rows, length, causal, training, args.device, dtype, args.rounds))
                print(json.dumps(results[-1]), flush=True)
    print("median ratio", statistics.median(result["ratio"] for result in results))
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
