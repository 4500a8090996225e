"""C11: one matrix for queries and keys makes relations symmetric."""

from regard.lab.claim import Claim, Figure, Measurement, Setup, TextExperiment, lower_bound
from regard.lab.tiny import FittedModel, TinyEncoder, learned, previous_word
from regard.nn import SharedQueryKey

ENTRIES, LENGTH, STEPS, SIZE = 12, 12, 300, 32


def tiny(shared: bool) -> TinyEncoder:
    model = TinyEncoder(ENTRIES, SIZE, heads=1, feed_forward=False)
    if shared:
        for layer in model.layers:
            layer.attention = SharedQueryKey(SIZE, 1)
    return model


def _measure(seed: int, setup: Setup) -> Measurement:
    numbers: dict[str, float] = {}
    models: dict[str, FittedModel] = {}
    for place in ("line", "circle"):
        draw = lambda: previous_word(ENTRIES, LENGTH, circle=place == "circle")  # noqa: B023, E731
        test = draw()
        separate = learned(seed, lambda: tiny(False), draw, STEPS, 5e-3)
        shared = learned(seed, lambda: tiny(not setup.fault), draw, STEPS, 5e-3)
        numbers[f"separate, {place}"] = separate.right(*test)
        numbers[f"gain, {place}"] = separate.right(*test) - shared.right(*test)
        models |= {f"separate, {place}": separate, f"shared, {place}": shared}
    return Measurement(numbers, {"loss": {name: model.curve() for name, model in models.items()}})


CLAIM = Claim(
    title="Separate queries and keys",
    sentence="Queries and keys need matrices of their own: one for both makes every relation symmetric.",
    source="the notes",
    predictions=tuple(
        prediction
        for place in ("line", "circle")
        for prediction in (
            lower_bound(f"gain, {place}", "accuracy with two matrices less that with one", 0.1, f"in a {place}"),
            lower_bound(f"separate, {place}", "accuracy with two matrices", 0.9, f"in a {place}", control=True),
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
        (lower_bound("shared less separate", "loss, one matrix less two, equal parameters", 0.02),),
        control="parameters",
    ),
)
