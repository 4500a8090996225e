"""C5: dot and additive scores over the size of a head, scaled and unscaled, with the rate tuned for each; and time."""

import torch

from regard.lab.claim import Claim, Figure, Measurement, Points, PredictedRange, Setup, TextExperiment
from regard.lab.tiny import TinyEncoder, attention_layer, cpu_seconds, fit, previous_word, share_right

ENTRIES, LENGTH, ROWS, STEPS, SIZE = 8, 6, 6, 200, 32
HEADS = (32, 1024)  # d_k
RATES = (1e-2, 3e-3, 1e-3)
SCORES = ("dot", "scaled_dot", "additive")


def best_accuracy(seed: int, score: str, d_k: int) -> float:
    """Of naming the word before, by the best of the rates."""
    found = []
    for rate in RATES:
        torch.manual_seed(seed)
        model = TinyEncoder(ENTRIES, SIZE, heads=1, score=score, d_k=d_k)
        fit(model, lambda: previous_word(ENTRIES, LENGTH, ROWS), STEPS, rate)
        found.append(share_right(model, *previous_word(ENTRIES, LENGTH, 100)))
    return max(found)


def _measure(seed: int, setup: Setup) -> Measurement:
    right: dict[str, Points] = {}
    for score in SCORES:
        chosen = "scaled_dot" if setup.fault == "scaled everywhere" else score
        right[score] = [(float(d_k), best_accuracy(seed, chosen, d_k)) for d_k in HEADS]
    x = torch.randn(4, 64, SIZE)
    seconds = {}
    for score in ("scaled_dot", "additive"):
        layer = attention_layer(SIZE, feed_forward=False, score=score, d_k=64)
        seconds[score] = cpu_seconds(lambda: layer(x))  # noqa: B023
    small = right["dot"][0][1] - right["additive"][0][1]
    large = right["additive"][-1][1] - right["dot"][-1][1]
    again = right["scaled_dot"][-1][1] - right["additive"][-1][1]
    numbers = {"small": small, "large": large, "scaled": again, "time": seconds["additive"] / seconds["scaled_dot"]}
    return Measurement(numbers, {"accuracy": right})


CLAIM = Claim(
    id="C5",
    title="Dot and additive scores",
    sentence="Dot and additive scores are alike for small heads; for large ones additive wins unless the dot product "
    "is scaled; dot is faster.",
    source="notes 002; Vaswani 2017, 3.2.1; Britz 2017",
    kind="screen",
    predictions=(
        PredictedRange("small", "accuracy of dot less additive at d_k = 32: within 0.1", -0.1, 0.1, "small heads"),
        PredictedRange(
            "large", "accuracy of additive less dot, unscaled, at d_k = 1,024: at least 0.1", 0.1, setting="large heads"
        ),
        PredictedRange(
            "scaled",
            "accuracy of scaled dot less additive at d_k = 1,024: at least −0.05",
            -0.05,
            setting="large heads",
        ),
        PredictedRange(
            "time", "time of an additive layer over that of a dot layer, d_k = 64: at least 2", 2, setting="large heads"
        ),
    ),
    measure=_measure,
    seconds=22.0,
    seeds=3,
    most_seeds=6,
    depends_on="One layer with one head that names the word before, among 6; the best of three rates for every score "
    "and size. Keys and queries have the usual first weights, under which unscaled scores grow with √d_k.",
    figures=(Figure("accuracy", "naming the word before", "d_k", "accuracy", True),),
    faults={"scaled everywhere": "all three scores are the scaled dot product"},
    on_text=TextExperiment(
        "multi30k-en-de",
        {score: (f"model.attention.score={score}",) for score in ("scaled_dot", "dot", "additive")},
        (
            PredictedRange("dot less additive", "loss, unscaled dot less additive, d_k = 256: at least 0.02", 0.02),
            PredictedRange("scaled_dot less additive", "loss, scaled dot less additive: within 0.02", -0.02, 0.02),
        ),
        ("model.heads=1",),
        seconds=110,
    ),
)
