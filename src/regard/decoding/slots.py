"""A batch of slots for requests that are decoded side by side: admitting, stepping, evicting, resizing."""

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from regard.accel.decoding_graph import FixedStorageRunner
from regard.decoding.contract import (
    AttentionRecord,
    DecodingState,
    GenerationRequest,
    Generator,
    Hypothesis,
    Search,
    StreamedToken,
)
from regard.decoding.sampling import SingleSequenceSearch

DELAY = 2  # steps that a device may be ahead of the host's knowledge of it
PATIENCE = 8  # finished requests wait at most so many steps for others, to be fetched together: that stops a device
REFILL = 8  # an eighth of the slots must be free before they are filled again, or given up


class DelayedRead:
    """Reads of a device's tensor as it was some steps ago: so neither the host nor the device waits."""

    def __init__(self, device: torch.device) -> None:
        self.delay = DELAY if device.type == "cuda" else 0
        self.pending: deque[tuple[Tensor, torch.cuda.Event | None]] = deque()

    def push(self, tensor: Tensor) -> None:
        if not self.delay:
            self.pending.append((tensor, None))
            return
        event = torch.cuda.Event()
        self.pending.append((tensor.to("cpu", non_blocking=True), event))
        event.record()

    def pop(self) -> list[Any] | None:
        """The tensor that was pushed `delay` steps ago, if one was."""
        if len(self.pending) <= self.delay:
            return None
        tensor, event = self.pending.popleft()
        if event is not None:
            event.synchronize()
        return tensor.tolist()

    def clear(self) -> None:
        self.pending.clear()


@dataclass
class DecodingStep:
    """All that changes from token to token: the model's state, the search's, and the tokens that are read next."""

    model: Generator
    state: DecodingState
    search: Search
    tokens: Tensor  # [B·K, 1]

    @property
    def width(self) -> int:
        """Tokens of each row that it reads."""
        return 1

    def progress(self) -> Tensor:
        """What the host learns of it some steps later."""
        return self.search.done

    def learn(self, progress: list[Any], delay: int) -> list[bool]:
        """Which sequences were done so many steps ago."""
        return progress

    def limit_context(self, slots: list[int], counts: list[int]) -> None:
        """The rows in those slots have room for so many tokens more; with one at a step nothing goes beyond."""

    def advance(self) -> None:
        """One more token of every row.

        The model of an engine mostly has fused steps (`accel/fused_step.py`); the plain twin is `Transformer.step`.
        """
        logits, self.state = self.model.step(self.tokens, self.state)
        tokens, beams = self.search.select(logits[:, -1])
        if beams is not None:
            self.state.reorder_beams(beams)
        self.tokens = tokens[:, None]


@dataclass
class SlotBatch:
    decoding_step: DecodingStep
    record: AttentionRecord | None = None
    runner: FixedStorageRunner | None = None  # None: tensors of a step may move
    requests: list[int | None] = field(init=False)  # the id of the request in each slot
    last_step: list[int] = field(init=False)  # the count of steps by which it is done for certain
    left: list[int] = field(init=False)  # how many tokens more a stream may have
    finished: dict[int, int] = field(default_factory=dict, init=False)  # slots known to be done, and since which step
    steps: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        size = len(self.decoding_step.search.done)
        self.requests, self.last_step, self.left = [None] * size, [0] * size, [0] * size
        self.device = self.decoding_step.tokens.device
        self.done = DelayedRead(self.device)

    @property
    def size(self) -> int:
        return len(self.requests)

    @property
    def active(self) -> int:
        """How many slots hold a request."""
        return self.size - self.requests.count(None)

    def free_slots(self) -> list[int]:
        return [slot for slot, request in enumerate(self.requests) if request is None]

    def admit(self, slots: list[int], ids: list[int], requests: list[GenerationRequest]) -> None:
        """Begin requests in slots that have their state already."""
        self.decoding_step.search.begin(torch.tensor(slots, device=self.device), requests)
        for slot, id_, request in zip(slots, ids, requests, strict=True):
            self.requests[slot], self.last_step[slot] = id_, self.steps + request.limit + 1
            self.left[slot] = request.limit
        self.done.clear()  # it is of the requests before

    def write(self, slots: list[int], state: DecodingState, first: Tensor) -> None:
        """Put a model's state into those slots; `first` [n, 1] are the tokens that are read next."""
        rows = torch.tensor(slots, device=self.device)
        self.decoding_step.state.write(rows, state)
        self.decoding_step.tokens.view(self.size, -1)[rows] = first

    def advance(self) -> None:
        self.steps += 1
        if self.runner is None:
            self.decoding_step.advance()
        else:
            self.runner.run(self.decoding_step)
        self.done.push(self.decoding_step.progress())
        progress = self.done.pop()
        done = None if progress is None else self.decoding_step.learn(progress, self.done.delay)
        for slot, request in enumerate(self.requests):
            if request is not None and (self.last_step[slot] <= self.steps or (done and done[slot])):
                self.finished.setdefault(slot, self.steps)

    def evict_finished(self) -> list[tuple[int, list[Hypothesis]]]:
        """Free the slots of finished requests; their ids and results. None, while it is worth waiting for more."""
        slots = sorted(self.finished)
        enough = 1 if self.done.delay == 0 else min(self.active, -(-self.size // REFILL))
        if not slots or (len(slots) < enough and min(self.finished.values()) > self.steps - PATIENCE):
            return []
        results = []
        for slot, hypotheses in zip(slots, self.decoding_step.search.hypotheses(slots, self.record), strict=True):
            if (request := self.requests[slot]) is not None:
                results.append((request, hypotheses))
        self.free(slots)
        return results

    def newest_tokens(self) -> list[StreamedToken]:
        """The newest tokens of every request; the slots of those that end with them are freed."""
        search = self.decoding_step.search
        if not isinstance(search, SingleSequenceSearch):
            raise TypeError("a beam has no tokens before its end")
        tokens, ended = [], []
        for slot, row in enumerate(search.newest(self.decoding_step.tokens).tolist()):
            if (request := self.requests[slot]) is None:
                continue
            for token, log_probability in row:
                if token < 0:
                    break
                self.left[slot] -= 1
                at_end, at_limit = token == search.picker.symbols.eos, self.left[slot] <= 0
                how: Literal["end", "limit"] | None = "end" if at_end else "limit" if at_limit else None
                tokens.append(StreamedToken(request, int(token), log_probability, how))
                if how:
                    ended.append(slot)
                    break
        self.free(ended)
        return tokens

    def free(self, slots: list[int]) -> None:
        """Give up the requests in those slots."""
        for slot in slots:
            self.requests[slot] = None
            self.finished.pop(slot, None)
        if slots:
            self.decoding_step.state.release(slots)

    def resize(self, size: int) -> None:
        """Change to so many slots, to those in use at least, unless storage is fixed."""
        if self.runner is not None:
            return
        taken = [slot for slot, request in enumerate(self.requests) if request is not None]
        total, last = max(size, len(taken)), self.size - 1
        moved = iter(taken[bisect_left(taken, total) :])  # all others stay where they are
        staying = set(taken)
        kept = [slot if slot in staying else next(moved, None) for slot in range(total)]
        index = torch.tensor(
            [min(n, last) if slot is None else slot for n, slot in enumerate(kept)], device=self.device
        )
        self.decoding_step.state.reorder(index)
        self.decoding_step.search.reorder(index)
        self.decoding_step.tokens = self.decoding_step.tokens.view(self.size, -1)[index].view(-1, 1)
        self.requests = [None if slot is None else self.requests[slot] for slot in kept]
        self.last_step = [0 if slot is None else self.last_step[slot] for slot in kept]
        self.left = [0 if slot is None else self.left[slot] for slot in kept]
        self.decoding_step.state.release(self.free_slots())
        self.finished.clear()
        self.done.clear()
