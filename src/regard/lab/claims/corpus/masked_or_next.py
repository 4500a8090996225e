"""C27: masked words against next words: how fast each is learned, and what states know that see both sides."""

from itertools import count

import torch
from torch import Tensor

from regard.data import embedded
from regard.lab.claim import Claim, Figure, Measurement, Points, Setup, TextExperiment, lower_bound
from regard.lab.corpus import (
    BOS,
    PAD,
    WordEncoder,
    drawn,
    english,
    entries,
    head_offsets,
    masked,
    mean_loss,
    next_words,
    probe,
)  # fmt: skip
from regard.lab.tiny import fit

STEPS, EVERY, SIZE, HALF, TRAIN, TEST = 240, 30, 48, 32, 1500, 500
EARLY = 2  # which of the measurements is early: after a quarter of the steps


def reversal(ids: Tensor) -> Tensor:
    """Where each place goes when every row is turned round; padding stays on the right."""
    places, lengths = torch.arange(ids.shape[1]).expand_as(ids), (ids != PAD).sum(1, keepdim=True)
    return torch.where(places < lengths, lengths - 1 - places, places)


def examples(kind: str, ids: Tensor) -> tuple[Tensor, Tensor]:
    if kind == "masked":
        return masked(ids)
    return next_words(ids.gather(1, reversal(ids)) if kind == "backward" else ids)


def learn(kind: str, seed: int, size: int) -> tuple[WordEncoder, Points]:
    """A model, and its held-out loss over the steps of training."""
    torch.manual_seed(seed)
    model, rows = WordEncoder(entries(), size, layers=2, heads=4, causal=kind != "masked"), english("train")
    test, found, steps = examples(kind, english("valid", TEST)), [], count()

    def draw() -> tuple[Tensor, Tensor]:
        if (step := next(steps)) % EVERY == 0:
            found.append((float(step), mean_loss(model, *test)))
        return examples(kind, drawn(rows))

    fit(model, draw, STEPS, 5e-3)
    return model, [*found, (float(STEPS), mean_loss(model, *test))]


@torch.no_grad()
def states(kind: str, model: WordEncoder, ids: Tensor) -> Tensor:
    """What stands at every word once it has been read."""
    if kind == "masked":
        return model.states(ids)
    turn = reversal(ids)
    read = ids.gather(1, turn) if kind == "backward" else ids
    x = model.states(torch.cat([torch.full_like(ids[:, :1], BOS), read], 1))[:, 1:]
    return x.gather(1, turn[..., None].expand_as(x)) if kind == "backward" else x


def known(models: dict[str, WordEncoder]) -> float:
    """What a linear map finds in the states of these models side by side: where a word's head stands."""
    sides: list[tuple[embedded.Split, int]] = [("train", TRAIN), ("valid", TEST)]
    train, test = (
        (torch.cat([states(kind, model, english(*side)) for kind, model in models.items()], -1), head_offsets(*side))
        for side in sides
    )
    return probe(train, test)


def way_down(losses: Points) -> float:
    """The share of its way that a loss has gone after a quarter of the steps."""
    first, early, last = (losses[n][1] for n in (0, EARLY, -1))
    return (first - early) / (first - last)


def _measure(seed: int, setup: Setup) -> Measurement:
    kind = "forward" if setup.fault else "masked"
    deep, deep_losses = learn(kind, seed, SIZE)
    right, right_losses = learn("forward", seed, SIZE)
    shallow = {each: learn(each, seed, HALF)[0] for each in ("forward", "backward")}
    knows = known({kind: deep})
    numbers = {
        "slower": way_down(right_losses) - way_down(deep_losses),
        "one way": knows - known({"forward": right}),
        "shallow": knows - known(shallow),
    }
    return Measurement(numbers, {"loss": {"masked words": deep_losses, "next words": right_losses}})


CLAIM = Claim(
    title="Masked against left-to-right",
    sentence="A masked language model learns more slowly than a left-to-right one; deep bidirectionality matters.",
    source="notes 003; Devlin 2019, 5.1 and C.1",
    predictions=(
        lower_bound("slower",
                "share of its way down that the loss has gone after a quarter of the steps, next words less "
                 "masked", 0.05),
        lower_bound("one way",
                "accuracy of a linear map from states to where a word's head stands, masked less left to "
                 "right", 0.01),
        lower_bound("shallow", "the same, masked less left to right and right to left side by side", 0.01),
    ),
    measure=_measure,
    seconds=11.0,
    seeds=(3, 6),
    depends_on="Two layers of 48, and of 32 for the pair that reads one way each, 240 steps on the embedded corpus, as "
    "many of each. The losses are of other words, so only their ways down are compared.",
    figures=(Figure("loss", "held-out loss", "step", "nats a word"),),
    faults={"left to right for both": "the masked model reads left to right"},
    on_text=TextExperiment(
        "sst2-bert-small",
        {
            "masked": ("training.init=@masked",),
            "left to right": (
                "training.init=@next", "model={kind: lm, layers: 4, size: 512, inner: 2048, heads: 8, dropout: 0.1, "
                "position: {kind: learned, length: 128}}",
            ),
        },
        (lower_bound("masked less left to right", "accuracy on SST-2, masked less the other", 0.3),),
        ("training.steps=1000", "training.schedule.warmup=100"),
        pretrained={
            "masked": ("bert-small-wikitext2", "training.steps=1200"),
            "next": ("gpt-small-wikitext2", "training.steps=1200"),
        },
        metric="accuracy",
        seeds=(3, 5),
        seconds=100,
    ),
)  # fmt: skip
