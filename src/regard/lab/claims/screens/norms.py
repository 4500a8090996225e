"""C13: LayerNorm or BatchNorm, where sentences have different lengths and batches are small."""

import torch
from torch import Tensor

from regard.lab.claim import Claim, Figure, Measurement, Setup, TextExperiment, lower_bound
from regard.lab.corpus import WordEncoder
from regard.lab.tiny import learned

ENTRIES, LONGEST, STEPS, BATCH = 12, 16, 300, 4


def sentences(rows: int) -> tuple[Tensor, Tensor]:
    """Name the word before, in sentences of 3 to 16 words; word 0 is padding."""
    ids = torch.randint(1, ENTRIES, (rows, LONGEST))
    lengths = torch.randint(3, LONGEST + 1, (rows, 1))
    ids = ids.masked_fill(torch.arange(LONGEST) >= lengths, 0)
    labels = ids.roll(1, 1)
    labels[:, 0] = -100
    return ids, labels.masked_fill(ids == 0, -100)


def _measure(seed: int, setup: Setup) -> Measurement:
    test = sentences(64)
    models = {
        name: learned(seed, lambda: WordEncoder(ENTRIES, layers=2, norm="layer" if setup.fault else name),  # noqa: B023
                      lambda: sentences(BATCH), STEPS, 3e-3)
        for name in ("layer", "batch", "none")
    }  # fmt: skip
    right = {name: model.right(*test) for name, model in models.items()}
    numbers = {"gain": right["layer"] - right["batch"], "gain over none": right["layer"] - right["none"]}
    return Measurement(numbers, {"loss": {name: model.curve() for name, model in models.items()}})


CLAIM = Claim(
    title="LayerNorm for text",
    sentence="For text LayerNorm is better than BatchNorm, since lengths differ and batches are small.",
    source="notes 001",
    predictions=(lower_bound("gain", "accuracy with LayerNorm less that with BatchNorm, batches of 4", 0.05),),
    measure=_measure,
    seconds=3.5,
    depends_on="Two layers, batches of four sentences, one rate for all. The curves show no norm at all beside; with "
    "larger batches BatchNorm's averages are better, which was not tried here.",
    figures=(Figure("loss", "training loss", "step", ""),),
    faults={"LayerNorm for all": "all have LayerNorm"},
    on_text=TextExperiment(
        "multi30k-en-de",
        {name: (f"model.norm={name}",) for name in ("layer", "batch", "none")},
        (lower_bound("batch less layer", "loss, BatchNorm less LayerNorm", 0.02),),
    ),
)
