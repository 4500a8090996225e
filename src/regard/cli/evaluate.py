"""`regard evaluate`: the metrics of a model, as its task measures it; and the table of metrics that commands print."""

import json
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from regard.api import ModelLoader, load
from regard.cli.streams import progress_bar, warn
from regard.cli.translate import ensemble_of
from regard.console import Console
from regard.errors import RegardError
from regard.language import localise
from regard.predict.options import SPLITS
from regard.predict.translation import Translator
from regard.reporting import Json


def evaluate(
    run: Path,
    split: str | None,
    device: str,
    as_json: bool,
    loader: ModelLoader = load,
    others: Sequence[Path] = (),
    **options: object,
) -> None:
    """`options` are those that only some tasks have, and None where they are not given."""
    if split not in (None, *SPLITS):
        raise RegardError(f"--split is {split!r}; write {' or '.join(SPLITS)}")
    predictor = loader(run, device)
    if others:
        if not isinstance(predictor, Translator):
            raise RegardError(
                "--with is for models that translate together, and this is one of the task "
                f"{predictor.recipe.task.kind}; leave it out"
            )
        predictor = ensemble_of(predictor, others, device, loader)
    task, options = predictor.recipe.task, {name: value for name, value in options.items() if value is not None}
    for name in options:
        if name not in task.evaluate_options:
            raise RegardError(
                f"--{name} means nothing to a model of the task {task.kind}; "
                f"it takes {', '.join(f'--{name}' for name in ('split', *task.evaluate_options))}"
            )
    with progress_bar("Measuring") as show:
        report = task.evaluate(predictor, split, options, lambda what, n, of: show(n, of))
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
                f"{localise(NAMES.get(name, name))}: {entry['signature']}",
                style="dim",
                highlight=False,
                soft_wrap=True,
            )
