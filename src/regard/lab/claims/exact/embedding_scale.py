"""C14: what √d does to the sizes of word vectors and positions."""

import torch

from regard.config import parse_config
from regard.lab.claim import Claim, Figure, Measurement, PredictedRange, Setup, upper_bound
from regard.lab.tiny import points
from regard.models import TransformerConfig
from regard.nn import sinusoids

SIZES, WORDS = [64, 256, 512], 1000
INITS = {"xavier": "words of deviation d^−½", "normal": "words of deviation 0.02"}


def ratio(size: int, init: str, scale: bool) -> float:
    """The norm of word vectors, as the first layer gets them, against that of sinusoidal positions."""
    keys = {"layers": 1, "size": size, "inner": 8, "heads": 1, "init": init, "scale_embedding": scale}
    embedding = parse_config(TransformerConfig, keys).build(WORDS, WORDS).source_embedding
    words = embedding(torch.arange(WORDS)).norm(dim=-1).mean()
    return float(words / sinusoids(torch.arange(64), size).norm(dim=-1).mean())


@torch.no_grad()
def _measure(seed: int, setup: Setup) -> Measurement:
    found = {
        f"{init}, {name}": [ratio(size, init, scale and not setup.fault) for size in SIZES]
        for init in INITS
        for name, scale in (("× √d", True), ("as they are", False))
    }
    curves = {name: points(SIZES, values) for name, values in found.items()}
    return Measurement({name: values[-1] for name, values in found.items()}, {"ratio": curves})


CLAIM = Claim(
    title="√d on embeddings",
    sentence="Multiplying word vectors by √d brings them to the size of the positions.",
    source="notes 001; Vaswani 2017, 3.4",
    predictions=tuple(
        prediction
        for init, words in INITS.items()
        for prediction in (
            PredictedRange(f"{init}, × √d", "norm of words × √d against that of positions, d = 512", 0.5, 2, words),
            upper_bound(f"{init}, as they are", "the same without the factor", 0.2, words),
        )
    ),
    measure=_measure,
    seconds=0.3,
    depends_on="Sizes of fresh weights. Both common inits are balanced at d = 512 by the factor; without it positions "
    "drown the words. With 0.02 the ratio grows with √d, so it holds for models of about that size. A note says that "
    "the factor lowers the risk of exploding gradients: it raises small vectors. Quality was not measured.",
    figures=(Figure("ratio", "norm of words against positions", "d", "ratio", True, True),),
    faults={"no factor": "words are not multiplied"},
)
