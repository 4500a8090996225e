"""The loop of decoding: sentences take their places, every row says a word, what is done gives way to what waits.

A batch never waits for its longest sentence: places of finished ones are refilled, and given up when nobody waits. The
host only looks at the device now and then. Knows no kind of model and no kind of search.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from regard.decoding.beam import BeamSearch
from regard.decoding.config import Beam, DecodingConfig, Sample
from regard.decoding.contract import Generator, Hypothesis, Search, Symbols
from regard.decoding.graph import Graphs, bucket
from regard.decoding.single import Choice, Draw, SingleSearch

LOOK = {"cpu": 1}  # steps between two looks at what is done; elsewhere asking stops the device
OFTEN = 4
FREE = 8  # an eighth of the places must be free before they are filled again, or given up


@dataclass
class Feed:
    """Sentences that wait, longest first: `read` makes a batch of some, of which each may say `limits` tokens."""

    read: Callable[[list[int]], Any]
    limits: list[int]
    places: int  # how many are decoded at once
    keys: list[int] | None = None  # names of the sentences, by which random draws are told apart
    blank: Callable[[int, int], Any] | None = None  # a batch of so many sentences of so many words, of no meaning
    lengths: list[int] = field(default_factory=list)  # words of each, where `blank` is given
    told: Callable[[int], None] = lambda count: None  # how many more are done

    @staticmethod
    def of(batch: Any, limits: list[int], keys: list[int] | None = None) -> "Feed":
        """One batch, all of it at once."""
        return Feed(lambda rows: batch, limits, len(limits), keys)


class Engine:
    """Decodes with one model. Keeps what was compiled for it, so that later calls of like shape begin at once."""

    def __init__(self, model: Generator) -> None:
        self.model = model
        self.compiled: dict[Hashable, Lane] = {}

    @torch.inference_mode()
    def decode(
        self, feed: Feed, symbols: Symbols, config: DecodingConfig, nbest: int = 1, record: Any = None
    ) -> list[list[Hypothesis]]:
        """For every sentence what the search found, best first."""
        found: list[list[Hypothesis]] = [[] for _ in feed.limits]
        if not feed.limits:
            return found
        lane, waiting = self._begin(feed, symbols, config, nbest, record)
        while lane.busy():
            lane.step()
            if lane.look():
                for place, hypotheses in lane.leave():
                    found[place] = hypotheses
                    feed.told(1)
                waiting = self._fill(lane, feed, symbols, waiting)
        return found

    def _begin(
        self, feed: Feed, symbols: Symbols, config: DecodingConfig, nbest: int, record: Any
    ) -> tuple["Lane", list[int]]:
        order = list(range(len(feed.limits)))
        now, longest = order[: feed.places], max(feed.limits)
        batch = feed.read(now)
        state = self.model.start(batch, longest + 1, record)
        search = _search(config, symbols, len(now), longest, batch.device, nbest)
        state.spread(search.beams)
        first = batch.first(symbols.bos).repeat_interleave(search.beams, 0)  # [B·K, 1]
        lane = Lane(self.model, state, search, first, record, longest)
        lane.enter(list(range(len(now))), now, feed)
        return lane, order[len(now) :]

    def _fill(self, lane: "Lane", feed: Feed, symbols: Symbols, waiting: list[int]) -> list[int]:
        """Let those who wait take free places; or, if nobody does, give up the places."""
        free = lane.free()
        if len(free) * FREE < len(lane.sentences) and len(free) < len(lane.sentences):
            return waiting
        now = waiting[: len(free)]
        if now:
            batch = feed.read(now)
            state = self.model.start(batch, max(feed.limits[n] for n in now) + 1)
            state.spread(lane.search.beams)
            lane.write(free[: len(now)], state, batch.first(symbols.bos))
            lane.enter(free[: len(now)], now, feed)
        elif not lane.fixed:
            lane.shrink()
        return waiting[len(now) :]


@dataclass
class Lane:
    """Sentences that are decoded side by side: the model's state of them, and the search's."""

    model: Generator
    state: Any
    search: Search
    tokens: Tensor  # [B·K, 1] what every row reads next
    record: Any
    longest: int  # tokens that a sentence has room for
    graphs: Graphs | None = None
    sentences: list[int | None] = field(init=False)  # which one is at each place
    ends: list[int] = field(init=False)  # the step by which it is done for certain
    steps: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        count = len(self.search.done)
        self.sentences, self.ends = [None] * count, [0] * count
        self.every = LOOK.get(self.tokens.device.type, OFTEN)

    @property
    def fixed(self) -> bool:
        return self.graphs is not None

    def busy(self) -> bool:
        return any(sentence is not None for sentence in self.sentences)

    def free(self) -> list[int]:
        return [place for place, sentence in enumerate(self.sentences) if sentence is None]

    def enter(self, places: list[int], sentences: list[int], feed: Feed) -> None:
        device = self.tokens.device
        keys = [feed.keys[n] if feed.keys else n for n in sentences]
        limits = torch.tensor([feed.limits[n] for n in sentences], device=device)
        self.search.begin(torch.tensor(places, device=device), limits, torch.tensor(keys))
        for place, sentence in zip(places, sentences, strict=True):
            self.sentences[place] = sentence
            self.ends[place] = self.steps + feed.limits[sentence] + 1

    def step(self) -> None:
        """Every row reads its word and says the next."""
        self.steps += 1
        if self.graphs is None:
            self.advance()
        else:
            self.graphs.run(self)

    def advance(self) -> None:
        logits, self.state = self.model.step(self.tokens, self.state)
        token, beams = self.search.take(logits[:, -1])
        if beams is not None:
            self.state.branch(beams)
        self.tokens = token[:, None]

    def look(self) -> bool:
        """Whether it is time to see what is done."""
        due = min(end for end, sentence in zip(self.ends, self.sentences, strict=True) if sentence is not None)
        return self.steps % self.every == 0 or self.steps >= due

    def leave(self) -> list[tuple[int, list[Hypothesis]]]:
        """The sentences that are done, with what was found; their places are free."""
        done = self.search.done.tolist()
        rows = [n for n, sentence in enumerate(self.sentences) if sentence is not None and done[n]]
        left = []
        for row, hypotheses in zip(rows, self.search.found(rows, self.record) if rows else [], strict=True):
            left.append((self.sentences[row], hypotheses))
            self.sentences[row] = None
        return left  # type: ignore[return-value]

    def write(self, places: list[int], state: Any, first: Tensor) -> None:
        rows = torch.tensor(places, device=self.tokens.device)
        self.state.write(rows, state)
        self.tokens.view(-1, self.search.beams)[rows] = first

    def shrink(self) -> None:
        """Go on with the places that are taken."""
        taken = [place for place, sentence in enumerate(self.sentences) if sentence is not None]
        if not taken:
            return
        index = torch.tensor(taken, device=self.tokens.device)
        self.state.reorder(index)
        self.search.reorder(index)
        self.tokens = self.tokens.view(-1, self.search.beams)[index].view(-1, 1)
        self.sentences, self.ends = [self.sentences[n] for n in taken], [self.ends[n] for n in taken]


def _search(
    config: DecodingConfig, symbols: Symbols, sentences: int, longest: int, device: torch.device, nbest: int
) -> Search:
    if isinstance(config, Beam):
        return BeamSearch(config, symbols, sentences, longest, device, nbest)
    choice = Draw(config, sentences, longest, device) if isinstance(config, Sample) else Choice()
    return SingleSearch(choice, symbols, sentences, longest, device)
