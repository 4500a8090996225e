"""C12: what residual connections do to gradients over depth, and to what can be trained."""

import torch
from torch import nn

from regard.lab.claim import Claim, Figure, Measurement, PredictedRange, Setup
from regard.lab.tiny import TinyEncoder, attention_layer, fit, previous_word, share_right

SIZE, LENGTH, DEPTHS = 32, 12, [2, 4, 8, 16, 24]
ENTRIES, TRAINED, STEPS = 12, 6, 300


def first_gradient(depth: int, residual: str) -> float:
    """The norm of the gradient of the first layer's queries, in a fresh stack of such a depth."""
    layers = nn.ModuleList(attention_layer(SIZE, 2, True, residual) for _ in range(depth))
    x = torch.randn(4, LENGTH, SIZE)
    for layer in layers:
        x = layer(x)
    (x * torch.randn_like(x)).sum().backward()
    queries = [p.grad for name, p in layers[0].named_parameters() if name == "attention.query.weight"]
    assert queries[0] is not None
    return float(queries[0].norm())


def _measure(seed: int, setup: Setup) -> Measurement:
    dropped = setup.fault == "no residual anywhere"
    kinds = {name: "none" if dropped else name for name in ("none", "post_norm", "pre_norm")}
    found = {name: [first_gradient(depth, kind) for depth in DEPTHS] for name, kind in kinds.items()}
    found = {name: [value / values[0] for value in values] for name, values in found.items()}
    numbers = {name: values[-1] for name, values in found.items()}
    test = previous_word(ENTRIES, LENGTH)
    for name in ("none", "pre_norm"):
        torch.manual_seed(seed)
        model = TinyEncoder(ENTRIES, SIZE, TRAINED, residual=kinds[name])
        fit(model, lambda: previous_word(ENTRIES, LENGTH, 24), STEPS, 3e-3)
        numbers[f"trained, {name}"] = share_right(model, *test)
    curves = {name: [(float(d), v) for d, v in zip(DEPTHS, values, strict=True)] for name, values in found.items()}
    return Measurement(numbers, {"gradient": curves})


FRESH, TRAINING = "gradients of fresh weights", "a training"

CLAIM = Claim(
    id="C12",
    title="Residual connections",
    sentence="Residual connections make deep stacks easy to train.",
    source="the notes; Vaswani 2017, 3.1",
    kind="exact",
    predictions=(
        PredictedRange(
            "none",
            "gradient of the first layer of 24, against that of a stack of 2, no residual: at most 0.01",
            0,
            0.01,
            FRESH,
        ),
        PredictedRange("pre_norm", "the same with a residual, norm first: 0.2 to 5", 0.2, 5, FRESH),
        PredictedRange(
            "trained, none",
            f"accuracy of {TRAINED} layers after {STEPS} steps, no residual: at most 0.5",
            0,
            0.5,
            TRAINING,
        ),
        PredictedRange("trained, pre_norm", "the same with a residual: at least 0.9", 0.9, setting=TRAINING),
    ),
    measure=_measure,
    seconds=6.0,
    depends_on="Gradients are those of fresh weights. The training is a constructed task (name the word before) of "
    f"{STEPS} steps at one rate: more steps, a warmup or other weights may train a stack without residuals too.",
    figures=(Figure("gradient", "gradient of the first layer, against a stack of 2", "layers", "ratio", True, True),),
    faults={"no residual anywhere": "all stacks are without"},
)
