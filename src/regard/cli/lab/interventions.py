"""`regard look --lens` and `--patch`: what a model would say after each layer, and what a part's output carries."""

import json

from rich.table import Table

from regard.api import load
from regard.cli.commands.options import LookOptions
from regard.cli.look import given_text, parents_of
from regard.cli.streams import open_output, warn
from regard.console import Console
from regard.errors import RegardError
from regard.look.attention import look
from regard.look.html import page
from regard.look.lens import logit_lens
from regard.look.patching import patch_activations
from regard.predict.chat import ChatPredictor
from regard.predict.translation import Translator
from regard.reporting import Json

LISTED = 30  # patches that are printed; JSON has all


def intervene(options: LookOptions) -> None:
    lens, patch, answer, output = options.lens, options.patch or [], options.answer, options.output
    text, other, target, trees = options.text, options.other, options.target, options.trees
    if lens and patch:
        raise RegardError("--lens reads one text, --patch two; give one of them")
    if options.ablate or options.referent or options.png:
        raise RegardError("--lens and --patch print or show what they find; leave out --ablate, --referent and --png")
    if patch and (text is None or other is None):
        raise RegardError("--patch takes two texts: what is put in comes from the first, and runs on the second")
    if lens and other is not None:
        raise RegardError("--lens reads one text; leave the second out")
    if patch and trees is not None:
        raise RegardError("--patch takes no trees; leave out --trees")
    if answer is not None and not patch:
        raise RegardError("--answer belongs to --patch; leave it out")
    text = given_text(text)
    parents = parents_of(trees, [text])
    predictor = load(options.run, options.device)
    if lens:
        data = logit_lens(predictor, text, target, trees=parents)
    else:
        data = patch_activations(predictor, text, str(other), patch, target, answer)
    if output is not None:
        shown = text if lens else str(other)  # of a patch the run on the second text, with the target of both
        if patch and isinstance(predictor, Translator | ChatPredictor):
            target = data["output"]
        looked = look(predictor, shown, target, trees=parents)
        with open_output(output) as file:
            file.write(page({**looked, ("lens" if lens else "patch"): data}, options.language))
        warn(f"{output} shows it; open it in a browser")
    elif options.as_json:
        print(json.dumps(data, ensure_ascii=False))
    elif lens:
        print_lens(data)
    else:
        print_patches(data)


def print_lens(data: Json) -> None:
    """A line for each place, a column for each layer: the likeliest choice after it, with its probability."""
    stages = [n for n, stage in enumerate(data["stages"]) if n + 1 == len(data["stages"]) or _ends_layer(data, n)]
    table = Table()
    for name in ("at", *(f"{data['stages'][n]['layer']}" for n in stages), "from"):
        table.add_column(name, overflow="fold", justify="right" if name == "from" else "left")
    for row in data["rows"]:
        cells = [f"{row['stages'][n]['words'][0]} {row['stages'][n]['probabilities'][0]:.2f}" for n in stages]
        settled = data["stages"][row["settled"]]
        table.add_row(row["at"], *cells, f"{settled['layer']} {settled['after']}")
    console = Console()
    console.print(table)
    console.print(
        "columns: the likeliest after so many layers (0: before the first); from: where the last answer is the "
        "likeliest from on",
        style="dim", highlight=False, soft_wrap=True,
    )  # fmt: skip


def _ends_layer(data: Json, n: int) -> bool:
    return bool(data["stages"][n]["layer"] != data["stages"][n + 1]["layer"])


def print_patches(data: Json) -> None:
    """Each patch with the probability of the first text's answer, in the run on the second."""
    console = Console()
    console.print(
        f"at {data['at']}: {data['answer']} has probability {data['first']:.4f} in the first text, "
        f"{data['second']:.4f} in the second, which says {data['other']}",
        highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip
    for role, alone in data["unmatched"].items():
        console.print(
            f"{role}: {' '.join(alone)} of the second text stands for nothing in the first, and stays as it is",
            style="dim", highlight=False, markup=False, soft_wrap=True,
        )  # fmt: skip
    table = Table()
    for name in ("patch", "probability", "recovered", "says"):
        table.add_column(name, justify="left" if name in ("patch", "says") else "right", overflow="fold")
    for row in data["patches"][:LISTED]:
        share = "" if row["recovered"] is None else f"{row['recovered']:.1%}"
        table.add_row(row["patch"], f"{row['probability']:.4f}", share, row["says"])
    console.print(table)
    if (more := len(data["patches"]) - LISTED) > 0:
        console.print(f"and {more} more, which --json has", style="dim", highlight=False)
