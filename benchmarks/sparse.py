"""Long sequences: full attention, a window of 513 keys and BigBird, forward and backward, side by side.

python benchmarks/sparse.py [--json FILE] [--tune]

Through the layer's own `attend`, a new call each time as in training. On a GPU: bf16, 12 heads of 64, n up to 65,536.
On a CPU: float32, 2 heads of 64, n up to 16,384. --tune tries how the GPU kernels are compiled.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable

import torch
from common import arguments, hardware, write_json
from torch import Tensor

from regard import accel
from regard.accel.sparse_attention import OPTIONS, plan_of
from regard.nn.attention import Attention, AttentionConfig
from regard.nn.backend.contract import AttentionInputs
from regard.nn.layout import AttentionContext, Layout
from regard.nn.pattern import Document, Padding
from regard.nn.position import Position
from regard.nn.sizes import Sizes

GPU = torch.cuda.is_available()
DEVICE, DTYPE, HEADS, SIZE = ("cuda", torch.bfloat16, 12, 64) if GPU else ("cpu", torch.float32, 2, 64)
LENGTHS = (4096, 16384, 65536) if GPU else (1024, 4096, 16384)
REPEATS, WARM_UP = (30, 5) if GPU else (2, 0)
PATTERNS = {"full": "full", "window": "window(256)", "bigbird": "bigbird(64, window=3, global=2, random=3)"}


def layer_of(pattern: str) -> Attention:
    config = AttentionConfig(pattern=pattern)
    return Attention(Sizes.of(HEADS * SIZE, HEADS), config, Position(), Padding() & Document()).to(DEVICE)


def call_of(n: int, length: int | None = None) -> AttentionContext:
    real = None if length is None else (torch.arange(n, device=DEVICE) < length)[None]
    layout = Layout.of(n, real, torch.device(DEVICE))
    return AttentionContext(layout, layout)


def inputs(n: int) -> list[Tensor]:
    """Queries, keys and values as a layer splits them, and the gradient of the output."""
    x = [torch.randn(1, n, HEADS, SIZE, device=DEVICE, dtype=DTYPE).transpose(1, 2) for _ in range(4)]
    return [*(each.requires_grad_() for each in x[:3]), x[3]]


def once(layer: Attention, x: list[Tensor], length: int | None = None, backward: bool = True) -> None:
    q, k, v, d_out = x
    out = layer.attend(q, k, v, call_of(q.shape[2], length))
    if backward:
        torch.autograd.grad(out, (q, k, v), d_out)


def milliseconds(work: Callable[[], None]) -> float:
    """The median; nothing waits for the device between the repeats."""
    for _ in range(WARM_UP):
        work()
    if not GPU:
        return 1000 * statistics.median(_seconds(work) for _ in range(REPEATS))
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(REPEATS + 1)]
    torch.cuda.synchronize()
    marks[0].record()
    for mark in marks[1:]:
        work()
        mark.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in itertools.pairwise(marks))


def _seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    if GPU:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def peak(work: Callable[[], None]) -> float | None:
    """Megabytes beside the inputs."""
    if not GPU:
        return None
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def error(layer: Attention, n: int = 2048) -> tuple[float, float]:
    """‖output − exact‖ / ‖exact‖ of the kernel that serves, and of the plain function in the same precision."""
    torch.manual_seed(1)
    q, k, v, _ = (x.detach() for x in inputs(n))
    context = call_of(n)
    exact = layer.reference(attention_inputs(layer, q.double(), k.double(), v.double(), context))[0]
    plain = layer.reference(attention_inputs(layer, q, k, v, context))[0]
    return tuple(float((x - exact).norm() / exact.norm()) for x in (layer.attend(q, k, v, context), plain))


def attention_inputs(layer: Attention, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext) -> AttentionInputs:
    return AttentionInputs(layer, q, k, v, context, layer.pattern.bind(q, context, layer.layer), None)


def measure(name: str, n: int, length: int | None = None) -> dict:
    layer, x = layer_of(PATTERNS[name]), inputs(n)

    def work() -> None:
        once(layer, x, length)

    first = _seconds(work)
    with torch.no_grad():
        forward = milliseconds(lambda: once(layer, x, length, backward=False))
    return {
        "pattern": name + ("" if length is None else ", a quarter padded"),
        "n": n,
        "path": layer.path,
        "first_call_s": first,
        "forward_ms": forward,
        "ms": milliseconds(work),
        "peak_mb": peak(work),
    }


def table(rows: list[dict]) -> None:
    full = {row["n"]: row["ms"] for row in rows if row["pattern"] == "full"}
    print("      n  pattern                    kernel  first call s    fwd ms  fwd+bwd ms  faster   peak MB")
    for row in rows:
        memory = "–" if row["peak_mb"] is None else f"{row['peak_mb']:.0f}"
        print(
            f"{row['n']:>7}  {row['pattern']:<26} {row['path'].split()[0]:<7} {row['first_call_s']:>12.2f} "
            f"{row['forward_ms']:>9.2f} {row['ms']:>11.2f} {full[row['n']] / row['ms']:>6.1f}× {memory:>9}"
        )


def tune(n: int = 65536) -> None:
    """The best way to compile each kernel, one after the other, forward and backward together."""
    for name in ("window", "bigbird"):
        layer, x = layer_of(PATTERNS[name]), inputs(n)
        once(layer, x)
        rows = plan_of(attention_inputs(layer, *x[:3], call_of(n))).rows
        for kernel, ways in OPTIONS.items():
            tried = {}
            limits = ({}, {"maxnreg": 168}) if kernel == "keys" else ({},)
            for warps, stages, limit in itertools.product((4, 8), (2, 3, 4), limits):
                ways[rows] = {"num_warps": warps, "num_stages": stages, **limit}
                try:
                    tried[milliseconds(lambda layer=layer, x=x: once(layer, x))] = ways[rows]
                except Exception as problem:  # too much shared memory, say
                    print(f"  {kernel} {ways[rows]}: {type(problem).__name__}")
            ways[rows] = tried[min(tried)]
            shown = ", ".join(f"{ms:.2f} {list(way.values())}" for ms, way in sorted(tried.items())[:6])
            print(f"{name} {kernel} {rows}: {ways[rows]}   ({shown})", flush=True)


def parser() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    parser.add_argument("--tune", action="store_true")
    return parser


def main() -> None:
    options = parser().parse_args()
    accel.register()
    where = hardware()
    print(f"{where}, torch {torch.__version__}, {str(DTYPE).removeprefix('torch.')}, {HEADS} heads of {SIZE}, batch 1")
    errors = {name: error(layer_of(pattern)) for name, pattern in PATTERNS.items()}
    for name, (ours, plain) in errors.items():
        print(f"error of {name}: {ours:.1e} (the plain function in this precision: {plain:.1e})", flush=True)
    if options.tune:
        tune()
    rows = [measure(name, n) for n in LENGTHS for name in PATTERNS]
    rows += [measure("bigbird", LENGTHS[1], 3 * LENGTHS[1] // 4)]
    table(rows)
    write_json(options.json, {"where": where, "torch": torch.__version__, "errors": errors, "rows": rows})


if __name__ == "__main__":
    main()
