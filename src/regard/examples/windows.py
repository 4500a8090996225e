"""Windows over long rows of tokens, which may overlap: each token is scored in one of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Reach:
    """How much a model sees: windows of `context` tokens, of which each goes on `stride` tokens after the one before.

    A token is scored in the first window that holds it: it sees at least context − stride tokens, if so many are there.
    """

    context: int
    stride: int

    def __post_init__(self) -> None:
        if not 1 <= self.stride <= self.context:
            raise ValueError(f"stride must be from 1 to the context of {self.context}, not {self.stride}")

    def windows(self, row: int, tokens: int) -> Iterator["Window"]:
        """Over a row whose first token is only read: the windows of what it reads, `tokens` − 1 places."""
        done, last = 0, tokens - 1
        while done < last:
            end = min(last, self.context if not done else done + self.stride)
            begin = max(0, end - self.context)
            yield Window(row, begin, end, done - begin)
            done = end


class Window(NamedTuple):
    row: int
    begin: int  # what is read: row[begin:end]; what should be said: row[begin + 1 : end + 1]
    end: int
    skip: int  # the first places, which are only there to be seen
