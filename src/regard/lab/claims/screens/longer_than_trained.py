"""C8: learned against sinusoidal positions, at the trained length and beyond it."""

import torch
from torch import Tensor

from regard.lab.claim import Claim, Figure, Measurement, Setup, TextExperiment, lower_bound, upper_bound, within
from regard.lab.tiny import TinyEncoder, learned, points

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


def beyond(ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Only the places that were never trained, where there are any."""
    if labels.shape[1] > TRAINED:
        labels = labels.clone()
        labels[:, :TRAINED] = -100
    return ids, labels


def _measure(seed: int, setup: Setup) -> Measurement:
    tests = [beyond(*second_before(n)) for n in LENGTHS]

    def accuracies(position: str | dict[str, object]) -> list[float]:
        build = lambda: TinyEncoder(ENTRIES, position=position, causal=True)  # noqa: E731
        model = learned(seed, build, lambda: second_before(TRAINED), STEPS, 5e-3)
        return [model.right(*test) for test in tests]

    right = {name: accuracies("relative" if setup.fault else position) for name, position in POSITIONS.items()}
    numbers = {f"{name} beyond": values[-1] for name, values in right.items()}
    numbers["difference"] = right["sinusoidal"][0] - right["learned"][0]
    return Measurement(numbers, {"length": {name: points(LENGTHS, values) for name, values in right.items()}})


CLAIM = Claim(
    title="Sines against learned positions",
    sentence="Sinusoidal and learned positions are as good as each other; learned ones end where training ended, and "
    "sinusoidal ones do not really go further.",
    source="notes 001, 004; Vaswani 2017, table 3 (E)",
    predictions=(
        within("difference", "accuracy at the trained length, sinusoidal less learned", 0.05),
        upper_bound("learned beyond", f"accuracy of learned ones at places beyond {TRAINED}", 0.5),
        upper_bound("sinusoidal beyond", f"accuracy of sinusoidal ones at places beyond {TRAINED}", 0.9),
        lower_bound("relative beyond", "the same for relative ones, which go further", 0.9, control=True),
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
        (within("learned less sinusoidal", "loss, learned less sinusoidal", 0.02),),
    ),
)
