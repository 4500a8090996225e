"""`regard translate`: a line in, its translation out; and files whose line i belongs to line i of the input.

From stdin to the printed line, call by call: docs/architecture.md, "The way of one sentence".
"""

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from regard.api import ModelLoader, load_as
from regard.cli.commands.options import TranslateOptions, long_config
from regard.cli.streams import (
    batched_lines,
    check_distinct_files,
    check_stats,
    input_lines,
    longest_line,
    offset_progress,
    open_output,
    progress_bar,
    report_acceptance,
    utf8_repair,
    warn,
)
from regard.data import annotations
from regard.data.readers import TextRecord, read_lines
from regard.decoding.shortlist import Shortlist
from regard.errors import RegardError
from regard.examples.long_text import long_json
from regard.interop.engines import engine_loader
from regard.predict.options import TranslationOptions, TranslationSearch
from regard.predict.pairs import to_pharaoh
from regard.predict.translation import Translation, Translator
from regard.text.coverage import unknown_lines_warning

T = TypeVar("T")


def check_options(options: TranslateOptions) -> None:
    """Raise RegardError for options that are wrong, or do not go together; no file is read."""
    long_config(options.long)
    if options.document is None and (options.form or options.context or options.by != "sentence"):
        name = "form" if options.form else "context" if options.context else "by"
        raise RegardError(f"--{name} says how a document is read; give --document FILE, too")
    if not options.alignments and (options.layer or options.head):
        raise RegardError("--layer and --head choose what --alignments shows; give --alignments FILE, too")
    if options.others and options.alignments:
        raise RegardError("--alignments shows the attention of one model; leave out --with")
    check_distinct_files([options.output, options.alignments, options.stats], [options.input, *_files_beside(options)])


def _files_beside(options: TranslateOptions) -> list[Path]:
    """The files whose line i belongs to line i of the input."""
    return [path for path in (options.trees, options.prefixes, options.phrases) if path]


def predictor_options(options: TranslateOptions, translator: Translator) -> TranslationOptions:
    """The options of `Translator.translations` that are the same for all lines."""
    search, usual = TranslationSearch.of(options), translator.recipe.decoding
    return TranslationOptions(
        decoding=search.decoding_config(usual, options.phrases is not None, options.nbest, cli=True),
        nbest=options.nbest,
        files={name: str(path) for name in ("prefixes", "phrases") if (path := vars(options)[name])},
        batch_tokens=options.batch_tokens,
        long=long_config(options.long),
        warn=warn,
        scores=options.scores or options.as_json or options.nbest > 1,
        attention=("cross",) if options.alignments else (),
        unknown=[],
    )


def load_translators(options: TranslateOptions) -> Translator:
    """The model, with the others that decide together with it."""
    load = engine_loader(options.engine, options.precision, options.shortlist)
    translator = load_as(Translator, options.run, options.device, "translate", load)
    return ensemble_of(translator, options.others or (), options.device, load)


def translate(options: TranslateOptions) -> None:
    repair = utf8_repair(options.errors)
    check_options(options)
    if options.document is not None:
        from regard.cli.documents.translate import translate_file

        translate_file(options)
        return
    translator = load_translators(options)
    if options.alignments:
        translator.check_alignment(options.layer, options.head)
    own = predictor_options(options, translator)
    check_stats(own.decoding, options.stats)
    if translator.shortlist is not None and own.decoding is not None and not Shortlist.serves(own.decoding):
        warn(f"--shortlist has no use here: {own.decoding.kind} search computes all words")
    with contextlib.ExitStack() as files:
        source, out = input_lines(options.input, repair), files.enter_context(open_output(options.output))
        aligned = files.enter_context(open_output(options.alignments)) if options.alignments else None
        report = files.enter_context(progress_bar("Translating"))
        done = 0
        rows = _rows_beside(source, options) if _files_beside(options) else map(InputRow, source)
        for batch in batched_lines(rows, source.ready):
            texts, own = [row.text for row in batch], _batch_options(own, options, batch, done)
            translations = translator.translations(texts, replace(own, progress=offset_progress(done, report)))
            for number, (text, best) in enumerate(zip(texts, translations, strict=True), done + 1):
                out.write(_output_line(number, best, options))
                if aligned:
                    links = [to_pharaoh(translator.alignment(text, t, options.layer, options.head)) for t in best]
                    aligned.write("\n".join(links or [""]) + "\n")
            out.flush()
            done += len(batch)
    report_acceptance(translator, own.decoding, options.stats)
    if repair:
        repair.report(options.name)
    if own.unknown:
        warn(unknown_lines_warning(own.unknown))


def ensemble_of(translator: Translator, others: Sequence[Path], device: str, load: ModelLoader) -> Translator:
    """The model, or if `--with` names others the ensemble of them all."""
    models = [load_as(Translator, run, device, "translate", load) for run in others]
    return translator.ensemble(models) if models else translator


class InputRow(NamedTuple):
    """A line of the input, with its lines of the files beside it."""

    text: str
    parents: Sequence[int] = ()
    prefix: str = ""
    phrases: str = ""


def _rows_beside(source: Iterator[str], options: TranslateOptions) -> Iterator[InputRow]:
    records = records_with_trees(((line,) for line in source), options.trees, options.name)
    prefixed = _lines_beside(records, options.prefixes, options.name)
    for (record, prefix), phrases in _lines_beside(prefixed, options.phrases, options.name):
        yield InputRow(record.fields[0], record.parents or [], prefix, phrases)


def records_with_trees(fields: Iterator[tuple[str, ...]], trees: Path | None, name: str) -> Iterator[TextRecord]:
    """Lines as records, with the dependency trees of a CoNLL-U file if one is given."""
    records = (TextRecord(number, texts) for number, texts in enumerate(fields, 1))
    return annotations.with_trees(records, str(trees) if trees else None, name)


def _lines_beside(items: Iterator[T], path: Path | None, name: str) -> Iterator[tuple[T, str]]:
    """Each item with its line of a file; empty where there is no file."""
    if path is None:
        yield from ((item, "") for item in items)
        return
    others, number = read_lines(path, longest=longest_line()), 0
    for number, item in enumerate(items, 1):
        line = next(others, None)
        if line is None:
            raise RegardError(
                f"{path} ends before line {number} of {name}; it needs a line for each, empty for nothing"
            )
        yield item, line
    if next(others, None) is not None:
        raise RegardError(f"{path}, line {number + 1}: a line too many: {name} has {number}")


def _batch_options(
    own: TranslationOptions, options: TranslateOptions, batch: list[InputRow], before: int
) -> TranslationOptions:
    return replace(
        own,
        before=before,
        trees=[row.parents for row in batch] if options.trees else None,
        prefixes=[row.prefix for row in batch] if options.prefixes else None,
        phrases=[row.phrases.split("\t") if row.phrases else [] for row in batch] if options.phrases else None,
    )


def _output_line(number: int, translations: list[Translation], options: TranslateOptions) -> str:
    if options.as_json:
        rows = [{"text": t.text, "score": t.score, "log_probability": t.log_probability} for t in translations]
        long = long_json(translations[0].long if translations else None)
        return json.dumps({"line": number, "translations": rows} | long, ensure_ascii=False) + "\n"
    if options.nbest > 1:
        return "".join(f"{number}\t{t.score:.4f}\t{t.text}\n" for t in translations) or f"{number}\t\t\n"
    text = translations[0].text if translations else ""
    score = f"{translations[0].score:.4f}" if translations else ""
    return f"{score}\t{text}\n" if options.scores else f"{text}\n"
