"""C9: without the feed-forward network, does a stack of attentions only average again and again?"""

import torch
from torch import Tensor

from regard.lab.claim import Claim, Figure, Measurement, Setup, upper_bound
from regard.lab.tiny import attention_layer, points

SIZE, LENGTH, DEPTH, HEADS = 64, 24, 12, 4
SQUARE = {
    "attention alone": ("none", False), "feed-forward": ("none", True), "residual": ("pre_norm", False),
    "residual and feed-forward": ("pre_norm", True),
}  # fmt: skip


def distance_to_average(x: Tensor) -> float:
    """How much the words of a sentence differ: what is left without their mean, as a share of all."""
    return float((x - x.mean(1, keepdim=True)).norm() / x.norm())


@torch.no_grad()
def differences_by_depth(residual: str, feed_forward: bool) -> list[float]:
    """After every layer of a fresh stack, by fresh weights of the usual size."""
    x = torch.nn.functional.layer_norm(torch.randn(4, LENGTH, SIZE), (SIZE,))
    found = [distance_to_average(x)]
    for _ in range(DEPTH):
        x = attention_layer(SIZE, HEADS, feed_forward, residual)(x)
        found.append(distance_to_average(x))
    return found


def _measure(seed: int, setup: Setup) -> Measurement:
    everywhere = setup.fault == "a residual everywhere"
    found = {
        name: differences_by_depth("pre_norm" if everywhere else residual, feed_forward)
        for name, (residual, feed_forward) in SQUARE.items()
    }
    curves = {name: points(range(DEPTH + 1), values) for name, values in found.items()}
    return Measurement({name: values[-1] for name, values in found.items()}, {"depth": curves})


CLAIM = Claim(
    title="What averages, and what prevents it",
    sentence="Without the feed-forward layer, stacked attention only averages again.",
    source="notes 000 (“It’s all just weighted averages”)",
    predictions=(
        upper_bound("attention alone",
                f"what is left of the words' differences after {DEPTH} layers, no residual", 0.05,
                "without residual"),
        upper_bound("residual",
                "the same with residual connections, still without feed-forward", 0.05, "with residual"),
    ),
    measure=_measure,
    seconds=0.1,
    depends_on="The residual, not the feed-forward network, keeps words apart: without one, the network's presence "
    "hardly helps (see the curves); with one, attention alone keeps them. Fresh weights, no training: "
    "what a trained stack does, and its quality, are not measured here (Dong 2021 shows the same).",
    figures=(Figure("depth", "differences between words", "layers", "share of the norm", False, True),),
    faults={"a residual everywhere": "all stacks have a residual"},
)  # fmt: skip
