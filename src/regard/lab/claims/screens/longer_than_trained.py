"""C8: learned against sinusoidal positions, at the trained length and beyond it."""

import torch
from torch import Tensor

from regard.lab.claim import Claim, Figure, Measurement, Points, PredictedRange, Setup, TextExperiment
from regard.lab.tiny import TinyEncoder, fit, share_right

ENTRIES, TRAINED, LENGTHS, STEPS = 12, 16, [16, 32, 64], 500
POSITIONS: dict[str, str | dict[str, object]] = {
    "sinusoidal": "sinusoidal", "learned": {"kind": "learned", "length": 64}, "relative": "relative",
    "rotary": "rotary",
}  # fmt: skip


def second_before(length: int) -> tuple[Tensor, Tensor]:
    """Name the word two before: a distance must be told, not only a direction."""
    ids = torch.randint(ENTRIES, (32, length))
    labels = ids.roll(2, 1)
    labels[:, :2] = -100
    return ids, labels


def beyond(labels: Tensor, length: int) -> Tensor:
    """Only the places that were never trained, where there are any."""
    if length > TRAINED:
        labels = labels.clone()
        labels[:, :TRAINED] = -100
    return labels


def _measure(seed: int, setup: Setup) -> Measurement:
    tests = {n: second_before(n) for n in LENGTHS}
    curves: dict[str, Points] = {}
    for name, position in POSITIONS.items():
        torch.manual_seed(seed)
        model = TinyEncoder(
            ENTRIES, position="relative" if setup.fault == "relative for all" else position, causal=True
        )
        fit(model, lambda: second_before(TRAINED), STEPS, 5e-3)
        curves[name] = [(float(n), share_right(model, ids, beyond(labels, n))) for n, (ids, labels) in tests.items()]
    numbers = {
        "difference": curves["sinusoidal"][0][1] - curves["learned"][0][1],
        "learned beyond": curves["learned"][-1][1],
        "sinusoidal beyond": curves["sinusoidal"][-1][1],
        "relative beyond": curves["relative"][-1][1],
    }
    return Measurement(numbers, {"length": curves})


CLAIM = Claim(
    id="C8",
    title="Sines against learned positions",
    sentence="Sinusoidal and learned positions are as good as each other; learned ones end where training ended, and "
    "sinusoidal ones do not really go further.",
    source="notes 001, 004; Vaswani 2017, table 3 (E)",
    kind="screen",
    predictions=(
        PredictedRange(
            "difference", "accuracy at the trained length, sinusoidal less learned: within 0.05", -0.05, 0.05
        ),
        PredictedRange("learned beyond", f"accuracy of learned ones at places beyond {TRAINED}: at most 0.5", 0, 0.5),
        PredictedRange(
            "sinusoidal beyond", f"accuracy of sinusoidal ones at places beyond {TRAINED}: at most 0.9", 0, 0.9
        ),
        PredictedRange("relative beyond", "the same for relative ones, which go further: at least 0.9", 0.9),
    ),
    measure=_measure,
    seconds=7.0,
    depends_on="One causal layer, lengths 16 to 64, and a task that asks for a distance of two. What a language model "
    "trained at 512 does at 4,096 was not tried.",
    figures=(Figure("length", f"trained at {TRAINED}, measured beyond", "length", "accuracy", True),),
    faults={"relative for all": "every position is the relative one"},
    on_text=TextExperiment(
        "multi30k-en-de",
        {"sinusoidal": ("model.position=sinusoidal",), "learned": ("model.position={kind: learned, length: 512}",)},
        (PredictedRange("learned less sinusoidal", "loss, learned less sinusoidal: within 0.02", -0.02, 0.02),),
    ),
)
