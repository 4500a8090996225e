"""Texts as vectors: what a BERT makes of a text, pooled to one vector."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import RegardError, listed
from regard.examples.batching import by_length
from regard.examples.document_encoder import SentenceEncoder
from regard.examples.recipe_like import RecipeLike
from regard.models.bert import Bert
from regard.models.texts import Texts, texts
from regard.predict.arguments import checked, warn_caller
from regard.reporting import Progress, Warn

Pooling = Literal["mean", "cls", "max", "pooler"]


class Embedder:
    """`regard.load(folder)` gives one of these for a BERT that has no head."""

    normalise = False  # unless the task says so

    def __init__(self, model: nn.Module, reader: SentenceEncoder, recipe: RecipeLike) -> None:
        self.model, self.reader, self.recipe = model, reader, recipe
        self.tokenizer = reader.tokenizer
        self.pooling: Pooling = cast(Any, recipe.task).pooling

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def body(self) -> Bert:
        return cast(Bert, self.model.body)

    @property
    def context(self) -> int:
        """How many places it has learned to read."""
        length: int = cast(Any, self.recipe.task).length
        return min(length, self.body.longest or length)

    @checked
    def embed(
        self,
        given: Sequence[str],
        pooling: Pooling | None = None,
        layer: int | None = None,
        normalise: bool | None = None,
        batch_tokens: int = 4096,
        progress: Progress | None = None,
        warn: Warn | None = None,
    ) -> np.ndarray:
        """A vector for each text [N, D]; zeros for one that has no words.

        `pooling`: the mean or the largest of all places, the first place, or what the pooler makes of that. `layer`: 0
        is what goes into the first layer, -1 (by default) what comes out of the last. A text that is longer than the
        model has learned to read keeps its beginning, and `warn` is told how many such there were.
        """
        listed(given, "embed([text])")
        pool, depth = self._pooled(pooling or self.pooling, layer), self._depth(layer)
        rows = self._rows(given, warn)
        found = np.zeros((len(rows), self.body.config.size), dtype=np.float32)
        done = 0
        self.model.eval()
        for numbers in by_length([len(row) for row in rows], batch_tokens):
            batch = texts([rows[n] for n in numbers], self.tokenizer.pad).to(self.device)
            with torch.inference_mode():
                vectors = pool(self.body(batch, layers=depth), batch).float()
                if self.normalise if normalise is None else normalise:
                    vectors = F.normalize(vectors, dim=-1)
            found[numbers] = vectors.cpu().numpy()
            done += len(numbers)
            if progress:
                progress("Embedding", done, len(rows))
        return found

    def _rows(self, given: Sequence[str], warn: Warn | None) -> list[list[int]]:
        t, room = self.tokenizer, self.context - 2
        pieces = self.reader.encode(given)
        long = sum(len(row) > room for row in pieces)
        if long:
            said = f"{long:,} of {len(pieces):,} texts have more than {room} tokens: their beginnings are kept"
            (warn or warn_caller)(said)
        return [[t.bos, *row[:room], t.eos] if row else [] for row in pieces]

    def _depth(self, layer: int | None) -> int:
        layers = self.body.config.layers
        depth = layers if layer is None else layer + layers + 1 if layer < 0 else layer
        if not 0 <= depth <= layers:
            raise RegardError(
                f"there is no layer {layer}; write 0 to {layers}, or -1 to {-layers - 1} from the last on"
            )
        return depth

    def _pooled(self, name: str, layer: int | None) -> Callable[[Tensor, Texts], Tensor]:
        if name != "pooler":
            return POOLS[name]
        pooler = getattr(self.model, "pooler", None)
        if pooler is None:
            raise RegardError("this model has no pooler; choose another pooling: mean, cls or max")
        if self._depth(layer) != self.body.config.layers:
            raise RegardError("the pooler reads the last layer; leave out the layer, or choose another pooling")
        return lambda hidden, batch: pooler(hidden)


POOLS: dict[str, Callable[[Tensor, Texts], Tensor]] = {  # of states [B, T, D] to [B, D]
    "mean": lambda hidden, batch: (hidden * _real(batch)).sum(1) / _real(batch).sum(1),
    "cls": lambda hidden, batch: hidden[:, 0],
    "max": lambda hidden, batch: hidden.masked_fill(~_real(batch), float("-inf")).amax(1),
}


def _real(batch: Texts) -> Tensor:
    return (torch.ones_like(batch.ids, dtype=torch.bool) if batch.real is None else batch.real)[..., None]  # [B, T, 1]
