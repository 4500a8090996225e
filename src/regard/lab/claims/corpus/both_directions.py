"""C25: a recurrent encoder that reads both ways, against one that reads one way with as many parameters."""

import torch
from torch import nn

from regard.lab.claim import Claim, Figure, Measurement, Setup, TextExperiment, lower_bound
from regard.lab.corpus import fit_translator, parameters_built, same_size, tiny_translator, translation_loss
from regard.lab.tiny import points
from regard.models.rnn import RnnConfig

STEPS, SIZE, ROWS = 250, 32, 32


def tiny_rnn(bidirectional: bool, size: int) -> nn.Module:
    return tiny_translator(RnnConfig, preset="bahdanau", size=size, embedding=SIZE, bidirectional=bidirectional)


def loss(seed: int, bidirectional: bool, size: int) -> float:
    torch.manual_seed(seed)
    model = tiny_rnn(bidirectional, size)
    fit_translator(model, STEPS, 8e-3, ROWS)
    return translation_loss(model)


def _measure(seed: int, setup: Setup) -> Measurement:
    target = parameters_built(lambda: tiny_rnn(True, SIZE))
    wider = same_size(lambda size: tiny_rnn(False, size), target, range(SIZE, 2 * SIZE))
    both, one = loss(seed, not setup.fault, SIZE), loss(seed, False, wider)
    return Measurement({"gain": one - both}, {"loss": {"": points((0, 1), (both, one))}})


CLAIM = Claim(
    title="Both directions",
    sentence="Recurrent encoders that read both ways are better than those that read one way.",
    source="notes 003; Bahdanau 2014, 3.2",
    predictions=(lower_bound("gain", "loss of a word, one way less both ways, in nats", 0.02),),
    measure=_measure,
    seconds=10.0,
    seeds=(3, 6),
    depends_on="Bahdanau's model, tiny, on the embedded corpus, 250 steps; the one that reads one way is wider, so "
    "that both have as many parameters. Its decoder can still look at later words: what it lacks is what they say of "
    "earlier ones.",
    figures=(Figure("loss", "loss by what the encoder reads", "", "nats a word", names=("both ways", "one way")),),
    faults={"one way for both": "neither reads from the end"},
    on_text=TextExperiment(
        "multi30k-en-de",
        {name: (f"model={{kind: rnn, preset: bahdanau, size: 256, bidirectional: {value}}}",)
         for name, value in (("both ways", "true"), ("one way", "false"))},
        (lower_bound("one way less both ways", "loss, one way less both ways", 0.02),),
        ("training.schedule.peak=1e-3", "training.clip=1.0"),
        control="parameters",
        seconds=150,
    ),
)  # fmt: skip
