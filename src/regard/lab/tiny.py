"""Tiny models and trainings for claims: an encoder of regard's own layers, and a loop of a few hundred steps."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.lab.claim import Points
from regard.nn import EncoderLayer, FeedForward, MultiHeadAttention, build_position
from regard.nn.embedding import Embedding
from regard.nn.layout import Layout
from regard.nn.position import Position
from regard.nn.record import LayerRecord

JOINED = ("sinusoidal", "learned", "counting", "normalised_counting")  # positions that join the word vectors


def attention_layer(
    size: int,
    heads: int = 1,
    feed_forward: bool = True,
    residual: str = "post_norm",
    norm: str = "layer",
    **choices: object,
) -> EncoderLayer:
    """A layer without dropout; `choices` are those of MultiHeadAttention."""
    attention = MultiHeadAttention(size, heads, **cast(Any, choices))
    inner = FeedForward(size, 2 * size) if feed_forward else None
    return EncoderLayer(attention, inner, residual, dropout=0.0, norm=norm)


class TinyEncoder(nn.Module):
    """Tokens [B, N] to logits [B, N, V]: embedding, position, layers, and a matrix of words."""

    def __init__(
        self,
        entries: int,
        size: int = 32,
        layers: int = 1,
        heads: int = 2,
        position: str | dict[str, object] = "sinusoidal",
        classes: int | None = None,
        **choices: object,
    ) -> None:
        super().__init__()
        kind = position if isinstance(position, str) else str(position["kind"])
        joined = kind in JOINED
        self.embedding = Embedding(entries, size, True)
        self.position: Position | None = build_position(position, size) if joined else None
        inside: object = "none" if joined else position
        self.layers = nn.ModuleList(
            attention_layer(size, heads, position=inside, layer=n, **cast(Any, choices)) for n in range(layers)
        )
        self.output = nn.Linear(size, classes or entries)

    def states(self, ids: Tensor, mask: Tensor | None = None, records: Sequence[LayerRecord | None] = ()) -> Tensor:
        """What the last layer gives [B, N, D]; `records`, one a layer, get its weights."""
        x = self.embedding(ids)
        if self.position is not None:
            x = self.position.embed(x, Layout.of(ids.shape[1]))
        for layer, record in zip_longest(self.layers, records):
            x = layer(x, mask=mask, record=record)
        return x

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.output(self.states(ids, mask))


def attention_alone(entries: int, size: int, heads: int, classes: int) -> TinyEncoder:
    """One attention without residual, norm and feed-forward network: what is said comes through its heads."""
    return TinyEncoder(
        entries, size, heads=heads, residual="none", feed_forward=False, norm="none", classes=classes
    )  # fmt: skip


# --- training ------------------------------------------------------------------------------------------------------

Draw = Callable[[], tuple[Tensor, Tensor]]  # inputs and labels (−100: none)


def descend(model: nn.Module, loss: Callable[[], Tensor], steps: int, rate: float, warmup: float = 20) -> list[float]:
    """Train by AdamW; the losses."""
    optimiser = torch.optim.AdamW(model.parameters(), rate, betas=(0.9, 0.98))
    losses = []
    for step in range(1, steps + 1):
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1, step / warmup) * (1 - 0.9 * step / steps)
        now = loss()
        optimiser.zero_grad()
        now.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(float(now.detach()))
    return losses


def fit(model: nn.Module, draw: Draw, steps: int, rate: float) -> list[float]:
    """Train on what `draw` gives; the losses."""

    def loss() -> Tensor:
        ids, labels = draw()
        return F.cross_entropy(model(ids).flatten(0, -2), labels.flatten(), ignore_index=-100)

    return descend(model, loss, steps, rate)


@dataclass(frozen=True)
class FittedModel:
    """A trained model, with the losses of its training."""

    model: Any  # any module; `Any` lets a claim call its own methods
    losses: list[float]

    @torch.no_grad()
    def right(self, ids: Tensor, labels: Tensor) -> float:
        """Share of the labels that the model gives."""
        guesses, real = self.model.eval()(ids).argmax(-1), labels != -100
        return float((guesses == labels)[real].double().mean())

    def curve(self, every: int = 5) -> Points:
        return [(float(n), self.losses[n]) for n in range(0, len(self.losses), every)]


def learned(seed: int, build: Callable[[], nn.Module], draw: Draw, steps: int, rate: float) -> FittedModel:
    """What `build` makes and `draw` gives, by this seed alone: arms of a seed begin alike and see the same."""
    torch.manual_seed(seed)
    model = build()
    return FittedModel(model, fit(model, draw, steps, rate))


def previous_word(entries: int, length: int, rows: int = 32, circle: bool = False) -> tuple[Tensor, Tensor]:
    """Name the word before: no bag of words can, nor a relation without a direction.

    In a circle the first word comes after the last; else it has no label.
    """
    ids = torch.randint(entries, (rows, length))
    labels = ids.roll(1, 1)
    if not circle:
        labels[:, 0] = -100
    return ids, labels


# --- times ---------------------------------------------------------------------------------------------------------


def seconds_of(work: Callable[[], object], rounds: int = 5) -> float:
    """The least time of some rounds, on torch's default device: CPU time, so that what else the machine does hardly
    counts; on a GPU until it is done."""
    gpu = torch.get_default_device().type == "cuda"
    clock = time.perf_counter if gpu else time.process_time
    work()
    times = []
    for _ in range(rounds):
        if gpu:
            torch.cuda.synchronize()
        began = clock()
        work()
        if gpu:
            torch.cuda.synchronize()
        times.append(clock() - began)
    return max(min(times), 1e-9)


# --- numbers -------------------------------------------------------------------------------------------------------


def points(x: Sequence[float], y: Sequence[float]) -> Points:
    return [(float(a), b) for a, b in zip(x, y, strict=True)]


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """p of y ∝ xᵖ, by least squares of the logarithms."""
    a, b = torch.tensor(x, dtype=torch.float64).log(), torch.tensor(y, dtype=torch.float64).log()
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).sum() / (a * a).sum())
