"""Documents translated: window by window, sentence by sentence or by paragraphs, with sentences before as context.

A window is as many blocks as have enough sentences for a batch. Knows no files: blocks come in, text goes out.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Literal, NamedTuple, Protocol

from regard.errors import RegardError
from regard.examples.long_text import Long, Segments, Shortened
from regard.predict.documents.blocks import Block, markdown_blocks, text_blocks
from regard.predict.documents.pieces import read_pieces
from regard.predict.documents.prose import Languages, Prose, Sentence, block_text, unended
from regard.predict.options import TranslationOptions, warn_caller
from regard.predict.translation import Translator
from regard.reporting import Warn

WINDOW_SENTENCES, WINDOW_CHARACTERS = 256, 1 << 18
FORMS = {"text": text_blocks, "markdown": markdown_blocks}


@dataclass(frozen=True)
class DocumentOptions:
    """How a document is read and cut."""

    form: Literal["text", "markdown"] = "text"
    by: Literal["sentence", "paragraph"] = "sentence"  # what is translated at once
    context: int = 0  # sentences before that the model reads too, for models that are trained so
    separator: str = "<sep>"  # between them

    def __post_init__(self) -> None:
        for name, known in (("form", ("text", "markdown")), ("by", ("sentence", "paragraph"))):
            if vars(self)[name] not in known:
                raise RegardError(f"{name} is {vars(self)[name]!r}; write {' or '.join(known)}")
        if self.context < 0:
            raise RegardError(f"context must be 0 or more sentences, not {self.context}")
        if self.context and not self.separator.strip():
            raise RegardError("context needs a separator, as the model was trained with")


@dataclass
class DocumentCounts:
    """What was done so far; a run that goes on begins with it."""

    blocks: int = 0
    sentences: int = 0
    in_parts: int = 0  # sentences whose code or links the model did not keep in place
    history: list[str] = field(default_factory=list)  # the last sentences, for context
    long: int = 0  # sentences longer than the model reads
    tokens: int = 0  # of these
    dropped: int = 0

    def add(self, done: Shortened) -> None:
        self.long, self.tokens, self.dropped = self.long + 1, self.tokens + done.tokens, self.dropped + done.dropped


class Translated(NamedTuple):
    text: str
    long: Shortened | None


class Translate(Protocol):
    def __call__(self, texts: list[str], before: int) -> list[Translated]:
        """The translations of texts; `before` is how many came earlier."""


class DocumentTranslator:
    """`counts` says where to go on: so many blocks are passed over."""

    def __init__(
        self, translate: Translate, options: DocumentOptions, languages: Languages, counts: DocumentCounts,
        fits: Callable[[str], bool] = lambda text: True,
    ) -> None:  # fmt: skip
        self.translate, self.options, self.languages, self.counts = translate, options, languages, counts
        self.fits = fits  # whether the model reads a text with its context whole

    def windows(self, blocks: Iterator[Block]) -> Iterator[str]:
        """The document's text, a window at a time; `counts` is of all that was given."""
        for _ in range(self.counts.blocks):
            next(blocks, None)
        window, sentences, characters = list[tuple[Block, Prose | None]](), 0, 0
        for block in blocks:
            text = block.text
            prose = Prose(text, block.markdown, self.options.by, self.languages) if text.strip() else None
            window.append((block, prose))
            sentences += sum(1 for _ in prose.all_sentences()) if prose else 0
            characters += sum(len(part) for line in block.lines for part in line)
            if sentences >= WINDOW_SENTENCES or characters >= WINDOW_CHARACTERS:
                yield self._window(window)
                window, sentences, characters = [], 0, 0
        if window:
            yield self._window(window)

    def _window(self, window: list[tuple[Block, Prose | None]]) -> str:
        open_sentences = [s for _, prose in window if prose for s in prose.all_sentences() if s.output is None]
        whole = [sentence for sentence in open_sentences if sentence.text]
        outputs = self._translated([self._with_context(sentence.text) for sentence in whole])
        separator = self.options.separator.strip()
        for sentence, output in zip(whole, outputs, strict=True):
            sentence.take(output.rpartition(separator)[2].strip() if self.options.context else output)
        self._in_parts([sentence for sentence in open_sentences if sentence.output is None])
        self.counts.blocks += len(window)
        return "".join(block_text(block, prose) for block, prose in window)

    def _with_context(self, text: str) -> str:
        """The text behind the sentences before it, as many as are asked for and fit."""
        history, between = self.counts.history, f" {self.options.separator.strip()} "
        joined = between.join([*history, text])
        for n in range(1, len(history) + 1):
            if self.fits(joined):
                break
            joined = between.join([*history[n:], text])
        if self.options.context:
            self.counts.history = [*history, text][-self.options.context :]
        return joined

    def _translated(self, texts: list[str]) -> list[str]:
        found = self.translate(texts, self.counts.sentences) if texts else []
        self.counts.sentences += len(texts)
        for each in found:
            if each.long is not None:
                self.counts.add(each.long)
        return [each.text for each in found]

    def _in_parts(self, sentences: Sequence[Sentence]) -> None:
        """Sentences in which something would be lost, as what stands between it."""
        fragments = [sentence.fragments for sentence in sentences]
        texts = [part for parts in fragments for part in parts if any(c.isalpha() for c in part)]
        outputs = iter(self._translated([text.strip() for text in texts]))
        for sentence, parts in zip(sentences, fragments, strict=True):
            whole = [
                part.replace(p, unended(p, next(outputs))) if any(map(str.isalpha, p := part.strip())) else part
                for part in parts
            ]
            sentence.output = "".join(whole).replace("\n", " ")
        self.counts.in_parts += len(sentences)


def sentence_translator(translator: Translator, options: TranslationOptions) -> Translate:
    def translate(texts: list[str], before: int) -> list[Translated]:
        own = replace(options, before=before, unknown=[], warn=lambda sentence: None)
        found = translator.translations(texts, own)
        return [Translated(each[0].text, each[0].long) if each else Translated("", None) for each in found]

    return translate


def document_translator(
    translator: Translator, options: TranslationOptions, how: DocumentOptions, counts: DocumentCounts
) -> DocumentTranslator:
    """Of long sentences nothing is lost unless the options say so."""
    limit, encode = translator.recipe.data.filters.max_length, translator.vocabulary.source.encode
    own = replace(options, long=Segments() if options.long is None else options.long)
    return DocumentTranslator(
        sentence_translator(translator, own), how, Languages.of(*translator.languages), counts,
        lambda text: len(encode(text)) <= limit,
    )  # fmt: skip


def translate_document(
    translator: Translator,
    text: str,
    how: DocumentOptions | None = None,
    warn: Warn = warn_caller,
    long: Long | None = None,
) -> str:
    """A whole document as text; `regard translate --document` does the same with files of any size."""
    how, options = how or DocumentOptions(), TranslationOptions(long=long, scores=False)
    blocks = FORMS[how.form](read_pieces(BytesIO(text.encode()), "the document"), warn, "the document")
    return "".join(document_translator(translator, options, how, DocumentCounts()).windows(blocks))
