"""C5: dot and additive scores over the size of a head, scaled and unscaled, with the rate tuned for each; and time."""

import torch

from regard.lab.claim import Claim, Figure, Measurement, Setup, TextExperiment, lower_bound, within
from regard.lab.tiny import TinyEncoder, attention_layer, learned, points, previous_word, seconds_of

ENTRIES, LENGTH, ROWS, STEPS, SIZE = 8, 6, 6, 200, 32
HEADS = (32, 1024)  # d_k
RATES = (1e-2, 3e-3, 1e-3)


def best_accuracy(seed: int, score: str, d_k: int) -> float:
    """Of naming the word before, by the best of the rates."""

    def accuracy(rate: float) -> float:
        build = lambda: TinyEncoder(ENTRIES, SIZE, heads=1, score=score, d_k=d_k)  # noqa: E731
        model = learned(seed, build, lambda: previous_word(ENTRIES, LENGTH, ROWS), STEPS, rate)
        return model.right(*previous_word(ENTRIES, LENGTH, 100))

    return max(map(accuracy, RATES))


def layer_seconds(score: str) -> float:
    x, layer = torch.randn(4, 64, SIZE), attention_layer(SIZE, feed_forward=False, score=score, d_k=64)
    return seconds_of(lambda: layer(x))


def _measure(seed: int, setup: Setup) -> Measurement:
    right = {
        score: [best_accuracy(seed, "scaled_dot" if setup.fault else score, d_k) for d_k in HEADS]
        for score in ("dot", "scaled_dot", "additive")
    }
    numbers = {
        "small": right["dot"][0] - right["additive"][0],
        "large": right["additive"][1] - right["dot"][1],
        "scaled": right["scaled_dot"][1] - right["additive"][1],
        "time": layer_seconds("additive") / layer_seconds("scaled_dot"),
    }
    return Measurement(numbers, {"accuracy": {score: points(HEADS, values) for score, values in right.items()}})


CLAIM = Claim(
    title="Dot and additive scores",
    sentence="Dot and additive scores are alike for small heads; for large ones additive wins unless the dot product "
    "is scaled; dot is faster.",
    source="notes 002; Vaswani 2017, 3.2.1; Britz 2017",
    predictions=(
        within("small", "accuracy of dot less additive at d_k = 32", 0.1),
        lower_bound("large", "accuracy of additive less dot, unscaled, at d_k = 1,024", 0.1),
        lower_bound("scaled", "accuracy of scaled dot less additive at d_k = 1,024", -0.05),
        lower_bound("time", "time of an additive layer over that of a dot layer, d_k = 64", 2),
    ),
    measure=_measure,
    seconds=22.0,
    seeds=(3, 6),
    depends_on="One layer with one head that names the word before, among 6; the best of three rates for every score "
    "and size. Keys and queries have the usual first weights, under which unscaled scores grow with √d_k.",
    figures=(Figure("accuracy", "naming the word before", "d_k", "accuracy", True),),
    faults={"scaled everywhere": "all three scores are the scaled dot product"},
    on_text=TextExperiment(
        "multi30k-en-de",
        {score: (f"model.attention.score={score}",) for score in ("scaled_dot", "dot", "additive")},
        (
            lower_bound("dot less additive", "loss, unscaled dot less additive, d_k = 256", 0.02),
            within("scaled_dot less additive", "loss, scaled dot less additive", 0.02),
        ),
        ("model.heads=1",),
        seconds=110,
    ),
)
