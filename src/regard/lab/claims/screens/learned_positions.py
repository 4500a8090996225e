"""C22: learned positions against sinusoidal ones over the number of sentences that are learned from."""

import torch

from regard.lab.claim import Claim, Figure, Measurement, Points, PredictedRange, Setup, TextExperiment
from regard.lab.tiny import TinyEncoder, fit, previous_word, share_right

ENTRIES, LENGTH, STEPS = 12, 16, 350
CORPORA = (8, 32, 128, 2048)  # sentences
POSITIONS: dict[str, str | dict[str, object]] = {
    "sinusoidal": "sinusoidal", "learned": {"kind": "learned", "length": LENGTH},
}  # fmt: skip


def _measure(seed: int, setup: Setup) -> Measurement:
    right: dict[str, Points] = {}
    for name, position in POSITIONS.items():
        right[name] = []
        for sentences in CORPORA:
            torch.manual_seed(seed)
            ids, labels = previous_word(ENTRIES, LENGTH, sentences)
            chosen = POSITIONS["learned"] if setup.fault == "learned for both" else position
            model = TinyEncoder(ENTRIES, position=chosen)

            def draw(ids: torch.Tensor = ids, labels: torch.Tensor = labels) -> tuple[torch.Tensor, torch.Tensor]:
                rows = torch.randint(len(ids), (32,))
                return ids[rows], labels[rows]

            fit(model, draw, STEPS, 5e-3)
            right[name].append((float(sentences), share_right(model, *previous_word(ENTRIES, LENGTH, 100))))
    gain = {n: a[1] - b[1] for n, a, b in zip(CORPORA, right["sinusoidal"], right["learned"], strict=True)}
    return Measurement({"small": gain[32], "large": gain[2048]}, {"accuracy": right})


CLAIM = Claim(
    id="C22",
    title="Learned positions need much text",
    sentence="Learned positions need a large corpus; for a small one sines are better.",
    source="notes 001",
    kind="screen",
    predictions=(
        PredictedRange("small", "accuracy of sines less learned, from 32 sentences: at least 0.05", 0.05),
        PredictedRange("large", "the same from 2,048 sentences: within 0.05", -0.05, 0.05),
    ),
    measure=_measure,
    seconds=6.5,
    seeds=3,
    most_seeds=6,
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
            PredictedRange(
                "learned, 10% less sinusoidal, 10%",
                "loss, learned less sines, a tenth of the text: at least 0.02",
                0.02,
            ),
            PredictedRange("learned, 100% less sinusoidal, 100%", "the same, all text: within 0.02", -0.02, 0.02),
        ),
        most_seeds=8,
    ),
)
