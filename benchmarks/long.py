"""The cost of length: a layer of full, sparse and compressed attention, and of Transformer-XL's memory, at n tokens.

python benchmarks/long.py [--json FILE] [--svg FILE] [--longest N]           # a layer, forward and backward
python benchmarks/long.py --model [--json FILE] [--svg FILE] [--longest N]   # BERT base in training, BigBird and full
python benchmarks/long.py --decode [--json FILE] [--svg FILE] [--longest N]  # a step of decoding, and the caches

A layer projects, attends and projects back, batch 1. On a GPU: bf16, 12 heads of 64, n up to 65,536. On a CPU:
float32, 2 heads of 64, n up to 8,192. `causal` and `t-dmca` are a decoder's: full, and compressed by 3. Times are the
fastest of several calls; on a CPU those of the processor, which other programs disturb less. Memory is, on a GPU, the
peak beside weights and inputs; on a CPU what is kept for the gradient, weights among it. Exponents p of n^p are fitted
to the longer half of the lengths, ± the standard error. A memory reads n tokens in blocks of 512, each with the 512
states before it; its memory is that of one block. `--model` trains on 16,384 tokens a step (or one longer row), of
which 15% are predicted, in rows of n; on a CPU a model of two layers and 4,096 tokens. `--decode` reads one more token
of four rows after n, with rotary positions (GPT-2 small; on a CPU `tiny`), by the fused step where it serves; memory
is that of the caches, and nothing is captured.
"""

import argparse
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from common import arguments, hardware, write_json
from torch import Tensor

from regard import accel
from regard.accel.fused_step import fused
from regard.lab.charts import Chart, Series, curves, standalone
from regard.models.batch import TextBatch, collate_texts
from regard.models.bert import BertConfig, MaskedLM
from regard.models.lm import LanguageModel
from regard.models.stack import config_from_preset
from regard.nn import MultiHeadAttention
from regard.nn.cache import SegmentMemory

GPU = torch.cuda.is_available()
DEVICE, HEADS, LONGEST = ("cuda", 12, 65_536) if GPU else ("cpu", 2, 8192)
SIZE, BLOCK = 64 * HEADS, 512
SECONDS, LEAST = (1.0, 5) if GPU else (0.5, 3)  # of calls at each length, and how many at least
STEPS = 60  # of decoding
BIGBIRD = "bigbird(64, window=3, global=2, random=3)"
MECHANISMS: dict[str, Callable[[int], dict[str, Any]]] = {
    "full": lambda n: {},
    "window(256)": lambda n: {"pattern": "window(256)"},
    "bigbird": lambda n: {"pattern": BIGBIRD},
    "linformer": lambda n: {"compress": {"kind": "linformer", "length": n, "size": 256}},
    "strided_conv": lambda n: {"compress": {"kind": "strided_conv", "factor": 3}},
    "causal": lambda n: {"causal": True},
    "t-dmca": lambda n: {"compress": {"kind": "strided_conv", "factor": 3}, "causal": True},
    "memory": lambda n: {"position": "transformer_xl", "causal": True},
}
Row = dict[str, Any]


def autocast() -> AbstractContextManager[Any]:
    return torch.autocast(DEVICE, torch.bfloat16, enabled=GPU)


def fastest(work: Callable[[], object], most: int = 1000) -> float:
    """Milliseconds of the fastest call, of at most so many, after one that compiles and allocates."""
    work()
    clock, took = time.perf_counter if GPU else time.process_time, []
    while len(took) < LEAST or (sum(took) < SECONDS and len(took) < most):
        start = clock()
        work()
        if GPU:
            torch.cuda.synchronize()
        took.append(clock() - start)
    return 1000 * min(took)


def megabytes(work: Callable[[], None]) -> float:
    """On a GPU the peak, beside what there was; on a CPU what autograd keeps, each storage once."""
    if GPU:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    kept: dict[int, tuple[int, Tensor]] = {}

    def keep(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes(), x  # which is kept, so that its place is not given away
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        work()
    return sum(size for size, _ in kept.values()) / 2**20


# --- a layer -------------------------------------------------------------------------------------------------------


def layer_row(name: str, n: int) -> Row:
    torch.manual_seed(0)
    layer = MultiHeadAttention(SIZE, HEADS, **MECHANISMS[name](n)).to(DEVICE)
    x = torch.randn(1, n, SIZE, device=DEVICE, requires_grad=True)
    out_gradient = torch.randn(1, n, SIZE, device=DEVICE)

    def work(count: int | None = None) -> None:
        """All of the text, or its first blocks."""
        layer.zero_grad(set_to_none=True)
        x.grad = None
        memory = SegmentMemory.empty(1, BLOCK, x.detach()) if name == "memory" else None
        size = n if memory is None else BLOCK
        for block, gradient in list(zip(x.split(size, 1), out_gradient.split(size, 1), strict=True))[:count]:
            with autocast():
                out = layer(block, cache=memory)
            out.backward(gradient.to(out.dtype))

    ms = fastest(work)
    return {"mechanism": name, "n": n, "ms": ms, "mb": megabytes(lambda: work(1)), "path": layer.path}


# --- a model -------------------------------------------------------------------------------------------------------


def model_row(name: str, n: int) -> Row:
    torch.manual_seed(0)
    tokens = 16_384 if GPU else 4096
    keys = {"position": {"kind": "learned", "length": n}, "attention": MECHANISMS[name](n)}
    config = config_from_preset(BertConfig, "base" if GPU else "tiny", keys)
    model = MaskedLM(config.build(30_522)).to(DEVICE).train()
    optimiser = torch.optim.AdamW(model.parameters(), 1e-4, fused=GPU)
    ids = torch.randint(4, 30_522, (max(1, tokens // n), n), device=DEVICE)
    positions = torch.randperm(ids.numel(), device=DEVICE)[: 15 * ids.numel() // 100]
    batch = TextBatch(ids, label_positions=positions, labels=ids.flatten()[positions])

    def work() -> None:
        optimiser.zero_grad(set_to_none=True)
        with autocast():
            loss = model(batch, smoothing=0.0)
        (loss / len(positions)).backward()
        optimiser.step()

    ms = fastest(work)
    found = {"mechanism": name, "n": n, "ms": ms, "tokens_per_second": 1000 * ids.numel() / ms}
    return found | {"mb": megabytes(work), "path": model.body.layers[0].attention.path}


# --- decoding ------------------------------------------------------------------------------------------------------


@torch.inference_mode()
def decode_row(name: str, n: int) -> Row:
    torch.manual_seed(0)
    keys = {"position": "rotary", "attention": MECHANISMS[name](n)}
    model = LanguageModel.from_preset("small" if GPU else "tiny", 8000, **keys).to(DEVICE).eval()
    with autocast():
        state = model.start(collate_texts([[5] * n] * 4, 0).to(DEVICE), STEPS + 2)
        step, tokens = fused(model).step, torch.full((4, 1), 7, device=DEVICE)
        ms = fastest(lambda: step(tokens, state), STEPS)
    kept = {id(x): x.nbytes for layer in state.layers for x in vars(layer[0]).values() if isinstance(x, Tensor)}
    path = type(state.layers[0][0]).__name__
    return {"mechanism": name, "n": n, "ms": ms, "mb": sum(kept.values()) / 2**20, "path": path}


# --- the report ----------------------------------------------------------------------------------------------------


def exponent(rows: list[Row], key: str) -> tuple[float, float]:
    """p of y ∝ n^p over the longer half of the lengths, by least squares of the logarithms, and its standard error."""
    points = [(math.log(row["n"]), math.log(row[key])) for row in rows[len(rows) // 2 :]]
    if len(points) < 3:
        return float("nan"), float("nan")
    x, y = (torch.tensor(side, dtype=torch.float64) for side in zip(*points, strict=True))
    x, y = x - x.mean(), y - y.mean()
    p = (x * y).sum() / (x * x).sum()
    error = ((y - p * x).square().sum() / (len(points) - 2) / (x * x).sum()).sqrt()
    return float(p), float(error)


def table(rows: list[Row], exponents: dict[str, dict[str, tuple[float, float]]]) -> None:
    lengths, names = sorted({row["n"] for row in rows}), list(exponents)
    found = {(row["mechanism"], row["n"]): row for row in rows}
    for key, title in (("ms", "ms"), ("mb", "MB")):
        print(f"\n{title:>13}" + "".join(f"{n:>10,}" for n in lengths) + "    p of n^p")
        for name in names:
            cells = "".join(f"{found[name, n][key]:>10,.2f}" if (name, n) in found else f"{'–':>10}" for n in lengths)
            p, error = exponents[name][key]
            print(f"{name:>13}{cells}    {p:.2f} ± {error:.2f}")
    print()
    for name in names:
        paths = dict.fromkeys(row["path"] for row in rows if row["mechanism"] == name)
        print(f"{name:>13}: {'; '.join(paths)}")


def chart(rows: list[Row], title: str) -> str:
    names = dict.fromkeys(row["mechanism"] for row in rows)
    own = {name: [row for row in rows if row["mechanism"] == name] for name in names}
    series = [Series(name, [row["n"] for row in each], [row["ms"] for row in each]) for name, each in own.items()]
    return standalone(curves(Chart(title, "n", "ms", series, log_x=True, log_y=True)))


def parser() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--model", action="store_true", help="a whole model of BERT base's size, in training")
    what.add_argument("--decode", action="store_true", help="a step of decoding after n tokens, and the caches")
    parser.add_argument("--svg", metavar="FILE", help="write the plot of times there")
    parser.add_argument("--longest", type=int, default=0, help="the longest n")
    return parser


def main() -> None:
    options = parser().parse_args()
    accel.register()
    longest = options.longest or (4096 if options.model and not GPU else LONGEST)
    names = ["full", "bigbird"] if options.model else list(MECHANISMS)
    measure, rows = (model_row if options.model else layer_row), []
    if options.decode:
        measure, names = decode_row, ["full", "window(256)", "strided_conv"]
    where = f"{hardware()}, torch {torch.__version__}"
    print(f"{where}, {'bf16' if GPU else 'float32'}", flush=True)
    for n in (512 << power for power in range(8)):
        for name in names if n <= longest else []:
            try:
                rows.append(measure(name, n))
            except torch.OutOfMemoryError:
                print(f"{name} at {n:,} tokens: out of memory", flush=True)
            if GPU:
                torch.cuda.empty_cache()
    exponents = {
        name: {key: exponent([row for row in rows if row["mechanism"] == name], key) for key in ("ms", "mb")}
        for name in names
    }
    table(rows, exponents)
    if options.svg:
        what = "A step of BERT in training" if options.model else "A layer, forward and backward"
        what = "A step of decoding" if options.decode else what
        with open(options.svg, "w", encoding="utf-8") as file:
            file.write(chart(rows, f"{what}: time by length"))
    found = {"where": where, "model": options.model, "decode": options.decode, "rows": rows, "exponents": exponents}
    write_json(options.json, found)


if __name__ == "__main__":
    main()
