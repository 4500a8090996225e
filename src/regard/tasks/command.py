"""The commands that use a trained translator: translate, score, evaluate. Text flows through; reports are printed."""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from regard.data.config import Corpus
from regard.data.conllu import beside
from regard.data.readers import Record, read
from regard.decoding import Beam, DecodingConfig, Greedy, Sample
from regard.errors import RegardError
from regard.folder import load
from regard.tasks.alignment import pharaoh
from regard.tasks.translation import evaluate as measure
from regard.tasks.translator import Long, Options, Translation, Translator

Opener = Callable[[Path, str], Translator]  # (run, device): an engine
CHUNK = 4096  # lines translated together when they come as a stream


# --- translate -----------------------------------------------------------------------------------------------------


def translate(
    run: Path,
    source: Path | None,
    output: Path | None,
    beam: int | None,
    nbest: int,
    scores: bool,
    sampling: tuple[bool, float, int, float, int],
    alignments: tuple[Path | None, int | None, list[int] | None],
    parses: Path | None,
    long: str,
    batch_tokens: int,
    device: str,
    as_json: bool,
    opener: Opener = load,
) -> None:
    if long not in ("truncate", "refuse", "translate"):
        raise RegardError(f"--long is {long!r}; write truncate, refuse or translate")
    translator = opener(run, device)
    if nbest > 1 and beam is None and isinstance(translator.recipe.decoding, Greedy):
        beam = nbest
    decoding = _decoding(translator, beam, sampling)
    links, layer, heads = alignments
    options: Options = {"batch_tokens": batch_tokens, "long": cast(Long, long), "warn": _warn}
    options["attention"] = ("cross",) if links else ()
    with contextlib.ExitStack() as files:
        lines, out = files.enter_context(_reading(source)), files.enter_context(_writing(output))
        aligned = files.enter_context(_writing(links)) if links else None
        tell = files.enter_context(_bar("Translating"))
        start = 0
        records = _parsed(((line,) for line in lines), parses, source)
        for given in _chunks(records, interactive=source is None and sys.stdin.isatty()):
            chunk = [record.fields[0] for record in given]

            def told(what: str, done: int, of: int, before: int = start) -> None:
                tell(before + done, before + of)

            options |= {"progress": told, "before": start, "heads": _heads(given, parses)}
            found = translator.nbest(chunk, nbest, decoding, **options)
            for number, translations in enumerate(found, start + 1):
                out.write(_line(number, translations, nbest, scores, as_json))
                if aligned:
                    line = chunk[number - start - 1]
                    rows = [pharaoh(translator.alignment(line, t, layer, heads)) for t in translations]
                    aligned.write("\n".join(rows or [""]) + "\n")
            out.flush()
            start += len(chunk)


def _parsed(texts: Iterator[tuple[str, ...]], parses: Path | None, source: Path | None) -> Iterator[Record]:
    """Lines as records, with the heads of a CoNLL-U file if one is given."""
    records = (Record(number, fields) for number, fields in enumerate(texts, 1))
    return beside(records, str(parses) if parses else None, str(source or "standard input"))


def _heads(given: list[Record], parses: Path | None) -> list[list[int]] | None:
    return [record.heads or [] for record in given] if parses else None


def _warn(sentence: str) -> None:
    print(f"regard: {sentence}", file=sys.stderr)


def _decoding(
    translator: Translator, beam: int | None, sampling: tuple[bool, float, int, float, int]
) -> DecodingConfig:
    sample, temperature, top_k, top_p, seed = sampling
    base = translator.recipe.decoding
    limits = {"max_ratio": base.max_ratio, "max_extra": base.max_extra}
    try:
        if sample:
            return Sample(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, **limits)  # type: ignore[arg-type]
        if beam == 1:
            return Greedy(**limits)  # type: ignore[arg-type]
        if beam is not None:
            kept = {"length_penalty": base.length_penalty, "penalty": base.penalty} if isinstance(base, Beam) else {}
            return Beam(size=beam, **kept, **limits)  # type: ignore[arg-type]
    except ValueError as error:
        raise RegardError(str(error)) from None
    return base


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


def score(run: Path, source: Path | None, target: Path | None, parses: Path | None, device: str, as_json: bool) -> None:
    if (source is None) != (target is None):
        raise RegardError(
            "--source and --target belong together; without both, pairs are read from stdin as source TAB target"
        )
    translator = load(run, device)
    given: Iterator[tuple[str, ...]]
    if source is not None and target is not None:
        given = (record.fields for record in read(Corpus(source=str(source), target=str(target))))
    else:
        given = (_split(line, number) for number, line in enumerate(_decode(sys.stdin.buffer, "standard input"), 1))
    number = 0
    for chunk in _chunks(_parsed(given, parses, source)):
        pairs = [(record.fields[0], record.fields[1]) for record in chunk]
        for log_probability, tokens in translator.score(pairs, heads=_heads(chunk, parses), before=number):
            number += 1
            if as_json:
                print(json.dumps({"line": number, "log_probability": log_probability, "tokens": tokens}))
            else:
                print(f"{log_probability:.6f}")


def _split(line: str, number: int) -> tuple[str, str]:
    source, tab, target = line.partition("\t")
    if not tab:
        raise RegardError(f"standard input, line {number}: there is no tab between source and target")
    return source, target


# --- evaluate ------------------------------------------------------------------------------------------------------


def evaluate(
    run: Path,
    split: str | None,
    source: Path | None,
    reference: Path | None,
    parses: Path | None,
    beam: int | None,
    device: str,
    as_json: bool,
    opener: Opener = load,
) -> None:
    if (source is None) != (reference is None):
        raise RegardError("--source and --reference belong together")
    if parses is not None and source is None:
        raise RegardError("--heads belongs to --source; the recipe names the CoNLL-U files of its own data")
    if split not in (None, "test", "valid"):
        raise RegardError(f"--split is {split!r}; write test or valid")
    translator = opener(run, device)
    corpora = _corpora(translator, split, source, reference, parses)
    with _bar("Translating") as tell:
        report = measure(
            translator, corpora, lambda what, n, of: tell(n, of), _decoding(translator, beam, (False, 1.0, 0, 1.0, 1))
        )
    for note in report["notes"]:
        _warn(note)
    if as_json:
        print(json.dumps(report, indent=1, ensure_ascii=False))
    else:
        print_metrics(report)


def _corpora(
    translator: Translator, split: str | None, source: Path | None, reference: Path | None, parses: Path | None
) -> list[Corpus]:
    data = translator.recipe.data
    if source is not None:
        return [Corpus(source=str(source), target=str(reference), heads=str(parses) if parses else None)]
    corpora = getattr(data, split) if split else data.test or data.valid
    if not corpora:
        raise RegardError(f"the recipe names no {split or 'test or valid'} data; give --source and --reference")
    return corpora


NAMES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER", "exact_match": "exact match %", "pronouns": "pronouns right %"}


def print_metrics(report: dict[str, Any], console: Console | None = None) -> None:
    table = Table(title=f"{', '.join(report['data'])} · {report['lines']:,} lines", title_justify="left")
    table.add_column("metric")
    table.add_column("value", justify="right")
    console = console or Console()
    for name, entry in report["metrics"].items():
        table.add_row(NAMES.get(name, name), f"{entry['value']:.2f}")
    console.print(table)
    for name, entry in report["metrics"].items():
        if "signature" in entry:
            console.print(
                f"{NAMES.get(name, name)}: {entry['signature']}", style="dim", highlight=False, soft_wrap=True
            )


# --- streams -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _reading(path: Path | None) -> Iterator[Iterator[str]]:
    if path is None:
        yield _decode(sys.stdin.buffer, "standard input")
        return
    from regard.data.readers import lines

    yield lines(path)  # what goes wrong in reading it says itself; an error of the output must not be taken for its own


def _decode(stream: IO[bytes], name: str) -> Iterator[str]:
    for number, line in enumerate(stream, 1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\n").removesuffix("\r")
            yield text.replace("\0", " ")
        except UnicodeDecodeError:
            raise RegardError(f"{name}, line {number}: not UTF-8") from None


@contextlib.contextmanager
def _writing(path: Path | None) -> Iterator[IO[str]]:
    if path is None:
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        yield sys.stdout
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")  # the input may be the same file
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            yield file
        os.replace(temporary, path)
    except OSError as error:
        raise RegardError(f"{path}: cannot be written ({error.strerror})") from None
    finally:
        temporary.unlink(missing_ok=True)


def _chunks(lines: Iterator[Any], interactive: bool = False) -> Iterator[list[Any]]:
    held = []
    for line in lines:
        held.append(line)
        if interactive or len(held) == CHUNK:
            yield held
            held = []
    if held:
        yield held


@contextlib.contextmanager
def _bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr where there is a terminal, else nothing; `tell(n, of)` says how many are done."""
    console = Console(stderr=True)
    if not console.is_terminal or sys.stdout.isatty():  # text and a bar on one screen would run into each other
        yield lambda done, of: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)
