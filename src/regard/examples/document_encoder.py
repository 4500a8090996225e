"""A tokenizer for running text: documents to ids with their marks, ids to text again while it is being said.

<s> opens a document. Where the vocabulary keeps white space, ends of lines are text and </s> closes the document. Where
it folds white space, </s> is what ends every line, as in WikiText.
"""

from collections.abc import Sequence

from regard.examples.preparing import Encoder
from regard.text import Tokenizer

VERSION = 1
KEEPS = ("char", "byte_bpe", "gpt2")  # kinds of vocabulary in which every space is text


class Running(Encoder):
    """What `prepare` encodes documents with; `form` says what a document is (data/documents.py)."""

    def __init__(self, tokenizer: Tokenizer, form: str) -> None:
        super().__init__(tokenizer, f"{VERSION} {form}")
        self.form = form
        self.folds = tokenizer.normaliser.fold or tokenizer.kind not in KEEPS
        self.opens = tokenizer.bos != tokenizer.eos  # GPT-2 has one mark: the end of a document opens the next

    @property
    def end(self) -> int:
        """What a model says when a document is over: </s>, or the next <s> where </s> only ends a line."""
        return self.tokenizer.bos if self.folds and self.form != "line" else self.tokenizer.eos

    # --- text to ids -------------------------------------------------------------------------------------------

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Whole documents, whose lines end in \\n."""
        t = self.tokenizer
        cut = [self.lines(text) for text in texts]
        pieces = iter(t.encode_batch([line for lines in cut for line in lines]))
        rows = []
        for lines in cut:
            row = [t.bos] if self.opens else []
            for _ in lines:
                row += next(pieces)
                row += [t.eos] if self.folds else []
            rows.append(row if self.folds else [*row, t.eos])
        return rows

    def lines(self, text: str) -> list[str]:
        """The lines of a document as the tokenizer is given them, one by one, so that a long one is no long word."""
        if self.folds:
            return text.removesuffix("\n").split("\n")
        if self.form == "line":
            text = text.removesuffix("\n")  # where a line is a document, nothing but </s> ends it
        return _lines(text)

    def prompt(self, text: str) -> list[int]:
        """The beginning of a document, whose last line may go on."""
        t = self.tokenizer
        row = [t.bos]
        pieces = t.encode_batch(text.split("\n") if self.folds else _lines(text))
        for n, ids in enumerate(pieces):
            row += [t.eos] if self.folds and n else []
            row += ids
        return row

    # --- ids to text -------------------------------------------------------------------------------------------

    def text(self, ids: Sequence[int]) -> str:
        """What the ids say; the marks of documents are silent."""
        if not self.folds:
            return self.tokenizer.decode(ids)
        lines: list[list[int]] = [[]]
        for index in ids:
            if index == self.tokenizer.eos:
                lines.append([])
            else:
                lines[-1].append(index)
        return "\n".join(self.tokenizer.detokenise(self.tokenizer.decode(line)) for line in lines)


def _lines(text: str) -> list[str]:
    """At \\n and nowhere else, ends kept."""
    parts = text.split("\n")
    return [part + "\n" for part in parts[:-1]] + [part for part in parts[-1:] if part]
