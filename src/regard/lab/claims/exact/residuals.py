"""C12: what residual connections do to gradients over depth, and to what can be trained."""

import torch
from torch import nn

from regard.lab.claim import Claim, Figure, Measurement, PredictedRange, Setup, TextExperiment, lower_bound, upper_bound
from regard.lab.tiny import TinyEncoder, attention_layer, learned, points, previous_word

SIZE, LENGTH, DEPTHS = 32, 12, [2, 4, 8, 16, 24]
ENTRIES, TRAINED, STEPS = 12, 6, 300


def first_gradient(depth: int, residual: str) -> float:
    """The norm of the gradient of the first layer's queries, in a fresh stack of such a depth."""
    layers = nn.Sequential(*(attention_layer(SIZE, 2, True, residual) for _ in range(depth)))
    x = layers(torch.randn(4, LENGTH, SIZE))
    (x * torch.randn_like(x)).sum().backward()
    gradient = layers.get_parameter("0.attention.query.weight").grad
    assert gradient is not None
    return float(gradient.norm())


def _measure(seed: int, setup: Setup) -> Measurement:
    kinds = {name: "none" if setup.fault else name for name in ("none", "post_norm", "pre_norm")}
    found = {name: [first_gradient(depth, kind) for depth in DEPTHS] for name, kind in kinds.items()}
    found = {name: [value / values[0] for value in values] for name, values in found.items()}
    numbers = {name: values[-1] for name, values in found.items()}
    test = previous_word(ENTRIES, LENGTH)
    for name in ("none", "pre_norm"):
        trained = learned(
            seed, lambda: TinyEncoder(ENTRIES, SIZE, TRAINED, residual=kinds[name]),  # noqa: B023
            lambda: previous_word(ENTRIES, LENGTH, 24), STEPS, 3e-3,
        )  # fmt: skip
        numbers[f"trained, {name}"] = trained.right(*test)
    return Measurement(numbers, {"gradient": {name: points(DEPTHS, values) for name, values in found.items()}})


FRESH, TRAINING = "gradients of fresh weights", "a training"

CLAIM = Claim(
    title="Residual connections",
    sentence="Residual connections make deep stacks easy to train.",
    source="the notes; Vaswani 2017, 3.1",
    predictions=(
        upper_bound(
            "none", "gradient of the first layer of 24, against that of a stack of 2, no residual", 0.01, FRESH
        ),
        PredictedRange("pre_norm", "the same with a residual, norm first", 0.2, 5, FRESH),
        upper_bound("trained, none", f"accuracy of {TRAINED} layers after {STEPS} steps, no residual", 0.5, TRAINING),
        lower_bound("trained, pre_norm", "the same with a residual", 0.9, TRAINING),
    ),
    measure=_measure,
    seconds=6.0,
    depends_on="Gradients are those of fresh weights. The training is a constructed task (name the word before) of "
    f"{STEPS} steps at one rate: more steps, a warmup or other weights may train a stack without residuals too.",
    figures=(Figure("gradient", "gradient of the first layer, against a stack of 2", "layers", "ratio", True, True),),
    faults={"no residual anywhere": "all stacks are without"},
    on_text=TextExperiment(
        "multi30k-en-de",
        {
            f"{name}, {layers}": (f"model.residual={kind}", f"model.layers={layers}")
            for layers in (1, 6)
            for name, kind in (("with", "pre_norm"), ("without", "none"))
        },
        (
            lower_bound("without, 6 less with, 6", "loss of six layers, without residuals less with them", 0.1),
            lower_bound("more when deep", "that, less the same of one layer: the deeper, the more they matter", 0.1),
        ),
        sums={"more when deep": {"without, 6": 1, "with, 6": -1, "without, 1": -1, "with, 1": 1}},
    ),
)
