"""C21: heads at a constant size: the same products; the time is another matter."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.lab.claim import Claim, Figure, Measurement, PredictedRange, Setup
from regard.lab.tiny import cpu_seconds
from regard.nn import MultiHeadAttention

SIZE, HEADS, SHORT, LONG = 256, [1, 2, 4, 8, 16], 32, 512


def _measure(seed: int, setup: Setup) -> Measurement:
    wide = setup.fault == "every head as wide as the model"
    products: list[int] = []
    times: dict[int, list[float]] = {SHORT: [], LONG: []}
    with torch.no_grad():
        for heads in HEADS:
            own = SIZE if wide else None
            layer = MultiHeadAttention(SIZE, heads, d_k=own, d_v=own)
            with FlopCounterMode(display=False) as counter:
                layer(torch.randn(1, SHORT, SIZE), return_weights=True)
            products.append(counter.get_total_flops())
            for n, found in times.items():
                x = torch.randn(1, n, SIZE)
                found.append(cpu_seconds(lambda: layer(x), rounds=7))  # noqa: B023
    eight = HEADS.index(8)
    numbers = {"products": max(products) / min(products)}
    numbers |= {f"time {n}": found[eight] / found[0] for n, found in times.items()}
    curves = {
        f"n = {n}": [(float(h), t / found[0]) for h, t in zip(HEADS, found, strict=True)] for n, found in times.items()
    }
    return Measurement(numbers, {"time": curves})


CLAIM = Claim(
    id="C21",
    title="Heads and time",
    sentence="More heads do not raise the time: each is smaller by as much.",
    source="notes 001",
    kind="exact",
    predictions=(
        PredictedRange("products", "most products of any number of heads as a multiple of the fewest", 1, 1, "counted"),
        PredictedRange("time 32", "time of 8 heads as a multiple of one, 32 words: at most 1.25", 0, 1.25, "32 words"),
        PredictedRange(
            "time 512", "time of 8 heads as a multiple of one, 512 words: at most 1.25", 0, 1.25, "512 words"
        ),
    ),
    measure=_measure,
    seconds=0.4,
    depends_on="The products are the same, to the last one. But each head has a softmax of its own, h·n² "
    "exponentials in all, which the count leaves out: at lengths where n is more than the size of a "
    "head they take time. On a CPU, in one thread; kernels of a GPU that fuse the softmax were not "
    "measured here.",
    figures=(Figure("time", f"time of a layer, d = {SIZE}, against one head", "heads", "times", True),),
    faults={"every head as wide as the model": "d_k and d_v stay as they are, whatever the number of heads"},
    timed=True,
)
