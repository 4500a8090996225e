"""C15: the future mask leaks nothing, and one pass does what T steps do."""

import torch

from regard.lab.claim import Claim, Figure, Measurement, PredictedRange, Setup
from regard.lab.tiny import attention_layer, cpu_seconds

SIZE, LENGTH, TIMED = 32, 24, [16, 32, 64, 128]


def leak(layers: torch.nn.ModuleList) -> float:
    """The greatest derivative of an output by an input that comes later."""
    x = torch.randn(1, LENGTH, SIZE, dtype=torch.float64, requires_grad=True)
    y, worst = x, 0.0
    for layer in layers:
        y = layer(y)
    for t in (0, LENGTH // 2, LENGTH - 2):
        (gradient,) = torch.autograd.grad(y[0, t].sum(), x, retain_graph=True)
        worst = max(worst, float(gradient[0, t + 1 :].abs().max()))
    return worst


def _measure(seed: int, setup: Setup) -> Measurement:
    causal = setup.fault != "a leaking mask"
    layers = torch.nn.ModuleList(attention_layer(SIZE, 2, causal=causal, position="rotary") for _ in range(2)).double()
    leaked = leak(layers)

    def all_at_once(x: torch.Tensor) -> torch.Tensor:
        for layer in layers:
            x = layer(x)
        return x

    def step_by_step(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([all_at_once(x[:, : t + 1])[:, -1:] for t in range(x.shape[1])], 1)

    with torch.no_grad():
        x = torch.randn(1, LENGTH, SIZE, dtype=torch.float64)
        difference = float((all_at_once(x) - step_by_step(x)).abs().max())
        points = []
        for n in TIMED:
            x = torch.randn(1, n, SIZE, dtype=torch.float64)
            once, steps = cpu_seconds(lambda: all_at_once(x)), cpu_seconds(lambda: step_by_step(x), rounds=2)  # noqa: B023
            points.append((float(n), steps / once))
    numbers = {"leak": leaked, "difference": difference, "speed": points[-1][1]}
    return Measurement(numbers, {"speed": {"T steps, as a multiple of one pass": points}})


CLAIM = Claim(
    id="C15",
    title="The future mask",
    sentence="The mask hides the future, so all positions of a sentence can be learned in one pass.",
    source="notes 000, 001; Vaswani 2017, 3.2.3",
    kind="exact",
    predictions=(
        PredictedRange("leak", "derivative of an output by any later input: exactly nothing", 0, 0),
        PredictedRange(
            "difference", "difference of one pass and of reading word by word: rounding (float64)", 0, 1e-12
        ),
        PredictedRange("speed", "time of T = 128 steps as a multiple of one pass: at least 20", 20),
    ),
    measure=_measure,
    seconds=0.7,
    depends_on="The zeros are exact, whatever is computed. The gain in time grows with T; steps here read the whole "
    "prefix again, as training word by word would, without a cache.",
    figures=(Figure("speed", "time of T steps against one pass", "T", "times", True, True),),
    faults={"a leaking mask": "no mask at all"},
    timed=True,
    seeds=3,
)
