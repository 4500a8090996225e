"""`regard translate --document`: a file in, the same file with its prose translated out, of any size, resumable."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from regard.cli.commands.options import TranslateOptions
from regard.cli.documents.resumed import ResumedOutput, document_key
from regard.cli.streams import check_distinct_files, check_stats, progress_bar, report_acceptance, utf8_repair, warn
from regard.cli.translate import load_translators, predictor_options
from regard.data.readers import open_file
from regard.errors import RegardError
from regard.io.atomic import atomic_write
from regard.io.manifest import model_digest
from regard.predict.documents.pieces import read_pieces
from regard.predict.documents.translate import FORMS, DocumentCounts, DocumentOptions, document_translator
from regard.reporting import Json

MARKDOWN = (".md", ".markdown", ".mkd", ".qmd", ".rmd")
LINES_ONLY = ("input", "alignments", "trees", "prefixes", "phrases", "scores")


def document_options(options: TranslateOptions) -> DocumentOptions:
    document = options.document
    assert document is not None
    for name in LINES_ONLY:
        if vars(options)[name]:
            raise RegardError(f"--{name} belongs to lines, and --document to a whole text; leave out one of the two")
    if options.nbest > 1:
        raise RegardError("a document has one translation; leave out --nbest")
    if options.as_json and options.output is None:
        raise RegardError("--json reports what was done, and the translation goes to stdout too; give --output FILE")
    form = options.form or ("markdown" if document.suffix.lower() in MARKDOWN else "text")
    return DocumentOptions(form, options.by, options.context, options.separator)  # type: ignore[arg-type]


def translate_file(options: TranslateOptions) -> None:
    how, document = document_options(options), options.document
    assert document is not None
    check_distinct_files([options.output, options.stats], [document])
    repair = utf8_repair(options.errors)
    translator = load_translators(options)
    own = predictor_options(options, translator)
    check_stats(own.decoding, options.stats)
    resumed: ResumedOutput | None = None
    if options.output is not None and document.is_file() and (options.output.is_file() or not options.output.exists()):
        models = " ".join(model_digest(run) for run in (options.run, *(options.others or ())))
        usual = translator.recipe.decoding
        searched = f"{usual} {own.chosen_search(usual)} {own.long} {options.batch_tokens}"
        computed = f"{options.engine} {options.precision} {options.errors} {options.shortlist}"
        key = document_key(document, models, f"{how} {searched} {computed}")
        resumed = ResumedOutput(options.output, key)
        if resumed.counts.blocks:
            warn(f"{resumed.part} has {resumed.size:,} bytes already; going on behind them")
    counts = resumed.counts if resumed else DocumentCounts()
    worker = document_translator(translator, own, how, counts)
    size = document.stat().st_size if document.is_file() else 0
    with open_file(document) as file, progress_bar("Translating") as report, _output(options.output, resumed) as out:
        blocks = FORMS[how.form](read_pieces(file, str(document), repair), warn, str(document))
        for text in worker.windows(blocks):
            out.write(text.encode())
            if resumed:
                resumed.save(out, counts)
            report(min(_position(file), size), size)
    if repair:
        repair.report(str(document))
    _report(str(document), counts, options, report_acceptance(translator, own.decoding, options.stats))


def _position(file: IO[bytes]) -> int:
    """Bytes that were read; 0 where a stream does not say it."""
    with contextlib.suppress(OSError, ValueError):
        return file.tell()
    return 0


@contextlib.contextmanager
def _output(path: Path | None, resumed: ResumedOutput | None) -> Iterator[IO[bytes]]:
    if resumed is not None:
        with resumed.open() as file:
            yield file
    elif path is not None:
        with atomic_write(path, "wb") as file:
            yield file
    else:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()


def _report(name: str, counts: DocumentCounts, options: TranslateOptions, acceptance: Json) -> None:
    if counts.in_parts:
        warn(
            f"{name}: {counts.in_parts:,} sentence(s) were translated in parts, "
            "around code and links that the model did not keep in place"
        )
    if counts.long:
        warn(
            f"{name}: {counts.long:,} sentence(s) were longer than the model reads; "
            f"{counts.dropped:,} of {counts.tokens:,} pieces were dropped"
        )
    if not counts.sentences:
        warn(f"{name}: there is no prose to translate")
    if options.as_json:
        report: Json = {"document": name, "sentences": counts.sentences, "in_parts": counts.in_parts}
        report["long"] = {"sentences": counts.long, "tokens": counts.tokens, "dropped": counts.dropped}
        print(json.dumps(report | acceptance, ensure_ascii=False))
