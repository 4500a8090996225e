"""C10: how many heads, at a constant width: four words to be recalled at once by 1 to 32 of them."""

import torch
from torch import Tensor, nn

from regard.lab.claim import Claim, Figure, Measurement, Setup, TextExperiment, lower_bound
from regard.lab.tiny import attention_alone, learned, points

ENTRIES, LENGTH, STEPS, SIZE, ITEMS = 12, 12, 250, 32, 4
HEADS = (1, 2, 4, 8, 16, 32)
RATES = (1e-2, 4e-3)
PLACES = [1, 4, 6, 9]  # of the words that the last place is to name


def several_words(rows: int) -> tuple[Tensor, Tensor]:
    """Ids [B, N], and at the last place four labels [B, 4]."""
    ids = torch.randint(ENTRIES, (rows, LENGTH))
    return ids, ids[:, PLACES]


class SeveralItems(nn.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.encoder = attention_alone(ENTRIES, SIZE, heads, ITEMS * ENTRIES)

    def forward(self, ids: Tensor) -> Tensor:
        return self.encoder(ids)[:, -1].unflatten(-1, (ITEMS, ENTRIES))  # [B, 4, V]


def best_recall(seed: int, heads: int) -> float:
    """Share of the words named right, by the better of the rates."""

    def right(rate: float) -> float:
        model = learned(seed, lambda: SeveralItems(heads), lambda: several_words(32), STEPS, rate)
        return model.right(*several_words(400))

    return max(map(right, RATES))


def _measure(seed: int, setup: Setup) -> Measurement:
    right = {heads: best_recall(seed, 4 if setup.fault else heads) for heads in HEADS}
    middle = max(right[4], right[8])
    numbers = {"too few": middle - right[1], "too many": middle - right[32]}
    return Measurement(numbers, {"heads": {"": points(HEADS, [*right.values()])}})


CLAIM = Claim(
    title="How many heads",
    sentence="Neither too few heads are good nor too many.",
    source="notes 000; Vaswani 2017, table 3, rows A",
    predictions=(
        lower_bound("too few", "share of words recalled by 4 or 8 heads less that by one", 0.1),
        lower_bound("too many", "the same less that by 32 heads of one number each", 0.05),
    ),
    measure=_measure,
    seconds=8.0,
    seeds=(3, 6),
    depends_on="Attention alone, 32 numbers wide whatever the heads, with the better of two rates for each. Four words "
    "are asked for: a task that asks for one has another best number.",
    figures=(Figure("heads", "four words recalled at once", "heads", "share right", True),),
    faults={"four heads for all": "every model has four heads"},
    on_text=TextExperiment(
        "multi30k-en-de",
        {str(heads): (f"model.heads={heads}",) for heads in (4, 1, 2, 8, 64)},
        (
            lower_bound("1 less 4", "loss with one head less that with four", 0.02),
            lower_bound("64 less 4", "loss with 64 heads of four numbers less that with four", 0.02),
        ),
        seeds=(5, 8),
    ),
)
