"""`regard translate`: a line in, its translation out; and files whose line i belongs to line i of the input.

From stdin to the printed line, call by call: docs/architecture.md, "The way of one sentence".
"""

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from regard.api import ModelLoader, load_as
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
from regard.examples.long_text import LongConfig, long_json
from regard.interop.engines import engine_loader
from regard.predict.options import TranslationOptions, TranslationSearch
from regard.predict.pairs import to_pharaoh
from regard.predict.translation import Translation, Translator
from regard.text.coverage import unknown_lines_warning

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class TranslateCommand(TranslationSearch):
    """The command line of `regard translate`, by the names of its options."""

    run: Path
    input: Path | None
    output: Path | None
    nbest: int
    scores: bool
    alignments: Path | None
    layer: int | None
    head: list[int] | None
    trees: Path | None
    long: LongConfig | None
    others: list[Path] | None
    prefixes: Path | None
    phrases: Path | None
    document: Path | None
    form: str | None
    by: str
    context: int
    separator: str
    errors: str
    batch_tokens: int
    engine: str
    precision: str | None
    shortlist: bool
    stats: Path | None
    device: str
    as_json: bool

    @property
    def name(self) -> str:
        """What messages call the input."""
        return str(self.input or "standard input")

    @property
    def beside(self) -> list[Path]:
        """The files whose line i belongs to line i of the input."""
        return [path for path in (self.trees, self.prefixes, self.phrases) if path]

    def check(self) -> None:
        """Raise RegardError for options that do not go together; no file is read."""
        if self.document is None and (self.form or self.context or self.by != "sentence"):
            name = "form" if self.form else "context" if self.context else "by"
            raise RegardError(f"--{name} says how a document is read; give --document FILE, too")
        if not self.alignments and (self.layer or self.head):
            raise RegardError("--layer and --head choose what --alignments shows; give --alignments FILE, too")
        if self.others and self.alignments:
            raise RegardError("--alignments shows the attention of one model; leave out --with")
        check_distinct_files([self.output, self.alignments, self.stats], [self.input, *self.beside])

    def for_predictor(self, translator: Translator) -> TranslationOptions:
        """The options of `Translator.translations` that are the same for all lines."""
        decoding = translator.recipe.decoding
        return TranslationOptions(
            decoding=self.decoding_config(decoding, self.phrases is not None, self.nbest, cli=True),
            nbest=self.nbest,
            files={name: str(path) for name in ("prefixes", "phrases") if (path := vars(self)[name])},
            batch_tokens=self.batch_tokens,
            long=self.long,
            warn=warn,
            scores=self.scores or self.as_json or self.nbest > 1,
            attention=("cross",) if self.alignments else (),
            unknown=[],
        )


def load_translators(options: TranslateCommand) -> Translator:
    """The model, with the others that decide together with it."""
    load = engine_loader(options.engine, options.precision, options.shortlist)
    translator = load_as(Translator, options.run, options.device, "translate", load)
    return ensemble_of(translator, options.others or (), options.device, load)


def translate(options: TranslateCommand) -> None:
    repair = utf8_repair(options.errors)
    options.check()
    if options.document is not None:
        from regard.cli.documents.translate import translate_file

        translate_file(options)
        return
    translator = load_translators(options)
    if options.alignments:
        translator.check_alignment(options.layer, options.head)
    own = options.for_predictor(translator)
    check_stats(own.decoding, options.stats)
    if translator.shortlist is not None and own.decoding is not None and not Shortlist.serves(own.decoding):
        warn(f"--shortlist has no use here: {own.decoding.kind} search computes all words")
    with contextlib.ExitStack() as files:
        source, out = input_lines(options.input, repair), files.enter_context(open_output(options.output))
        aligned = files.enter_context(open_output(options.alignments)) if options.alignments else None
        report = files.enter_context(progress_bar("Translating"))
        done = 0
        rows = _rows_beside(source, options) if options.beside else map(InputRow, source)
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


def _rows_beside(source: Iterator[str], options: TranslateCommand) -> Iterator[InputRow]:
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
    own: TranslationOptions, options: TranslateCommand, batch: list[InputRow], before: int
) -> TranslationOptions:
    return replace(
        own,
        before=before,
        trees=[row.parents for row in batch] if options.trees else None,
        prefixes=[row.prefix for row in batch] if options.prefixes else None,
        phrases=[row.phrases.split("\t") if row.phrases else [] for row in batch] if options.phrases else None,
    )


def _output_line(number: int, translations: list[Translation], options: TranslateCommand) -> str:
    if options.as_json:
        rows = [{"text": t.text, "score": t.score, "log_probability": t.log_probability} for t in translations]
        long = long_json(translations[0].long if translations else None)
        return json.dumps({"line": number, "translations": rows} | long, ensure_ascii=False) + "\n"
    if options.nbest > 1:
        return "".join(f"{number}\t{t.score:.4f}\t{t.text}\n" for t in translations) or f"{number}\t\t\n"
    text = translations[0].text if translations else ""
    score = f"{translations[0].score:.4f}" if translations else ""
    return f"{score}\t{text}\n" if options.scores else f"{text}\n"
