"""Continuous batching: texts that arrive at any time join those in progress. Knows no requests of a server.

Of each size of text and each search there is a batch, in which slots are refilled.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch

from regard.accel.decoding_graph import bucket
from regard.decoding import ContinuousBatch, DecodingConfig, GenerationRequest, Sample, SearchSpec
from regard.decoding.context import ContextWindows
from regard.decoding.contract import InputBatch
from regard.models.batch import PairBatch
from regard.predict.chat import ChatPredictor
from regard.predict.generation import TextGenerator
from regard.predict.text_stream import StreamedText, TextDelta
from regard.predict.translation import Translation, Translator, hypotheses_per_line

SMALLEST = 32  # pieces that the slots of the smallest batch have room for
FEWEST = 8  # streams beside each other, however long they are: each has a reader
KEPT = 8  # batches that are kept, for other lengths and other searches
Finished = list[tuple[int, list[Translation]]]
K = TypeVar("K", bound=tuple[object, ...])


class RecentBatches(dict[K, ContinuousBatch]):
    """Batches by what their requests have in common; of those that are idle the last used are kept."""

    def of(self, key: K, make: Callable[[], ContinuousBatch]) -> ContinuousBatch:
        """The batch of this key, which is then the last to be given up."""
        batch = self.pop(key, None)
        if batch is None:
            idle = [name for name, other in self.items() if not other.busy]
            for name in idle[: max(0, len(self) - KEPT + 1)]:
                del self[name]
            batch = make()
        self[key] = batch
        return batch

    def busy(self) -> list[ContinuousBatch]:
        return [batch for batch in self.values() if batch.busy]

    def cancel(self, keys: set[int]) -> None:
        for batch in self.values():
            batch.cancel(keys)


class ContinuousTranslator:
    """Translates texts as they arrive."""

    def __init__(self, translator: Translator, slots: int = 64) -> None:
        self.translator, self.slots = translator, slots
        self.batches: RecentBatches[tuple[int, DecodingConfig, int]] = RecentBatches()
        self.sources: dict[int, list[int]] = {}  # of texts that wait or are decoded
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
                self.sources[key] = ids
                lookup = tuple(ids) if t.one_vocabulary else ()
                request = GenerationRequest(t.output_limit(decoding, len(ids)), key, lookup=lookup)
                self._batch(len(ids) + 1, decoding, count).add(key, request)
            else:
                self.empty.append((key, []))
        return too_long

    def drop(self, keys: set[int]) -> None:
        self.empty = [each for each in self.empty if each[0] not in keys]
        self.batches.cancel(keys)
        for key in keys:
            self.sources.pop(key, None)

    @property
    def busy(self) -> bool:
        return bool(self.empty) or any(self.batches.busy())

    @property
    def waiting(self) -> int:
        """How many texts wait for a slot."""
        return sum(len(batch.waiting) for batch in self.batches.busy())

    @property
    def rows(self) -> int:
        return sum(batch.active for batch in self.batches.busy())

    def step(self) -> Finished:
        """One decoding step of every text; returns the finished ones, with all hypotheses (see `distinct_texts`)."""
        finished, self.empty = self.empty, []
        for batch in self.batches.busy():
            for key, hypotheses in batch.step():
                del self.sources[key]
                finished.append((key, [self.translator.to_translation(h) for h in hypotheses]))
        return finished

    def _batch(self, pieces: int, decoding: DecodingConfig, count: int) -> ContinuousBatch:
        """The batch for texts of this length; it has room for up to twice as many pieces."""
        t, room = self.translator, bucket(pieces, SMALLEST)

        def make() -> ContinuousBatch:
            spec = SearchSpec(t.symbols, decoding, hypotheses_per_line(decoding, count), longest_lookup=room)
            slots, limit = max(1, self.slots * SMALLEST // room), t.output_limit(decoding, room)
            return t.engine.open_batch(spec, self._collate, lambda size: t.blank(size, room), limit, slots)

        return self.batches.of((room, decoding, count), make)

    def _collate(self, keys: list[int]) -> PairBatch:
        """Padded in lists: for the few that join at a time that is faster than in arrays."""
        tokenizer, device = self.translator.vocabulary.source, self.translator.device
        rows = [self.sources[key] for key in keys]
        longest = max(map(len, rows))
        padded = [[*row, tokenizer.eos, *[tokenizer.pad] * (longest - len(row))] for row in rows]
        lengths = torch.tensor([len(row) + 1 for row in rows], device=device)
        real = torch.arange(longest + 1, device=device) < lengths[:, None]  # [B, S]
        return PairBatch(torch.tensor(padded, device=device), None if min(map(len, rows)) == longest else real)


class ContinuousStreams:
    """Texts of a language model, or replies of a chat, that are generated as streams beside each other."""

    def __init__(self, predictor: TextGenerator | ChatPredictor, slots: int = 64) -> None:
        self.predictor, self.slots = predictor, slots
        self.batches: RecentBatches[tuple[int, int, DecodingConfig]] = RecentBatches()
        self.requests: dict[int, StreamedText] = {}

    @property
    def busy(self) -> bool:
        return bool(self.requests)

    def add(self, key: int, request: StreamedText) -> None:
        """Texts of one search join each other whatever their seeds."""
        self.predictor.model.eval()
        decoding = request.decoding
        if isinstance(decoding, Sample):
            request.request = replace(request.request, seed=decoding.seed)
            decoding = replace(decoding, seed=0)
        self.requests[key] = request
        prompt, limit = bucket(len(request.prompt) + 1, SMALLEST), bucket(request.request.limit, SMALLEST)
        self._batch(prompt, limit, decoding).add(key, request.request)

    def drop(self, keys: set[int]) -> None:
        self.batches.cancel(keys)
        for key in keys & self.requests.keys():
            del self.requests[key]

    def step(self) -> list[TextDelta]:
        """One token of every text: what is new, where there is something."""
        deltas = []
        for batch in self.batches.busy():
            for token in batch.stream_step():
                delta = self.requests[token.id].add(token)
                if delta.whole:
                    self.drop({token.id})
                if delta.text or delta.whole:
                    deltas.append(delta)
        return deltas

    def _batch(self, prompt: int, limit: int, decoding: DecodingConfig) -> ContinuousBatch:
        """The batch for prompts and texts of these lengths."""
        p = self.predictor

        def make() -> ContinuousBatch:
            spec = SearchSpec(p.symbols, decoding, longest_prompt=prompt, longest_lookup=prompt)
            room = p.room(prompt, limit)
            windows = ContextWindows(p.limit, p.collate_prompts) if p.limit else None
            slots = max(FEWEST, self.slots * SMALLEST // room)
            dummy_batch = partial(p.blank_prompts, length=prompt)
            return p.engine.open_batch(spec, self._collate, dummy_batch, limit, slots, room, windows)

        return self.batches.of((prompt, limit, decoding), make)

    def _collate(self, keys: list[int]) -> InputBatch:
        return self.predictor.collate_prompts([self.requests[key].prompt for key in keys])
