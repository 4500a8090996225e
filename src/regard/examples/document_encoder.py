"""Encoders of documents: those of a language model, and those of BERT, which are made of sentences.

Language model: <s> begins a document. Where the vocabulary keeps white space, line ends are text and </s> ends the
document. Where it folds white space, </s> ends every line, as in WikiText. BERT: [SEP] ends every sentence.
"""

import re
from collections.abc import Mapping, Sequence

from regard.data.documents import HEADING
from regard.examples.preparing import CorpusEncoder
from regard.text import Tokenizer
from regard.text.sentences import SPLITTERS

DOCUMENTS_VERSION = SENTENCES_VERSION = 1  # of the encoding: prepared data of another is not used
KEEPS_SPACES = ("char", "byte_bpe", "gpt2")  # kinds of vocabulary in which every space is text


class DocumentEncoder(CorpusEncoder):
    """Documents of a language model; `form` names what a document is (data/documents.py)."""

    def __init__(self, tokenizer: Tokenizer, form: str) -> None:
        super().__init__(tokenizer, f"{DOCUMENTS_VERSION} {form}")
        self.form = form
        self.folds = tokenizer.normaliser.fold or tokenizer.kind not in KEEPS_SPACES
        self.opens = tokenizer.bos != tokenizer.eos  # GPT-2: the end of a document begins the next

    @property
    def end(self) -> int:
        """The token that ends generation: </s>, or the next <s> where </s> only ends a line."""
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
        """The lines of a document, which are encoded one by one, so that a long document is no long word."""
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

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids, without special tokens."""
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


class SentenceEncoder(CorpusEncoder):
    """Documents of BERT's pretraining. `form` names what a document is; headings of articles are no sentences."""

    def __init__(self, tokenizer: Tokenizer, form: str, splitter: str, unknown: str) -> None:
        super().__init__(tokenizer, f"{SENTENCES_VERSION} {form} {splitter} {unknown}")
        self.form, self.splitter, self.unknown = form, splitter, unknown

    def split(self, document: str) -> list[str]:
        lines = document.split("\n")
        if self.form == "article":  # Devlin 2019, 3.1: passages alone
            lines = [line for line in lines if not HEADING.fullmatch(line)]
        return [sentence for line in lines for sentence in SPLITTERS[self.splitter](line)]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Whole documents; one without sentences is an empty row."""
        split = [self.split(text) for text in texts]
        pieces = iter(self.encode([sentence for sentences in split for sentence in sentences]))
        rows: list[list[int]] = []
        for sentences in split:
            row: list[int] = []
            for _ in sentences:
                if ids := next(pieces):
                    row += [*ids, self.tokenizer.eos]
            rows.append(row)
        return rows

    def encode(self, texts: Sequence[str], special: Mapping[str, int] | None = None) -> list[list[int]]:
        """Single texts; where one names a special token, such as [MASK], its id stands there."""
        special = dict(special or {}) | ({self.unknown: self.unk} if self.unknown else {})
        return encode_with_special(self.tokenizer, texts, special)


def encode_with_special(tokenizer: Tokenizer, texts: Sequence[str], special: Mapping[str, int]) -> list[list[int]]:
    """Texts in which names of special tokens become their ids; the text between them is encoded piece by piece."""
    if not any(name in text for name in special for text in texts):
        return tokenizer.encode_batch(texts)
    names = re.compile(f"({'|'.join(map(re.escape, special))})")
    cut = [names.split(text) for text in texts]  # text, name, text, name … text
    between = iter(tokenizer.encode_batch([part for parts in cut for part in parts[::2]]))
    return [[i for n, part in enumerate(parts) for i in ([special[part]] if n % 2 else next(between))] for parts in cut]
