"""C16: recall of one word over a distance: recurrent, attention, and attention beyond its context."""

import torch
from torch import Tensor, nn

from regard.lab.claim import Claim, Figure, Measurement, Setup, lower_bound, upper_bound
from regard.lab.tiny import TinyEncoder, learned, points

KEYS, FILLERS, STEPS, NEAR, FAR, CONTEXT = 8, 4, 200, 4, 40, 24
ENTRIES = KEYS + FILLERS + 1


def recall(distance: int, rows: int = 24) -> tuple[Tensor, Tensor]:
    """A word to remember, fillers, then a question, at which the word is to be named."""
    word = torch.randint(KEYS, (rows, 1))
    fillers = torch.randint(KEYS, KEYS + FILLERS, (rows, distance - 1))
    ids = torch.cat([word, fillers, torch.full((rows, 1), ENTRIES - 1)], 1)
    labels = torch.full_like(ids, -100)
    labels[:, -1:] = word
    return ids, labels


class SmallLstm(nn.Module):
    """An LSTM of about as many parameters as the attention has."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.cell = nn.Embedding(ENTRIES, 32), nn.LSTM(32, 32, batch_first=True)
        self.output = nn.Linear(32, ENTRIES)

    def forward(self, ids: Tensor) -> Tensor:
        return self.output(self.cell(self.embedding(ids))[0])


def _accuracy(seed: int, pattern: str, distance: int) -> float:
    """Of a causal attention with this pattern, or of an LSTM where there is none."""
    build = lambda: TinyEncoder(ENTRIES, causal=True, pattern=pattern) if pattern else SmallLstm()  # noqa: E731
    return learned(seed, build, lambda: recall(distance), STEPS, 5e-3).right(*recall(distance, 200))


def _measure(seed: int, setup: Setup) -> Measurement:
    context, full = f"window({CONTEXT})", "window(2)" if setup.fault else "full"
    patterns = {"attention": full, f"attention, context {CONTEXT}": context, "LSTM": ""}
    right = {name: [_accuracy(seed, pattern, n) for n in (NEAR, FAR)] for name, pattern in patterns.items()}
    (_, full_far), (_, beyond), (near, far) = right.values()
    numbers = {"attention": full_far, "beyond": beyond, "LSTM near": near, "LSTM": far}
    return Measurement(numbers, {"recall": {name: points((NEAR, FAR), values) for name, values in right.items()}})


CLAIM = Claim(
    title="Memory",
    sentence="The memory of a recurrent network is short, that of attention is not.",
    source="notes 002",
    predictions=(
        lower_bound("attention", f"recall over {FAR} words by attention", 0.9),
        lower_bound("LSTM near", f"recall over {NEAR} words by the LSTM", 0.9, control=True),
        upper_bound("LSTM", f"recall over {FAR} words by the LSTM, as many steps", 0.6),
        upper_bound("beyond", f"recall over {FAR} words by attention with a context of {CONTEXT}", 0.3),
    ),
    measure=_measure,
    seconds=4.0,
    depends_on=f"Learned in {STEPS} steps: an LSTM can hold a word longer, and needs more steps to learn it. Attention "
    "remembers as far as its context, and not a word further: a note's 'without limit' is wrong.",
    figures=(Figure("recall", "recall of one word", "words between", "accuracy", True),),
    faults={"a short context for all": "attention sees two words"},
    why_not_on_text="recall over a distance needs a text that asks for it; the constructed one does",
)
