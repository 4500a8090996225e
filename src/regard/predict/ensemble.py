"""Ensembles: several trained models as one, by the mean of their log-probabilities at every word."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from regard.accel.fused_step import fused
from regard.decoding import Ensemble
from regard.decoding.contract import AttentionRecord
from regard.decoding.ensemble import EnsembleState
from regard.errors import RegardError
from regard.examples.recipe_like import RecipeLike
from regard.models.batch import PairBatch

if TYPE_CHECKING:
    from regard.predict.translation import Translator
    from regard.text import Tokenizer


class EnsembleModel(nn.Module):
    """Models of one vocabulary as a model: forward gives log-probabilities, start and step decode."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        self.train(models[0].training)

    @property
    def ensemble(self) -> Ensemble:
        return Ensemble(list(self.models))  # type: ignore[arg-type]

    def fused(self) -> Ensemble:
        """The models with their fused steps, for decoding."""
        return Ensemble([fused(model) for model in self.models])

    @property
    def longest(self) -> int | None:
        return self.ensemble.longest

    def forward(self, batch: PairBatch) -> Tensor:
        each = [torch.log_softmax(model(batch), -1) for model in self.models]  # [N, V]
        return torch.stack(each).mean(0)

    def start(self, batch: PairBatch, length: int, record: AttentionRecord | None = None) -> EnsembleState:
        return self.ensemble.start(batch, length, record)

    def step(self, tokens: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState]:
        return self.ensemble.step(tokens, state)


def check_same_vocabularies(first: "Translator", others: Sequence["Translator"]) -> None:
    """Raise RegardError, which names the two runs, unless ids mean the same to all."""
    for other in others:
        for side, one, two in zip(("source", "target"), first.vocabulary, other.vocabulary, strict=True):
            if not same_vocabulary(one, two):
                raise RegardError(
                    f"{first.run or 'the first model'} and {other.run or 'another'} have other {side} vocabularies; "
                    "models translate together if these are the same: learned from the same data by the same settings"
                )
        if first.device != other.device:
            raise RegardError(
                f"models that translate together must be on one device, not {first.device}, {other.device}"
            )


def same_vocabulary(one: "Tokenizer", two: "Tokenizer") -> bool:
    """Whether the same text has the same ids in both."""
    return one is two or _identity(one) == _identity(two)


def _identity(tokenizer: "Tokenizer") -> tuple[object, ...]:
    """What the meaning of ids depends on; how training samples segmentations does not count."""
    t = tokenizer
    return t.kind, t.normaliser, t.special, t.pieces, t.document, t.options


def ensemble_recipe(recipes: Sequence[RecipeLike]) -> RecipeLike:
    """The first recipe, with the smallest `max_length` of all."""
    first, data = cast(Any, recipes[0]), recipes[0].data
    limit = min(recipe.data.filters.max_length for recipe in recipes)
    shortened: RecipeLike = replace(first, data=replace(data, filters=replace(data.filters, max_length=limit)))
    return shortened
