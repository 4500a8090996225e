"""Text embeddings: the states of a BERT, pooled to one vector for each text."""

from collections.abc import Callable, Sequence
from typing import Protocol, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import RegardError, require_list
from regard.examples.batching import LESS_TOKENS, by_length, each_batch
from regard.examples.codec import READ
from regard.examples.document_encoder import SentenceEncoder
from regard.examples.long_text import Long, LongConfig, Segments, Shortened, shorten, to_long
from regard.examples.recipe_like import RecipeLike
from regard.models.batch import TextBatch, collate_texts
from regard.models.bert import Bert, LayerJoin, layer_numbers
from regard.nn.record import AttentionRecorder
from regard.predict.base import Predictor
from regard.predict.long_text import attention_received
from regard.predict.options import Pooling, checked, warn_caller
from regard.reporting import Progress, Warn


class EmbeddingTask(Protocol):
    """What the settings of a task say about its embeddings."""

    pooling: Pooling
    length: int  # positions that are read, [CLS] and [SEP] included
    long: LongConfig


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
        layers: str | list[int] | None = None,
        join: LayerJoin = "concat",
        progress: Progress | None = None,
        warn: Warn | None = None,
        long: Long | None = None,
        shortened: dict[int, Shortened] | None = None,
    ) -> np.ndarray:
        """A vector for each text [N, D]; zeros for one that has no words.

        `pooling`: mean or max over all positions, the first one (cls), or the pooler's output for that. `layer`: 0 is
        the input of the first layer, -1 (the default) the output of the last. `layers`: several of them, "-4..-1" or a
        list, joined at every position: concatenated (vectors are as much longer), added or their mean. `long` says what
        becomes of a text that is longer than the model was trained to read, if not the recipe; vectors of segments are
        pooled. `warn` gets a sentence with the number of such texts, `shortened` what was done with each, by index.
        """
        require_list(lines, "embed([text])")
        numbers = self.layer_numbers(layer, layers)
        pool = self._pool(pooling or self.pooling, numbers)
        chosen = self.long(long)
        rows, owners = self._rows(lines, chosen, warn or warn_caller, {} if shortened is None else shortened)
        embeddings = np.zeros((len(rows), self.width(layer, layers, join)), dtype=np.float32)
        done = 0

        def compute(indices: list[int]) -> None:
            nonlocal done
            batch = collate_texts([rows[n] for n in indices], self.tokenizer.pad).to(self.device)
            vectors = pool(self.body.joined_layers(batch, numbers, join), batch).float()
            embeddings[indices] = vectors.cpu().numpy()
            done += len(indices)
            if progress:
                progress("Embedding", done, len(rows))

        with self.eval_mode(), torch.inference_mode():
            each_batch(by_length([len(row) for row in rows], batch_tokens), compute, LESS_TOKENS)
        pooled = _pool_segments(embeddings, owners, len(lines), chosen)
        unit = self.normalise if normalise is None else normalise
        return F.normalize(torch.from_numpy(pooled), dim=-1).numpy() if unit else pooled

    def long(self, long: Long | None) -> LongConfig:
        """What becomes of long texts, as the recipe says where nothing is given."""
        return to_long(long, self.task.long)

    def _rows(
        self, lines: Sequence[str], long: LongConfig, warn: Warn, shortened: dict[int, Shortened]
    ) -> tuple[list[list[int]], list[int]]:
        """The rows that are read, and the number of the text of each."""
        t, room, encode = self.tokenizer, self.context - 2, self.sentence_encoder.encode
        rows, owners = list[list[int]](), list[int]()
        for n, (line, ids) in enumerate(zip(lines, encode(lines), strict=True)):
            read, done = shorten(long, line, ids, room, encode, f"text {n + 1}", importance=self._importance)
            shortened |= {n: done} if done else {}
            rows += [[t.bos, *row, t.eos] if row else [] for row in read]
            owners += [n] * len(read)
        self._say_long(shortened, len(lines), warn)
        return rows, owners

    def _say_long(self, shortened: dict[int, Shortened], count: int, warn: Warn) -> None:
        said = [done for done in shortened.values() if done.kind in READ]
        if said:
            tokens, dropped = sum(done.tokens for done in said), sum(done.dropped for done in said)
            warn(
                f"{len(said):,} of {count:,} texts have more than {self.context - 2} tokens, {READ[said[0].kind]}; "
                f"long texts lost {dropped:,} of {tokens:,} tokens"
            )

    def _importance(self, passages: Sequence[list[int]]) -> np.ndarray:
        """Of passages, by the attention that their tokens receive."""

        def read(ids: list[int], record: AttentionRecorder) -> int:
            row = [self.tokenizer.bos, *ids, self.tokenizer.eos]
            self.body(collate_texts([row], self.tokenizer.pad).to(self.device), record)
            return 1

        with self.eval_mode():
            return attention_received(read, passages, self.context - 2)

    def layer_numbers(self, layer: int | None = None, layers: str | list[int] | None = None) -> list[int]:
        """Those that are read, from 0, what goes into the first."""
        if layer is not None and layers is not None:
            raise RegardError("layer names one layer, and layers several; leave out one of the two")
        single = [-1 if layer is None else layer]
        try:
            return layer_numbers(single if layers is None else layers, self.body.config.layers)
        except ValueError as error:
            raise RegardError(str(error)) from None

    def width(
        self, layer: int | None = None, layers: str | list[int] | None = None, join: LayerJoin = "concat", **_: object
    ) -> int:
        """How long a vector is."""
        return self.body.config.size * (len(self.layer_numbers(layer, layers)) if join == "concat" else 1)

    def _pool(self, name: str, layers: list[int]) -> Callable[[Tensor, TextBatch], Tensor]:
        if name != "pooler":
            return POOLS[name]
        pooler = getattr(self.model, "pooler", None)
        if pooler is None:
            raise RegardError("this model has no pooler; choose another pooling: mean, cls or max")
        if layers != [self.body.config.layers]:
            raise RegardError("the pooler reads the last layer; leave out the layer, or choose another pooling")
        return lambda hidden, batch: pooler(hidden)


POOLS: dict[str, Callable[[Tensor, TextBatch], Tensor]] = {  # of states [B, T, D] to [B, D]
    "mean": lambda hidden, batch: (hidden * _mask(batch)).sum(1) / _mask(batch).sum(1),
    "cls": lambda hidden, batch: hidden[:, 0],
    "max": lambda hidden, batch: hidden.masked_fill(~_mask(batch), float("-inf")).amax(1),
}


def _pool_segments(vectors: np.ndarray, owners: list[int], count: int, long: LongConfig) -> np.ndarray:
    """Of vectors of rows [R, D] those of texts [N, D]."""
    if len(vectors) == count:
        return vectors
    highest = isinstance(long, Segments) and long.pool == "max"
    pooled = np.zeros((count, vectors.shape[1]), dtype=np.float32)
    for n in range(count):
        own = vectors[np.array(owners) == n]
        pooled[n] = own.max(0) if highest else own.mean(0)
    return pooled


def _mask(batch: TextBatch) -> Tensor:
    return (torch.ones_like(batch.ids, dtype=torch.bool) if batch.real is None else batch.real)[..., None]  # [B, T, 1]
