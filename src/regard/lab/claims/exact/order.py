"""C6: attention ignores order; positions repair it; a causal decoder knows order without them."""

import torch
from torch import nn

from regard.lab.claim import Claim, Figure, Measurement, PredictedRange, Setup
from regard.lab.tiny import TinyEncoder, fit, previous_word, share_right

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
    dropped = setup.fault == "dropped positions"
    wanted = {name: "none" if dropped else value for name, value in POSITIONS.items()}
    numbers = {
        "encoder, none": change_when_moved(TinyEncoder(ENTRIES, layers=2, position="none")),
        "encoder, sinusoidal": change_when_moved(TinyEncoder(ENTRIES, layers=2, position=wanted["sinusoidal"])),
        "decoder, none": change_when_moved(TinyEncoder(ENTRIES, layers=2, position="none", causal=True)),
    }
    right: list[float] = []
    test = previous_word(ENTRIES, LENGTH)
    for position in wanted.values():
        torch.manual_seed(seed)
        model = TinyEncoder(ENTRIES, position=position)
        fit(model, lambda: previous_word(ENTRIES, LENGTH), STEPS, 5e-3)
        right.append(share_right(model, *test))
    numbers["task, none"], numbers["task, worst position"] = right[0], min(right[1:])
    curves = {"task": {"accuracy": [(float(n), value) for n, value in enumerate(right)]}}
    return Measurement(numbers, curves)


CLAIM = Claim(
    id="C6",
    title="Order",
    sentence="Attention alone ignores the order of words; positions repair that.",
    source="notes 000; Vaswani 2017, 3.5",
    kind="exact",
    predictions=(
        PredictedRange(
            "encoder, none", "change of an encoder without positions when words are moved: rounding", 0, 1e-12
        ),
        PredictedRange("encoder, sinusoidal", "the same with sinusoidal positions: at least 5%", 0.05),
        PredictedRange("decoder, none", "the same in a causal decoder without positions: at least 5%", 0.05),
        PredictedRange("task, none", "accuracy of naming the word before, without positions: at most 0.3", 0, 0.3),
        PredictedRange(
            "task, worst position", "the same, the worst of sinusoidal, learned, relative, rotary: at least 0.9", 0.9
        ),
    ),
    measure=_measure,
    seconds=5.0,
    depends_on="True of an encoder. A causal decoder knows order without any position, since each word sees another "
    "number of words: so 'attention ignores order' is said of attention without a mask. The task is a constructed one, "
    "with one layer and ten words.",
    figures=(Figure("task", "0 none, 1 sinusoidal, 2 learned, 3 relative, 4 rotary", "position", "accuracy"),),
    faults={"dropped positions": "every position is `none`"},
)
