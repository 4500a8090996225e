"""C3: how many layers, or steps, lie between two words; counted by gradients that are exactly zero."""

import torch
from torch import Tensor, nn

from regard.lab.claim import Claim, Figure, Measurement, Setup, exactly
from regard.lab.tiny import points
from regard.nn import MultiHeadAttention

SIZE, LENGTHS, KERNEL = 8, [9, 17, 33], 5


def inputs(*shape: int) -> Tensor:
    return torch.randn(*shape, SIZE, dtype=torch.float64, requires_grad=True)


def reaches(layer: nn.Module, n: int, depth: int) -> float:
    """The greatest derivative of the last output by the first input, after so many layers."""
    x = y = inputs(1, n)
    for _ in range(depth):
        y = layer(y)
    (gradient,) = torch.autograd.grad(y[0, -1].sum(), x)
    return float(gradient[0, 0].abs().max())


def layers_needed(layer: nn.Module, n: int) -> int:
    return next((depth for depth in range(1, n + 1) if reaches(layer, n, depth) > 0), n + 1)


def steps_needed(n: int) -> int:
    """Calls of a recurrent cell from the first word until the last word's output."""
    cell, count = nn.LSTMCell(SIZE, SIZE).double(), 0
    x = inputs(n, 1)
    state = cell(x[0])
    while count < n - 1:
        count += 1
        state = cell(x[count], state)
    (gradient,) = torch.autograd.grad(state[0].sum(), x)
    return count if float(gradient[0].abs().max()) > 0 else n + 1


def _measure(seed: int, setup: Setup) -> Measurement:
    pattern = "full" if setup.fault else f"window({KERNEL // 2})"
    full, window = MultiHeadAttention(SIZE, 1).double(), MultiHeadAttention(SIZE, 1, pattern=pattern).double()
    counts = [(layers_needed(full, n), layers_needed(window, n), steps_needed(n)) for n in LENGTHS]
    attention, windows, steps = zip(*counts, strict=True)
    last = LENGTHS[-1]
    wanted = [-(-2 * (n - 1) // (KERNEL - 1)) for n in LENGTHS]  # rounded up
    numbers = {
        "attention": float(max(attention)),
        "recurrent": float(max(abs(own - (n - 1)) for n, own in zip(LENGTHS, steps, strict=True))),
        "window": max(abs(own - right) for own, right in zip(windows, wanted, strict=True)),
        "too early": reaches(window, last, -(-last // KERNEL)),
    }
    names = ("self-attention, layers", f"window of {KERNEL}, layers", "LSTM, steps")
    curves = {name: points(LENGTHS, own) for name, own in zip(names, (attention, windows, steps), strict=True)}
    return Measurement(numbers, {"path": curves})


CLAIM = Claim(
    title="Paths between words",
    sentence="Two words n apart meet after O(1) layers of self-attention, O(n) recurrent steps, O(n/k) windows of k.",
    source="notes 000, 004; Vaswani 2017, table 1",
    predictions=(
        exactly("attention", "layers of self-attention until the first word reaches the last", 1),
        exactly("recurrent", "recurrent steps beyond n − 1", 0),
        exactly("window", "layers of centred windows beyond ⌈2(n−1)/(k−1)⌉", 0),
        exactly("too early", "derivative after ⌈n/k⌉ layers, as the notes count: exactly nothing", 0),
    ),
    measure=_measure,
    seconds=0.2,
    depends_on="The growth is as claimed, the count is not: a centred window of k reaches (k−1)/2 words to each "
    "side, so n/k layers are about half of what is needed.",
    figures=(Figure("path", "layers or steps between two words", "words apart", "", True, True),),
    faults={"windows without a mask": "the window sees every word"},
    seeds=(3, 10),
)
