"""C4: products of long queries and keys saturate the softmax; 1/√d_k repairs it."""

import torch
from torch import Tensor

from regard.lab.claim import Claim, Figure, Measurement, PredictedRange, Setup
from regard.nn import MultiHeadAttention

SIZES, KEYS, DRAWS = [16, 64, 256, 1024], 32, 400


def jacobian_norm(scores: Tensor) -> float:
    """Mean Frobenius norm of ∂softmax; for weights w it is √(Σw² − 2Σw³ + (Σw²)²)."""
    w = scores.double().softmax(-1)
    squares = (w**2).sum(-1)
    return float((squares - 2 * (w**3).sum(-1) + squares**2).clamp(min=0).sqrt().mean())


def projected(d_k: int) -> tuple[Tensor, Tensor]:
    """Queries and keys of a fresh attention with one head, of normalised states, each divided by its own deviation."""
    attention = MultiHeadAttention(d_k, 1)
    x = torch.nn.functional.layer_norm(torch.randn(64, KEYS, d_k), (d_k,))
    q, k = attention.query(x), attention.key_value(x)[..., :d_k]
    return q / q.std(), k / k.std()


@torch.no_grad()
def _measure(seed: int, setup: Setup) -> Measurement:
    power = {"no scale": 0.0, "d_k instead of √d_k": 1.0}.get(setup.fault, 0.5)
    plain, scaled, ratios, ratios_scaled = [], [], [], []
    for d_k in SIZES:
        q, k = torch.randn(DRAWS, 1, d_k), torch.randn(DRAWS, KEYS, d_k)
        scores = (q * k).sum(-1)  # [draws, keys]
        many = (torch.randn(40_000, d_k) * torch.randn(40_000, d_k)).sum(-1)
        ratios.append(float(many.var()) / d_k)
        ratios_scaled.append(float((many * d_k**-power).var()))
        plain.append(jacobian_norm(scores))
        scaled.append(jacobian_norm(scores * d_k**-power))
    q, k = projected(256)
    own = torch.einsum("bqd,bkd->bqk", q, k).var() / 256
    numbers = {
        "variance": ratios[-1],
        "scaled variance": ratios_scaled[-1],
        "slope": plain[-1] / plain[0],
        "scaled slope": scaled[-1] / scaled[0],
        "projected": float(own),
    }
    curves = {
        "slope": {
            "qᵀk": list(zip(map(float, SIZES), plain, strict=True)),
            "qᵀk / √d_k": list(zip(map(float, SIZES), scaled, strict=True)),
        }
    }
    return Measurement(numbers, curves)


CLAIM = Claim(
    id="C4",
    title="Why 1/√d_k",
    sentence="For large d_k the products grow, and the softmax has hardly a slope; dividing by √d_k repairs it.",
    source="notes 001, 004; Vaswani 2017, 3.2.1",
    kind="exact",
    predictions=(
        PredictedRange("variance", "variance of q·k as a multiple of d_k, at d_k = 1,024: 1 ± 2%", 0.98, 1.02),
        PredictedRange("scaled variance", "variance of q·k/√d_k at d_k = 1,024: 1 ± 2%", 0.98, 1.02),
        PredictedRange(
            "slope", "slope of the softmax at d_k = 1,024 as a share of that at 16, unscaled: less than a half", 0, 0.5
        ),
        PredictedRange("scaled slope", "the same, scaled: 1 ± 10%", 0.9, 1.1),
        PredictedRange("projected", "variance as a multiple of d_k = 256 after fresh projections: 1 ± 20%", 0.8, 1.2),
    ),
    measure=_measure,
    seconds=0.8,
    depends_on="Queries and keys of unit variance, independent, as at the beginning of training. What training "
    "makes of them is another question (C5). Some notes divide by √d, the size of the embedding: right "
    "is d_k, that of one head.",
    figures=(Figure("slope", "slope of the softmax over 32 keys", "d_k", "‖∂softmax‖", True),),
    faults={"d_k instead of √d_k": "scores are divided by d_k", "no scale": "scores are not divided"},
)
