"""Continuous batching: requests that arrive at any time join a batch in progress. Knows no kind of model, and no text.

Joining costs a pass of the encoder, so waiting requests join together: at once where few are in progress, else every
few steps.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import torch

from regard.accel.decoding_graph import bucket
from regard.decoding.contract import GenerationRequest, Hypothesis, InputBatch
from regard.decoding.engine import Engine, SearchSpec

INTERVAL = 6  # steps between two times that requests join, unless …
SHARE = 2  # … half as many wait as are in progress
SPARE = 8  # slots are given up where an eighth of them is free, and more than waiting requests will take


class WaitingRequest(NamedTuple):
    key: int
    source: list[int]
    request: GenerationRequest


class ContinuousBatch:
    def __init__(
        self,
        engine: Engine,
        spec: SearchSpec,
        collate: Callable[[list[list[int]]], InputBatch],
        dummy_batch: Callable[[int, int], InputBatch],
        source_length: int,
        longest: int,
        slots: int,
    ) -> None:
        """At most `slots` requests of at most `source_length` source and `longest` output tokens at once.

        `collate` makes a batch of sources, `dummy_batch` one of a given number and length.
        """
        self.engine, self.spec, self.collate, self.slots = engine, spec, collate, slots
        self.waiting: deque[WaitingRequest] = deque()
        self.since = 0  # steps since requests joined
        with torch.inference_mode():
            runner = engine.runner_for(dummy_batch(1, source_length).device)
            size = bucket(slots, 1) if runner else 1
            self.batch = engine.empty_batch(dummy_batch(size, source_length), size, longest, spec, runner)

    def add(self, key: int, source: list[int], limit: int) -> None:
        self.waiting.append(WaitingRequest(key, source, GenerationRequest(limit, key)))

    def cancel(self, keys: set[int]) -> None:
        for key in keys.intersection(self.batch.requests):
            self.batch.evict(key)
        self.waiting = deque(each for each in self.waiting if each.key not in keys)

    @property
    def busy(self) -> bool:
        return bool(self.waiting) or self.batch.active > 0

    @torch.inference_mode()
    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        """One more token of every request; keys and results of those that are done."""
        self._admit()
        batch = self.batch
        if not batch.active:
            return []
        batch.advance()
        done = batch.evict_finished()
        if done and (len(batch.free_slots()) - len(self.waiting)) * SPARE >= batch.size:
            batch.shrink(len(self.waiting))
        return done

    def _admit(self) -> None:
        batch, active = self.batch, self.batch.active
        self.since += 1
        if not self.waiting or (active and self.since < INTERVAL and len(self.waiting) * SHARE < active):
            return
        count = min(len(self.waiting), self.slots - active)
        if not count:
            return
        joining = [self.waiting.popleft() for _ in range(count)]
        if len(batch.free_slots()) < count:
            batch.resize(active + count)
        sources, requests = self.collate([each.source for each in joining]), [each.request for each in joining]
        # 1: room for the output is in the batch
        self.engine.admit(batch, sources, 1, self.spec.symbols, [each.key for each in joining], requests)
        self.since = 0
