"""Continuous batching of translations: texts that arrive at any time join those in progress. Knows no requests."""

from collections.abc import Sequence

import torch

from regard.accel.decoding_graph import bucket
from regard.decoding import DecodingConfig
from regard.decoding.continuous import ContinuousBatch
from regard.decoding.engine import SearchSpec
from regard.models.batch import PairBatch
from regard.predict.translation import Translation, Translator, hypotheses_per_line

SMALLEST = 32  # pieces that the slots of the smallest batch have room for
KEPT = 8  # batches that are kept, for other lengths and other searches
Finished = list[tuple[int, list[Translation]]]


class ContinuousTranslator:
    """Translates texts as they arrive: a batch for each size of text and each search, in which slots are refilled."""

    def __init__(self, translator: Translator, slots: int = 64) -> None:
        self.translator, self.slots = translator, slots
        self.batches: dict[tuple[int, DecodingConfig, int], ContinuousBatch] = {}
        self.empty: Finished = []  # texts without words, which need no decoding
        translator.model.eval()

    def add(self, keys: Sequence[int], texts: Sequence[str], decoding: DecodingConfig, count: int = 1) -> list[int]:
        """Add texts, each of which gets `count` translations; returns the keys of those that are too long."""
        t = self.translator
        t.check_search(decoding, count, False)
        too_long, limit = [], t.recipe.data.filters.max_length
        for key, ids in zip(keys, t.vocabulary.source.encode_batch(list(texts)), strict=True):
            if len(ids) > limit:
                too_long.append(key)
            elif ids:
                self._batch(len(ids) + 1, decoding, count).add(key, ids, t.output_limit(decoding, len(ids)))
            else:
                self.empty.append((key, []))
        return too_long

    def drop(self, keys: set[int]) -> None:
        self.empty = [each for each in self.empty if each[0] not in keys]
        for batch in self.batches.values():
            batch.cancel(keys)

    @property
    def busy(self) -> bool:
        return bool(self.empty) or any(batch.busy for batch in self.batches.values())

    @property
    def waiting(self) -> int:
        """How many texts wait for a slot."""
        return sum(len(batch.waiting) for batch in self.batches.values())

    @property
    def rows(self) -> int:
        return sum(batch.batch.active for batch in self.batches.values())

    def step(self) -> Finished:
        """One decoding step of every text; returns the finished ones, with all hypotheses (see `distinct_texts`)."""
        finished, self.empty = self.empty, []
        for batch in list(self.batches.values()):
            for key, hypotheses in batch.step() if batch.busy else ():
                finished.append((key, [self.translator.to_translation(h) for h in hypotheses]))
        return finished

    def _batch(self, pieces: int, decoding: DecodingConfig, count: int) -> ContinuousBatch:
        """The batch for texts of this length; it has room for up to twice as many pieces."""
        t, room = self.translator, bucket(pieces, SMALLEST)
        key = room, decoding, count
        if key not in self.batches:
            idle = [name for name, batch in self.batches.items() if not batch.busy]
            for name in idle[: max(0, len(self.batches) - KEPT + 1)]:
                del self.batches[name]
            wish = SearchSpec(t.symbols, decoding, hypotheses_per_line(decoding, count))
            slots = max(1, self.slots * SMALLEST // room)
            limit = t.output_limit(decoding, room)
            self.batches[key] = ContinuousBatch(t.engine, wish, self._sources, t.blank, room, limit, slots)
        self.batches[key] = batch = self.batches.pop(key)  # the last to be evicted
        return batch

    def _sources(self, rows: list[list[int]]) -> PairBatch:
        """Padded in lists: for the few that join at a time that is faster than in arrays."""
        tokenizer, device, longest = self.translator.vocabulary.source, self.translator.device, max(map(len, rows))
        padded = [[*row, tokenizer.eos, *[tokenizer.pad] * (longest - len(row))] for row in rows]
        lengths = torch.tensor([len(row) + 1 for row in rows], device=device)
        real = torch.arange(longest + 1, device=device) < lengths[:, None]  # [B, S]
        return PairBatch(torch.tensor(padded, device=device), None if min(map(len, rows)) == longest else real)
