"""C13: LayerNorm or BatchNorm, where sentences have different lengths and batches are small."""

import torch
from torch import Tensor

from regard.lab.claim import Claim, Figure, Measurement, PredictedRange, Setup, TextExperiment
from regard.lab.tiny import TinyEncoder, fit, share_right

ENTRIES, LONGEST, STEPS, BATCH = 12, 16, 300, 4


def sentences(rows: int) -> tuple[Tensor, Tensor]:
    """Name the word before, in sentences of 3 to 16 words; word 0 is padding."""
    ids = torch.randint(1, ENTRIES, (rows, LONGEST))
    lengths = torch.randint(3, LONGEST + 1, (rows, 1))
    ids = ids.masked_fill(torch.arange(LONGEST) >= lengths, 0)
    labels = ids.roll(1, 1)
    labels[:, 0] = -100
    return ids, labels.masked_fill(ids == 0, -100)


class Padded(TinyEncoder):
    """The encoder with its padding masked."""

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(ids, ids != 0)


def _measure(seed: int, setup: Setup) -> Measurement:
    test, right, losses = sentences(64), {}, {}
    for name in ("layer", "batch", "none"):
        torch.manual_seed(seed)
        norm = "layer" if setup.fault == "LayerNorm for all" else name
        model = Padded(ENTRIES, layers=2, norm=norm)
        losses[name] = fit(model, lambda: sentences(BATCH), STEPS, 3e-3)
        right[name] = share_right(model, *test)
    numbers = {"gain": right["layer"] - right["batch"], "gain over none": right["layer"] - right["none"]}
    curves = {name: [(float(n), values[n]) for n in range(0, STEPS, 5)] for name, values in losses.items()}
    return Measurement(numbers, {"loss": curves})


CLAIM = Claim(
    id="C13",
    title="LayerNorm for text",
    sentence="For text LayerNorm is better than BatchNorm, since lengths differ and batches are small.",
    source="notes 001",
    kind="screen",
    predictions=(
        PredictedRange("gain", "accuracy with LayerNorm less that with BatchNorm, batches of 4: at least 0.05", 0.05),
    ),
    measure=_measure,
    seconds=3.5,
    depends_on="Two layers, batches of four sentences, one rate for all. The curves show no norm at all beside; with "
    "larger batches BatchNorm's averages are better, which was not tried here.",
    figures=(Figure("loss", "training loss", "step", ""),),
    faults={"LayerNorm for all": "all have LayerNorm"},
    on_text=TextExperiment(
        "multi30k-en-de",
        {name: (f"model.norm={name}",) for name in ("layer", "batch", "none")},
        (PredictedRange("batch less layer", "loss, BatchNorm less LayerNorm: at least 0.02", 0.02),),
    ),
)
