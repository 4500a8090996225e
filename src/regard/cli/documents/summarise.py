"""`regard summarise`: a document in, its summary out, by a sequence-to-sequence model that has learned from such pairs.

What is too long for the model goes by `long`: passages that say most, segments that are summarised one by one as they
are read, or a part.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from regard.api import load_as
from regard.cli.commands.options import SummariseOptions, long_config
from regard.cli.streams import check_distinct_files, open_output, progress_bar, utf8_repair, warn
from regard.data.readers import open_file
from regard.errors import RegardError
from regard.examples.long_text import Extract, Segments, long_json
from regard.predict.documents.pieces import read_pieces
from regard.predict.long_text import split_text
from regard.predict.options import TranslationOptions, TranslationSearch
from regard.predict.translation import Translation, Translator

LARGEST = 1 << 24  # bytes of a document that is weighed as a whole


def summarise(options: SummariseOptions) -> None:
    check_distinct_files([options.output], [options.document])
    long = long_config(options.long) or Extract()
    translator = load_as(Translator, options.run, options.device, "summarise")
    own = TranslationOptions(
        decoding=TranslationSearch.of(options).decoding_config(translator.recipe.decoding, False, 1, cli=True),
        batch_tokens=options.batch_tokens, long=long, warn=warn, unknown=[],
    )  # fmt: skip
    paragraphs = _paragraphs(options.document, options.errors)
    with open_output(options.output) as out, progress_bar("Summarising") as report:
        if isinstance(long, Segments):
            number = 0
            for number, (segment, size) in enumerate(_segments(translator, paragraphs), 1):
                each = translator.translations([segment], replace(own, long="none", before=number - 1))[0]
                summary = each[0].text if each else ""
                row = {"segment": number, "summary": summary, "tokens": size}
                out.write((json.dumps(row, ensure_ascii=False) if options.as_json else summary) + "\n")
                out.flush()
                report(number, 0)
            warn(f"{options.document}: {number:,} segment(s) were summarised one by one; nothing was dropped")
            return
        found = _whole(translator, options.document, paragraphs, own)
        summary, done = (found[0].text, found[0].long) if found else ("", None)
        row = {"document": str(options.document), "summary": summary} | long_json(done)
        out.write((json.dumps(row, ensure_ascii=False) if options.as_json else summary) + "\n")


def _paragraphs(path: Path, errors: str) -> Iterator[str]:
    """Stretches between empty lines, without the ends of their lines; a longer one than the window in several."""
    repair, lines = utf8_repair(errors), list[str]()
    with open_file(path) as file:
        for piece in read_pieces(file, str(path), repair):
            if piece.text.strip():
                lines.append(piece.text.replace("\0", " ").strip())
            if lines and (not piece.text.strip() or not piece.end):
                yield " ".join(lines)
                lines = []
    if lines:
        yield " ".join(lines)


def _segments(translator: Translator, paragraphs: Iterator[str]) -> Iterator[tuple[str, int]]:
    """Sentences as long as they fit together, with their sizes."""
    limit, encode = translator.recipe.data.filters.max_length, translator.vocabulary.source.encode_batch
    packed, used = list[str](), 0
    for paragraph in paragraphs:
        parts = split_text(paragraph, limit, lambda texts: [len(row) for row in encode(list(texts))])
        for part, ids in zip(parts, encode(parts), strict=True):
            if packed and used + len(ids) > limit:
                yield " ".join(packed), used
                packed, used = [], 0
            packed.append(part)
            used += len(ids)
    if packed:
        yield " ".join(packed), used


def _whole(translator: Translator, path: Path, paragraphs: Iterator[str], own: TranslationOptions) -> list[Translation]:
    if path.is_file() and path.stat().st_size > LARGEST:
        raise RegardError(
            f"{path} has {path.stat().st_size:,} bytes, and {LARGEST:,} are read as a whole; "
            "summarise it in parts: --long segments"
        )
    return translator.translations(["\n\n".join(paragraphs)], own)[0]
