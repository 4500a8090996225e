"""The commands that use a trained model: translate, score, and evaluate for every task."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast, get_args

from rich.table import Table

from regard.api import Opener, load, load_as
from regard.cli.streams import (
    Soon,
    after,
    always,
    bar,
    chunks,
    mender,
    reading,
    separate,
    standard_input,
    warn,
    writing,
)
from regard.console import Console
from regard.data.config import Corpus
from regard.data.conllu import beside
from regard.data.readers import Record, read
from regard.errors import RegardError
from regard.predict.alignment import pharaoh
from regard.predict.constraints import NOTHING, Wanted
from regard.predict.generation import Writer
from regard.predict.options import SPLITS, TranslationSearch, translating
from regard.predict.translation import Long, Options, Translation, Translator
from regard.predict.unknown import sentence as unknown_sentence

# --- translate -----------------------------------------------------------------------------------------------------


def translate(
    run: Path,
    source: Path | None,
    output: Path | None,
    search: TranslationSearch,
    nbest: int,
    scores: bool,
    alignments: tuple[Path | None, int | None, list[int] | None],
    parses: Path | None,
    long: str,
    batch_tokens: int,
    device: str,
    as_json: bool,
    opener: Opener = load,
    others: Sequence[Path] = (),
    asked: Wanted = NOTHING,
    errors: str = "strict",
) -> None:
    if long not in get_args(Long):
        raise RegardError(f"--long is {long!r}; write {', '.join(get_args(Long)[:-1])} or {get_args(Long)[-1]}")
    mend = mender(errors)
    links, layer, heads = alignments
    if not links and (layer or heads):
        raise RegardError("--layer and --head choose what --alignments shows; give --alignments FILE, too")
    if others and links:
        raise RegardError("--alignments shows the attention of one model; leave out --with")
    separate([output, links], [source, parses, *asked.paths])
    translator = load_as(Translator, run, device, "translate", opener)
    translator = _together(translator, others, device, opener)
    if links:
        translator.check_alignment(layer, heads)
    decoding = translating(translator.recipe.decoding, search, asked.phrases is not None, nbest, "--")
    options: Options = {"batch_tokens": batch_tokens, "long": cast(Long, long), "warn": warn}
    options |= {"attention": ("cross",) if links else (), "files": asked.files}
    options["scores"] = scores or as_json or nbest > 1
    unknown: list[int] = []
    options["unknown"] = unknown
    name = str(source or "standard input")
    with contextlib.ExitStack() as files:
        lines, out = files.enter_context(reading(source, mend)), files.enter_context(writing(output))
        aligned = files.enter_context(writing(links)) if links else None
        tell = files.enter_context(bar("Translating"))
        start = 0
        records = asked.beside(_parsed(((line,) for line in lines), parses, source), name)
        for part in chunks(records, lines.soon):
            given = [record for record, _, _ in part]
            chunk = [record.fields[0] for record in given]
            options |= {"progress": after(start, tell), "before": start}
            options |= {"heads": _heads(given, parses), **asked.of(part)}
            found = translator.nbest(chunk, nbest, decoding, **options)
            for number, translations in enumerate(found, start + 1):
                out.write(_line(number, translations, nbest, scores, as_json))
                if aligned:
                    line = chunk[number - start - 1]
                    rows = [pharaoh(translator.alignment(line, t, layer, heads)) for t in translations]
                    aligned.write("\n".join(rows or [""]) + "\n")
            out.flush()
            start += len(chunk)
    if mend:
        mend.tell(name)
    if unknown:
        warn(unknown_sentence(unknown))


def _together(made: Any, others: Sequence[Path], device: str, opener: Opener) -> Any:
    """A model, or if `--with` names others one of them all."""
    if others and not isinstance(made, Translator):
        kind = made.recipe.task.kind
        raise RegardError(
            f"--with is for models that translate together, and this is one of the task {kind}; leave it out"
        )
    return made.together([load_as(Translator, run, device, "translate", opener) for run in others]) if others else made


def _parsed(texts: Iterator[tuple[str, ...]], parses: Path | None, source: Path | None) -> Iterator[Record]:
    """Lines as records, with the heads of a CoNLL-U file if one is given."""
    records = (Record(number, fields) for number, fields in enumerate(texts, 1))
    return beside(records, str(parses) if parses else None, str(source or "standard input"))


def _heads(given: list[Record], parses: Path | None) -> list[list[int]] | None:
    return [record.heads or [] for record in given] if parses else None


def _line(number: int, options: list[Translation], nbest: int, scores: bool, as_json: bool) -> str:
    if as_json:
        found = [{"text": t.text, "score": t.score, "log_probability": t.log_probability} for t in options]
        return json.dumps({"line": number, "translations": found}, ensure_ascii=False) + "\n"
    if nbest > 1:
        return "".join(f"{number}\t{t.score:.4f}\t{t.text}\n" for t in options) or f"{number}\t\t\n"
    text = options[0].text if options else ""
    score = f"{options[0].score:.4f}" if options else ""
    return f"{score}\t{text}\n" if scores else f"{text}\n"


# --- score ---------------------------------------------------------------------------------------------------------


Scores = Iterator[list[tuple[float, int]]]  # log-probability and tokens of each line, some lines at a time


def score(run: Path, source: Path | None, target: Path | None, parses: Path | None, device: str, as_json: bool) -> None:
    made = load(run, device)
    scorer = SCORERS.get(type(made))
    if scorer is None:
        raise RegardError(f"{run}: a model of the task {made.recipe.task.kind}, which `regard score` is not for")
    done = 0
    for chunk in scorer(made, source, target, parses):
        for number, (log_probability, tokens) in enumerate(chunk, done + 1):
            if as_json:
                print(json.dumps({"line": number, "log_probability": log_probability, "tokens": tokens}))
            else:
                print(f"{log_probability:.6f}")
        sys.stdout.flush()
        done += len(chunk)


def _score_pairs(translator: Translator, source: Path | None, target: Path | None, parses: Path | None) -> Scores:
    if (source is None) != (target is None):
        raise RegardError(
            "--source and --target belong together; without both, pairs are read from stdin as source TAB target"
        )
    given: Iterator[tuple[str, ...]]
    soon: Soon = always
    if source is not None and target is not None:
        given = (record.fields for record in read(Corpus(source=str(source), target=str(target))))
    else:
        lines = standard_input()
        given, soon = (_split(line, number) for number, line in enumerate(lines, 1)), lines.soon
    number = 0
    for chunk in chunks(_parsed(given, parses, source), soon):
        pairs = [(record.fields[0], record.fields[1]) for record in chunk]
        yield translator.score(pairs, heads=_heads(chunk, parses), before=number)
        number += len(chunk)


def _score_texts(writer: Writer, source: Path | None, target: Path | None, parses: Path | None) -> Scores:
    if target is not None or parses is not None:
        raise RegardError("a language model scores texts, one a line, from --source or stdin; it takes nothing else")
    with reading(source) as lines:
        for chunk in chunks(lines, lines.soon):
            yield writer.score(chunk)


SCORERS: dict[type, Callable[..., Scores]] = {Translator: _score_pairs, Writer: _score_texts}


def _split(line: str, number: int) -> tuple[str, str]:
    source, tab, target = line.partition("\t")
    if not tab:
        raise RegardError(f"standard input, line {number}: there is no tab between source and target")
    return source, target


# --- evaluate ------------------------------------------------------------------------------------------------------


def evaluate(
    run: Path,
    split: str | None,
    device: str,
    as_json: bool,
    opener: Opener = load,
    others: Sequence[Path] = (),
    **given: Any,
) -> None:
    if split not in (None, *SPLITS):
        raise RegardError(f"--split is {split!r}; write {' or '.join(SPLITS)}")
    made = _together(opener(run, device), others, device, opener)
    task, given = made.recipe.task, {name: value for name, value in given.items() if value is not None}
    strange = [name for name in given if name not in task.evaluate_options]
    if strange:
        raise RegardError(
            f"--{strange[0]} means nothing to a model of the task {task.kind}; "
            f"it takes {', '.join(f'--{name}' for name in ('split', *task.evaluate_options))}"
        )
    with bar("Measuring") as tell:
        report = task.evaluate(made, split, given, lambda what, n, of: tell(n, of))
    for note in report["notes"]:
        warn(note)
    if as_json:
        print(json.dumps(report, indent=1, ensure_ascii=False))
    else:
        print_metrics(report)


COUNTED = ("lines", "examples", "replies", "tokens")  # how much was measured on, as reports say it
NAMES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER", "exact_match": "exact match %", "pronouns": "pronouns right %"}
NAMES |= {"word_perplexity": "perplexity of a word", "bits_per_character": "bits per character"}
NAMES |= {"masked_loss": "loss of masked words", "masked_accuracy": "masked words right %"}
NAMES |= {"gap_accuracy": "where it reads [MASK] %"}
NAMES |= {"unigram_accuracy": "by the most frequent word %", "next_loss": "loss of next segment"}
NAMES |= {"distinct_1": "different words %", "distinct_2": "different pairs of words %"}
NAMES |= {"next_accuracy": "next segment right %"}
DIGITS = {"masked_loss": 4, "next_loss": 4, "loss": 4, "bits_per_character": 4}


def print_metrics(report: dict[str, Any], console: Console | None = None) -> None:
    size = ", ".join(f"{report[what]:,} {what}" for what in COUNTED if what in report)
    table = Table()
    table.add_column("metric")
    table.add_column("value", justify="right")
    console = console or Console()
    for name, entry in report["metrics"].items():
        table.add_row(NAMES.get(name, name), f"{entry['value']:.{DIGITS.get(name, 2)}f}")
    # Not the table's title, which would be broken at its width.
    title = f"{', '.join(report['data'])} · {size}"
    console.print(title, style="italic", highlight=False, markup=False, soft_wrap=True)
    console.print(table)
    for name, entry in report["metrics"].items():
        if "signature" in entry:
            console.print(
                f"{NAMES.get(name, name)}: {entry['signature']}", style="dim", highlight=False, soft_wrap=True
            )
