"""C6: attention ignores order; positions repair it; a causal decoder knows order without them."""

import torch
from torch import nn

from regard.lab.claim import Claim, Figure, Measurement, Setup, lower_bound, upper_bound
from regard.lab.tiny import TinyEncoder, learned, points, previous_word

ENTRIES, LENGTH, STEPS = 12, 10, 350
POSITIONS: dict[str, str | dict[str, object]] = {
    "none": "none", "sinusoidal": "sinusoidal", "learned": {"kind": "learned", "length": 64}, "relative": "relative",
    "rotary": "rotary",
}  # fmt: skip


def change_when_moved(model: nn.Module) -> float:
    """How far f(Px) is from P f(x), for words in another order, as a share of f(x)."""
    model = model.double()
    ids = torch.randperm(ENTRIES)[:LENGTH][None]
    order = torch.randperm(LENGTH)
    with torch.no_grad():
        return float((model(ids[:, order]) - model(ids)[:, order]).norm() / model(ids).norm())


def _measure(seed: int, setup: Setup) -> Measurement:
    positions = {name: "none" if setup.fault else value for name, value in POSITIONS.items()}
    numbers = {
        "encoder, none": change_when_moved(TinyEncoder(ENTRIES, layers=2, position="none")),
        "encoder, sinusoidal": change_when_moved(TinyEncoder(ENTRIES, layers=2, position=positions["sinusoidal"])),
        "decoder, none": change_when_moved(TinyEncoder(ENTRIES, layers=2, position="none", causal=True)),
    }
    test = previous_word(ENTRIES, LENGTH)

    def accuracy(position: str | dict[str, object]) -> float:
        build, draw = lambda: TinyEncoder(ENTRIES, position=position), lambda: previous_word(ENTRIES, LENGTH)
        return learned(seed, build, draw, STEPS, 5e-3).right(*test)

    right = [accuracy(position) for position in positions.values()]
    numbers["task, none"], numbers["task, worst position"] = right[0], min(right[1:])
    return Measurement(numbers, {"task": {"": points(range(len(right)), right)}})


CLAIM = Claim(
    title="Order",
    sentence="Attention alone ignores the order of words; positions repair that.",
    source="notes 000; Vaswani 2017, 3.5",
    predictions=(
        upper_bound("encoder, none", "change of an encoder without positions when words are moved: rounding", 1e-12),
        lower_bound("encoder, sinusoidal", "the same with sinusoidal positions", 0.05),
        lower_bound("decoder, none", "the same in a causal decoder without positions", 0.05),
        upper_bound("task, none", "accuracy of naming the word before, without positions", 0.3),
        lower_bound("task, worst position", "the same, the worst of sinusoidal, learned, relative, rotary", 0.9),
    ),
    measure=_measure,
    seconds=5.0,
    depends_on="True of an encoder. A causal decoder knows order without any position, since each word sees another "
    "number of words: so 'attention ignores order' is said of attention without a mask. The task is a constructed one, "
    "with one layer and ten words.",
    figures=(Figure("task", "naming the word before", "position", "accuracy", names=tuple(POSITIONS)),),
    faults={"dropped positions": "every position is `none`"},
)
