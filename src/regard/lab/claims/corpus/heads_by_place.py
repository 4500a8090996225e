"""C29: where several heads help: in cross-attention or in self-attention; and whether more than four gain anything."""

import torch

from regard.lab.claim import Claim, Figure, Measurement, Setup, TextExperiment, lower_bound, upper_bound
from regard.lab.corpus import fit_translator, tiny_translator, translation_loss
from regard.lab.tiny import points
from regard.models.transformer import TransformerConfig

STEPS, SIZE = 250, 32
ARMS = {"four": (4, 4), "one in cross": (4, 1), "one in self": (1, 4), "eight": (8, 8)}  # heads of self, of cross


def loss_with(seed: int, own: int, cross: int, narrow: bool = False) -> float:
    """Of a model with so many heads; `narrow`: one head in self-attention has keys of one number."""
    torch.manual_seed(seed)
    keys_of_own = {"heads": own, "d_k": 1} if narrow and own == 1 else {"heads": own}
    model = tiny_translator(
        TransformerConfig, layers=1, size=SIZE, inner=2 * SIZE, heads=4, dropout=0.0, init="xavier",
        attention={"encoder": keys_of_own, "decoder": keys_of_own, "cross": {"heads": cross}},
    )  # fmt: skip
    fit_translator(model, STEPS, 8e-3, 32)
    return translation_loss(model)


def _measure(seed: int, setup: Setup) -> Measurement:
    losses = {name: loss_with(seed, own, cross, bool(setup.fault)) for name, (own, cross) in ARMS.items()}
    numbers = {
        "cross less self": (losses["one in cross"] - losses["four"]) - (losses["one in self"] - losses["four"]),
        "more than four": losses["four"] - losses["eight"],
    }
    return Measurement(numbers, {"loss": {"": points(range(len(losses)), [*losses.values()])}})


CLAIM = Claim(
    title="Heads of cross-attention",
    sentence="Heads help cross-attention more than self-attention, and more than four gain nothing.",
    source="notes 000; Michel 2019",
    predictions=(
        lower_bound("cross less self", "what one head in place of four costs in cross-attention, less what it costs in "
                 "self-attention, in nats a word", 0.01),
        upper_bound("more than four", "loss with four heads less that with eight", 0.01),
    ),
    measure=_measure,
    seconds=10.0,
    seeds=(3, 6),
    depends_on="One layer each of encoder and decoder, 32 wide, 250 steps on the embedded corpus, whose sentences are "
    "short: what a head has to tell apart there is little.",
    figures=(Figure("loss", "loss by the heads of self- and cross-attention", "", "nats a word", names=tuple(ARMS)),),
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
            lower_bound("cross less self", "loss that one head costs in cross less in self-attention", 0.01),
            upper_bound("four less eight", "loss with four heads less that with eight", 0.01),
        ),
        sums={"cross less self": {"one in cross": 1, "one in self": -1}},
        seeds=(5, 8),
    ),
)  # fmt: skip
