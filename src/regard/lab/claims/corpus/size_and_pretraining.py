"""C28: with pretraining, is a larger model better on a tiny labelled set?"""

from collections import Counter
from functools import cache

import torch
from torch import Tensor, nn

from regard.data import embedded
from regard.lab.claim import Claim, Figure, Measurement, Setup, TextExperiment, lower_bound
from regard.lab.corpus import PAD, WordEncoder, encoded, masked_encoder, padded
from regard.lab.tiny import FittedModel, fit, points

STEPS, TUNING, SIZES, CLASSES, EACH, TEST = 250, 120, (16, 64), 20, 4, 600
PRETRAINED = ("bert-small-wikitext2", "training.steps=1200")


@cache
def labelled() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Sentences of the twenty commonest constructions with their number: four of each to learn from, and others."""
    pairs = embedded.pairs("train")[20_000:]  # none that is pretrained on
    counts = Counter(pair.construction for pair in pairs)
    numbers = {name: n for n, (name, _) in enumerate(counts.most_common(CLASSES))}
    seen: Counter[int] = Counter()
    few: list[tuple[list[int], int]] = []
    rest: list[tuple[list[int], int]] = []
    for pair in (each for each in pairs if each.construction in numbers):
        n = numbers[pair.construction]
        seen[n] += 1
        (few if seen[n] <= EACH else rest).append((encoded(pair.source), n))
    (train, test) = (
        (padded([ids for ids, _ in part]), torch.tensor([n for _, n in part])) for part in (few, rest[:TEST])
    )
    return train, test


class Labeller(nn.Module):
    """The class of a sentence from the mean of its states."""

    def __init__(self, encoder: WordEncoder, size: int) -> None:
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(size, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        real = (ids != PAD)[..., None]
        return self.head((self.encoder.states(ids) * real).sum(1) / real.sum(1))


def tuned_accuracy(seed: int, size: int, pretrain: bool) -> float:
    model = Labeller(masked_encoder(seed, size, STEPS if pretrain else 0).model, size)
    (ids, labels), test = labelled()

    def draw() -> tuple[Tensor, Tensor]:
        chosen = torch.randint(len(ids), (16,))
        return ids[chosen], labels[chosen]

    return FittedModel(model, fit(model, draw, TUNING, 3e-3)).right(*test)


def _measure(seed: int, setup: Setup) -> Measurement:
    scratch = [tuned_accuracy(seed, size, False) for size in SIZES]
    pretrained = scratch if setup.fault else [tuned_accuracy(seed, size, True) for size in SIZES]
    numbers = {"size": pretrained[1] - pretrained[0], "pretraining": pretrained[1] - scratch[1]}
    curves = {"pretrained": points(SIZES, pretrained), "from scratch": points(SIZES, scratch)}
    return Measurement(numbers, {"accuracy": curves})


CLAIM = Claim(
    title="Size helps small tasks",
    sentence="With pretraining, larger models help tasks with few examples.",
    source="notes 003; Devlin 2019, 5.2",
    predictions=(
        lower_bound("size", "accuracy of a pretrained model of 64 less one of 16", 0.03),
        lower_bound("pretraining", "accuracy of the model of 64, pretrained less from scratch", 0.05),
    ),
    measure=_measure,
    seconds=8.0,
    seeds=(3, 6),
    depends_on="Sixteen against sixty-four numbers, which is not BERT base against large; eighty labelled sentences of "
    "twenty kinds. Without pretraining the curves show what size alone does.",
    figures=(Figure("accuracy", "kinds of sentences, 80 examples", "size", "accuracy"),),
    faults={"nothing is pretrained": "all begin with first weights"},
    on_text=TextExperiment(
        "sst2-bert-small",
        {
            "small": ("training.init=@small",),
            "tiny": ("training.init=@tiny", "model.preset=tiny"),
            "small from scratch": ("training.init=null",),
            "tiny from scratch": ("training.init=null", "model.preset=tiny"),
        },
        (
            lower_bound("small less tiny", "accuracy by 1,000 phrases of SST-2, 512 wide less 128", 1),
            lower_bound("gain of size", "that, less the same without pretraining", 0),
        ),
        ("training.steps=300", "training.schedule.warmup=30", "data.train=[{set: 'glue/SST-2:train', weight: 0.015}]"),
        {"gain of size": {"small": 1, "tiny": -1, "small from scratch": -1, "tiny from scratch": 1}},
        {"small": PRETRAINED, "tiny": (*PRETRAINED, "model.preset=tiny")},
        metric="accuracy",
        seeds=(3, 5),
        seconds=80,
    ),
)
