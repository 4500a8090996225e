"""C29: where several heads help: in cross-attention or in self-attention; and whether more than four gain anything."""

import torch

from regard.config import parse_config, to_node
from regard.lab.claim import Claim, Figure, Measurement, PredictedRange, Setup, TextExperiment
from regard.lab.corpus import entries, fit_translator, translation_loss
from regard.models.transformer import TransformerConfig

STEPS, SIZE = 250, 32
ARMS = {"four": (4, 4), "one in cross": (4, 1), "one in self": (1, 4), "eight": (8, 8)}  # heads of self, of cross


def loss_with(seed: int, own: int, cross: int, narrow: bool = False) -> float:
    """Of a model with so many heads; `narrow`: one head in self-attention has keys of one number."""
    torch.manual_seed(seed)
    keys_of_own = {"heads": own, "d_k": 1} if narrow and own == 1 else {"heads": own}
    attention = {"encoder": keys_of_own, "decoder": keys_of_own, "cross": {"heads": cross}}
    keys = {"layers": 1, "size": SIZE, "inner": 2 * SIZE, "heads": 4, "dropout": 0.0, "init": "xavier",
            "share": "target", "attention": attention}  # fmt: skip
    model = parse_config(TransformerConfig, to_node(keys, "C29")).build(entries(), entries("target"))
    fit_translator(model, STEPS, 8e-3, 32)
    return translation_loss(model)


def _measure(seed: int, setup: Setup) -> Measurement:
    narrow = setup.fault == "one head in self-attention is narrow"
    losses = {name: loss_with(seed, own, cross, narrow) for name, (own, cross) in ARMS.items()}
    cross, own = (losses[name] - losses["four"] for name in ("one in cross", "one in self"))
    points = [(float(n), loss) for n, loss in enumerate(losses.values())]
    numbers = {"cross less self": cross - own, "more than four": losses["four"] - losses["eight"]}
    return Measurement(numbers, {"loss": {"": points}})


CLAIM = Claim(
    id="C29",
    title="Heads of cross-attention",
    sentence="Heads help cross-attention more than self-attention, and more than four gain nothing.",
    source="notes 000; Michel 2019",
    kind="screen",
    predictions=(
        PredictedRange(
            "cross less self", "what one head in place of four costs in cross-attention, less what it costs in "
            "self-attention, in nats a word: at least 0.01", 0.01, setting="cross-attention",
        ),
        PredictedRange(
            "more than four", "loss with four heads less that with eight: at most 0.01", high=0.01,
            setting="eight heads",
        ),
    ),
    measure=_measure,
    seconds=10.0,
    seeds=3,
    most_seeds=6,
    depends_on="One layer each of encoder and decoder, 32 wide, 250 steps on the embedded corpus, whose sentences are "
    "short: what a head has to tell apart there is little.",
    figures=(Figure("loss", "0 four, 1 one in cross, 2 one in self, 3 eight", "heads", "nats a word"),),
    faults={"one head in self-attention is narrow": "where self-attention has one head, its keys are one number"},
    on_text=TextExperiment(
        "multi30k-en-de",
        {
            "four": (),
            "one in cross": ("model.attention.cross.heads=1",),
            "one in self": ("model.attention.encoder.heads=1", "model.attention.decoder.heads=1"),
            "eight": ("model.heads=8",),
        },
        (
            PredictedRange("cross less self", "loss that one head costs in cross less in self-attention: at least 0.01",
                           0.01, setting="cross-attention"),
            PredictedRange("four less eight", "loss with four heads less that with eight: at most 0.01", high=0.01,
                           setting="eight heads"),
        ),
        sums={"cross less self": {"one in cross": 1, "one in self": -1}},
        most_seeds=8,
    ),
)  # fmt: skip
