"""Ids that are not the tokenizer's own: a table numbers the pieces, those of other tokenizers among them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tokenizers import Tokenizer as Inner


@dataclass(frozen=True)
class Table:
    pieces: list[str]  # of every id of the table
    ids: list[int]  # the id in the table of every inner id
    unk: int  # the inner id of what the tokenizer does not know; the table may know it

    @cached_property
    def _known(self) -> dict[str, int]:
        return {piece: i for i, piece in enumerate(self.pieces)}

    def renumber(self, inner: Inner, rows: Sequence[Sequence[int]], texts: Sequence[str]) -> list[list[int]]:
        """Rows of inner ids, which are those of the texts, as ids of the table."""
        return [
            self._look_up(inner, text) if self.unk in row else [self.ids[i] for i in row]
            for row, text in zip(rows, texts, strict=True)
        ]

    def _look_up(self, inner: Inner, text: str) -> list[int]:
        """What is unknown may be a piece of the other language, which is found by its text."""
        encoding = inner.encode(text, add_special_tokens=False)
        return [
            self._known.get(text[start:end], self.ids[i]) if i == self.unk else self.ids[i]
            for i, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)
        ]
