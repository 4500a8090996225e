"""C1: what a layer costs, counted in products and measured in CPU time."""

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from regard.lab.claim import Claim, Figure, Measurement, Points, PredictedRange, Setup
from regard.lab.tiny import cpu_seconds, slope
from regard.nn import MultiHeadAttention
from regard.nn.attention import attention
from regard.nn.normalise import Softmax
from regard.nn.score import ScaledDotScore

LENGTHS, SIZES, WINDOW, KERNEL = [256, 512, 1024], [128, 256, 512], 16, 3


def products(n: int, d: int) -> float:
    """Multiplications of a whole layer of self-attention, counted by torch on the plain function."""
    layer = MultiHeadAttention(d, 1)
    with FlopCounterMode(display=False) as counter:
        layer(torch.randn(1, n, d), mask=torch.ones(1, 1, n, n, dtype=torch.bool), return_weights=True)
    return counter.get_total_flops() / 2  # a multiplication and an addition are two operations


def parts(n: int, d: int, fault: str) -> dict[str, float]:
    """CPU seconds of what the notes count, for one sentence of n words of size d."""
    x = torch.randn(1, 1, n, d)
    score, softmax = ScaledDotScore(d), Softmax()
    reach = n if fault == "full attention for the window" else WINDOW
    near = torch.randn(n, 2 * reach + 1, d) if reach < n else None
    conv, lstm = nn.Conv1d(d, d, KERNEL, padding=1), nn.LSTM(d, d, batch_first=True)
    with torch.no_grad():
        return {
            "self-attention": cpu_seconds(lambda: attention(x, x, x, score, softmax)),
            "restricted": cpu_seconds(
                (lambda: attention(x, x, x, score, softmax))
                if near is None
                else lambda: (x[0, 0, :, None] * near).sum(-1).softmax(-1)[:, None] @ near
            ),
            "convolution": cpu_seconds(lambda: conv(x[0].mT)),
            "recurrent": cpu_seconds(lambda: lstm(x[0]), rounds=2),
        }


def _measure(seed: int, setup: Setup) -> Measurement:
    by_length = {n: parts(n, 64, setup.fault) for n in LENGTHS}
    by_size = {d: parts(64, d, "") for d in SIZES}
    names, numbers = list(by_length[LENGTHS[0]]), {}
    curves: dict[str, dict[str, Points]] = {"length": {}, "size": {}}
    for name in names:
        over_n, over_d = ([table[key][name] for key in table] for table in (by_length, by_size))
        numbers[f"n, {name}"] = slope([*map(float, LENGTHS)], over_n)
        numbers[f"d, {name}"] = slope([*map(float, SIZES)], over_d)
        curves["length"][name] = list(zip(map(float, LENGTHS), [1e3 * t for t in over_n], strict=True))
        curves["size"][name] = list(zip(map(float, SIZES), [1e3 * t for t in over_d], strict=True))
    counted = [(n, d) for n in (32, 64) for d in (16, 48)]
    numbers["products"] = max(abs(products(n, d) / (4 * n * d * d + 2 * n * n * d) - 1) for n, d in counted)
    return Measurement(numbers, curves)


def _exponent(quantity: str, sentence: str, power: float, setting: str) -> PredictedRange:
    return PredictedRange(quantity, f"exponent of {sentence}: {power:g} ± 0.3", power - 0.3, power + 0.3, setting)


CLAIM = Claim(
    id="C1",
    title="What a layer costs",
    sentence="Per layer: self-attention n²·d, recurrent n·d², convolution k·n·d², restricted attention r·n·d.",
    source="notes 001; Vaswani 2017, table 1",
    kind="exact",
    predictions=(
        PredictedRange(
            "products", "counted products of a whole layer, against 4nd² + 2n²d: relative error", 0, 1e-9, "counted"
        ),
        _exponent("n, self-attention", "n in the time of QKᵀV", 2, "time over n, d = 64"),
        _exponent("n, restricted", f"n in the time of a window of {WINDOW}", 1, "time over n, d = 64"),
        _exponent("n, convolution", "n in the time of a convolution", 1, "time over n, d = 64"),
        _exponent("n, recurrent", "n in the time of an LSTM", 1, "time over n, d = 64"),
        _exponent("d, self-attention", "d in the time of QKᵀV", 1, "time over d, n = 64"),
        _exponent("d, convolution", "d in the time of a convolution", 2, "time over d, n = 64"),
        _exponent("d, recurrent", "d in the time of an LSTM", 2, "time over d, n = 64"),
    ),
    measure=_measure,
    seconds=0.5,
    depends_on="The products are exact. Times follow them only where products are what takes the time: at small d the "
    "softmax of n² scores, at small n the start of every operation. n² d is QKᵀV alone; a whole layer has 4nd² more. "
    "Only the plain function was timed, in one thread; fused kernels and GPUs were not.",
    figures=(
        Figure("length", "time over the length, d = 64", "n", "ms of CPU", True, True),
        Figure("size", "time over the size, n = 64", "d", "ms of CPU", True, True),
    ),
    faults={"full attention for the window": "the window sees all words, so its time grows with n²"},
    timed=True,
    seeds=5,
    most_seeds=7,
)
