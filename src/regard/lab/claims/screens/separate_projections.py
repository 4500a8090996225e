"""C11: one matrix for queries and keys makes relations symmetric."""

import torch

from regard.lab.claim import Claim, Figure, Measurement, Points, PredictedRange, Setup, TextExperiment
from regard.lab.tiny import TinyEncoder, fit, previous_word, share_right
from regard.nn import SharedQueryKey

ENTRIES, LENGTH, STEPS, SIZE = 12, 12, 300, 32


def shared_projection(model: TinyEncoder, heads: int, size: int) -> TinyEncoder:
    for layer in model.layers:
        layer.attention = SharedQueryKey(size, heads)
    return model


def _measure(seed: int, setup: Setup) -> Measurement:
    numbers: dict[str, float] = {}
    curves: dict[str, Points] = {}
    for circle, place in ((False, "line"), (True, "circle")):
        test, right = previous_word(ENTRIES, LENGTH, circle=circle), {}
        for name in ("separate", "shared"):
            torch.manual_seed(seed)
            model = TinyEncoder(ENTRIES, SIZE, heads=1, feed_forward=False)
            if name == "shared" and setup.fault != "separate for both":
                model = shared_projection(model, 1, SIZE)
            losses = fit(model, lambda: previous_word(ENTRIES, LENGTH, circle=circle), STEPS, 5e-3)  # noqa: B023
            right[name] = share_right(model, *test)
            curves[f"{name}, {place}"] = [(float(n), losses[n]) for n in range(0, STEPS, 5)]
        numbers |= {f"gain, {place}": right["separate"] - right["shared"], f"separate, {place}": right["separate"]}
    return Measurement(numbers, {"loss": curves})


CLAIM = Claim(
    id="C11",
    title="Separate queries and keys",
    sentence="Queries and keys need matrices of their own: one for both makes every relation symmetric.",
    source="the notes",
    kind="screen",
    predictions=tuple(
        prediction
        for place in ("line", "circle")
        for prediction in (
            PredictedRange(
                f"gain, {place}",
                "accuracy with two matrices less that with one: at least 0.1",
                0.1,
                setting=f"in a {place}",
            ),
            PredictedRange(
                f"separate, {place}", "accuracy with two matrices: at least 0.9", 0.9, setting=f"in a {place}"
            ),
        )
    ),
    measure=_measure,
    seconds=2.5,
    depends_on="One matrix makes scores symmetric: word i and word j score each other alike. That forbids no "
    "direction along a line: scores that fall from one end to the other let every word prefer the one before. In a "
    "circle nothing can fall all the way round. One layer, one head, no feed-forward network, twelve words; one matrix "
    "also has fewer parameters, which were not made equal. The line was measured first, in a pilot, and refuted the "
    "claim; the circle was added for that reason, with the same margin.",
    figures=(Figure("loss", "training loss", "step", ""),),
    faults={"separate for both": "both have two matrices"},
    on_text=TextExperiment(
        "multi30k-en-de",
        {name: (f"model.attention.projection={name}",) for name in ("separate", "shared")},
        (PredictedRange("shared less separate", "loss, one matrix less two, equal parameters: at least 0.02", 0.02),),
        control="parameters",
    ),
)
