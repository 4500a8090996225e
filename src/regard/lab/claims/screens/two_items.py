"""C24: one head that looks at two words averages them."""

import torch
from torch import Tensor, nn

from regard.lab.claim import Claim, Figure, Measurement, Setup, lower_bound
from regard.lab.tiny import attention_alone, learned, points

ENTRIES, LENGTH, STEPS, SIZE, HEADS = 16, 8, 400, 16, (1, 2, 4)


def marked_pairs(rows: int) -> tuple[Tensor, Tensor]:
    """At the last place: which words are marked by place, the second and the fifth, in this order, as one class."""
    ids = torch.randint(ENTRIES, (rows, LENGTH))
    labels = torch.full_like(ids, -100)
    labels[:, -1] = ids[:, 1] * ENTRIES + ids[:, 4]
    return ids, labels


class TwoItems(nn.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.encoder = attention_alone(ENTRIES, SIZE, heads, 2 * ENTRIES)

    def forward(self, ids: Tensor) -> Tensor:
        first, second = self.encoder(ids).chunk(2, -1)  # [B, N, V] each
        both = first.log_softmax(-1)[..., :, None] + second.log_softmax(-1)[..., None, :]
        return both.flatten(-2)  # [B, N, V·V]


def _measure(seed: int, setup: Setup) -> Measurement:
    def both_right(heads: int) -> float:
        model = learned(seed, lambda: TwoItems(heads), lambda: marked_pairs(32), STEPS, 1e-2)
        return model.right(*marked_pairs(500))

    right = [both_right(1 if setup.fault else heads) for heads in HEADS]
    return Measurement({"gain": right[1] - right[0], "two": right[1]}, {"heads": {"": points(HEADS, right)}})


CLAIM = Claim(
    title="One head for two words",
    sentence="A head that attends to several words averages them, and so blurs them.",
    source="notes 004; Vaswani 2017, 3.2.2",
    predictions=(
        lower_bound("gain", "share of pairs named right by two heads less that by one", 0.1),
        lower_bound("two", "share of pairs named right by two heads", 0.9, control=True),
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
