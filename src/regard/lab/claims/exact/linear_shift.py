"""C7: one matrix moves every sinusoidal position k further."""

import torch
from torch import Tensor

from regard.lab.claim import Claim, Figure, Measurement, Setup, lower_bound, upper_bound
from regard.lab.tiny import points
from regard.nn import sinusoids

SIZE, COUNT, SHIFTS = 64, 256, [1, 5, 17, 64]


def residual(table: Tensor, k: int) -> float:
    """What the best single matrix leaves of PE(p + k), as a share of its size."""
    now, later = table[: COUNT - k], table[k:COUNT]
    matrix = torch.linalg.lstsq(now, later, driver="gelsd").solution
    return float((now @ matrix - later).norm() / later.norm())


def _measure(seed: int, setup: Setup) -> Measurement:
    table = torch.randn(COUNT, SIZE, dtype=torch.float64)
    waves = table if setup.fault else sinusoids(torch.arange(COUNT), SIZE)
    sines, control = ([residual(each, k) for k in SHIFTS] for each in (waves, table))
    curves = {"sinusoidal": points(SHIFTS, [max(v, 1e-17) for v in sines]), "a random table": points(SHIFTS, control)}
    return Measurement({"sinusoidal": max(sines), "table": min(control)}, {"residual": curves})


CLAIM = Claim(
    title="Moving a position is linear",
    sentence="PE(p + k) is a linear function of PE(p), the same for every p.",
    source="the notes; Vaswani 2017, 3.5",
    predictions=(
        upper_bound("sinusoidal", "what the best matrix leaves of PE(p + k), k = 1 to 64: nothing but rounding", 1e-10),
        lower_bound("table", "the same for a table of random vectors", 0.1, control=True),
    ),
    measure=_measure,
    seconds=0.1,
    depends_on="A property of the vectors. Whether a model uses it is not shown by it.",
    figures=(Figure("residual", "what one matrix leaves", "k", "share that is left", True, True),),
    faults={"a learned table": "a table of vectors in place of the sines"},
    seeds=(3, 10),
)
