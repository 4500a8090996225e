"""The engine: the one decoding loop, for whole results and for streams, of requests that are known or still arrive.

Requests wait until there is room, take slots, and give way to others when they are done: a batch never waits for its
longest request. The host only reads from the device now and then. Knows no kind of model.
"""

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import cast

import torch
from torch import nn

from regard import accel
from regard.accel import decoding_graph
from regard.accel.decoding_graph import FixedStorageRunner, bucket
from regard.accel.fused_step import fused
from regard.accel.inference_weights import inference_weights
from regard.decoding.config import Blockwise, DecodingConfig, Speculative
from regard.decoding.context import ContextWindows
from regard.decoding.continuous_batch import ContinuousBatch, new_slots
from regard.decoding.contract import AttentionRecord, Generator, Hypothesis, InputBatch, Symbols
from regard.decoding.parallel import Acceptance, ParallelModel
from regard.decoding.requests import Collate, RequestQueue, SearchSpec
from regard.decoding.slots import SlotBatch
from regard.errors import RegardError
from regard.nn.dispatch import autocast_dtype, no_autocast
from regard.reporting import say_once

accel.register()
LESS = "the GPU is out of memory: decoding half as many sequences at a time; lower batch_tokens (--batch-tokens)"
KEPT = 8  # shapes whose batches in fixed storage are kept
MakeRunner = Callable[[], FixedStorageRunner]
LoadDraft = Callable[[str], Generator]  # the model of a run


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
