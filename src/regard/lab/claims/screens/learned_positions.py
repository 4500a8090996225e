"""C22: learned positions against sinusoidal ones over the number of sentences that are learned from."""

import torch
from torch import Tensor

from regard.lab.claim import Claim, Figure, Measurement, Setup, TextExperiment, lower_bound, within
from regard.lab.tiny import FittedModel, TinyEncoder, fit, points, previous_word

ENTRIES, LENGTH, STEPS = 12, 16, 350
CORPORA = (8, 32, 128, 2048)  # sentences
POSITIONS: dict[str, dict[str, object]] = {
    "sinusoidal": {"kind": "sinusoidal"}, "learned": {"kind": "learned", "length": LENGTH},
}  # fmt: skip


def _accuracy(seed: int, position: dict[str, object], sentences: int) -> float:
    """On fresh sentences, of a model that learned from so many."""
    torch.manual_seed(seed)
    ids, labels = previous_word(ENTRIES, LENGTH, sentences)
    model = TinyEncoder(ENTRIES, position=position)

    def draw() -> tuple[Tensor, Tensor]:
        rows = torch.randint(len(ids), (32,))
        return ids[rows], labels[rows]

    return FittedModel(model, fit(model, draw, STEPS, 5e-3)).right(*previous_word(ENTRIES, LENGTH, 100))


def _measure(seed: int, setup: Setup) -> Measurement:
    positions = {name: POSITIONS["learned"] if setup.fault else own for name, own in POSITIONS.items()}
    right = {name: [_accuracy(seed, own, number) for number in CORPORA] for name, own in positions.items()}
    gain = dict(zip(CORPORA, (a - b for a, b in zip(right["sinusoidal"], right["learned"], strict=True)), strict=True))
    curves = {name: points(CORPORA, values) for name, values in right.items()}
    return Measurement({"small": gain[32], "large": gain[2048]}, {"accuracy": curves})


CLAIM = Claim(
    title="Learned positions need much text",
    sentence="Learned positions need a large corpus; for a small one sines are better.",
    source="notes 001",
    predictions=(
        lower_bound("small", "accuracy of sines less learned, from 32 sentences", 0.05),
        within("large", "the same from 2,048 sentences", 0.05),
    ),
    measure=_measure,
    seconds=6.5,
    seeds=(3, 6),
    depends_on="One layer that names the word before, in 16 random words; as many steps for every corpus, so a small "
    "one is read again and again. Which of the two is better depends on what the sentences ask of positions: here the "
    "same of every one.",
    figures=(Figure("accuracy", "naming the word before, fresh sentences", "sentences", "accuracy", True),),
    faults={"learned for both": "both have a learned table"},
    on_text=TextExperiment(
        "multi30k-en-de",
        {
            f"{kind}, {share:.0%}": (
                f"model.position={{kind: {kind}{', length: 512' if kind == 'learned' else ''}}}",
                f"data.train=[{{set: 'multi30k:train', weight: {share:g}}}]",
            )
            for share in (0.1, 1.0)
            for kind in ("sinusoidal", "learned")
        },
        (
            lower_bound("learned, 10% less sinusoidal, 10%", "loss, learned less sines, a tenth of the text", 0.02),
            within("learned, 100% less sinusoidal, 100%", "the same, all text", 0.02),
        ),
        seeds=(5, 8),
    ),
)
