"""The engine: the one decoding loop, for whole results and for streams, of requests that are known or still arrive.

Requests wait until there is room, take slots, and give way to others when they are done: a batch never waits for its
longest request. The host only reads from the device now and then. Knows no kind of model.
"""

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import nn

from regard import accel
from regard.accel import decoding_graph
from regard.accel.decoding_graph import FixedStorageRunner, bucket
from regard.accel.fused_step import FusedStep, fused
from regard.accel.inference_weights import inference_weights
from regard.decoding.config import Blockwise, DecodingConfig, Speculative
from regard.decoding.context import ContextWindows
from regard.decoding.contract import (
    AttentionRecord,
    GenerationRequest,
    Generator,
    Hypothesis,
    InputBatch,
    StreamedToken,
    Symbols,
)
from regard.decoding.parallel import Acceptance, ParallelModel, ParallelStep
from regard.decoding.requests import Collate, RequestQueue, SearchSpec
from regard.decoding.slots import REFILL, DecodingStep, SlotBatch
from regard.errors import RegardError
from regard.nn.dispatch import autocast_dtype, no_autocast
from regard.reporting import say_once

accel.register()
LESS = "the GPU is out of memory: decoding half as many sequences at a time; lower batch_tokens (--batch-tokens)"
INTERVAL = 6  # steps between two times that arriving requests join, unless …
SHARE = 2  # … half as many wait as are in progress
KEPT = 8  # shapes whose batches in fixed storage are kept
Finished = list[tuple[int, list[Hypothesis]]]  # ids of requests, and their results
MakeRunner = Callable[[], FixedStorageRunner]
LoadDraft = Callable[[str], Generator]  # the model of a run


def new_slots(
    model: Generator,
    inputs: InputBatch,
    size: int,
    longest: int,
    room: int,
    spec: SearchSpec,
    record: AttentionRecord | None = None,
) -> SlotBatch:
    """Slots with the state of these inputs, which has room for so many tokens after them."""
    state, first = model.start(inputs, room, record), inputs.first_tokens(spec.symbols.bos)  # [B, 1]
    if isinstance(model, ParallelModel):
        return SlotBatch(ParallelStep(model, state, model.build_search(spec, size, longest, inputs.device), first))
    search = spec.build(size, longest, inputs.device)
    state.expand_beams(search.beams)
    if record is not None:
        record.mark_prefill()
    return SlotBatch(DecodingStep(model, state, search, first.repeat_interleave(search.beams, 0)), record)


class ContinuousBatch:
    """Requests that are decoded side by side, a token of each at every step; those without a slot wait.

    `step` gives whole results, `stream_step` each token as it comes. Requests join and leave at any time, and what is
    beside them changes nothing. Reading their inputs is a pass of its own, so waiting requests join together.
    """

    def __init__(
        self,
        model: Generator,
        spec: SearchSpec,
        collate: Collate,
        capacity: int,
        longest: int,
        slots: SlotBatch | None = None,
        arriving: bool = False,
    ) -> None:
        """At most `capacity` requests of at most `longest` tokens; without `slots` the first requests make them."""
        self.model, self.spec, self.collate, self.capacity, self.longest = model, spec, collate, capacity, longest
        self.slots, self.arriving = slots, arriving
        self.record: AttentionRecord | None = None
        self.context: ContextWindows | None = None
        self.waiting: deque[tuple[int, GenerationRequest]] = deque()
        self.candidates: dict[int, np.ndarray] = {}  # of requests in slots, by their ids
        self.since = 0  # steps since requests joined

    @property
    def active(self) -> int:
        """How many requests have a slot."""
        return self.slots.active if self.slots else 0

    @property
    def busy(self) -> bool:
        return bool(self.waiting) or self.active > 0

    def add(self, id_: int, request: GenerationRequest) -> None:
        self.waiting.append((id_, request))

    def cancel(self, ids: set[int]) -> None:
        if self.slots:
            self.slots.free([slot for slot, id_ in enumerate(self.slots.requests) if id_ in ids])
        if self.context:
            self.context.drop(ids)
        self.waiting = deque(each for each in self.waiting if each[0] not in ids)

    def step(self) -> Finished:
        """One more token of every request; ids and results of those that are done."""
        with torch.inference_mode(), no_autocast():
            return self.advance()

    def advance(self) -> Finished:
        """As `step`, for a caller that has left gradients and autocast: admit waiting requests, step, evict."""
        slots = self._admit()
        if not slots or not slots.active:
            return []
        slots.advance()
        if done := slots.evict_finished():
            self._shrink(slots)
        return done

    @torch.inference_mode()
    def stream_step(self) -> list[StreamedToken]:
        """One more token of every request. For searches of one sequence: a beam knows its tokens at its end."""
        with no_autocast():
            slots = self._admit()
            if not slots or not slots.active:
                return []
            if self.context and (full := self.context.full()):
                rows = [slots.requests.index(id_) for id_ in full]
                self._write(rows, self.context.last_half(full))
                slots.decoding_step.limit_context(rows, self.context.room(full))
            slots.advance()
            tokens = slots.newest_tokens()
            if self.context:
                self.context.add(tokens)
            if any(each.ended for each in tokens):
                self._shrink(slots)
        return tokens

    def _admit(self) -> SlotBatch | None:
        """Begin waiting requests, where it is time; the slots, if there are any yet."""
        self.since += 1
        if not self.waiting:
            return self.slots
        free = self.capacity - self.active
        count = min(len(self.waiting), free)
        if not count or not self._ready(free):
            return self.slots
        ids, requests = map(list, zip(*(self.waiting.popleft() for _ in range(count)), strict=True))
        inputs = self.collate(ids)
        if self.slots is None:
            room = self._room([len(request.prompt) for request in requests])
            self.slots = new_slots(self.model, inputs, count, self.longest, room, self.spec, self.record)
            slots = self.slots.free_slots()
        else:
            if len(self.slots.free_slots()) < count:
                self.slots.resize(self.active + count)
            slots = self.slots.free_slots()[:count]
            self._write(slots, inputs)
        self.slots.admit(slots, ids, requests)
        self._restrict(ids, requests)
        if self.context:
            self.context.begin(ids, requests)
            self.slots.decoding_step.limit_context(slots, self.context.room(ids))
        self.since = 0
        return self.slots

    def _restrict(self, ids: list[int], requests: list[GenerationRequest]) -> None:
        """Compute logits of those tokens alone that some request in the slots may have."""
        new = {id_: r.candidates for id_, r in zip(ids, requests, strict=True) if r.candidates is not None}
        if not new and not self.candidates:
            return
        assert self.slots is not None
        assert isinstance(self.model, FusedStep)
        known, active = self.candidates | new, [id_ for id_ in self.slots.requests if id_ is not None]
        self.candidates = {id_: known[id_] for id_ in active if id_ in known}
        step = self.slots.decoding_step
        if len(self.candidates) < len(active):
            step.model = self.model
            step.search.use_columns(None)
        else:
            columns = torch.from_numpy(np.unique(np.concatenate(list(self.candidates.values()))))
            step.model = self.model.with_columns(columns)
            step.search.use_columns(columns)

    def _room(self, prompts: list[int]) -> int:
        """For how many tokens after these prompts."""
        if self.context is None:
            return self.longest + 1
        longest = max(1, *prompts)
        return min(self.context.size, longest + self.longest) - longest + 1

    def _write(self, slots: list[int], inputs: InputBatch) -> None:
        """Read inputs into the state of those slots."""
        assert self.slots is not None
        state = self.model.start(inputs, 1)  # room for the output is in the slots
        state.expand_beams(self.slots.decoding_step.search.beams)
        self.slots.write(slots, state, inputs.first_tokens(self.spec.symbols.bos))

    def _ready(self, free: int) -> bool:
        """Whether it is worth a pass to read the inputs of waiting requests."""
        if not self.arriving:  # all are there, and the slots are to be full
            return free * REFILL >= self.capacity
        return not self.active or self.since >= INTERVAL or len(self.waiting) * SHARE >= self.active

    def _shrink(self, slots: SlotBatch) -> None:
        """Give up slots where an eighth of them is free, and more than waiting requests will take."""
        if slots.active and (len(slots.free_slots()) - len(self.waiting)) * REFILL >= slots.size:
            slots.resize(slots.active + len(self.waiting))


class Engine:
    """Decodes with one model. Keeps batches in fixed storage, so that later calls of like shape begin at once."""

    def __init__(
        self, model: Generator, runner: MakeRunner | None = None, fuse: bool = True, load_draft: LoadDraft | None = None
    ) -> None:
        """`runner` runs steps in fixed storage; None: as CUDA graphs, on a GPU. Without `fuse`, the model's own modules
        compute every step. `load_draft` gives the model that a speculative search names."""
        if fuse and isinstance(model, nn.Module) and (dtype := autocast_dtype(next(model.parameters()).device)):
            model = cast(Generator, inference_weights(model, dtype))  # every weight cast once, not at every step
        self.model: Generator = fused(model) if fuse else model
        self.runner = runner
        self.load_draft = load_draft
        self.parallel: dict[tuple[object, ...], ParallelModel] = {}  # the model with what guesses for it
        self.batches: dict[Hashable, SlotBatch] = {}
        self.most_tokens: int | None = None  # at once, once memory ran out

    def decode(
        self,
        queue: RequestQueue,
        symbols: Symbols,
        config: DecodingConfig,
        nbest: int = 1,
        record: AttentionRecord | None = None,
    ) -> list[list[Hypothesis]]:
        """For every request its hypotheses, best first. What is recorded is decoded token by token."""
        config = config if record is None else config.token_by_token()
        results: list[list[Hypothesis]] = [[] for _ in queue.requests]
        if not queue.requests:
            return results
        spec, longest = SearchSpec.of(queue, symbols, config, nbest), max(each.limit for each in queue.requests)
        slots = queue.slots
        if self.most_tokens is not None and not queue.whole:
            slots = min(slots, max(1, self.most_tokens // longest))
        while not self._try_decode(replace(queue, slots=slots), spec, record, results):
            say_once(LESS)
            slots = (slots + 1) // 2
            self.most_tokens = slots * longest
            self.batches.clear()
            torch.cuda.empty_cache()
        return results

    def _try_decode(
        self, queue: RequestQueue, spec: SearchSpec, record: AttentionRecord | None, results: list[list[Hypothesis]]
    ) -> bool:
        """Decode the requests that have no result yet; False if memory ran out, and fewer slots may do."""
        try:
            batch = self.begin(queue, spec, record)
            batch.waiting = deque(each for each in batch.waiting if not results[each[0]])
            with torch.inference_mode(), no_autocast():
                while batch.busy:
                    if done := batch.advance():
                        for n, hypotheses in done:
                            results[n] = hypotheses
                        queue.on_done(len(done))
        except torch.OutOfMemoryError:
            if record is not None or queue.slots == 1 or queue.whole:  # a record has steps that would come twice
                raise
            return False  # the caller tries again: here, the exception would hold what was computed
        return True

    @torch.inference_mode()
    @no_autocast()
    def begin(
        self,
        queue: RequestQueue,
        spec: SearchSpec,
        record: AttentionRecord | None = None,
        context: ContextWindows | None = None,
    ) -> ContinuousBatch:
        """A batch in which all requests of a queue wait."""
        longest = max(request.limit for request in queue.requests)
        model = self.generator(spec.config)
        slots = None if record is not None else self._fixed_slots(queue, spec, longest)
        batch = ContinuousBatch(model, spec, queue.collate, slots.size if slots else queue.slots, longest, slots)
        batch.record, batch.context, batch.waiting = record, context, deque(enumerate(queue.requests))
        return batch

    @torch.inference_mode()
    @no_autocast()
    def open_batch(
        self,
        spec: SearchSpec,
        collate: Collate,
        dummy_batch: Callable[[int], InputBatch],
        longest: int,
        capacity: int,
        room: int = 0,
        context: ContextWindows | None = None,
    ) -> ContinuousBatch:
        """A batch that requests of at most `longest` tokens join as they arrive.

        `dummy_batch` makes one of a given number, of the shape of the longest inputs. After these the state has room
        for `room` tokens: by default for the output; a language model's prompts are to have room there, too.
        """
        runner = self._runner_for(dummy_batch(1).device)
        size = bucket(capacity, 1) if runner else 1
        slots = self._free_slots(dummy_batch(size), size, longest, room or longest + 1, spec, runner)
        batch = ContinuousBatch(self.generator(spec.config), spec, collate, capacity, longest, slots, arriving=True)
        batch.context = context
        return batch

    def generator(self, config: DecodingConfig) -> Generator:
        """The model, and in parallel decoding what guesses for it too."""
        if not isinstance(config, Speculative | Blockwise):
            return self.model
        if config.guesser not in self.parallel:
            draft = None
            if isinstance(config, Speculative) and config.draft_run:
                if self.load_draft is None:
                    raise RegardError(f"the draft {config.draft} cannot be loaded here; write ngrams or layers(2)")
                draft = self.load_draft(config.draft)
            self.parallel[config.guesser] = ParallelModel(self.model, config, draft)
        return self.parallel[config.guesser]

    def acceptance(self, config: DecodingConfig) -> Acceptance | None:
        """How far guesses went in all that was decoded with them; None where there were none."""
        model = self.parallel.get(config.guesser) if isinstance(config, Speculative | Blockwise) else None
        return model.acceptance() if model else None

    def _runner_for(self, device: torch.device) -> MakeRunner | None:
        return self.runner or decoding_graph.RUNNERS.get(device.type)

    def _free_slots(
        self, inputs: InputBatch, size: int, longest: int, room: int, spec: SearchSpec, runner: MakeRunner | None
    ) -> SlotBatch:
        """Free slots of the shape of these inputs, for outputs of at most `longest` tokens."""
        slots = new_slots(self.generator(spec.config), inputs, size, longest, room, spec)
        slots.decoding_step.state.release(slots.free_slots())
        slots.runner = runner() if runner else None
        return slots

    def _fixed_slots(self, queue: RequestQueue, spec: SearchSpec, longest: int) -> SlotBatch | None:
        """Slots in fixed storage, of this shape or a little more room; those of an earlier call if there are any."""
        if queue.dummy_batch is None or (runner := self._runner_for(queue.dummy_batch(1, 1).device)) is None:
            return None
        size, source_length = bucket(queue.slots, 1), bucket(max(queue.source_lengths))
        room = bucket(longest + 1)
        room = min(room, self.model.longest or room)  # a table of positions ends there
        key = size, source_length, room, spec
        slots = self.batches.pop(key, None)
        if slots is None or slots.active:  # a call that was interrupted left requests there
            try:
                slots = self._free_slots(queue.dummy_batch(size, source_length), size, room - 1, room, spec, runner)
            except RegardError:  # the model has no room for so many tokens
                return None
        self.batches[key] = slots  # the last to be given up
        while len(self.batches) > KEPT:
            del self.batches[next(iter(self.batches))]
        return slots
