"""C28: with pretraining, is a larger model better on a tiny labelled set?"""

from functools import cache

import torch
from torch import Tensor, nn

from regard.data import embedded
from regard.lab.claim import Claim, Figure, Measurement, PredictedRange, Setup, TextExperiment
from regard.lab.corpus import PAD, WordEncoder, drawn, encoded, english, entries, masked
from regard.lab.tiny import fit
from regard.models.batch import RaggedRows

STEPS, TUNING, SIZES, CLASSES, EACH, TEST = 250, 120, (16, 64), 20, 4, 600


@cache
def labelled() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Sentences of the twenty commonest constructions with their number: four of each to learn from, and others."""
    pairs = embedded.pairs("train")[20_000:]  # none that is pretrained on
    counts: dict[str, int] = {}
    for pair in pairs:
        counts[pair.construction] = counts.get(pair.construction, 0) + 1
    names = sorted(counts, key=lambda name: -counts[name])[:CLASSES]
    few: list[tuple[str, int]] = []
    rest: list[tuple[str, int]] = []
    for pair in pairs:
        if pair.construction in names:
            n = names.index(pair.construction)
            (few if sum(own == n for _, own in few) < EACH else rest).append((pair.source, n))
    return _rows(few), _rows(rest[:TEST])


def _rows(sentences: list[tuple[str, int]]) -> tuple[Tensor, Tensor]:
    ids = RaggedRows.of([encoded(text) for text, _ in sentences]).padded(PAD)[0]
    return torch.from_numpy(ids), torch.tensor([n for _, n in sentences])


class Labeller(nn.Module):
    """The class of a sentence from the mean of its states."""

    def __init__(self, encoder: WordEncoder, size: int) -> None:
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(size, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        real = (ids != PAD)[..., None]
        return self.head((self.encoder.states(ids) * real).sum(1) / real.sum(1))


def tuned_accuracy(seed: int, size: int, pretrain: bool) -> float:
    torch.manual_seed(seed)
    encoder, rows = WordEncoder(entries(), size, layers=2, heads=4), english("train")
    if pretrain:
        fit(encoder, lambda: masked(drawn(rows)), STEPS, 5e-3)
    (ids, labels), (test_ids, test_labels) = labelled()
    model = Labeller(encoder, size)

    def draw() -> tuple[Tensor, Tensor]:
        chosen = torch.randint(len(ids), (16,))
        return ids[chosen], labels[chosen]

    fit(model, draw, TUNING, 3e-3)
    with torch.no_grad():
        return float((model(test_ids).argmax(-1) == test_labels).double().mean())


def _measure(seed: int, setup: Setup) -> Measurement:
    first = setup.fault != "nothing is pretrained"
    right = {(size, pre): tuned_accuracy(seed, size, pre and first) for size in SIZES for pre in (True, False)}
    small, large = SIZES
    numbers = {"size": right[large, True] - right[small, True], "pretraining": right[large, True] - right[large, False]}
    curves = {name: [(float(size), right[size, pre]) for size in SIZES] for name, pre in
              (("pretrained", True), ("from scratch", False))}  # fmt: skip
    return Measurement(numbers, {"accuracy": curves})


CLAIM = Claim(
    id="C28",
    title="Size helps small tasks",
    sentence="With pretraining, larger models help tasks with few examples.",
    source="notes 003; Devlin 2019, 5.2",
    kind="screen",
    predictions=(
        PredictedRange("size", "accuracy of a pretrained model of 64 less one of 16: at least 0.03", 0.03,
                       setting="size"),
        PredictedRange("pretraining", "accuracy of the model of 64, pretrained less from scratch: at least 0.05",
                       0.05, setting="pretraining"),
    ),
    measure=_measure,
    seconds=8.0,
    seeds=3,
    most_seeds=6,
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
            PredictedRange("small less tiny", "accuracy by 1,000 phrases of SST-2, 512 wide less 128: at least 1", 1),
            PredictedRange("gain of size", "that, less the same without pretraining: at least 0", 0),
        ),
        ("training.steps=300", "training.schedule.warmup=30", "data.train=[{set: 'glue/SST-2:train', weight: 0.015}]"),
        {"gain of size": {"small": 1, "tiny": -1, "small from scratch": -1, "tiny from scratch": 1}},
        {
            "small": ("bert-small-wikitext2", "training.steps=1200"),
            "tiny": ("bert-small-wikitext2", "training.steps=1200", "model.preset=tiny"),
        },
        metric="accuracy",
        seeds=3,
        most_seeds=5,
        seconds=80,
    ),
)  # fmt: skip
