"""A tokenizer for documents made of sentences: ids in which [SEP] ends every sentence, and marks that text may name."""

import re
from collections.abc import Mapping, Sequence

from regard.data.documents import HEADING
from regard.examples.preparing import Encoder
from regard.text import Tokenizer
from regard.text.sentences import SPLITTERS

VERSION = 1


class Sentences(Encoder):
    """What `prepare` encodes documents with. `form` says what a document is; headings of articles are no sentences."""

    def __init__(self, tokenizer: Tokenizer, form: str, splitter: str, unknown: str) -> None:
        super().__init__(tokenizer, f"{VERSION} {form} {splitter} {unknown}")
        self.form, self.splitter, self.unknown = form, splitter, unknown

    def split(self, document: str) -> list[str]:
        lines = document.split("\n")
        if self.form == "article":  # Devlin 2019, 3.1: passages alone
            lines = [line for line in lines if not HEADING.fullmatch(line)]
        return [sentence for line in lines for sentence in SPLITTERS[self.splitter](line)]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Whole documents; one in which nothing is found is an empty row."""
        cut = [self.split(text) for text in texts]
        pieces = iter(self.encode([sentence for sentences in cut for sentence in sentences]))
        rows: list[list[int]] = []
        for sentences in cut:
            row: list[int] = []
            for _ in sentences:
                if ids := next(pieces):
                    row += [*ids, self.tokenizer.eos]
            rows.append(row)
        return rows

    def encode(self, texts: Sequence[str], marks: Mapping[str, int] | None = None) -> list[list[int]]:
        """Single texts; where one names a mark, such as [MASK], its id stands there."""
        known = dict(marks or {}) | ({self.unknown: self.unk} if self.unknown else {})
        return encode_marked(self.tokenizer, texts, known)


def encode_marked(tokenizer: Tokenizer, texts: Sequence[str], marks: Mapping[str, int]) -> list[list[int]]:
    """What stands between the marks is encoded by itself: a mark is a word of its own."""
    if not any(mark in text for mark in marks for text in texts):
        return tokenizer.encode_batch(texts)
    names = re.compile(f"({'|'.join(map(re.escape, marks))})")
    cut = [names.split(text) for text in texts]  # text, mark, text, mark … text
    between = iter(tokenizer.encode_batch([part for parts in cut for part in parts[::2]]))
    return [[i for n, part in enumerate(parts) for i in ([marks[part]] if n % 2 else next(between))] for parts in cut]
