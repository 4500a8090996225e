"""C11: one matrix for queries and keys makes relations symmetric."""

import torch
from torch import Tensor

from regard.lab.claim import Claim, Figure, Measurement, Prediction, Setup
from regard.lab.tiny import TinyEncoder, accuracy, fit
from regard.nn import SharedQueryKey

ENTRIES, LENGTH, STEPS = 12, 12, 300


def previous_word() -> tuple[Tensor, Tensor]:
    """The word before, and not the one after: a relation with a direction."""
    ids = torch.randint(ENTRIES, (32, LENGTH))
    labels = ids.roll(1, 1)
    labels[:, 0] = -100
    return ids, labels


def shared_projection(model: TinyEncoder, heads: int, size: int) -> TinyEncoder:
    for layer in model.layers:
        layer.attention = SharedQueryKey(size, heads)
    return model


def count(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def measure(seed: int, setup: Setup) -> Measurement:
    test, right, losses = previous_word(), {}, {}
    for name in ("separate", "shared"):
        torch.manual_seed(seed)
        model = TinyEncoder(ENTRIES, 32, feed_forward=False)
        if name == "shared" and setup.fault != "separate for both":
            model = shared_projection(model, 2, 32)
        losses[name] = fit(model, previous_word, STEPS, 5e-3)
        right[name] = accuracy(model, *test)
    numbers = {"gain": right["separate"] - right["shared"], "separate": right["separate"]}
    curves = {name: [(float(n), values[n]) for n in range(0, STEPS, 5)] for name, values in losses.items()}
    return Measurement(numbers, {"loss": curves})


CLAIM = Claim(
    id="C11",
    title="Separate queries and keys",
    sentence="Queries and keys need matrices of their own: one for both makes every relation symmetric.",
    source="the notes",
    kind="screen",
    predictions=(
        Prediction("gain", "accuracy with two matrices less that with one: at least 0.1", 0.1),
        Prediction("separate", "accuracy with two matrices: at least 0.9", 0.9),
    ),
    measure=measure,
    seconds=3.0,
    depends_on="One layer without a feed-forward network, on a task that is a direction (the word before). Deeper "
    "models can break the symmetry elsewhere, and text may need it less. One matrix also has fewer "
    "parameters, by an eighth of this model; they were not made equal.",
    figures=(Figure("loss", "training loss", "step", ""),),
    faults={"separate for both": "both have two matrices"},
    on_text=(
        "regard compare multi30k-en-de --vary model.attention.projection='[separate, shared]' --control parameters",
    ),
)
