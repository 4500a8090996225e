"""A running batch, which requests join and leave at any time, in slots whose number grows and shrinks with the load."""

from collections import deque

import numpy as np
import torch

from regard.accel.fused_step import FusedStep
from regard.decoding.context import ContextWindows
from regard.decoding.contract import (
    AttentionRecord,
    GenerationRequest,
    Generator,
    Hypothesis,
    InputBatch,
    StreamedToken,
)
from regard.decoding.parallel import ParallelModel, ParallelStep
from regard.decoding.requests import Collate, SearchSpec
from regard.decoding.slots import REFILL, DecodingStep, SlotBatch
from regard.nn.dispatch import no_autocast

INTERVAL = 6  # steps between two times that arriving requests join, unless …
SHARE = 2  # … half as many wait as are in progress
Finished = list[tuple[int, list[Hypothesis]]]  # ids of requests, and their results


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
