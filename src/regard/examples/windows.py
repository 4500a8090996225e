"""Windows over texts that are longer than a model's context, which may overlap."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class StridedWindows:
    """Windows of `context` tokens, each `stride` tokens after the one before; every token is scored once.

    A token is scored in the first window that holds it: it sees at least context − stride tokens, if so many are there.
    With a `memory`, a model that has one reads them one after the other, and remembers so many tokens before each.
    """

    context: int
    stride: int
    memory: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.stride <= self.context:
            raise ValueError(f"stride must be from 1 to the context of {self.context}, not {self.stride}")
        if self.memory and self.stride != self.context:
            raise ValueError(
                f"stride must be the context, {self.context}, where a memory of {self.memory} tokens is read"
            )

    def windows(self, row: int, tokens: int) -> Iterator["TokenWindow"]:
        """The windows over the inputs of a row, all its `tokens` but the last."""
        done, last = 0, tokens - 1
        while done < last:
            end = min(last, self.context if not done else done + self.stride)
            begin = done if self.memory else max(0, end - self.context)  # what is remembered is not read again
            yield TokenWindow(row, begin, end, done - begin)
            done = end


class TokenWindow(NamedTuple):
    row: int
    begin: int  # inputs: row[begin:end]; targets: row[begin + 1 : end + 1]
    end: int
    skip: int  # the first tokens, which are context only


def word_windows(sizes: Sequence[int], room: int, overlap: int) -> Iterator[tuple[int, int]]:
    """Words of so many pieces each, as windows [begin, end) of at most `room` pieces that share at most `overlap`."""
    begin = 0
    while True:
        end, used = begin, 0
        while end < len(sizes) and (used + sizes[end] <= room or end == begin):
            used, end = used + sizes[end], end + 1
        yield begin, end
        if end == len(sizes):
            return
        begin, least, shared = end, begin + 1, 0
        most = min(overlap, room - sizes[end])  # the next word must fit too
        while begin > least and shared + sizes[begin - 1] <= most:
            begin, shared = begin - 1, shared + sizes[begin - 1]
