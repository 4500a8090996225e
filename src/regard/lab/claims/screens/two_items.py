"""C24: one head that looks at two words averages them."""

import torch
from torch import Tensor, nn

from regard.lab.claim import Claim, Figure, Measurement, Points, PredictedRange, Setup
from regard.lab.tiny import TinyEncoder, fit

ENTRIES, LENGTH, STEPS, SIZE = 16, 8, 400, 16


def marked_pairs(rows: int) -> tuple[Tensor, Tensor]:
    """At the last place: which words are marked by place, the second and the fifth, in this order, as one class."""
    ids = torch.randint(ENTRIES, (rows, LENGTH))
    labels = torch.full_like(ids, -100)
    labels[:, -1] = ids[:, 1] * ENTRIES + ids[:, 4]
    return ids, labels


class TwoItems(nn.Module):
    """Attention alone, no residual and no feed-forward: all that is said comes through what the heads looked at."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.encoder = TinyEncoder(
            ENTRIES, SIZE, heads=heads, residual="none", feed_forward=False, norm="none", classes=2 * ENTRIES
        )

    def forward(self, ids: Tensor) -> Tensor:
        first, second = self.encoder(ids).chunk(2, -1)  # [B, N, V] each
        both = first.log_softmax(-1)[..., :, None] + second.log_softmax(-1)[..., None, :]
        return both.flatten(-2)  # [B, N, V·V]


def both_right(model: nn.Module) -> float:
    ids, labels = marked_pairs(500)
    with torch.no_grad():
        return float((model(ids)[:, -1].argmax(-1) == labels[:, -1]).double().mean())


def _measure(seed: int, setup: Setup) -> Measurement:
    found: Points = []
    for heads in (1, 2, 4):
        torch.manual_seed(seed)
        model = TwoItems(1 if setup.fault == "one head for all" else heads)
        fit(model, lambda: marked_pairs(32), STEPS, 1e-2)
        found.append((float(heads), both_right(model)))
    numbers = {"gain": found[1][1] - found[0][1], "two": found[1][1]}
    return Measurement(numbers, {"heads": {"both words right": found}})


CLAIM = Claim(
    id="C24",
    title="One head for two words",
    sentence="A head that attends to several words averages them, and so blurs them.",
    source="notes 004; Vaswani 2017, 3.2.2",
    kind="screen",
    predictions=(
        PredictedRange("gain", "share of pairs named right by two heads less that by one: at least 0.1", 0.1),
        PredictedRange("two", "share of pairs named right by two heads: at least 0.9", 0.9),
    ),
    measure=_measure,
    seconds=2.5,
    depends_on="Attention alone, as many parameters for any number of heads. One head is not hopeless: an average "
    "of two vectors can still be told apart where they are long enough, so the size of a head decides; "
    "with 16 numbers for 256 pairs it is short.",
    figures=(Figure("heads", "two words recalled at once", "heads", "share"),),
    faults={"one head for all": "every model has one head"},
    why_not_on_text="no text tells which two words a head had to keep apart",
)
