"""C15: the future mask leaks nothing, and one pass does what T steps do."""

import torch
from torch import Tensor, nn

from regard.lab.claim import Claim, Figure, Measurement, Setup, exactly, lower_bound, upper_bound
from regard.lab.tiny import attention_layer, points, seconds_of

SIZE, LENGTH, TIMED = 32, 24, [16, 32, 64, 128]


def leak(model: nn.Module) -> float:
    """The greatest derivative of an output by an input that comes later."""
    x, worst = torch.randn(1, LENGTH, SIZE, dtype=torch.float64, requires_grad=True), 0.0
    y = model(x)
    for t in (0, LENGTH // 2, LENGTH - 2):
        (gradient,) = torch.autograd.grad(y[0, t].sum(), x, retain_graph=True)
        worst = max(worst, float(gradient[0, t + 1 :].abs().max()))
    return worst


def step_by_step(model: nn.Module, x: Tensor) -> Tensor:
    return torch.cat([model(x[:, : t + 1])[:, -1:] for t in range(x.shape[1])], 1)


def _measure(seed: int, setup: Setup) -> Measurement:
    layers = (attention_layer(SIZE, 2, causal=not setup.fault, position="rotary") for _ in range(2))
    model = nn.Sequential(*layers).double()
    leaked = leak(model)

    def speed(n: int) -> float:
        x = torch.randn(1, n, SIZE, dtype=torch.float64)
        once = seconds_of(lambda: model(x))
        return seconds_of(lambda: step_by_step(model, x), rounds=2) / once

    with torch.no_grad():
        x = torch.randn(1, LENGTH, SIZE, dtype=torch.float64)
        difference = float((model(x) - step_by_step(model, x)).abs().max())
        speeds = [speed(n) for n in TIMED]
    numbers = {"leak": leaked, "difference": difference, "speed": speeds[-1]}
    return Measurement(numbers, {"speed": {"": points(TIMED, speeds)}})


CLAIM = Claim(
    title="The future mask",
    sentence="The mask hides the future, so all positions of a sentence can be learned in one pass.",
    source="notes 000, 001; Vaswani 2017, 3.2.3",
    predictions=(
        exactly("leak", "derivative of an output by any later input: exactly nothing", 0),
        upper_bound("difference", "difference of one pass and of reading word by word: rounding (float64)", 1e-12),
        lower_bound("speed", "time of T = 128 steps as a multiple of one pass", 20),
    ),
    measure=_measure,
    seconds=0.7,
    depends_on="The zeros are exact, whatever is computed. The gain in time grows with T; steps here read the whole "
    "prefix again, as training word by word would, without a cache.",
    figures=(Figure("speed", "time of T steps against one pass", "T", "times", True, True),),
    faults={"a leaking mask": "no mask at all"},
    timed=True,
    seeds=(3, 10),
)
