"""Contexts of a language model: where a row's is full, it continues from the last half, which is read anew.

So the output may be longer than what the model sees. One whose layers see a bounded past by distance alone needs none
of this (`TextGenerator.limit`). Knows no model.
"""

from collections.abc import Callable, Sequence

from regard.decoding.contract import GenerationRequest, InputBatch, StreamedToken


class ContextWindows:
    """The tokens of every request, and how many it has when its context is full."""

    def __init__(self, size: int, collate: Callable[[Sequence[Sequence[int]]], InputBatch]) -> None:
        """Each token sees at most `size`; `collate` makes a batch of rows of tokens."""
        self.size, self.collate = size, collate
        self.histories: dict[int, list[int]] = {}  # by request
        self.full_at: dict[int, int] = {}

    def begin(self, ids: list[int], requests: list[GenerationRequest]) -> None:
        for id_, request in zip(ids, requests, strict=True):
            self.histories[id_] = list(request.prompt)
            self._read(id_, len(request.prompt))

    def _read(self, id_: int, count: int) -> None:
        """So many tokens have been read, of which the last is the first that a step reads."""
        self.full_at[id_] = len(self.histories[id_]) + self.size - max(1, count) + 1

    def room(self, ids: list[int]) -> list[int]:
        """How many tokens more each of those requests may have until its context is full."""
        return [self.full_at[id_] - len(self.histories[id_]) for id_ in ids]

    def add(self, tokens: list[StreamedToken]) -> None:
        for each in tokens:
            self.histories[each.id].append(each.token)
        self.drop({each.id for each in tokens if each.ended})

    def drop(self, ids: set[int]) -> None:
        for id_ in ids & self.histories.keys():
            del self.histories[id_], self.full_at[id_]

    def full(self) -> list[int]:
        return [id_ for id_, at in self.full_at.items() if at <= len(self.histories[id_])]

    def last_half(self, ids: list[int]) -> InputBatch:
        """What those requests read anew."""
        kept = max(1, self.size // 2)
        for id_ in ids:
            self._read(id_, kept)
        return self.collate([self.histories[id_][-kept:] for id_ in ids])
