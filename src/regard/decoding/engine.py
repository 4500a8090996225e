"""The loop of decoding: sentences take their places, every row says a word, what is done gives way to what waits.

A batch never waits for its longest sentence: places of finished ones are refilled, and given up when nobody waits. The
host only looks at the device now and then. Knows no kind of model.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, cast

import torch
from torch import nn

from regard import accel
from regard.accel import decoding_graph
from regard.accel.decoding_graph import Fixed, bucket
from regard.accel.fused_step import fused
from regard.accel.inference_weights import inference_weights
from regard.decoding.beam import BeamSearch
from regard.decoding.config import Beam, DecodingConfig, Sample
from regard.decoding.contract import NO_SEAMS, Asked, Generator, Hypothesis, Seams, Search, Symbols, Words
from regard.decoding.forced_tokens import Forced, Prefixed
from regard.decoding.phrases import PhraseSearch, impossible
from regard.decoding.sampling import Choice, Draw, SingleSearch
from regard.decoding.slots import FREE, Lane, Step
from regard.errors import RegardError
from regard.nn.dispatch import autocast_dtype, no_autocast

accel.register()
KEPT = 8  # shapes whose compiled steps are kept


def quiet(count: int) -> None:
    """Nobody wants to know how many are done."""


@dataclass
class Feed:
    """Sentences that wait, longest first: `read` makes a batch of some, of which each may say `limits` tokens."""

    read: Callable[[list[int]], Any]
    limits: list[int]
    places: int  # how many are decoded at once
    keys: list[int] | None = None  # names of the sentences, by which random draws are told apart
    blank: Callable[[int, int], Any] | None = None  # a batch of so many sentences of so many words, of no meaning
    lengths: list[int] = field(default_factory=list)  # words of each, where `blank` is given
    told: Callable[[int], None] = quiet  # how many more are done
    prefixes: list[tuple[int, ...]] | None = None  # how each must begin
    phrases: list[tuple[Words, ...]] | None = None  # what must appear in each
    ways: list[tuple[tuple[Words, ...], ...]] | None = None  # for each of these what may stand for it
    seams: Seams = NO_SEAMS  # phrases are not met inside a word

    @staticmethod
    def of(batch: Any, limits: list[int], keys: list[int] | None = None) -> "Feed":
        """One batch, all of it at once."""
        return Feed(lambda rows: batch, limits, len(limits), keys)

    def asked(self, sentences: list[int]) -> list[Asked]:
        return [
            Asked(
                self.limits[n],
                n if self.keys is None else self.keys[n],
                self.prefixes[n] if self.prefixes else (),
                self.phrases[n] if self.phrases else (),
                self.ways[n] if self.ways else (),
            )
            for n in sentences
        ]


@dataclass(frozen=True)
class Wish:
    """What is to be found; compiled steps serve the same wish again."""

    symbols: Symbols
    config: DecodingConfig
    nbest: int = 1
    prefix: int = 0  # words of the longest that is given
    phrases: int = 0  # the most that a sentence has, in all ways, and …
    phrase: int = 0  # … words of the longest
    seams: Seams = NO_SEAMS

    @staticmethod
    def of(feed: Feed, symbols: Symbols, config: DecodingConfig, nbest: int) -> "Wish":
        """For these sentences; an error names what cannot be done."""
        asked = feed.asked(list(range(len(feed.limits))))
        for n, each in enumerate(asked):
            words = " ".join(map(str, each.prefix))
            if len(each.prefix) > each.limit or {symbols.eos, *symbols.never} & set(each.prefix):
                raise RegardError(f"sentence {n + 1} cannot begin with the tokens {words}; its limit is {each.limit}")
            if bad := impossible(each, symbols, feed.seams):
                words = " ".join(map(str, each.phrases[bad[0]]))
                raise RegardError(f"phrase {bad[0] + 1} of sentence {n + 1} (tokens {words}) cannot appear: {bad[1]}")
        phrases = [[way for said in each.every() for way in said] for each in asked]
        if any(phrases) and not isinstance(config, Beam):
            raise RegardError("phrases that must appear need a beam search")
        longest, most = max(len(each.prefix) for each in asked), max(map(len, phrases))
        return Wish(symbols, config, nbest, longest, most, max(map(len, chain(*phrases)), default=0), feed.seams)

    def search(self, sentences: int, longest: int, device: torch.device) -> Search:
        at = (self.symbols.eos, sentences, device)
        forced = Prefixed(*at, self.prefix) if self.prefix else Forced(*at)
        if isinstance(self.config, Beam):
            given = (self.config, self.symbols, forced, sentences, longest, self.nbest)
            if self.phrases:
                return PhraseSearch(*given, phrases=self.phrases, longest_phrase=self.phrase, seams=self.seams)
            return BeamSearch(*given)
        choice = Draw(self.config, sentences, longest, device) if isinstance(self.config, Sample) else Choice()
        return SingleSearch(choice, self.symbols, forced, sentences, longest)


class Engine:
    """Decodes with one model. Keeps what was compiled for it, so that later calls of like shape begin at once."""

    def __init__(self, model: Generator, compiled: Callable[[], Fixed] | None = None) -> None:
        if isinstance(model, nn.Module) and (dtype := autocast_dtype(next(model.parameters()).device)):
            model = cast(Generator, inference_weights(model, dtype))  # every weight cast once, not at every step
        self.model: Generator = fused(model)
        self.compiled = compiled  # how steps are compiled; None: as CUDA graphs, on a GPU
        self.lanes: dict[Hashable, Lane] = {}

    @torch.inference_mode()
    def decode(
        self, feed: Feed, symbols: Symbols, config: DecodingConfig, nbest: int = 1, record: Any = None
    ) -> list[list[Hypothesis]]:
        """For every sentence what the search found, best first."""
        found: list[list[Hypothesis]] = [[] for _ in feed.limits]
        if not feed.limits:
            return found
        with no_autocast():
            self._decode(feed, Wish.of(feed, symbols, config, nbest), record, found)
        return found

    def _decode(self, feed: Feed, wish: Wish, record: Any, found: list[list[Hypothesis]]) -> None:
        lane, waiting = self._begin(feed, wish, record)
        while lane.busy():
            lane.advance()
            if left := lane.leave():
                for sentence, hypotheses in left:
                    found[sentence] = hypotheses
                feed.told(len(left))
                waiting = self._fill(lane, feed, wish.symbols, waiting)

    def _begin(self, feed: Feed, wish: Wish, record: Any) -> tuple[Lane, list[int]]:
        """The first sentences at their places, and those who wait."""
        order = list(range(len(feed.limits)))
        now, waiting = order[: feed.places], order[feed.places :]
        batch = feed.read(now)
        lane = None if record is not None else self._compiled(feed, wish, batch.device)
        if lane is not None:
            self._write(lane, batch, now, feed, wish.symbols)
        else:
            lane = self._lane(batch, len(now), max(feed.limits), wish, record)
            self._enter(lane, now, feed)
        return lane, waiting

    def _lane(self, batch: Any, count: int, longest: int, wish: Wish, record: Any = None) -> Lane:
        """Places for the sentences of a batch."""
        state = self.model.start(batch, longest + 1, record)
        search = wish.search(count, longest, batch.device)
        state.expand_beams(search.beams)
        if record is not None:
            record.mark_prefill()
        first = batch.first_tokens(wish.symbols.bos).repeat_interleave(search.beams, 0)  # [B·K, 1]
        return Lane(Step(self.model, state, search, first), record)

    def _compiled(self, feed: Feed, wish: Wish, device: torch.device) -> Lane | None:
        """Places whose steps are compiled, of this shape or a little more room; those of an earlier call if it can."""
        compiled = self.compiled or decoding_graph.COMPILED.get(device.type)
        if compiled is None or feed.blank is None:
            return None
        places, words, room = bucket(feed.places, 1), bucket(max(feed.lengths)), bucket(max(feed.limits) + 1)
        room = min(room, getattr(self.model, "longest", None) or room)  # a table of positions ends there
        key = places, words, room, wish
        lane = self.lanes.pop(key, None)
        if lane is None:
            try:
                lane = self._lane(feed.blank(places, words), places, room - 1, wish)
            except RegardError:  # the model has no room for so many words
                return None
            lane.step.state.release(lane.free())
            lane.compiled = compiled()
        self.lanes[key] = lane  # the last to be given up
        while len(self.lanes) > KEPT:
            del self.lanes[next(iter(self.lanes))]
        return lane

    def _fill(self, lane: Lane, feed: Feed, symbols: Symbols, waiting: list[int]) -> list[int]:
        """Let those who wait take free places; or, if nobody does, give up the places."""
        free, places = len(lane.free()), len(lane.sentences)
        if free * FREE < places:
            return waiting
        if waiting:
            self._write(lane, feed.read(waiting[:free]), waiting[:free], feed, symbols)
        else:
            lane.shrink()
        return waiting[free:]

    def _write(self, lane: Lane, batch: Any, sentences: list[int], feed: Feed, symbols: Symbols) -> None:
        """Sentences take free places."""
        state = self.model.start(batch, max(feed.limits[n] for n in sentences) + 1)
        state.expand_beams(lane.step.search.beams)
        lane.write(lane.free()[: len(sentences)], state, batch.first_tokens(symbols.bos))
        self._enter(lane, sentences, feed)

    def _enter(self, lane: Lane, sentences: list[int], feed: Feed) -> None:
        lane.enter(lane.free()[: len(sentences)], sentences, feed.asked(sentences))
