"""C21: heads at a constant size: the same products; the time is another matter."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.lab.claim import Claim, Figure, Measurement, Setup, exactly, upper_bound
from regard.lab.tiny import points, seconds_of
from regard.nn import MultiHeadAttention

SIZE, HEADS, LENGTHS = 256, [1, 2, 4, 8, 16], [32, 512]


@torch.no_grad()
def _measure(seed: int, setup: Setup) -> Measurement:
    products: list[int] = []
    times: dict[int, list[float]] = {n: [] for n in LENGTHS}
    for heads in HEADS:
        own = SIZE if setup.fault else None
        layer = MultiHeadAttention(SIZE, heads, d_k=own, d_v=own)
        with FlopCounterMode(display=False) as counter:
            layer(torch.randn(1, LENGTHS[0], SIZE), return_weights=True)
        products.append(counter.get_total_flops())
        for n, found in times.items():
            x = torch.randn(1, n, SIZE)
            found.append(seconds_of(lambda: layer(x), rounds=7))  # noqa: B023
    ratios = {n: [t / found[0] for t in found] for n, found in times.items()}
    numbers = {f"time {n}": found[HEADS.index(8)] for n, found in ratios.items()}
    numbers["products"] = max(products) / min(products)
    return Measurement(numbers, {"time": {f"n = {n}": points(HEADS, found) for n, found in ratios.items()}})


CLAIM = Claim(
    title="Heads and time",
    sentence="More heads do not raise the time: each is smaller by as much.",
    source="notes 001",
    predictions=(
        exactly("products", "most products of any number of heads as a multiple of the fewest", 1, "counted"),
        *(upper_bound(f"time {n}", f"time of 8 heads as a multiple of one, {n} words", 1.25, f"{n} words")
          for n in LENGTHS),
    ),
    measure=_measure,
    seconds=0.4,
    depends_on="The products are the same, to the last one. But each head has a softmax of its own, h·n² "
    "exponentials in all, which the count leaves out: at lengths where n is more than the size of a "
    "head they take time. In one thread of a CPU; kernels of a GPU that fuse the softmax were not measured here.",
    figures=(Figure("time", f"time of a layer, d = {SIZE}, against one head", "heads", "times", True),),
    faults={"every head as wide as the model": "d_k and d_v stay as they are, whatever the number of heads"},
    timed=True,
)  # fmt: skip
