"""C4: products of long queries and keys saturate the softmax; 1/√d_k repairs it."""

import torch
from torch import Tensor

from regard.lab.claim import Claim, Figure, Measurement, PredictedRange, Setup, upper_bound
from regard.lab.tiny import points
from regard.nn import MultiHeadAttention

SIZES, KEYS, DRAWS = [16, 64, 256, 1024], 32, 400


def jacobian_norm(scores: Tensor) -> float:
    """Mean Frobenius norm of ∂softmax; for weights w it is √(Σw² − 2Σw³ + (Σw²)²)."""
    w = scores.double().softmax(-1)
    squares = (w**2).sum(-1)
    return float((squares - 2 * (w**3).sum(-1) + squares**2).clamp(min=0).sqrt().mean())


def projected_variance(d_k: int) -> float:
    """Of q·k over d_k, of a fresh attention with one head and normalised states, q and k each of unit deviation."""
    attention = MultiHeadAttention(d_k, 1)
    x = torch.nn.functional.layer_norm(torch.randn(64, KEYS, d_k), (d_k,))
    q, k = attention.query(x), attention.key_value(x)[..., :d_k]
    return float(torch.einsum("bqd,bkd->bqk", q / q.std(), k / k.std()).var() / d_k)


@torch.no_grad()
def _measure(seed: int, setup: Setup) -> Measurement:
    power = {"no scale": 0.0, "d_k instead of √d_k": 1.0}.get(setup.fault, 0.5)
    plain, scaled, variance, scaled_variance = [], [], [], []
    for d_k in SIZES:
        q, k = torch.randn(DRAWS, 1, d_k), torch.randn(DRAWS, KEYS, d_k)
        scores = (q * k).sum(-1)  # [draws, keys]
        many = (torch.randn(40_000, d_k) * torch.randn(40_000, d_k)).sum(-1)
        variance.append(float(many.var()) / d_k)
        scaled_variance.append(float((many * d_k**-power).var()))
        plain.append(jacobian_norm(scores))
        scaled.append(jacobian_norm(scores * d_k**-power))
    numbers = {
        "variance": variance[-1],
        "scaled variance": scaled_variance[-1],
        "slope": plain[-1] / plain[0],
        "scaled slope": scaled[-1] / scaled[0],
        "projected": projected_variance(256),
    }
    return Measurement(numbers, {"slope": {"qᵀk": points(SIZES, plain), "qᵀk / √d_k": points(SIZES, scaled)}})


CLAIM = Claim(
    title="Why 1/√d_k",
    sentence="For large d_k the products grow, and the softmax has hardly a slope; dividing by √d_k repairs it.",
    source="notes 001, 004; Vaswani 2017, 3.2.1",
    predictions=(
        PredictedRange("variance", "variance of q·k as a multiple of d_k, at d_k = 1,024", 0.98, 1.02),
        PredictedRange("scaled variance", "variance of q·k/√d_k at d_k = 1,024", 0.98, 1.02),
        upper_bound("slope", "slope of the softmax at d_k = 1,024 as a share of that at 16, unscaled", 0.5),
        PredictedRange("scaled slope", "the same, scaled", 0.9, 1.1),
        PredictedRange("projected", "variance as a multiple of d_k = 256 after fresh projections", 0.8, 1.2),
    ),
    measure=_measure,
    seconds=0.8,
    depends_on="Queries and keys of unit variance, independent, as at the beginning of training. What training "
    "makes of them is another question (C5). Some notes divide by √d, the size of the embedding: right "
    "is d_k, that of one head.",
    figures=(Figure("slope", "slope of the softmax over 32 keys", "d_k", "‖∂softmax‖", True),),
    faults={"d_k instead of √d_k": "scores are divided by d_k", "no scale": "scores are not divided"},
)
