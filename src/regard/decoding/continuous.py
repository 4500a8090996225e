"""Sentences that come when they come, and join those that are being said. Knows no kind of model, and no text.

Joining costs a pass of the encoder, so sentences that wait join together: at once where there is little to hold up,
else every few steps.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from regard.accel import decoding_graph
from regard.accel.decoding_graph import bucket
from regard.decoding.contract import Asked, Hypothesis
from regard.decoding.engine import Engine, Wish

EVERY = 6  # steps between two times that sentences join, unless …
SHARE = 2  # … half as many wait as are being said
SPARE = 8  # places are given up where an eighth of them is free, and more than those who wait will take


class Waiting(NamedTuple):
    key: int
    source: list[int]
    asked: Asked


class Open:
    """Places for sentences of at most `words` words that say at most `longest`; as many at once as `places`."""

    def __init__(
        self,
        engine: Engine,
        wish: Wish,
        read: Callable[[list[list[int]]], Any],
        blank: Callable[[int, int], Any],
        words: int,
        longest: int,
        places: int,
    ) -> None:
        """`read` makes a batch of sentences, `blank` one of so many sentences of so many words, of no meaning."""
        self.engine, self.wish, self.read, self.places = engine, wish, read, places
        self.waiting: deque[Waiting] = deque()
        self.since = 0  # steps since somebody joined
        with torch.inference_mode():
            batch = blank(1, words)
            compiled = engine.compiled or decoding_graph.COMPILED.get(batch.device.type)
            count = bucket(places, 1) if compiled else 1
            self.lane = engine._lane(blank(count, words), count, longest, wish)
            self.lane.step.state.release(self.lane.free())
            self.lane.compiled = compiled() if compiled else None

    def add(self, key: int, source: list[int], limit: int) -> None:
        self.waiting.append(Waiting(key, source, Asked(limit, key)))

    def drop(self, keys: set[int]) -> None:
        for key in keys.intersection(self.lane.sentences):
            self.lane.drop(key)
        self.waiting = deque(each for each in self.waiting if each.key not in keys)

    @property
    def busy(self) -> bool:
        return bool(self.waiting) or self.lane.busy()

    @property
    def rows(self) -> int:
        """How many sentences are being said."""
        return len(self.lane.sentences) - len(self.lane.free())

    @torch.inference_mode()
    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        """Every sentence says a word; those that are done, with what was found."""
        self._join()
        if not self.lane.busy():
            return []
        self.lane.advance()
        done = self.lane.leave()
        if done and (len(self.lane.free()) - len(self.waiting)) * SPARE >= len(self.lane.sentences):
            self.lane.shrink(len(self.waiting))
        return done

    def _join(self) -> None:
        lane, taken = self.lane, self.rows
        self.since += 1
        if not self.waiting or (taken and self.since < EVERY and len(self.waiting) * SHARE < taken):
            return
        count = min(len(self.waiting), self.places - taken)
        if not count:
            return
        now = [self.waiting.popleft() for _ in range(count)]
        if len(lane.free()) < count:
            lane.resize(taken + count)
        batch, free = self.read([each.source for each in now]), lane.free()[:count]
        state = self.engine.model.start(batch, 1)  # what is still to be said has its place in the lane
        state.expand_beams(lane.step.search.beams)
        lane.write(free, state, batch.first_tokens(self.wish.symbols.bos))
        lane.enter(free, [each.key for each in now], [each.asked for each in now])
        self.since = 0
