"""The first five minutes: train on the embedded corpus, measure what was held out, show it, say what to try next."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from regard.console import Console
from regard.language import localise

if TYPE_CHECKING:
    from regard.data.embedded import Pair
    from regard.predict.translation import Translator


def quickstart(out: Path, device: str) -> None:
    from regard import recipe as recipes
    from regard.api import load
    from regard.cli.evaluate import print_metrics
    from regard.data.embedded import pairs
    from regard.run import train_recipe
    from regard.tasks.translation import evaluate_translation

    console = Console()
    started = time.monotonic()
    recipe = recipes.load_recipe("quickstart")
    console.print(
        "Training a small Transformer on English→German sentences that come with regard, written by a grammar.\n"
        "The test sentences combine words in ways that training never showed.\n",
        highlight=False,
    )
    outcome = train_recipe(recipe, out, device, console=Console(stderr=True))
    if not outcome.finished:
        raise SystemExit(outcome.exit_code)
    translator = load(out, device)
    report = evaluate_translation(translator, recipe.data.test)
    print_metrics(report, console)
    test = pairs("test")
    examples = [p for p in test if p.pronouns][:4] + [p for p in test if not p.pronouns][:4]
    _print_examples(console, translator, examples)
    console.print(f"\nTook {time.monotonic() - started:.0f} s. The model is in {out}. Now try:\n", highlight=False)
    for command, meaning in (
        (f'echo "{test[0].source}" | regard translate {out}', "translate your own sentence"),
        (f"regard evaluate {out}", "measure it again, with signatures"),
        (f"regard train quickstart model.layers=1 --out {out.parent / 'one-layer'}", "change one thing and compare"),
        ("regard train --help", "every key of a recipe, to train on your own text"),
    ):
        console.print(f"  {command}\n      {localise(meaning)}", highlight=False, markup=False, soft_wrap=True)


def _print_examples(console: Console, translator: "Translator", examples: "Sequence[Pair]") -> None:
    """A few translations beside their references."""
    outputs = translator.translate([pair.source for pair in examples])
    table = Table(title=localise("Held-out sentences"), title_justify="left", show_lines=True)
    for name in (localise("English"), localise("the model says"), localise("reference")):
        table.add_column(name, overflow="fold")
    for pair, output in zip(examples, outputs, strict=True):
        table.add_row(pair.source, output, localise("the same") if output == pair.target else pair.target)
    console.print(table)
