"""`regard evaluate`: the metrics of a model, as its task measures it; of two, whether they differ by more than chance.

And the table of metrics that commands print.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from regard.api import ModelLoader
from regard.cli.commands.options import EvaluationOptions
from regard.cli.streams import progress_bar, report_acceptance, warn
from regard.cli.translate import ensemble_of
from regard.console import Console
from regard.data.config import Corpus
from regard.errors import RegardError, plural
from regard.evaluation.metrics import tokeniser_of
from regard.evaluation.significance import SAMPLES, PairedResult, paired_bootstrap
from regard.examples.pairs import read_heads
from regard.interop.engines import engine_loader
from regard.language import localise
from regard.predict.options import SPLITS, split_corpora, with_beam
from regard.predict.translation import Translator
from regard.reporting import Json
from regard.tasks.translation import held_out_pairs


def check_split(split: str | None) -> None:
    if split not in (None, *SPLITS):
        raise RegardError(f"--split is {split!r}; write {' or '.join(SPLITS)}")


def evaluate(options: EvaluationOptions) -> None:
    check_split(options.split)
    loader = engine_loader(options.engine, options.precision, options.shortlist)
    predictor = loader(options.run, options.device)
    if options.others:
        if not isinstance(predictor, Translator):
            raise RegardError(
                "--with is for models that translate together, and this is one of the task "
                f"{predictor.recipe.task.kind}; leave it out"
            )
        predictor = ensemble_of(predictor, options.others, options.device, loader)
    task, given = predictor.recipe.task, options.of_task()
    for name in given:
        if name not in task.evaluate_options:
            raise RegardError(
                f"--{name} means nothing to a model of the task {task.kind}; "
                f"it takes {', '.join(f'--{name}' for name in ('split', *task.evaluate_options))}"
            )
    with progress_bar("Measuring") as show:
        report = task.evaluate(predictor, options.split, given, lambda what, n, of: show(n, of))
    for note in report["notes"]:
        warn(note)
    report |= report_acceptance(predictor, predictor.recipe.decoding)
    if options.as_json:
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


def print_metrics(report: Json, console: Console | None = None) -> None:
    size = ", ".join(localise(f"{report[what]:,} {what}") for what in COUNTED if what in report)
    table = Table()
    table.add_column(localise("metric"))
    table.add_column(localise("value"), justify="right")
    console = console or Console()
    for name, entry in report["metrics"].items():
        table.add_row(localise(NAMES.get(name, name)), f"{entry['value']:.{DIGITS.get(name, 2)}f}")
    # Not the table's title, which would be broken at its width.
    title = f"{', '.join(report['data'])} · {size}"
    console.print(title, style="italic", highlight=False, markup=False, soft_wrap=True)
    console.print(table)
    for name, entry in report["metrics"].items():
        if "signature" in entry:
            console.print(
                f"{localise(NAMES.get(name, name))}: {entry['signature']}", style="dim", highlight=False, soft_wrap=True
            )


# --- is B better than A? -----------------------------------------------------------------------------------------

SIGNIFICANT = 0.05  # p below this is more than chance


def evaluate_against(options: EvaluationOptions) -> None:
    run, other = options.run, options.against
    assert other is not None
    if options.others:
        raise RegardError("--against compares two models; leave out --with")
    check_split(options.split)
    if run.resolve() == other.resolve():
        raise RegardError(f"--against {other} is the model itself; give another one")
    loader = engine_loader(options.engine, options.precision, options.shortlist)
    models = [_translator(path, options.device, loader) for path in (run, other)]
    corpora = _corpora(models[0], options)
    languages = models[0].languages
    if models[1].languages != languages:
        raise RegardError(f"{other} translates {'→'.join(models[1].languages)}, and {run} {'→'.join(languages)}")
    pairs = held_out_pairs(models[0], corpora)
    outputs = []
    for path, model in zip((run, other), models, strict=True):
        search = with_beam(model.recipe.decoding, options.beam)
        trees = read_heads(corpora, languages, model.vocabulary.source)
        with progress_bar(f"Translating with {path.name}") as show:
            sources, progress = [source for source, _ in pairs], lambda what, n, of: show(n, of)
            texts = model.translate(sources, search, form="prepared", warn=warn, trees=trees, progress=progress)
        outputs.append(texts)
    tokenise = models[0].recipe.evaluation.tokenise or tokeniser_of(languages[1])
    first, second, references = measured_alike(models, outputs, pairs)
    results = paired_bootstrap(first, second, references, tokenise)
    report = {"data": [corpus.name for corpus in corpora], "lines": len(pairs), "samples": SAMPLES}
    report |= {"first": str(run), "second": str(other)}
    if options.as_json:
        print(json.dumps({**report, "metrics": [result.json() for result in results]}, indent=1, ensure_ascii=False))
    else:
        _print_paired(report, results)


def measured_alike(
    models: Sequence[Translator], outputs: Sequence[Sequence[str]], pairs: Sequence[tuple[str, str]]
) -> tuple[Sequence[str], Sequence[str], list[str]]:
    """The outputs of two models and their references: in their own form if they share it, else as plain text."""
    forms = [model.measured_form(texts, pairs) for model, texts in zip(models, outputs, strict=True)]
    if forms[0][1] == forms[1][1]:
        return forms[0][0], forms[1][0], forms[0][1]
    warn("the models prepare text unlike each other (case, Moses tokens), so both are measured as plain text")
    plain = [
        [model.vocabulary.target.detokenise(text, model.languages[1]) for text in texts]
        for model, texts in zip(models, outputs, strict=True)
    ]
    return plain[0], plain[1], [target for _, target in pairs]


def _translator(path: Path, device: str, loader: ModelLoader) -> Translator:
    predictor = loader(path, device)
    if not isinstance(predictor, Translator):
        raise RegardError(
            f"--against is for models that translate, and {path} is of the task {predictor.recipe.task.kind}; "
            "compare others over seeds, with `regard compare`"
        )
    return predictor


def _corpora(model: Translator, options: EvaluationOptions) -> list[Corpus]:
    for name in ("text", "context", "stride", "memory"):
        if vars(options)[name] is not None:
            raise RegardError(f"--{name} means nothing to models that translate")
    source, reference, trees = options.source, options.reference, options.trees
    if (source is None) != (reference is None):
        raise RegardError("--source and --reference belong together")
    if source is not None:
        return [Corpus(source=str(source), target=str(reference), heads=str(trees) if trees else None)]
    return split_corpora(model.recipe, options.split, "give --source and --reference")


def _print_paired(report: Json, results: Sequence[PairedResult]) -> None:
    console = Console()
    title = f"{', '.join(report['data'])} · {plural(report['lines'], 'line')} · {report['samples']:,} samples of them"
    console.print(title, style="italic", highlight=False, markup=False, soft_wrap=True)
    table = Table()
    table.add_column("metric")
    first, second = Path(report["first"]), Path(report["second"])
    names = (first.name, second.name) if first.name != second.name else (str(first), str(second))
    for name in (*names, "difference", "p"):
        table.add_column(name, justify="right", overflow="fold")
    for row in results:
        values = (f"{row.first:.2f} ± {row.first_interval:.2f}", f"{row.second:.2f} ± {row.second_interval:.2f}")
        table.add_row(row.metric, *values, f"{row.second - row.first:+.2f}", f"{row.p_value:.4f}")
    console.print(table)
    for row in results:
        beyond = "more than chance" if row.p_value < SIGNIFICANT else "no more than chance may give"
        console.print(f"{row.metric}: {beyond} (p = {row.p_value:.4f})", highlight=False, soft_wrap=True)
    for row in results:
        console.print(f"{row.metric}: {row.signature}", style="dim", highlight=False, soft_wrap=True)
