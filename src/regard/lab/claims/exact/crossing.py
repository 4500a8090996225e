"""C2: from which length on recurrence is faster than self-attention."""

import torch
from torch import nn

from regard.lab.claim import Claim, Figure, Measurement, Setup, upper_bound
from regard.lab.tiny import points, seconds_of
from regard.nn import MultiHeadAttention

SIZE = 64
LENGTHS = [16, 32, 64, 128, 256, 512, 1024]
SHORT = [16, 32]  # n < d


def seconds(layer: nn.Module, n: int, repeats: int = 1) -> float:
    """Of one sentence of n words."""
    x = torch.randn(1, n, SIZE)
    return seconds_of(lambda: [layer(x) for _ in range(repeats)], 60 if n < SIZE else 4)


@torch.no_grad()
def _measure(seed: int, setup: Setup) -> Measurement:
    layers = {
        "self-attention": MultiHeadAttention(SIZE, 1),
        "LSTM": nn.LSTM(SIZE, SIZE, batch_first=True),
        "GRU": nn.GRU(SIZE, SIZE, batch_first=True),
    }
    times: dict[str, list[float]] = {name: [] for name in layers}
    for n in LENGTHS:
        for name, layer in layers.items():
            times[name].append(seconds(layer, n, 8 if setup.fault and name == "self-attention" else 1))
    numbers = {
        f"{n}, {name}": times["self-attention"][LENGTHS.index(n)] / times[name][LENGTHS.index(n)]
        for name in ("LSTM", "GRU")
        for n in SHORT
    }
    curves = {name: points(LENGTHS, [1e3 * t for t in found]) for name, found in times.items()}
    return Measurement(numbers, {"time": curves})


CLAIM = Claim(
    title="Attention against recurrence",
    sentence="Self-attention is faster than recurrence when the sentence is shorter than the vectors, n < d.",
    source="the notes; Vaswani 2017, section 4",
    predictions=tuple(
        upper_bound(f"{n}, {name}", f"time of self-attention as a share of {article} {name}'s, {n} words", 1, name)
        for article, name in (("an", "LSTM"), ("a", "GRU"))
        for n in SHORT
    ),
    measure=_measure,
    seconds=0.3,
    depends_on="On what computes it: torch has a fused LSTM for CPUs and none for the GRU; and a layer of "
    "attention is a dozen operations, whose start is most of the time for so short a sentence. Where "
    f"the curves cross is where recurrence begins to be faster or slower, d = {SIZE}. One sentence, one "
    "thread of a CPU, no training; on a GPU (`--device cuda`) the steps of recurrence wait for each other.",
    figures=(Figure("time", f"time of one layer, d = {SIZE}", "n", "ms", True, True),),
    faults={"attention eight times": "attention does its work eight times"},
    timed=True,
)
