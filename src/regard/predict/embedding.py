"""Text embeddings: the states of a BERT, pooled to one vector for each text."""

from collections.abc import Callable, Sequence
from typing import Protocol, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import RegardError, require_list
from regard.examples.batching import by_length
from regard.examples.document_encoder import SentenceEncoder
from regard.examples.recipe_like import RecipeLike
from regard.models.batch import TextBatch, collate_texts
from regard.models.bert import Bert
from regard.predict.base import Predictor
from regard.predict.options import Pooling, checked, warn_caller
from regard.reporting import Progress, Warn


class EmbeddingTask(Protocol):
    """What the settings of a task say about its embeddings."""

    pooling: Pooling
    length: int  # positions that are read, [CLS] and [SEP] included


class TextEmbedder(Predictor):
    """`regard.load(folder)` returns this for a BERT that has no head."""

    normalise = False  # unless the task says so

    def __init__(self, model: nn.Module, sentence_encoder: SentenceEncoder, recipe: RecipeLike) -> None:
        super().__init__(model, recipe)
        self.sentence_encoder, self.tokenizer = sentence_encoder, sentence_encoder.tokenizer
        self.task = cast(EmbeddingTask, recipe.task)
        self.pooling = self.task.pooling

    @property
    def body(self) -> Bert:
        return cast(Bert, self.model.body)

    @property
    def context(self) -> int:
        """Positions that the model was trained to read."""
        return min(self.task.length, self.body.longest or self.task.length)

    @checked
    def embed(
        self,
        lines: Sequence[str],
        pooling: Pooling | None = None,
        layer: int | None = None,
        normalise: bool | None = None,
        batch_tokens: int = 4096,
        progress: Progress | None = None,
        warn: Warn | None = None,
    ) -> np.ndarray:
        """A vector for each text [N, D]; zeros for one that has no words.

        `pooling`: mean or max over all positions, the first one (cls), or the pooler's output for that. `layer`: 0 is
        the input of the first layer, -1 (the default) the output of the last. A text that is longer than the model was
        trained to read keeps its beginning, and `warn` gets a sentence with the number of such texts.
        """
        require_list(lines, "embed([text])")
        pool, depth = self._pool(pooling or self.pooling, layer), self._depth(layer)
        rows = self._rows(lines, warn)
        embeddings = np.zeros((len(rows), self.body.config.size), dtype=np.float32)
        done = 0
        with self.eval_mode(), torch.inference_mode():
            for indices in by_length([len(row) for row in rows], batch_tokens):
                batch = collate_texts([rows[n] for n in indices], self.tokenizer.pad).to(self.device)
                vectors = pool(self.body(batch, layers=depth), batch).float()
                if self.normalise if normalise is None else normalise:
                    vectors = F.normalize(vectors, dim=-1)
                embeddings[indices] = vectors.cpu().numpy()
                done += len(indices)
                if progress:
                    progress("Embedding", done, len(rows))
        return embeddings

    def _rows(self, lines: Sequence[str], warn: Warn | None) -> list[list[int]]:
        t, room = self.tokenizer, self.context - 2
        pieces = self.sentence_encoder.encode(lines)
        long = sum(len(row) > room for row in pieces)
        if long:
            (warn or warn_caller)(
                f"{long:,} of {len(pieces):,} texts have more than {room} tokens: their beginnings are kept"
            )
        return [[t.bos, *row[:room], t.eos] if row else [] for row in pieces]

    def _depth(self, layer: int | None) -> int:
        layers = self.body.config.layers
        depth = layers if layer is None else layer + layers + 1 if layer < 0 else layer
        if not 0 <= depth <= layers:
            raise RegardError(
                f"there is no layer {layer}; write 0 to {layers}, or -1 to {-layers - 1} from the last on"
            )
        return depth

    def _pool(self, name: str, layer: int | None) -> Callable[[Tensor, TextBatch], Tensor]:
        if name != "pooler":
            return POOLS[name]
        pooler = getattr(self.model, "pooler", None)
        if pooler is None:
            raise RegardError("this model has no pooler; choose another pooling: mean, cls or max")
        if self._depth(layer) != self.body.config.layers:
            raise RegardError("the pooler reads the last layer; leave out the layer, or choose another pooling")
        return lambda hidden, batch: pooler(hidden)


POOLS: dict[str, Callable[[Tensor, TextBatch], Tensor]] = {  # of states [B, T, D] to [B, D]
    "mean": lambda hidden, batch: (hidden * _mask(batch)).sum(1) / _mask(batch).sum(1),
    "cls": lambda hidden, batch: hidden[:, 0],
    "max": lambda hidden, batch: hidden.masked_fill(~_mask(batch), float("-inf")).amax(1),
}


def _mask(batch: TextBatch) -> Tensor:
    return (torch.ones_like(batch.ids, dtype=torch.bool) if batch.real is None else batch.real)[..., None]  # [B, T, 1]
