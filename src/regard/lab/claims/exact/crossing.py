"""C2: from which length on recurrence is faster than self-attention."""

import torch
from torch import nn

from regard.lab.claim import Claim, Figure, Measurement, PredictedRange, Setup
from regard.lab.tiny import cpu_seconds
from regard.nn import MultiHeadAttention

SIZE = 64
LENGTHS = [16, 32, 64, 128, 256, 512, 1024]
SHORT = [16, 32]  # n < d


def _measure(seed: int, setup: Setup) -> Measurement:
    attention = MultiHeadAttention(SIZE, 1)
    cells = {"LSTM": nn.LSTM(SIZE, SIZE, batch_first=True), "GRU": nn.GRU(SIZE, SIZE, batch_first=True)}
    times: dict[str, list[tuple[float, float]]] = {"self-attention": [], **{name: [] for name in cells}}
    with torch.no_grad():
        for n in LENGTHS:
            x = torch.randn(1, n, SIZE)
            rounds = 60 if n < SIZE else 4
            repeats = 8 if setup.fault == "attention eight times" else 1
            times["self-attention"].append((n, cpu_seconds(lambda: [attention(x) for _ in range(repeats)], rounds)))  # noqa: B023
            for name, cell in cells.items():
                times[name].append((n, cpu_seconds(lambda: cell(x), rounds)))  # noqa: B023
    numbers: dict[str, float] = {}
    for name in cells:
        ratio = {n: a / b for (n, a), (_, b) in zip(times["self-attention"], times[name], strict=True)}
        numbers |= {f"{n}, {name}": ratio[n] for n in SHORT}
    curves = {"time": {name: [(n, 1e3 * t) for n, t in points] for name, points in times.items()}}
    return Measurement(numbers, curves)


CLAIM = Claim(
    id="C2",
    title="Attention against recurrence",
    sentence="Self-attention is faster than recurrence when the sentence is shorter than the vectors, n < d.",
    source="the notes; Vaswani 2017, section 4",
    kind="exact",
    predictions=tuple(
        PredictedRange(
            f"{n}, {name}", f"time of self-attention as a share of {article} {name}'s, {n} words", 0, 1, name
        )
        for article, name in (("an", "LSTM"), ("a", "GRU"))
        for n in SHORT
    ),
    measure=_measure,
    seconds=0.3,
    depends_on="On what computes it: torch has a fused LSTM for CPUs and none for the GRU; and a layer of "
    "attention is a dozen operations, whose start is most of the time for so short a sentence. Where "
    f"the curves cross is where recurrence begins to be faster or slower, d = {SIZE}. One sentence, one "
    "thread of a CPU, no training; on a GPU the steps of recurrence wait for each other.",
    figures=(Figure("time", f"time of one layer, d = {SIZE}", "n", "ms of CPU", True, True),),
    faults={"attention eight times": "attention does its work eight times"},
    timed=True,
)
