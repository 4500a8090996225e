"""Places for sentences that are decoded side by side: who is where, who is done, who leaves."""

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from regard.accel.decoding_graph import Fixed
from regard.decoding.contract import Asked, Generator, Hypothesis, Search

BEHIND = 2  # steps that a device works on while the host learns what was done before
PATIENCE = 8  # what is done waits at most so many steps for others, to be fetched together: that stops a device
FREE = 8  # an eighth of the places must be free before they are filled again, or given up


class News:
    """What a device says of a tensor, as it was some steps ago: so neither the host nor the device waits."""

    def __init__(self, device: torch.device) -> None:
        self.behind = BEHIND if device.type == "cuda" else 0
        self.asked: deque[tuple[Tensor, torch.cuda.Event | None]] = deque()

    def ask(self, tensor: Tensor) -> None:
        if not self.behind:
            self.asked.append((tensor, None))
            return
        event = torch.cuda.Event()
        self.asked.append((tensor.to("cpu", non_blocking=True), event))
        event.record()

    def answer(self) -> list[Any] | None:
        """What was asked `behind` steps ago, if anything was."""
        if len(self.asked) <= self.behind:
            return None
        tensor, event = self.asked.popleft()
        if event is not None:
            event.synchronize()
        return tensor.tolist()

    def forget(self) -> None:
        self.asked.clear()


@dataclass
class Step:
    """All that changes from word to word: what the model remembers, what the search knows, and what is read next."""

    model: Generator
    state: Any
    search: Search
    tokens: Tensor  # [B·K, 1]

    def advance(self) -> None:
        """Every row reads its word and says the next."""
        logits, self.state = self.model.step(self.tokens, self.state)
        token, beams = self.search.take(logits[:, -1])
        if beams is not None:
            self.state.reorder_beams(beams)
        self.tokens = token[:, None]


@dataclass
class Lane:
    step: Step
    record: Any = None
    compiled: Fixed | None = None
    sentences: list[int | None] = field(init=False)  # which one is at each place
    ends: list[int] = field(init=False)  # the count of steps by which it is done for certain
    over: dict[int, int] = field(default_factory=dict, init=False)  # places known to be done, and since which step
    steps: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        count = len(self.step.search.done)
        self.sentences, self.ends = [None] * count, [0] * count
        self.device = self.step.tokens.device
        self.news = News(self.device)

    def busy(self) -> bool:
        return any(sentence is not None for sentence in self.sentences)

    def free(self) -> list[int]:
        return [place for place, sentence in enumerate(self.sentences) if sentence is None]

    def enter(self, places: list[int], sentences: list[int], asked: list[Asked]) -> None:
        """Sentences whose state is there already begin."""
        self.step.search.begin(torch.tensor(places, device=self.device), asked)
        for place, sentence, each in zip(places, sentences, asked, strict=True):
            self.sentences[place], self.ends[place] = sentence, self.steps + each.limit + 1
        self.news.forget()  # it is of those who stood there before

    def write(self, places: list[int], state: Any, first: Tensor) -> None:
        """What a model has read takes those places; `first` [n, 1] is what its sentences read next."""
        rows = torch.tensor(places, device=self.device)
        self.step.state.write(rows, state)
        self.step.tokens.view(len(self.sentences), -1)[rows] = first

    def advance(self) -> None:
        self.steps += 1
        if self.compiled is None:
            self.step.advance()
        else:
            self.compiled.run(self.step)
        self.news.ask(self.step.search.done)
        said = self.news.answer()
        for place, sentence in enumerate(self.sentences):
            if sentence is not None and (self.ends[place] <= self.steps or (said and said[place])):
                self.over.setdefault(place, self.steps)

    def leave(self) -> list[tuple[int, list[Hypothesis]]]:
        """The sentences that are done, with what was found; their places are free. None, while it is worth waiting."""
        places = sorted(self.over)
        taken = len(self.sentences) - len(self.free())
        few = 1 if self.news.behind == 0 else min(taken, -(-len(self.sentences) // FREE))
        if not places or (len(places) < few and min(self.over.values()) > self.steps - PATIENCE):
            return []
        found, gone = self.step.search.found(places, self.record), [self.sentences[place] for place in places]
        for place in places:
            self.sentences[place] = None
        self.over.clear()
        self.step.state.release(places)
        return list(zip(gone, found, strict=True))  # type: ignore[arg-type]

    def shrink(self, spare: int = 0) -> None:
        """Go on with the places that are taken and so many more, unless steps are compiled for all of them."""
        if self.busy():
            self.resize(len(self.sentences) - len(self.free()) + spare)

    def resize(self, count: int) -> None:
        """Go on with so many places, with those that are taken at least, unless steps are compiled for some number."""
        if self.compiled is not None:
            return
        taken = [place for place, sentence in enumerate(self.sentences) if sentence is not None]
        total, last = max(count, len(taken)), len(self.sentences) - 1
        come = iter(taken[bisect_left(taken, total) :])  # who must move; all others stay where they are
        held = set(taken)
        kept = [place if place in held else next(come, None) for place in range(total)]
        index = torch.tensor(
            [min(n, last) if place is None else place for n, place in enumerate(kept)], device=self.device
        )
        self.step.state.reorder(index)
        self.step.search.reorder(index)
        self.step.tokens = self.step.tokens.view(len(self.sentences), -1)[index].view(-1, 1)
        self.sentences = [None if place is None else self.sentences[place] for place in kept]
        self.ends = [0 if place is None else self.ends[place] for place in kept]
        self.step.state.release(self.free())
        self.over.clear()
        self.news.forget()

    def drop(self, sentence: int) -> None:
        """Nobody wants it any more: its place is free."""
        place = self.sentences.index(sentence)
        self.sentences[place] = None
        self.over.pop(place, None)
        self.step.state.release([place])
