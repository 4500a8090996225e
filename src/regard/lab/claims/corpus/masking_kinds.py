"""C18: 80/10/10 against [MASK] alone, by what frozen states of unmasked text know."""

import torch

from regard.lab.claim import Claim, Figure, Measurement, Setup, TextExperiment, lower_bound
from regard.lab.corpus import PAD, english, head_offsets, masked_encoder, probe
from regard.lab.tiny import FittedModel

STEPS, SIZE, TRAIN, TEST = 250, 48, 1500, 700
KINDS = {"80/10/10": (0.8, 0.1), "100/0/0": (1.0, 0.0)}


@torch.no_grad()
def tree_accuracy(encoder: FittedModel) -> float:
    """What a linear map finds in the states of unmasked sentences: where a word's head stands."""
    train, test = encoder.model.states(english("train", TRAIN)), encoder.model.states(english("valid", TEST))
    return probe((train, head_offsets("train", TRAIN)), (test, head_offsets("valid", TEST)))


def _measure(seed: int, setup: Setup) -> Measurement:
    ids = english("valid", TEST)
    words = ids, ids.masked_fill(ids == PAD, -100)
    mixed, alone = (
        masked_encoder(seed, SIZE, STEPS, kinds=KINDS["80/10/10"] if setup.fault else own) for own in KINDS.values()
    )
    numbers = {"trees": tree_accuracy(mixed) - tree_accuracy(alone), "words": mixed.right(*words) - alone.right(*words)}
    return Measurement(numbers, {"loss": dict(zip(KINDS, (mixed.curve(10), alone.curve(10)), strict=True))})


CLAIM = Claim(
    title="80/10/10",
    sentence="Replacing 80% by [MASK], 10% by other words and 10% by nothing removes the mismatch with text that has "
    "no [MASK].",
    source="notes 003; Devlin 2019, 3.1 and C.2",
    predictions=(
        lower_bound("words", "share of unmasked words that the model names, 80/10/10 less 100/0/0", 0.1),
        lower_bound(
            "trees", "accuracy of a linear map from frozen states to where a word's head stands, likewise", 0.01
        ),
    ),
    measure=_measure,
    seconds=6.0,
    seeds=(3, 6),
    depends_on="Two layers of 48, 250 steps on the embedded corpus, features from the last layer. Fine-tuning can undo "
    "a mismatch, which frozen features cannot; on text both are the full experiment.",
    figures=(Figure("loss", "training loss of masked words", "step", "nats"),),
    faults={"80/10/10 for both": "both are masked alike"},
    on_text=TextExperiment(
        "sst2-bert-small",
        {"80/10/10": ("training.init=@mixed",), "100/0/0": ("training.init=@masked",)},
        (lower_bound("80/10/10 less 100/0/0", "SST-2's accuracy, 80/10/10 less 100/0/0", 0.3),),
        ("training.steps=1000", "training.schedule.warmup=100"),
        pretrained={
            "mixed": ("bert-small-wikitext2", "training.steps=1200"),
            "masked": ("bert-small-wikitext2", "training.steps=1200", "task.masking={masked: 1.0, random: 0.0}"),
        },
        metric="accuracy",
        seeds=(3, 5),
        seconds=100,
    ),
)
