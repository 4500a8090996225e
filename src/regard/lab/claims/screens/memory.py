"""C16: recall of one word over a distance: recurrent, attention, and attention beyond its context."""

import torch
from torch import Tensor, nn

from regard.lab.claim import Claim, Figure, Measurement, Points, PredictedRange, Setup
from regard.lab.tiny import TinyEncoder, fit, share_right

KEYS, FILLERS, STEPS, DISTANCES, CONTEXT = 8, 4, 200, [4, 40], 24
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


def _measure(seed: int, setup: Setup) -> Measurement:
    window = f"window({CONTEXT})"
    blind = setup.fault == "a short context for all"
    choices = {"attention": "window(2)" if blind else "full", f"attention, context {CONTEXT}": window, "LSTM": ""}
    curves: dict[str, Points] = {}
    for name, pattern in choices.items():
        curves[name] = []
        for distance in DISTANCES:
            torch.manual_seed(seed)
            model = TinyEncoder(ENTRIES, causal=True, pattern=pattern) if pattern else SmallLstm()
            fit(model, lambda: recall(distance), STEPS, 5e-3)  # noqa: B023
            curves[name].append((float(distance), share_right(model, *recall(distance, 200))))
    last = {name: points[-1][1] for name, points in curves.items()}
    numbers = {
        "attention": last["attention"],
        "LSTM": last["LSTM"],
        "beyond": last[f"attention, context {CONTEXT}"],
        "LSTM near": curves["LSTM"][0][1],
    }
    return Measurement(numbers, {"recall": curves})


CLAIM = Claim(
    id="C16",
    title="Memory",
    sentence="The memory of a recurrent network is short, that of attention is not.",
    source="notes 002",
    kind="screen",
    predictions=(
        PredictedRange("attention", f"recall over {DISTANCES[-1]} words by attention: at least 0.9", 0.9),
        PredictedRange("LSTM near", f"recall over {DISTANCES[0]} words by the LSTM: at least 0.9", 0.9),
        PredictedRange("LSTM", f"recall over {DISTANCES[-1]} words by the LSTM, as many steps: at most 0.6", 0, 0.6),
        PredictedRange(
            "beyond", f"recall over {DISTANCES[-1]} words by attention with a context of {CONTEXT}: at most 0.3", 0, 0.3
        ),
    ),
    measure=_measure,
    seconds=4.0,
    depends_on=f"Learned in {STEPS} steps: an LSTM can hold a word longer, and needs more steps to learn it. Attention "
    "remembers as far as its context, and not a word further: a note's 'without limit' is wrong.",
    figures=(Figure("recall", "recall of one word", "words between", "accuracy", True),),
    faults={"a short context for all": "attention sees two words"},
    why_not_on_text="recall over a distance needs a text that asks for it; the constructed one does",
)
