"""Heads for fine-tuning: classification or regression of sequences, of tokens, of spans, and multiple choice.

Each is a body and one linear map, as in Devlin 2019, figure 4. `scores` are its logits, `loss` is a sum over the
examples of the batch. The labels of a batch are its `classes`. On a language model, the loss of its next tokens may be
added, `lm_weight` times (Radford 2018, eq. 5).
"""

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import option
from regard.models.batch import TextBatch
from regard.models.bert import Bert, LayerJoin, init_linear, layer_numbers
from regard.models.lm import LanguageModelBody
from regard.models.recurrent import Recurrent
from regard.nn.record import AttentionRecorder

IGNORE_INDEX = -100  # the class of positions without a label


class BodyWithHead(nn.Module):
    """A body and a new head. A `frozen` body is not trained, and has no dropout."""

    lm_weight = 0.0  # of the next tokens' loss, beside an example's own

    def __init__(self, body: Bert, outputs: int, frozen: bool = False) -> None:
        super().__init__()
        self.body, self.frozen, self.config = body, frozen, body.config
        self.dropout = nn.Dropout(body.config.dropout)
        self.output = nn.Linear(body.config.size, outputs)
        init_linear(self.output)
        if frozen:
            body.requires_grad_(False)

    def train(self, mode: bool = True) -> "BodyWithHead":
        super().train(mode)
        self.body.train(mode and not self.frozen)
        return self

    def parts(self) -> list[list[nn.Module]]:
        """The head, then the layers of the body from the top down, for layer-wise learning rates."""
        head: list[nn.Module] = [module for name, module in self.named_children() if name != "body"]
        return [head, *self.body.parts()]

    @property
    def capturable(self) -> bool:
        """Whether a training step may be a CUDA graph; the auxiliary loss has as many rows as there are real tokens."""
        return self.body.capturable and not self.lm_weight

    def hidden(self, batch: TextBatch, record: AttentionRecorder | None = None) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            return self.body(batch, record)  # [B, T, D]

    def forward(
        self, batch: TextBatch, record: AttentionRecorder | None = None, smoothing: float | None = None
    ) -> Tensor:
        """The logits, or, with `smoothing`, the loss of the batch's classes, summed."""
        hidden = self.hidden(batch, record)
        scores = to_float32(self.logits(hidden, batch))
        if smoothing is None:
            return scores
        loss = self.loss(scores, batch, smoothing)
        if not self.lm_weight:
            return loss
        next_tokens = cast(LanguageModelBody, self.body).next_token_loss(hidden, batch)
        return loss + self.lm_weight * self.target_count(batch) * next_tokens

    def scores(self, batch: TextBatch, record: AttentionRecorder | None = None) -> Tensor:
        """The logits in float32, whatever the body's dtype is."""
        return to_float32(self.logits(self.hidden(batch, record), batch))

    def logits(self, hidden: Tensor, batch: TextBatch) -> Tensor:
        """What the body's states [B, T, D] give."""
        raise NotImplementedError

    def target_count(self, batch: TextBatch) -> Tensor | int:
        """The targets of the batch, by which the loop divides its loss."""
        assert batch.classes is not None
        return len(batch.classes)

    def loss(self, scores: Tensor, batch: TextBatch, smoothing: float = 0.0) -> Tensor:
        raise NotImplementedError


class PooledHead(BodyWithHead):
    """A head on a row's pooled vector, or on the sum of those of `orders` rows that an example has."""

    def __init__(self, body: Bert, outputs: int, frozen: bool = False, orders: int = 1) -> None:
        super().__init__(body, outputs, frozen)
        self.pooler, self.orders = body.pooler(), orders

    def logits(self, hidden: Tensor, batch: TextBatch) -> Tensor:
        pooled = self.pooler(hidden, batch.real)  # [B, D]
        if self.orders > 1:
            pooled = pooled.unflatten(0, (-1, self.orders)).sum(1)
        return self.output(self.dropout(pooled))  # [B, outputs]


class SequenceClassifier(PooledHead):
    """A class for each row: scores [B, C], classes [B]."""

    def loss(self, scores: Tensor, batch: TextBatch, smoothing: float = 0.0) -> Tensor:
        assert batch.classes is not None
        return F.cross_entropy(scores, batch.classes, reduction="sum", label_smoothing=smoothing)


class SequenceRegressor(PooledHead):
    """A number for each row: scores [B], classes [B] are the numbers. It learns by the square of the difference."""

    def logits(self, hidden: Tensor, batch: TextBatch) -> Tensor:
        return super().logits(hidden, batch)[:, 0]

    def loss(self, scores: Tensor, batch: TextBatch, smoothing: float = 0.0) -> Tensor:
        assert batch.classes is not None
        return F.mse_loss(scores, batch.classes, reduction="sum")


class TokenClassifier(BodyWithHead):
    """A class for each position: scores [B, T, C]; classes [B, T] are IGNORE_INDEX where there is no label."""

    def logits(self, hidden: Tensor, batch: TextBatch) -> Tensor:
        return self.output(self.dropout(hidden))

    def target_count(self, batch: TextBatch) -> Tensor | int:
        assert batch.classes is not None
        return batch.classes.ne(IGNORE_INDEX).sum()

    def loss(self, scores: Tensor, batch: TextBatch, smoothing: float = 0.0) -> Tensor:
        assert batch.classes is not None
        flat = scores.flatten(0, 1), batch.classes.flatten()
        return F.cross_entropy(*flat, ignore_index=IGNORE_INDEX, reduction="sum", label_smoothing=smoothing)


@dataclass(frozen=True)
class LayerFeatures:
    """Layers of a frozen body, joined, as what a small model reads (Devlin 2019, 5.3)."""

    layers: str = option("-4..-1", "which of them: -4..-1, or 0,2; 0 is what goes into the first")
    join: LayerJoin = option("concat", "how they become one vector: side by side, added, or their mean")
    lstm: int = option(2, "layers of a biLSTM that reads them; 0: a linear map alone")
    size: int = option(768, "the width of its states, half of it in each direction")

    def __post_init__(self) -> None:
        if self.lstm < 0 or self.size < 2 or self.size % 2:
            raise ValueError(f"lstm must be 0 or more, and size even, not {self.lstm} and {self.size}")


class FeatureTagger(TokenClassifier):
    """A class for each position, from layers of a body that is frozen."""

    def __init__(self, body: Bert, outputs: int, features: LayerFeatures) -> None:
        super().__init__(body, outputs, frozen=True)
        self.features, self.numbers = features, layer_numbers(features.layers, body.config.layers)
        width, self.lstm = body.config.size * (len(self.numbers) if features.join == "concat" else 1), None
        if features.lstm:
            self.lstm = Recurrent("lstm", width, features.size // 2, features.lstm, body.config.dropout, directions=2)
            self.lstm.reset_parameters()
            width = features.size
        self.output = nn.Linear(width, outputs)
        init_linear(self.output)

    @property
    def capturable(self) -> bool:
        return self.lstm is None and super().capturable

    def hidden(self, batch: TextBatch, record: AttentionRecorder | None = None) -> Tensor:
        with torch.no_grad():
            return self.body.joined_layers(batch, self.numbers, self.features.join)

    def logits(self, hidden: Tensor, batch: TextBatch) -> Tensor:
        if self.lstm is not None:
            hidden = self.lstm.read(self.dropout(hidden), batch.real)[0]
        return super().logits(hidden, batch)


class SpanClassifier(BodyWithHead):
    """Where an answer begins and ends: scores [B, T, 2], classes [B, 2]. A row without one has (0, 0)."""

    def __init__(self, body: Bert, frozen: bool = False) -> None:
        super().__init__(body, 2, frozen)

    def logits(self, hidden: Tensor, batch: TextBatch) -> Tensor:
        return self.output(hidden)

    def loss(self, scores: Tensor, batch: TextBatch, smoothing: float = 0.0) -> Tensor:
        assert batch.classes is not None
        if batch.real is not None:
            scores = scores.masked_fill(~batch.real[..., None], torch.finfo(scores.dtype).min)
        # Label smoothing would make padding likely: a span's target is its two positions alone.
        return F.cross_entropy(scores, batch.classes, reduction="sum") / 2  # over T, of begin and end


@dataclass(frozen=True)
class MultipleChoiceBatch(TextBatch):
    """A batch in which each row is an option of a question."""

    groups: Tensor | None = None  # [Q, O] the rows of each question; -1 where it has fewer options than others


class MultipleChoice(PooledHead):
    """Which of a question's options is right: scores [Q, O], −∞ where there is none; classes [Q]."""

    def __init__(self, body: Bert, frozen: bool = False) -> None:
        super().__init__(body, 1, frozen)

    def logits(self, hidden: Tensor, batch: TextBatch) -> Tensor:
        assert isinstance(batch, MultipleChoiceBatch)
        assert batch.groups is not None
        each = super().logits(hidden, batch)[:, 0]  # [B]
        return each[batch.groups.clamp(min=0)].masked_fill(batch.groups < 0, -torch.inf)

    def loss(self, scores: Tensor, batch: TextBatch, smoothing: float = 0.0) -> Tensor:
        assert batch.classes is not None
        return F.cross_entropy(scores, batch.classes, reduction="sum")  # smoothing would meet the −∞


def to_float32(scores: Tensor) -> Tensor:
    return scores.to(torch.promote_types(scores.dtype, torch.float32))
