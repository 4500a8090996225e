"""Places for sentences that are decoded side by side: who is where, who is done, who leaves."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from regard.decoding.contract import Asked, Generator, Hypothesis, Search
from regard.decoding.graph import Fixed

LOOK = {"cpu": 1}  # steps between two looks at what is done; elsewhere asking stops the device …
OFTEN = 4  # … so it is asked now and then


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
            self.state.branch(beams)
        self.tokens = token[:, None]


@dataclass
class Lane:
    step: Step
    record: Any = None
    compiled: Fixed | None = None
    sentences: list[int | None] = field(init=False)  # which one is at each place
    ends: list[int] = field(init=False)  # the count of steps by which it is done for certain
    steps: int = field(default=0, init=False)
    due: int = field(default=0, init=False)  # the first of `ends`

    def __post_init__(self) -> None:
        count = len(self.step.search.done)
        self.sentences, self.ends = [None] * count, [0] * count
        self.device = self.step.tokens.device
        self.every = LOOK.get(self.device.type, OFTEN)

    def busy(self) -> bool:
        return any(sentence is not None for sentence in self.sentences)

    def free(self) -> list[int]:
        return [place for place, sentence in enumerate(self.sentences) if sentence is None]

    def enter(self, places: list[int], sentences: list[int], asked: list[Asked]) -> None:
        """Sentences whose state is there already begin."""
        self.step.search.begin(torch.tensor(places, device=self.device), asked)
        for place, sentence, each in zip(places, sentences, asked, strict=True):
            self.sentences[place], self.ends[place] = sentence, self.steps + each.limit + 1
        self._plan()

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

    def look(self) -> bool:
        """Whether it is time to see who is done."""
        return self.steps % self.every == 0 or self.steps >= self.due

    def leave(self) -> list[tuple[int, list[Hypothesis]]]:
        """The sentences that are done, with what was found; their places are free."""
        done = self.step.search.done.tolist()
        going = [(place, s) for place, s in enumerate(self.sentences) if s is not None and done[place]]
        if not going:
            return []
        places = [place for place, _ in going]
        found = self.step.search.found(places, self.record)
        for place in places:
            self.sentences[place] = None
        self.step.state.release(places)
        self._plan()
        return [(sentence, hypotheses) for (_, sentence), hypotheses in zip(going, found, strict=True)]

    def shrink(self) -> None:
        """Go on with the places that are taken, unless steps are compiled for all of them."""
        if self.busy():
            self.resize(0)

    def resize(self, count: int) -> None:
        """Go on with so many places, with those that are taken at least, unless steps are compiled for some number."""
        if self.compiled is not None:
            return
        taken = [place for place, sentence in enumerate(self.sentences) if sentence is not None]
        kept = taken + [0] * (count - len(taken))  # a free place may be like any other
        index = torch.tensor(kept, device=self.device)
        self.step.state.reorder(index)
        self.step.search.reorder(index)
        self.step.tokens = self.step.tokens.view(len(self.sentences), -1)[index].view(-1, 1)
        more = len(kept) - len(taken)
        self.sentences = [*(self.sentences[n] for n in taken), *[None] * more]
        self.ends = [*(self.ends[n] for n in taken), *[0] * more]
        self.step.state.release(self.free())

    def drop(self, sentence: int) -> None:
        """Nobody wants it any more: its place is free."""
        place = self.sentences.index(sentence)
        self.sentences[place] = None
        self.step.state.release([place])
        self._plan()

    def _plan(self) -> None:
        ends = (end for end, sentence in zip(self.ends, self.sentences, strict=True) if sentence is not None)
        self.due = min(ends, default=0)
