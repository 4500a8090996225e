"""C25: a recurrent encoder that reads both ways, against one that reads one way with as many parameters."""

import torch

from regard.config import parse_config, to_node
from regard.lab.claim import Claim, Figure, Measurement, PredictedRange, Setup, TextExperiment
from regard.lab.corpus import entries, fit_translator, same_size, translation_loss
from regard.models.rnn import Rnn, RnnConfig

STEPS, SIZE, ROWS = 250, 32, 32


def tiny_rnn(bidirectional: bool, size: int) -> Rnn:
    keys = {"preset": "bahdanau", "size": size, "embedding": SIZE, "bidirectional": bidirectional, "share": "target"}
    return parse_config(RnnConfig, to_node(keys, "C25")).build(entries(), entries("target"))


def _measure(seed: int, setup: Setup) -> Measurement:
    with torch.device("meta"):
        target = sum(p.numel() for p in tiny_rnn(True, SIZE).parameters())
    wider = same_size(lambda size: tiny_rnn(False, size), target, range(SIZE, 2 * SIZE))
    losses = {}
    for name, both, size in (("both ways", True, SIZE), ("one way", False, wider)):
        torch.manual_seed(seed)
        model = tiny_rnn(both and setup.fault != "one way for both", size)
        fit_translator(model, STEPS, rate=8e-3, rows=ROWS)
        losses[name] = translation_loss(model)
    points = [(float(n), loss) for n, loss in enumerate(losses.values())]
    return Measurement({"gain": losses["one way"] - losses["both ways"]}, {"loss": {"": points}})


CLAIM = Claim(
    id="C25",
    title="Both directions",
    sentence="Recurrent encoders that read both ways are better than those that read one way.",
    source="notes 003; Bahdanau 2014, 3.2",
    kind="screen",
    predictions=(
        PredictedRange("gain", "loss of a word, one way less both ways: at least 0.02 nats", 0.02),
    ),
    measure=_measure,
    seconds=10.0,
    seeds=3,
    most_seeds=6,
    depends_on="Bahdanau's model, tiny, on the embedded corpus, 250 steps; the one that reads one way is wider, so "
    "that both have as many parameters. Its decoder can still look at later words: what it lacks is what they say of "
    "earlier ones.",
    figures=(Figure("loss", "0 both ways, 1 one way", "encoder", "nats a word"),),
    faults={"one way for both": "neither reads from the end"},
    on_text=TextExperiment(
        "multi30k-en-de",
        {name: (f"model={{kind: rnn, preset: bahdanau, size: 256, bidirectional: {value}}}",)
         for name, value in (("both ways", "true"), ("one way", "false"))},
        (PredictedRange("one way less both ways", "loss, one way less both ways: at least 0.02", 0.02),),
        ("training.schedule.peak=1e-3", "training.clip=1.0"),
        control="parameters",
        seconds=150,
    ),
)  # fmt: skip
