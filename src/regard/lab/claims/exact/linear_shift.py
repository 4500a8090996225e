"""C7: one matrix moves every sinusoidal position k further."""

import torch
from torch import Tensor

from regard.lab.claim import Claim, Figure, Measurement, PredictedRange, Setup
from regard.nn import sinusoids

SIZE, COUNT, SHIFTS = 64, 256, [1, 5, 17, 64]


def residual(table: Tensor, k: int) -> float:
    """What the best single matrix leaves of PE(p + k), as a share of its size."""
    now, later = table[: COUNT - k], table[k:COUNT]
    matrix = torch.linalg.lstsq(now, later, driver="gelsd").solution
    return float((now @ matrix - later).norm() / later.norm())


def _measure(seed: int, setup: Setup) -> Measurement:
    learned = torch.randn(COUNT, SIZE, dtype=torch.float64)
    waves = learned if setup.fault == "a learned table" else sinusoids(torch.arange(COUNT), SIZE)
    left = {
        "sinusoidal": [residual(waves, k) for k in SHIFTS],
        "a random table": [residual(learned, k) for k in SHIFTS],
    }
    numbers = {"sinusoidal": max(left["sinusoidal"]), "table": min(left["a random table"])}
    curves = {
        name: [(float(k), max(v, 1e-17)) for k, v in zip(SHIFTS, values, strict=True)] for name, values in left.items()
    }
    return Measurement(numbers, {"residual": curves})


CLAIM = Claim(
    id="C7",
    title="Moving a position is linear",
    sentence="PE(p + k) is a linear function of PE(p), the same for every p.",
    source="the notes; Vaswani 2017, 3.5",
    kind="exact",
    predictions=(
        PredictedRange(
            "sinusoidal", "what the best matrix leaves of PE(p + k), k = 1 to 64: nothing but rounding", 0, 1e-10
        ),
        PredictedRange("table", "the same for a table of random vectors, the control: at least a tenth", 0.1),
    ),
    measure=_measure,
    seconds=0.1,
    depends_on="A property of the vectors. Whether a model uses it is not shown by it.",
    figures=(Figure("residual", "what one matrix leaves", "k", "share that is left", True, True),),
    faults={"a learned table": "a table of vectors in place of the sines"},
    seeds=3,
)
