"""The decoding loop: requests take slots, every row generates a token, finished requests give way to waiting ones.

A batch never waits for its longest request: slots of finished ones are refilled, and given up when none waits. The host
only reads from the device now and then. Knows no kind of model.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import chain
from typing import cast

import torch
from torch import nn

from regard import accel
from regard.accel import decoding_graph
from regard.accel.decoding_graph import FixedStorageRunner, bucket
from regard.accel.fused_step import fused
from regard.accel.inference_weights import inference_weights
from regard.decoding.beam import BeamSearch
from regard.decoding.config import Beam, DecodingConfig, Sample
from regard.decoding.constrained_beam import ConstrainedBeamSearch, unsatisfiable
from regard.decoding.contract import (
    WHOLE_WORDS,
    AttentionRecord,
    GenerationRequest,
    Generator,
    Hypothesis,
    InputBatch,
    Search,
    Symbols,
    WordBoundaries,
)
from regard.decoding.forced_tokens import ForcedEos, ForcedPrefix
from regard.decoding.sampling import GreedyPicker, SamplingPicker, SingleSequenceSearch
from regard.decoding.slots import REFILL, DecodingStep, SlotBatch
from regard.errors import RegardError
from regard.nn.dispatch import autocast_dtype, no_autocast

accel.register()
KEPT = 8  # shapes whose batches in fixed storage are kept
MakeRunner = Callable[[], FixedStorageRunner]


def no_callback(count: int) -> None:
    """Ignores how many requests are done."""


@dataclass
class RequestQueue:
    """Requests that wait, longest first; `collate` makes a batch of some, by their numbers in the queue."""

    collate: Callable[[list[int]], InputBatch]
    requests: list[GenerationRequest]
    slots: int  # how many are decoded at once
    dummy_batch: Callable[[int, int], InputBatch] | None = None  # a batch of a given number and length
    source_lengths: list[int] = field(default_factory=list)  # of each, where `dummy_batch` is given
    on_done: Callable[[int], None] = no_callback  # receives how many more are done
    boundaries: WordBoundaries = WHOLE_WORDS  # phrases are not met inside a word

    @staticmethod
    def of(batch: InputBatch, limits: list[int], keys: list[int] | None = None) -> "RequestQueue":
        """One batch, all of it at once."""
        requests = [GenerationRequest(limit, keys[n] if keys else n) for n, limit in enumerate(limits)]
        return RequestQueue(lambda rows: batch, requests, len(requests))


@dataclass(frozen=True)
class SearchSpec:
    """How to search, and room for constraints; batches in fixed storage serve the same spec again."""

    symbols: Symbols
    config: DecodingConfig
    nbest: int = 1
    longest_prefix: int = 0
    phrases: int = 0  # the most that a request has, all variants counted
    longest_phrase: int = 0
    boundaries: WordBoundaries = WHOLE_WORDS

    @staticmethod
    def of(queue: RequestQueue, symbols: Symbols, config: DecodingConfig, nbest: int) -> "SearchSpec":
        """For these requests; an error names what cannot be done."""
        for n, request in enumerate(queue.requests):
            prefix = request.prefix
            if len(prefix) > request.limit or {symbols.eos, *symbols.suppressed} & set(prefix):
                tokens = " ".join(map(str, prefix))
                raise RegardError(
                    f"sentence {n + 1} cannot begin with the tokens {tokens}; its limit is {request.limit}"
                )
            if bad := unsatisfiable(request, symbols, queue.boundaries):
                tokens = " ".join(map(str, request.phrases[bad[0]]))
                raise RegardError(f"phrase {bad[0] + 1} of sentence {n + 1} (tokens {tokens}) cannot appear: {bad[1]}")
        phrases = [list(chain.from_iterable(request.phrase_variants())) for request in queue.requests]
        if any(phrases) and not isinstance(config, Beam):
            raise RegardError("phrases that must appear need a beam search")
        longest_prefix, count = max(len(request.prefix) for request in queue.requests), max(map(len, phrases))
        longest_phrase = max(map(len, chain.from_iterable(phrases)), default=0)
        return SearchSpec(symbols, config, nbest, longest_prefix, count, longest_phrase, queue.boundaries)

    def build(self, batch_size: int, longest: int, device: torch.device) -> Search:
        config, symbols = self.config, self.symbols
        if search := config.build_search(self, batch_size, longest, device):
            return search
        forced = ForcedEos(symbols.eos, batch_size, device)
        if self.longest_prefix:
            forced = ForcedPrefix(symbols.eos, batch_size, device, self.longest_prefix)
        if isinstance(config, Beam):
            if not self.phrases:
                return BeamSearch(config, symbols, forced, batch_size, longest, self.nbest)
            constraints = self.phrases, self.longest_phrase, self.boundaries
            return ConstrainedBeamSearch(config, symbols, forced, batch_size, longest, self.nbest, *constraints)
        picker = GreedyPicker(symbols)
        if isinstance(config, Sample):
            picker = SamplingPicker(config, symbols, batch_size, longest, device)
        return SingleSequenceSearch(picker, forced, batch_size, longest)


class Engine:
    """Decodes with one model. Keeps batches in fixed storage, so that later calls of like shape begin at once."""

    def __init__(self, model: Generator, runner: MakeRunner | None = None) -> None:
        """`runner` runs steps in fixed storage; None: as CUDA graphs, on a GPU."""
        if isinstance(model, nn.Module) and (dtype := autocast_dtype(next(model.parameters()).device)):
            model = cast(Generator, inference_weights(model, dtype))  # every weight cast once, not at every step
        self.model: Generator = fused(model)
        self.runner = runner
        self.batches: dict[Hashable, SlotBatch] = {}

    @torch.inference_mode()
    def decode(
        self,
        queue: RequestQueue,
        symbols: Symbols,
        config: DecodingConfig,
        nbest: int = 1,
        record: AttentionRecord | None = None,
    ) -> list[list[Hypothesis]]:
        """For every request its hypotheses, best first."""
        results: list[list[Hypothesis]] = [[] for _ in queue.requests]
        if not queue.requests:
            return results
        with no_autocast():
            batch, waiting = self._begin(queue, SearchSpec.of(queue, symbols, config, nbest), record)
            while batch.active:
                batch.advance()
                if done := batch.evict_finished():
                    for n, hypotheses in done:
                        results[n] = hypotheses
                    queue.on_done(len(done))
                    waiting = self._refill(batch, queue, symbols, waiting)
        return results

    def _begin(
        self, queue: RequestQueue, spec: SearchSpec, record: AttentionRecord | None
    ) -> tuple[SlotBatch, list[int]]:
        """A batch with the first requests, and those that wait."""
        order = list(range(len(queue.requests)))
        first, waiting = order[: queue.slots], order[queue.slots :]
        inputs = queue.collate(first)
        batch = None if record is not None else self._fixed_batch(queue, spec, inputs.device)
        if batch is not None:
            self._admit(batch, inputs, first, queue, spec.symbols)
        else:
            limit = max(request.limit for request in queue.requests)
            batch = self._new_batch(inputs, len(first), limit, spec, record)
            batch.admit(batch.free_slots(), first, queue.requests[: len(first)])
        return batch, waiting

    def _new_batch(
        self, inputs: InputBatch, size: int, longest: int, spec: SearchSpec, record: AttentionRecord | None = None
    ) -> SlotBatch:
        """Slots with the state of these inputs."""
        state = self.model.start(inputs, longest + 1, record)
        search = spec.build(size, longest, inputs.device)
        state.expand_beams(search.beams)
        if record is not None:
            record.mark_prefill()
        first = inputs.first_tokens(spec.symbols.bos).repeat_interleave(search.beams, 0)  # [B·K, 1]
        return SlotBatch(DecodingStep(self.model, state, search, first), record)

    def runner_for(self, device: torch.device) -> MakeRunner | None:
        return self.runner or decoding_graph.RUNNERS.get(device.type)

    def empty_batch(
        self, inputs: InputBatch, size: int, longest: int, spec: SearchSpec, runner: MakeRunner | None
    ) -> SlotBatch:
        """Free slots of the shape of these inputs, for outputs of at most `longest` tokens."""
        batch = self._new_batch(inputs, size, longest, spec)
        batch.step.state.release(batch.free_slots())
        batch.runner = runner() if runner else None
        return batch

    def _fixed_batch(self, queue: RequestQueue, spec: SearchSpec, device: torch.device) -> SlotBatch | None:
        """A batch in fixed storage, of this shape or a little more room; that of an earlier call if there is one."""
        runner = self.runner_for(device)
        if runner is None or queue.dummy_batch is None:
            return None
        size, source_length = bucket(queue.slots, 1), bucket(max(queue.source_lengths))
        room = bucket(max(request.limit for request in queue.requests) + 1)
        room = min(room, getattr(self.model, "longest", None) or room)  # a table of positions ends there
        key = size, source_length, room, spec
        batch = self.batches.pop(key, None)
        if batch is None:
            try:
                batch = self.empty_batch(queue.dummy_batch(size, source_length), size, room - 1, spec, runner)
            except RegardError:  # the model has no room for so many tokens
                return None
        self.batches[key] = batch  # the last to be given up
        while len(self.batches) > KEPT:
            del self.batches[next(iter(self.batches))]
        return batch

    def _refill(self, batch: SlotBatch, queue: RequestQueue, symbols: Symbols, waiting: list[int]) -> list[int]:
        """Admit waiting requests to free slots, or, if none waits, give up the slots; those that still wait."""
        free = len(batch.free_slots())
        if free * REFILL < batch.size:
            return waiting
        if waiting:
            self._admit(batch, queue.collate(waiting[:free]), waiting[:free], queue, symbols)
        else:
            batch.shrink()
        return waiting[free:]

    def _admit(
        self, batch: SlotBatch, inputs: InputBatch, ids: list[int], queue: RequestQueue, symbols: Symbols
    ) -> None:
        requests = [queue.requests[n] for n in ids]
        self.admit(batch, inputs, max(request.limit for request in requests) + 1, symbols, ids, requests)

    def admit(
        self,
        batch: SlotBatch,
        inputs: InputBatch,
        room: int,
        symbols: Symbols,
        ids: list[int],
        requests: list[GenerationRequest],
    ) -> None:
        """Read the inputs of requests, and begin them in free slots."""
        state = self.model.start(inputs, room)
        state.expand_beams(batch.step.search.beams)
        slots = batch.free_slots()[: len(ids)]
        batch.write(slots, state, inputs.first_tokens(symbols.bos))
        batch.admit(slots, ids, requests)
