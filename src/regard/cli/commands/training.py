"""Commands that train, compare and measure."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from regard.cli.commands.app import RenamedOptions, TrainCommand, app, with_plugins
from regard.cli.commands.options import Device, EvaluationOptions, Json, Run


@app.command()
def quickstart(
    out: Annotated[Path, Option(help="Where the trained model goes.")] = Path("runs/quickstart"),
    device: Device = "auto",
) -> None:
    """Train a small English→German translator on the embedded corpus, measure it, and show what it can do."""
    from regard.cli.quickstart import quickstart as body

    body(out, device)


@app.command("try")
def try_models(
    page: Annotated[
        bool | None,
        Option("--page/--terminal", help="The page, or a tour in the terminal. Default: the page where a browser is."),
    ] = None,
    port: Annotated[int | None, Option(min=0, max=65535, help="Of the page. Default: 8000, or any if taken.")] = None,
    device: Device = "auto",
) -> None:
    """Try the models that are here: translation with attention, a story, a chat, gaps, in a page or in the terminal."""
    from regard.cli.shipped.try_models import try_models as body

    body(page, port, device)


@app.command(cls=TrainCommand)
@with_plugins
def train(
    recipe: Annotated[str, Argument(help="A YAML file, or the name of a shipped recipe (see `regard info`).")],
    overrides: Annotated[list[str] | None, Argument(help="Keys to change, as model.layers=4.")] = None,
    out: Annotated[Path | None, Option(help="The run folder. Default: runs/NAME of the recipe.")] = None,
    device: Device = "auto",
    minutes: Annotated[float | None, Option(help="Stop and save after so long; run again to go on.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Train a few steps, save nothing; say memory and time.")] = False,
    as_json: Json = False,
) -> None:
    """Train a model. The same command on an existing run folder goes on where it stopped."""
    from regard.cli.train import train as body

    raise typer.Exit(body(recipe, overrides or [], out, device, minutes, dry_run, as_json))


@app.command()
@with_plugins
def tune(
    run: Run,
    overrides: Annotated[list[str] | None, Argument(help="Keys to change, as training.schedule.peak=1e-4.")] = None,
    proposals: Annotated[
        int, Option(min=2, help="k: heads that score the next k tokens, for blockwise search (docs/faster.md).")
    ] = 4,
    frozen: Annotated[bool, Option("--frozen", help="Only the heads learn: the words stay the model's.")] = False,
    steps: Annotated[int | None, Option(min=1, help="Default: a quarter of those that the model had.")] = None,
    out: Annotated[Path, Option(help="The new run folder.")] = Path("runs/tuned"),
    device: Device = "auto",
    minutes: Annotated[float | None, Option(help="Stop and save after so long; run again to go on.")] = None,
    as_json: Json = False,
) -> None:
    """Teach a trained model to guess several tokens at once, by heads that are added to it."""
    from regard.cli.train import tune as body

    raise typer.Exit(body(run, overrides or [], proposals, frozen, steps, out, device, minutes, as_json))


@app.command()
@with_plugins
def distil(
    teacher: Annotated[Path, Argument(metavar="TEACHER", help="A trained translator: a run, or a name.")],
    overrides: Annotated[
        list[str] | None, Argument(help="Keys of the student's recipe to change, as training.steps=500.")
    ] = None,
    student: Annotated[
        str, Option(help="deep-shallow, ssru or average: one decoder layer, as wide as the teacher; or a recipe.")
    ] = "deep-shallow",
    data: Annotated[
        list[str] | None,
        Option(help="Sentences or pairs (.tsv) to translate, or NAME:SPLIT; may be repeated. Default: the teacher's."),
    ] = None,
    out: Annotated[Path | None, Option(help="The folder for all. Default: runs/TEACHER-STUDENT.")] = None,
    nbest: Annotated[int, Option(help="Learn from so many translations of each sentence.")] = 1,
    beam: Annotated[int | None, Option(help="Of the teacher. Default: as its recipe says.")] = None,
    worst: Annotated[float, Option(help="Leave out this share of translations, the least likely.")] = 0.05,
    max_ratio: Annotated[
        float, Option(help="Leave out what is so many times as long as its source; 0: nothing.")
    ] = 3.0,
    truth: Annotated[float, Option(help="Weight of the true translations, where the text has them; 0: none.")] = 1.0,
    lines: Annotated[int, Option(help="Measure on at most so many lines of the test data.")] = 1000,
    chunk: Annotated[int, Option(help="Sentences whose translations are kept together.")] = 2000,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Teach a small, fast translator by a large one's translations, store it in 8 bits and measure both.

    The same command goes on where it was stopped.
    """
    from regard.cli.train import distil as body

    choices = {"nbest": nbest, "beam": beam, "worst": worst, "max_ratio": max_ratio, "chunk": chunk}
    others = {"truth": truth, "lines": lines, "device": device}
    raise typer.Exit(body(teacher, student, data or [], overrides or [], out, as_json, **choices, **others))


@app.command()
@with_plugins
def compare(
    recipe: Annotated[str, Argument(help="A YAML file, or the name of a shipped recipe.")],
    overrides: Annotated[list[str] | None, Argument(help="Keys to change in all arms, as training.steps=500.")] = None,
    vary: Annotated[
        list[str] | None, Option(help="A key and its values, as model.position='[rotary, none]'; several make a grid.")
    ] = None,
    arms: Annotated[Path | None, Option(help="Instead: a YAML file of arms, each a name and its keys.")] = None,
    sweep: Annotated[
        list[str] | None, Option(help="Instead: search ranges, as training.schedule.peak='log(1e-4, 1e-2)'; one seed.")
    ] = None,
    trials: Annotated[int, Option(help="Of --sweep: so many draws.")] = 9,
    halving: Annotated[bool, Option("--halving", help="Of --sweep: only the better third is trained longer.")] = False,
    seeds: Annotated[int, Option(help="Every arm is trained on each; all arms of a seed begin alike.")] = 5,
    up_to: Annotated[int, Option(help="More seeds, up to so many, while a difference is undecided.")] = 0,
    control: Annotated[str, Option(help="What arms have in common: steps, tokens, time or parameters.")] = "steps",
    metric: Annotated[str | None, Option(help="Of the validation data. Default: loss.")] = None,
    margin: Annotated[float, Option(help="The smallest difference that counts.")] = 0.0,
    tune_rates: Annotated[
        bool, Option("--tune-rates", help="First find each arm's rate, on one seed at a quarter of the steps.")
    ] = False,
    screen: Annotated[bool, Option("--screen", help="Allow one seed: a first look, without a verdict.")] = False,
    jobs: Annotated[int, Option(min=0, help="Trainings side by side. Default: half of the cores.")] = 0,
    out: Annotated[Path | None, Option(help="The folder for all runs. Default: compare/NAME of the recipe.")] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Train a recipe with other keys, on the same seeds, and say which is better: differences, intervals, a plot.

    The first arm is what the others are compared with. The same command goes on where it was stopped.
    """
    from regard.cli.lab.compare import compare_recipes as body
    from regard.cli.lab.compare import search_ranges
    from regard.lab.compare import CompareOptions

    if sweep:
        of_verdicts = {"--vary": vary, "--arms": arms, "--seeds": seeds != 5, "--up-to": up_to, "--margin": margin,
                       "--control": control != "steps", "--tune-rates": tune_rates, "--screen": screen}  # fmt: skip
        given = [name for name, value in of_verdicts.items() if value]
        search_ranges(recipe, overrides or [], sweep, given, out, trials, halving, metric, jobs, device, as_json)
        return

    options = CompareOptions(seeds, up_to, control, metric, margin, tune_rates, screen, jobs, device)
    body(recipe, overrides or [], vary or [], arms, out, options, as_json)


@app.command(cls=RenamedOptions)
@with_plugins
def evaluate(options: EvaluationOptions) -> None:
    """Measure a model, as its task is measured: BLEU, chrF and TER with signatures, perplexity, accuracy, F1."""
    from regard.cli.evaluate import evaluate, evaluate_against

    (evaluate if options.against is None else evaluate_against)(options)


@app.command()
@with_plugins
def average(
    runs: Annotated[list[Path], Argument(help="One run with --last, or several models or checkpoints.")],
    out: Annotated[Path, Option(help="Where the averaged model goes.")],
    last: Annotated[int, Option(min=0, help="Average the last so many checkpoints of one run.")] = 0,
) -> None:
    """Average the weights of checkpoints into one model."""
    from regard.cli.train import average as body

    body(runs, out, last)
