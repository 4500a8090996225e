"""C18: 80/10/10 against [MASK] alone, by what frozen states of unmasked text know."""

import torch

from regard.lab.claim import Claim, Figure, Measurement, Points, PredictedRange, Setup, TextExperiment
from regard.lab.corpus import PAD, WordEncoder, drawn, english, entries, head_offsets, masked, probe
from regard.lab.tiny import fit, share_right

STEPS, SIZE, TRAIN, TEST = 250, 48, 1500, 700
KINDS = {"80/10/10": (0.8, 0.1), "100/0/0": (1.0, 0.0)}


def _measure(seed: int, setup: Setup) -> Measurement:
    rows, knows, names = english("train"), {}, {}
    losses: dict[str, Points] = {}
    for name, kinds in KINDS.items():
        torch.manual_seed(seed)
        own = KINDS["80/10/10"] if setup.fault == "80/10/10 for both" else kinds
        model = WordEncoder(entries(), SIZE, layers=2, heads=4)
        every = fit(model, lambda: masked(drawn(rows), own), STEPS, 5e-3)  # noqa: B023
        losses[name] = [(float(n), every[n]) for n in range(0, STEPS, 10)]
        with torch.no_grad():
            train, test = model.states(english("train", TRAIN)), model.states(english("valid", TEST))
        knows[name] = probe((train, head_offsets("train", TRAIN)), (test, head_offsets("valid", TEST)))
        ids = english("valid", TEST)
        names[name] = share_right(model, ids, ids.masked_fill(ids == PAD, -100))
    both = "80/10/10", "100/0/0"
    numbers = {key: found[both[0]] - found[both[1]] for key, found in (("trees", knows), ("words", names))}
    return Measurement(numbers, {"loss": losses})


CLAIM = Claim(
    id="C18",
    title="80/10/10",
    sentence="Replacing 80% by [MASK], 10% by other words and 10% by nothing removes the mismatch with text that has "
    "no [MASK].",
    source="notes 003; Devlin 2019, 3.1 and C.2",
    kind="screen",
    predictions=(
        PredictedRange(
            "words", "share of unmasked words that the model names, 80/10/10 less 100/0/0: at least 0.1", 0.1,
            setting="the word itself",
        ),
        PredictedRange(
            "trees", "accuracy of a linear map from frozen states to where a word's head stands, likewise: at least "
            "0.01",
            0.01, setting="the tree",
        ),
    ),
    measure=_measure,
    seconds=6.0,
    seeds=3,
    most_seeds=6,
    depends_on="Two layers of 48, 250 steps on the embedded corpus, features from the last layer. Fine-tuning can undo "
    "a mismatch, which frozen features cannot; on text both are the full experiment.",
    figures=(Figure("loss", "training loss of masked words", "step", "nats"),),
    faults={"80/10/10 for both": "both are masked alike"},
    on_text=TextExperiment(
        "sst2-bert-small",
        {"80/10/10": ("training.init=@mixed",), "100/0/0": ("training.init=@masked",)},
        (PredictedRange("80/10/10 less 100/0/0", "SST-2's accuracy, 80/10/10 less 100/0/0: at least 0.3", 0.3),),
        ("training.steps=1000", "training.schedule.warmup=100"),
        pretrained={
            "mixed": ("bert-small-wikitext2", "training.steps=1200"),
            "masked": ("bert-small-wikitext2", "training.steps=1200", "task.masking={masked: 1.0, random: 0.0}"),
        },
        metric="accuracy",
        seeds=3,
        most_seeds=5,
        seconds=100,
    ),
)  # fmt: skip
