"""C1: what a layer costs, counted in products and measured in time."""

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from regard.lab.claim import Claim, Figure, Measurement, Points, PredictedRange, Setup, upper_bound
from regard.lab.tiny import exponent, points, seconds_of
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
    """Seconds of what the notes count, for one sentence of n words of size d."""
    x = torch.randn(1, 1, n, d)
    score, softmax = ScaledDotScore(d), Softmax()
    reach = n if fault else WINDOW
    near = torch.randn(n, 2 * reach + 1, d) if reach < n else None
    conv, lstm = nn.Conv1d(d, d, KERNEL, padding=1), nn.LSTM(d, d, batch_first=True)

    def restricted() -> object:
        if near is None:
            return attention(x, x, x, score, softmax)
        return (x[0, 0, :, None] * near).sum(-1).softmax(-1)[:, None] @ near

    with torch.no_grad():
        return {
            "self-attention": seconds_of(lambda: attention(x, x, x, score, softmax)),
            "restricted": seconds_of(restricted),
            "convolution": seconds_of(lambda: conv(x[0].mT)),
            "recurrent": seconds_of(lambda: lstm(x[0]), rounds=2),
        }


def _measure(seed: int, setup: Setup) -> Measurement:
    scale = 1 if setup.device == "cpu" else 16  # so that a GPU has something to do
    lengths, sizes = ([scale * value for value in values] for values in (LENGTHS, SIZES))
    tables = {
        "length": ("n", lengths, [parts(n, 64, setup.fault) for n in lengths]),
        "size": ("d", sizes, [parts(64, d, "") for d in sizes]),
    }
    numbers: dict[str, float] = {}
    curves: dict[str, dict[str, Points]] = {}
    for axis, (letter, values, rows) in tables.items():
        times = {name: [row[name] for row in rows] for name in rows[0]}
        numbers |= {f"{letter}, {name}": exponent(values, seconds) for name, seconds in times.items()}
        curves[axis] = {name: points(values, [1e3 * t for t in seconds]) for name, seconds in times.items()}
    counted = [(n, d) for n in (32, 64) for d in (16, 48)]
    numbers["products"] = max(abs(products(n, d) / (4 * n * d * d + 2 * n * n * d) - 1) for n, d in counted)
    return Measurement(numbers, curves)


def _exponent(letter: str, name: str, what: str, power: float) -> PredictedRange:
    setting = "time over n, d = 64" if letter == "n" else "time over d, n = 64"
    sentence = f"exponent of {letter} in the time of {what}: {power:g} ± 0.3"
    return PredictedRange(f"{letter}, {name}", sentence, power - 0.3, power + 0.3, setting)


CLAIM = Claim(
    title="What a layer costs",
    sentence="Per layer: self-attention n²·d, recurrent n·d², convolution k·n·d², restricted attention r·n·d.",
    source="notes 001; Vaswani 2017, table 1",
    predictions=(
        upper_bound(
            "products", "counted products of a whole layer, against 4nd² + 2n²d: relative error", 1e-9, "counted"
        ),
        _exponent("n", "self-attention", "QKᵀV", 2),
        _exponent("n", "restricted", f"a window of {WINDOW}", 1),
        _exponent("n", "convolution", "a convolution", 1),
        _exponent("n", "recurrent", "an LSTM", 1),
        _exponent("d", "self-attention", "QKᵀV", 1),
        _exponent("d", "convolution", "a convolution", 2),
        _exponent("d", "recurrent", "an LSTM", 2),
    ),
    measure=_measure,
    seconds=0.5,
    depends_on="The products are exact. Times follow them only where products are what takes the time: at small d the "
    "softmax of n² scores, at small n the start of every operation. n² d is QKᵀV alone; a whole layer has 4nd² more. "
    "Only the plain function was timed, and one thread of a CPU; fused kernels were not.",
    figures=(
        Figure("length", "time over the length, d = 64", "n", "ms", True, True),
        Figure("size", "time over the size, n = 64", "d", "ms", True, True),
    ),
    faults={"full attention for the window": "the window sees all words, so its time grows with n²"},
    timed=True,
    seeds=(5, 7),
)
