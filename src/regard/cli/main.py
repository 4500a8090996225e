"""The command line: the table of commands and their options. Bodies stand in this folder, imported when they run."""

import functools
import inspect
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperCommand, TyperGroup

from regard import language


class Commands(TyperGroup):
    """Ends as other tools do when the reader of its output has seen enough (`| head`); click would exit with 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            if sys.stdout:  # `>&-` leaves none
                sys.stdout.flush()
            return result
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left has nowhere to go
            raise SystemExit(141) from None  # 128 + SIGPIPE


app = typer.Typer(
    name="regard",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="The Transformer, complete: train and measure attention models, translate and write.\n\n"
    "First steps:  regard quickstart  trains a small translator in minutes and shows what to try next.",
)
data = typer.Typer(no_args_is_help=True, help="The catalog of public data sets.")
app.add_typer(data, name="data")
models = typer.Typer(no_args_is_help=True, help="The trained models that commands know by name.")
app.add_typer(models, name="models")
lab = typer.Typer(no_args_is_help=True, help="The claims of the notes as experiments: is it true, what is said?")
app.add_typer(lab, name="lab")


def _version(requested: bool) -> None:
    if requested:
        from regard import __version__

        print(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    pass


Device = Annotated[str, Option(help="auto, cpu, cuda, cuda:1 …")]
Json = Annotated[bool, Option("--json", help="Print JSON for programs.")]
Run = Annotated[
    Path, Argument(help="A trained model: the folder that `regard train --out` wrote, or a name of `regard models`.")
]
Trees = Annotated[
    Path | None, Option(help="A CoNLL-U file of the source, sentence i for line i: for structural positions.")
]
Engine = Annotated[str, Option(help="own, or ct2: CTranslate2, which is fastest on a CPU; see docs/interop.md.")]
Precision = Annotated[
    str | None,
    Option(help="Of decoding: float32, bf16, or int8, on a CPU; with --engine ct2 int8, its default, or float32."),
]
Weights = Annotated[str | None, Option("--precision", help="float32, or int8, which is faster on a CPU.")]
Others = Annotated[
    list[Path] | None,
    Option("--with", metavar="RUN", help="Another model that decides together with RUN; may be repeated."),
]
Long = Annotated[
    str | None,
    Option(
        metavar="KIND", help="Texts longer than the model reads: truncate, extract, segments, refuse, none, or YAML as "
        "'{kind: truncate, keep: tail}' (docs/long-text.md). Default: as task.long says.",
    ),
]  # fmt: skip
Input = Annotated[Path | None, Option("--input", "-i", help="Text, one sentence a line. Default: stdin.")]
Output = Annotated[Path | None, Option("--output", "-o", help="Default: stdout.")]
BatchTokens = Annotated[int, Option(min=1, help="Padded tokens computed at once.")]
Beam = Annotated[int | None, Option(min=1, help="Beam size; 1 is greedy. Default: as the recipe says.")]
SlowBeam = Annotated[int | None, Option(min=1, help="Search with a beam; shown when it is done.")]
Greedy = Annotated[bool, Option("--greedy", help="The likeliest word every time.")]
Search = Annotated[
    str | None, Option(help="greedy, beam, sample, speculative or blockwise (docs/faster.md). Default: the recipe's.")
]
Draft = Annotated[
    str | None, Option(help="What guesses in a speculative search: ngrams, layers(2) of the model, or another RUN.")
]
DraftTokens = Annotated[int | None, Option(help="So many guesses at a step. Default: 4.")]
Accept = Annotated[
    str | None, Option(help="Guesses that a blockwise search keeps: exact, top_k(2) or distance(2). Default: exact.")
]
Stats = Annotated[Path | None, Option(metavar="FILE", help="Write here as JSON how many guesses were kept.")]
Temperature = Annotated[float | None, Option(help="Below 1 sharpens, above 1 flattens; 0: the likeliest word.")]
TopK = Annotated[int | None, Option(help="Draw from the k likeliest words only.")]
TopP = Annotated[float | None, Option(help="Draw from the likeliest with this much probability.")]
MinP = Annotated[float | None, Option(help="Draw from those with this share of the likeliest's.")]


def long_option(value: str | None) -> Any:
    """The choice that --long names."""
    from regard.examples.long_text import Truncate, to_long

    return None if value is None else to_long(value, Truncate(), "--long")


def _allow_plugins(context: typer.Context, names: list[str] | None) -> None:
    if names:
        from regard.config import allow_plugins

        allow_plugins(names, "--plugin", load=context.info_name != "serve")  # whose workers load them


Plugins = Annotated[
    list[str] | None,
    Option(
        "--plugin", metavar="MODULE", callback=_allow_plugins, is_eager=True,
        help="Load choices of your own from this module (docs/plugins.md); may be repeated.",
    ),
]  # fmt: skip


def with_plugins(command: Callable[..., None]) -> Callable[..., None]:
    """A command on a recipe or a trained model, with the option --plugin."""
    own = inspect.signature(command)
    plugin = inspect.Parameter("plugin", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Plugins)

    @functools.wraps(command)
    def run(**options: object) -> None:
        del options["plugin"]  # which its callback has loaded
        command(**_with_folders(options))

    run.__signature__ = own.replace(parameters=[*own.parameters.values(), plugin])  # type: ignore[attr-defined]
    run.__annotations__ = command.__annotations__ | {"plugin": Plugins}
    return run


def _with_folders(options: dict[str, object]) -> dict[str, object]:
    """The options of a command with the folders of trained models in the place of their names."""
    from regard.io.models import find_model

    def folder(value: object) -> object:
        if isinstance(value, list):
            return [folder(item) for item in value]
        return find_model(value) if isinstance(value, Path) else value  # serve's NAME=RUN it takes apart itself

    taken = {"run", "runs", "others", "over", "teacher"}
    return {name: folder(value) if name in taken else value for name, value in options.items()}


RENAMED = {"translate --heads": "--trees", "score --heads": "--trees", "evaluate --heads": "--trees"}
RENAMED |= {"look --out": "--output"}


class RenamedOptions(TyperCommand):
    """Takes the old names of options too, and says the new ones on stderr."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        for n, argument in enumerate(args[:end]):
            old, equals, value = argument.partition("=")
            if new := RENAMED.get(f"{self.name} {old}"):
                print(f"regard: {language.localise(f'{old} is now called {new}')}", file=sys.stderr)
                args[n] = f"{new}{equals}{value}"
        return super().parse_args(ctx, args)


class TrainCommand(TyperCommand):
    """`regard train --help` also lists every key of a recipe, from the same classes that parse it."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        from regard.cli.train import recipe_help

        formatter.write(recipe_help())


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
        given = vary or arms
        search_ranges(recipe, overrides or [], sweep, bool(given), out, trials, halving, metric, jobs, device, as_json)
        return

    options = CompareOptions(seeds, up_to, control, metric, margin, tune_rates, screen, jobs, device)
    body(recipe, overrides or [], vary or [], arms, out, options, as_json)


@app.command(cls=RenamedOptions)
@with_plugins
def evaluate(
    run: Run,
    split: Annotated[str | None, Option(help="test or valid of the recipe. Default: test if there is one.")] = None,
    source: Annotated[Path | None, Option(help="Measure on this file instead, with --reference.")] = None,
    reference: Annotated[Path | None, Option(help="What the translations should be, line by line.")] = None,
    trees: Trees = None,
    beam: Beam = None,
    others: Others = None,
    against: Annotated[
        Path | None, Option(metavar="RUN", help="Another model: is the difference more than chance? Paired bootstrap.")
    ] = None,
    engine: Engine = "own",
    precision: Precision = None,
    text: Annotated[Path | None, Option(help="Not for translation: measure on this file instead.")] = None,
    context: Annotated[int | None, Option(min=1, help="A language model: tokens of a window.")] = None,
    stride: Annotated[
        int | None, Option(min=1, help="A language model: tokens from window to window; less is slower.")
    ] = None,
    memory: Annotated[
        int | None, Option(min=0, help="A language model with a memory: tokens remembered before a window.")
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Measure a model, as its task is measured: BLEU, chrF and TER with signatures, perplexity, accuracy, F1."""
    from regard.cli.evaluate import evaluate as body
    from regard.interop.engines import engine_loader

    of_translation = {"source": source, "reference": reference, "trees": trees, "beam": beam}
    of_text = {"text": text, "context": context, "stride": stride, "memory": memory}
    if against is not None:
        from regard.cli.evaluate import evaluate_against

        options = {"beam": beam, "source": source, "reference": reference, "trees": trees, **of_text}
        evaluate_against(run, against, split, device, as_json, engine_loader(engine, precision), others, options)
        return
    body(run, split, device, as_json, engine_loader(engine, precision), others or (), **of_translation, **of_text)


@app.command()
@with_plugins
def generate(
    run: Run,
    prompt: Annotated[str | None, Argument(help="What the text begins with. Default: all of stdin.")] = None,
    max_tokens: Annotated[int, Option(min=1, help="Write at most so many tokens.")] = 256,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: Annotated[
        float | None, Option(help="Above 1: words that were there before are less likely.")
    ] = None,
    seed: Annotated[int | None, Option(help="The same seed writes the same text.")] = None,
    greedy: Greedy = False,
    beam: SlowBeam = None,
    search: Search = None,
    draft: Draft = None,
    draft_tokens: DraftTokens = None,
    accept: Accept = None,
    stats: Stats = None,
    samples: Annotated[int, Option(min=1, help="So many texts.")] = 1,
    stop: Annotated[list[str] | None, Option(help="End before this string; may be repeated.")] = None,
    echo: Annotated[bool, Option("--echo", help="Write the prompt too.")] = False,
    strict: Annotated[
        bool, Option("--strict", help="Refuse a prompt longer than the context, instead of keeping its end.")
    ] = False,
    precision: Weights = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Continue a text with a language model, as it is being written."""
    from regard.cli.generate import generate as body
    from regard.interop.engines import precision_loader
    from regard.predict.options import GenerationOptions

    options = GenerationOptions(
        greedy=greedy, beam=beam, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed,
        repetition_penalty=repetition_penalty, count=samples, max_tokens=max_tokens, stop=stop or [], strict=strict,
        search=search, draft=draft, draft_tokens=draft_tokens, accept=accept,
    )  # fmt: skip
    body(run, prompt, options, echo, stats, device, precision_loader(precision), as_json)


@app.command()
@with_plugins
def chat(
    run: Run,
    max_tokens: Annotated[int | None, Option(help="A reply has at most so many tokens.")] = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: Annotated[
        float | None, Option(help="Above 1: words that the reply has already are less likely.")
    ] = None,
    seed: Annotated[int | None, Option(help="The same seed gives the same replies to the same turns.")] = None,
    greedy: Greedy = False,
    beam: SlowBeam = None,
    precision: Weights = None,
    search: Search = None,
    draft: Draft = None,
    draft_tokens: DraftTokens = None,
    accept: Accept = None,
    stats: Stats = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Talk with a model: in a terminal line by line (/help), else one turn a line in, one reply a line out."""
    from regard.cli.chat import chat as body
    from regard.interop.engines import precision_loader
    from regard.predict.options import ReplyOptions

    options = ReplyOptions(
        greedy=greedy, beam=beam, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed,
        repetition_penalty=repetition_penalty, max_tokens=max_tokens,
        search=search, draft=draft, draft_tokens=draft_tokens, accept=accept,
    )  # fmt: skip
    body(run, options, stats, device, precision_loader(precision), as_json)


@app.command()
@with_plugins
def fill(
    run: Run,
    input: Input = None,
    output: Output = None,
    top: Annotated[int, Option(min=1, help="So many words for each gap.")] = 5,
    batch_tokens: BatchTokens = 4096,
    precision: Weights = None,
    long: Long = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Fill gaps with a pretrained BERT: text with [MASK] in, the likeliest words and their probabilities out.

    One line for one line: word and probability in turn, a tab between gaps. A line without [MASK] gives an empty line
    and a note.
    """
    from regard.cli.pretrained import fill as body
    from regard.interop.engines import precision_loader

    body(run, input, output, top, batch_tokens, long_option(long), device, precision_loader(precision), as_json)


@app.command()
@with_plugins
def embed(
    run: Run,
    input: Input = None,
    output: Annotated[
        Path | None, Option("--output", "-o", help="A name that ends in .npy holds an array. Default: stdout.")
    ] = None,
    pooling: Annotated[str | None, Option(help="mean, cls, max or pooler. Default: as the model's task says.")] = None,
    layer: Annotated[
        int | None, Option(help="0: what goes into the first layer; -1, the default: the last one's output.")
    ] = None,
    layers: Annotated[str | None, Option(help="Several layers: -4..-1, or 0,2.")] = None,
    join: Annotated[str, Option(help="How --layers become one vector: concat, sum or mean.")] = "concat",
    normalise: Annotated[bool | None, Option(help="Vectors of length 1. Default: as the model's task says.")] = None,
    batch_tokens: BatchTokens = 4096,
    precision: Weights = None,
    long: Long = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Turn texts into vectors with a BERT: one line in, one vector out, tabs between its numbers, empty lines kept."""
    from regard.cli.pretrained import embed as body
    from regard.interop.engines import precision_loader

    options = {"pooling": pooling, "layer": layer, "normalise": normalise, "batch_tokens": batch_tokens}
    options |= {"layers": layers, "join": join, "long": long_option(long)}
    body(run, input, output, device, precision_loader(precision), as_json, **options)


@app.command(cls=RenamedOptions)
@with_plugins
def translate(
    run: Run,
    input: Input = None,
    output: Output = None,
    beam: Beam = None,
    search: Search = None,
    draft: Draft = None,
    draft_tokens: DraftTokens = None,
    accept: Accept = None,
    stats: Stats = None,
    nbest: Annotated[
        int, Option(min=1, help="Up to so many translations of each line, all different, as number, score, text.")
    ] = 1,
    scores: Annotated[
        bool, Option(help="Put the score that ranks and a tab first: log-probability, by length under a beam.")
    ] = False,
    sample: Annotated[bool, Option(help="Draw words at random instead of searching.")] = False,
    temperature: Annotated[float | None, Option(help="For --sample: below 1 sharpens; 0: greedy. Default: 1.")] = None,
    top_k: Annotated[int | None, Option(help="For --sample: from the k likeliest only.")] = None,
    top_p: Annotated[float | None, Option(help="For --sample: from the likeliest with this much probability.")] = None,
    seed: Annotated[int | None, Option(help="For --sample. Default: 1.")] = None,
    alignments: Annotated[
        Path | None, Option(help="Also write word alignments here, a line for each output: 0-0 1-2 … (Pharaoh).")
    ] = None,
    layer: Annotated[int | None, Option(min=1, help="For --alignments. Default: the one before the last.")] = None,
    head: Annotated[list[int] | None, Option(min=1, help="For --alignments, may be repeated. Default: all.")] = None,
    trees: Trees = None,
    long: Long = None,
    others: Others = None,
    prefixes: Annotated[
        Path | None, Option(help="A file whose line i says how output i must begin; empty: nothing asked.")
    ] = None,
    phrases: Annotated[
        Path | None, Option(help="A file whose line i has phrases, with tabs between, that output i must hold.")
    ] = None,
    document: Annotated[
        Path | None, Option(help="Translate a whole file instead: its prose; all else, and its lines, stay.")
    ] = None,
    form: Annotated[
        str | None, Option(help="Of --document: text or markdown. Default: markdown for names that end in .md.")
    ] = None,
    by: Annotated[str, Option(help="Of --document: sentence or paragraph, what is translated at once.")] = "sentence",
    context: Annotated[
        int, Option(help="Of --document: the model reads so many sentences before each; it must be trained so.")
    ] = 0,
    separator: Annotated[str, Option(help="Of --context: what stands between sentences.")] = "<sep>",
    errors: Annotated[
        str, Option(help="Input that is not UTF-8: strict stops at it, replace puts U+FFFD there and counts.")
    ] = "strict",
    batch_tokens: BatchTokens = 4096,
    engine: Engine = "own",
    precision: Precision = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Translate text: one line in, one line out, empty lines kept; or a whole document (docs/long-text.md)."""
    options = {**locals(), "long": long_option(long)}
    from regard.cli.translate import TranslateCommand
    from regard.cli.translate import translate as body

    body(TranslateCommand(**options))


@app.command()
@with_plugins
def summarise(
    run: Run,
    document: Annotated[Path, Option(help="The text, paragraphs with empty lines between them.")],
    output: Output = None,
    long: Annotated[
        str | None,
        Option(metavar="KIND", help="What is too long: extract, the default, segments, truncate …, as there."),
    ] = None,
    beam: Beam = None,
    errors: Annotated[
        str, Option(help="Input that is not UTF-8: strict stops at it, replace puts U+FFFD there and counts.")
    ] = "strict",
    batch_tokens: BatchTokens = 4096,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Summarise a document with a model that was trained on texts and their summaries (docs/long-text.md)."""
    options = {**locals(), "long": long_option(long)}
    from regard.cli.documents.summarise import SummariseCommand
    from regard.cli.documents.summarise import summarise as body

    body(SummariseCommand(**options))


@app.command(cls=RenamedOptions)
@with_plugins
def look(
    run: Run,
    text: Annotated[str | None, Argument(help="What the model reads. Default: all of stdin.")] = None,
    other: Annotated[str | None, Argument(help="A second text, shown beside the first: what moved is marked.")] = None,
    target: Annotated[str | None, Option(help="What it should say, or go on with, instead of its own output.")] = None,
    ablate: Annotated[
        list[str], Option(help="Switch a head off, as encoder.1.3: layer 1, head 3. May be given again.")
    ] = [],  # noqa: B006
    lens: Annotated[
        bool, Option("--lens", help="Print what the model would say after each of its layers (logit lens).")
    ] = False,
    patch: Annotated[
        list[str],
        Option(
            help="Put outputs for the first text into a run on the second, and print what comes back of the first's "
            "answer: encoder.1.3, encoder.1, encoder.1@4, or all heads, layers or positions. May be given again."
        ),
    ] = [],  # noqa: B006
    answer: Annotated[
        str | None, Option(help="For --patch: the token of the first output to follow. Default: what falls most.")
    ] = None,
    trees: Trees = None,
    referent: Annotated[
        str | None,
        Option(help="Where the guided route leads, as it=goat or it/sie=goat. Default: guessed, in English texts."),
    ] = None,
    output: Annotated[Path | None, Option("--output", "-o", help="The page. Default: look.html.")] = None,
    png: Annotated[Path | None, Option(help="A picture for a paper; the name may end in .pdf or .svg.")] = None,
    place: Annotated[
        str | None, Option(help="For --png: encoder, decoder or cross. Default: the last there is.")
    ] = None,
    layer: Annotated[int | None, Option(min=1, help="For --png. Default: the last.")] = None,
    head: Annotated[int | None, Option(min=1, help="For --png. Default: the mean of all.")] = None,
    language: Annotated[str, Option(help="Of the page: en or zh. Default: the browser's.")] = "",
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Show what a model's attention does with a text: one page that needs no network, a picture, or JSON."""
    from regard.cli.look import look as body

    if lens or patch or answer:
        from regard.cli.lab.interventions import intervene

        of_the_page = [ablate, referent, png]
        intervene(run, text, other, target, lens, patch, answer, trees, device, as_json, output, language, of_the_page)
        return
    drawn = place, layer, head
    body(run, text, other, target, ablate, trees, referent, output, png, drawn, language, device, as_json)


@app.command()
@with_plugins
def classify(
    run: Run,
    input: Input = None,
    output: Output = None,
    precision: Weights = None,
    long: Long = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Label texts, one a line, or pairs, as first TAB second: a label a line, or a number; empty lines are kept."""
    from regard.cli.finetuned import classify as body
    from regard.interop.engines import precision_loader

    body(run, input, output, long_option(long), device, precision_loader(precision), as_json)


@app.command()
@with_plugins
def tag(
    run: Run,
    input: Input = None,
    output: Output = None,
    precision: Weights = None,
    long: Long = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Tag words, a sentence a line, with spaces between words: the tags of a line, with spaces between them."""
    from regard.cli.finetuned import tag as body
    from regard.interop.engines import precision_loader

    body(run, input, output, long_option(long), device, precision_loader(precision), as_json)


@app.command()
@with_plugins
def answer(
    run: Run,
    input: Input = None,
    output: Output = None,
    precision: Weights = None,
    long: Long = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Answer questions by parts of texts: question TAB text a line, or JSON with question and context."""
    from regard.cli.finetuned import answer as body
    from regard.interop.engines import precision_loader

    body(run, input, output, long_option(long), device, precision_loader(precision), as_json)


@app.command()
@with_plugins
def choose(
    run: Run,
    input: Input = None,
    output: Output = None,
    precision: Weights = None,
    long: Long = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Choose an option: text TAB question TAB options a line, or JSON with context, question and options."""
    from regard.cli.finetuned import choose as body
    from regard.interop.engines import precision_loader

    body(run, input, output, long_option(long), device, precision_loader(precision), as_json)


@app.command(cls=RenamedOptions)
@with_plugins
def score(
    run: Run,
    source: Annotated[
        Path | None, Option(help="Source sentences, or texts. Default: stdin, pairs as source TAB target.")
    ] = None,
    target: Annotated[Path | None, Option(help="Their translations, line by line.")] = None,
    trees: Trees = None,
    precision: Weights = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """How likely a model finds given translations, or texts: the log-probability of each, one a line."""
    from regard.cli.score import score as body
    from regard.interop.engines import precision_loader

    body(run, source, target, trees, device, precision_loader(precision), as_json)


@app.command("tokenize", hidden=True)
@app.command("tokenise")
def tokenise_texts(
    run: Annotated[Path | None, Argument(help="A trained model, whose vocabulary is used. Or give --train.")] = None,
    text: Annotated[list[str] | None, Option("--text", help="A text; may be repeated. Default: --input.")] = None,
    input: Input = None,
    train: Annotated[Path | None, Option(help="Learn a vocabulary from this text file, and use it.")] = None,
    kind: Annotated[
        str | None, Option(help="Of --train: word, char, bpe, byte_bpe, wordpiece, unigram or bert.")
    ] = None,
    size: Annotated[int | None, Option(min=5, help="Of --train: pieces, special tokens included.")] = None,
    side: Annotated[str, Option(help="Of a translator: source or target.")] = "source",
    length: Annotated[int | None, Option(min=1, help="Pad every text to so many tokens.")] = None,
    as_json: Json = False,
) -> None:
    """What a vocabulary makes of texts, one a line: pieces TAB ids, and where padded TAB the mask."""
    from regard.cli.tokenise import tokenise_texts as body
    from regard.io.models import find_model

    body(find_model(run) if run else None, text, input, (train, kind, size), side, length, as_json)


@app.command()
def figures(
    names: Annotated[list[str] | None, Argument(help="positions, masks, paths, softmax …; none: all of them.")] = None,
    out: Annotated[Path, Option(help="The folder for them.")] = Path("figures"),
    form: Annotated[str, Option("--format", help="svg, png or pdf.")] = "svg",
    language: Annotated[str, Option(help="en or zh.")] = "en",
) -> None:
    """Draw the figures of the docs: positions, masks, paths, softmax, schedules, norms, a timeline."""
    from regard.cli.look import figures as body

    body(names or [], out, form, language)


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
def average(
    runs: Annotated[list[Path], Argument(help="One run with --last, or several models or checkpoints.")],
    out: Annotated[Path, Option(help="Where the averaged model goes.")],
    last: Annotated[int, Option(min=0, help="Average the last so many checkpoints of one run.")] = 0,
) -> None:
    """Average the weights of checkpoints into one model."""
    from regard.cli.train import average as body

    body(runs, out, last)


@app.command("import")
def import_model(
    form: Annotated[str, Argument(metavar="hf", help="Whose form: hf, Hugging Face.")],
    name: Annotated[str, Argument(metavar="PATH_OR_NAME", help="A folder, or a name on the hub.")],
    out: Annotated[Path, Argument(help="Where the model goes.")],
) -> None:
    """Bring in a model of another library: OPUS-MT's Marian models, the BERT family, GPT-2."""
    from regard.cli.interop import import_model as body

    body(form, name, out)


@app.command("export")
@with_plugins
def export_model(
    form: Annotated[str, Argument(metavar="hf|ct2|safetensors", help="Whose form; see docs/interop.md.")],
    run: Run,
    out: Annotated[Path, Argument(help="Where the folder goes.")],
    precision: Annotated[str, Option(help="For ct2: float32 or int8.")] = "int8",
    bits: Annotated[
        int | None, Option(help="For safetensors: 8 stores weights in 8 bits, a quarter of the size.")
    ] = None,
    over: Annotated[
        Path | None, Option(help="For safetensors: store the change of this model, with which training began.")
    ] = None,
    rank: Annotated[int, Option(help="For --over: of the change of each matrix.")] = 8,
) -> None:
    """Take a model to another library: Hugging Face, CTranslate2, or bare safetensors."""
    from regard.cli.interop import export_model as body
    from regard.interop.model_folder import Storage

    body(form, run, out, precision, Storage(bits, over, rank))


@app.command()
@with_plugins
def info(
    run: Annotated[Path | None, Argument(help="A trained model. Without it: this installation.")] = None,
    tokens: Annotated[
        int | None, Option(min=1, help="Memory of training at a batch of so many tokens. Default: as the run had.")
    ] = None,
    length: Annotated[int, Option(min=1, help="FLOPs a token in sequences of this length.")] = 128,
    mechanisms: Annotated[
        bool, Option("--mechanisms", help="List every attention, position, block and model: meaning, formula, paper.")
    ] = False,
    verify: Annotated[
        bool, Option("--verify", help="Compare every file of the model and its checkpoints with manifest.json.")
    ] = False,
    as_json: Json = False,
) -> None:
    """What this installation has, or what a trained model is and how well it did."""
    if mechanisms:
        from regard.config import load_allowed_plugins
        from regard.mechanisms import print_mechanisms

        load_allowed_plugins()
        print_mechanisms(as_json)
    else:
        from regard.cli.info import info as body

        body(run, as_json, tokens, length, verify)


@app.command()
@with_plugins
def serve(
    runs: Annotated[list[str], Argument(metavar="RUN…", help="Models, each as RUN or NAME=RUN; RUN may be a name.")],
    host: Annotated[str, Option(help="Where to listen; 0.0.0.0 is everywhere.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    engine: Engine = "own",
    precision: Precision = None,
    workers: Annotated[int, Option(min=1, help="Processes of each model.")] = 1,
    threads: Annotated[int, Option(min=1, help="Of each process.")] = 1,
    places: Annotated[int, Option(min=1, help="Sentences that a process translates at once.")] = 256,
    api_key: Annotated[str | None, Option(help="Callers must show it; better in a file, or in REGARD_API_KEY.")] = None,
    api_key_file: Annotated[Path | None, Option(help="Keys, one a line.")] = None,
    admin_key_file: Annotated[Path | None, Option(help="Keys for /admin/, one a line; or REGARD_ADMIN_KEY.")] = None,
    open_to_all: Annotated[bool, Option("--open", help="Let others call a server that has no key.")] = False,
    max_length: Annotated[int, Option(min=1, help="Characters of a text.")] = 5_000,
    max_texts: Annotated[int, Option(min=1, help="Texts of a request.")] = 256,
    max_body: Annotated[int, Option(min=1, help="Bytes of a request.")] = 1 << 20,
    max_tokens: Annotated[int, Option(min=1, help="Tokens of a text that is written.")] = 1_024,
    queue: Annotated[int, Option(min=1, help="Texts of a model that may wait or be worked on.")] = 1_024,
    connections: Annotated[int, Option(min=1, help="Open at once; others are told to come again.")] = 1_024,
    timeout: Annotated[float, Option(min=0.01, help="Seconds that a request may take.")] = 60.0,
    start_timeout: Annotated[float, Option(min=0.01, help="Seconds that a worker may take to load its model.")] = 300.0,
    heartbeat_timeout: Annotated[float, Option(min=2, help="Seconds of silence until a worker is replaced.")] = 5.0,
    step_timeout: Annotated[float, Option(min=0.01, help="Seconds of one computation, then it is replaced.")] = 30.0,
    patience: Annotated[float, Option(min=0.01, help="Seconds for a client to send a request.")] = 10.0,
    drain_delay: Annotated[float, Option(min=0, help="Seconds from SIGTERM until it stops listening.")] = 0.0,
    drain: Annotated[float, Option(min=0, help="Seconds for requests that run when the server ends.")] = 30.0,
    log_text: Annotated[bool, Option("--log-text", help="Write what users send into the log.")] = False,
    device: Device = "auto",
) -> None:
    """Put trained models behind an HTTP API and a page; see docs/serving.md."""
    from regard.cli.serve import named_runs, read_keys
    from regard.cli.serve import serve as body
    from regard.serve.settings import ServerSettings

    limits = {"max_length": max_length, "max_texts": max_texts, "max_body": max_body, "max_tokens": max_tokens}
    limits |= {"queue": queue, "connections": connections}
    times = {"timeout": timeout, "client_timeout": patience, "drain": drain, "drain_delay": drain_delay}
    times |= {"start_timeout": start_timeout, "heartbeat_timeout": heartbeat_timeout, "step_timeout": step_timeout}
    work = {"engine": engine, "precision": precision, "workers": workers, "threads": threads, "slots": places}
    keys = read_keys(api_key, "REGARD_API_KEY", api_key_file)
    admin_keys = read_keys(None, "REGARD_ADMIN_KEY", admin_key_file)
    body(ServerSettings(named_runs(runs), host, port, device=device, keys=keys, admin_keys=admin_keys,
                  open=open_to_all, log_text=log_text, **limits, **times, **work))  # type: ignore[arg-type]  # fmt: skip


@data.command("list")
def data_list(as_json: Json = False) -> None:
    """Every set of the catalog: what it is, and whether it is here."""
    from regard.cli.data import list_sets

    list_sets(as_json)


@data.command("get")
def data_get(name: Annotated[str, Argument(help="A name from `regard data list`.")]) -> None:
    """Download a set from its public address."""
    from regard.cli.data import get

    get(name)


@models.command("list")
def models_list(as_json: Json = False) -> None:
    """Every model that has a name: what it does, its size and its terms."""
    from regard.cli.shipped.models import list_models

    list_models(as_json)


@models.command("show")
def models_show(
    name: Annotated[str, Argument(help="A name from `regard models list`, or a folder.")], as_json: Json = False
) -> None:
    """Print the card of a model: how it was made, of which data, how good it is, and its limits."""
    from regard.cli.shipped.models import show_model

    show_model(name, as_json)


Claims = Annotated[list[str] | None, Argument(metavar="CLAIM…", help="Numbers, as C4 C7; or all.")]
LabFolder = Annotated[Path, Option(help="What is measured is kept here; the same command goes on.")]
Jobs = Annotated[
    int, Option(min=0, help="Seeds side by side. Default: one a core; of --budget full, 10 trainings on a GPU.")
]
Budget = Annotated[str, Option(help="quick: on the CPU; full: on real text, for a GPU.")]
LabDevice = Annotated[str, Option(help="Of --budget full. Default: what there is; quick is measured on the CPU.")]
LabOverrides = Annotated[
    list[str],
    Option("--set", metavar="KEY=VALUE", help="Of --budget full: override every recipe; a trial without a verdict."),
]


@lab.command("list")
def lab_list(as_json: Json = False) -> None:
    """Every claim, and whether it has an experiment."""
    from regard.cli.lab.claims import list_claims

    list_claims(as_json)


@lab.command("plan")
def lab_plan(
    claims: Claims = None,
    budget: Budget = "quick",
    out: LabFolder = Path("lab"),
    device: LabDevice = "",
    jobs: Jobs = 0,
    overrides: LabOverrides = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Say what a run would take, in minutes, and what is measured already."""
    from regard.cli.lab.claims import plan_claims

    plan_claims(claims or [], budget, out, device, jobs, overrides, as_json)


@lab.command("run")
def lab_run(
    claims: Claims = None,
    budget: Budget = "quick",
    out: LabFolder = Path("lab"),
    device: LabDevice = "",
    jobs: Jobs = 0,
    overrides: LabOverrides = [],  # noqa: B006
    minutes: Annotated[
        float | None, Option(help="Of --budget full: save and end after so many, with status 3; run it again to go on.")
    ] = None,
    fault: Annotated[str, Option(help="Plant a fault that the claim names: its verdict must turn.")] = "",
    seeds: Annotated[int | None, Option(min=1, help="So many. Default: 3 or 5, to 10 while undecided.")] = None,
    as_json: Json = False,
) -> None:
    """Measure claims, and say of each: confirmed, refuted, depends or undecided, with numbers and intervals."""
    from regard.cli.lab.claims import run_lab

    run_lab(claims or [], budget, out, device, jobs, fault, seeds, as_json, overrides, minutes)


@lab.command("report")
def lab_report(
    out: Annotated[Path, Option("--from", help="The folder of `regard lab run`.")] = Path("lab"),
    page: Annotated[Path | None, Option("--output", "-o", help="Default: report.html in that folder.")] = None,
    as_json: Json = False,
) -> None:
    """Write one page of all that was measured: claim, prediction, verdict, plots; and the same as Markdown."""
    from regard.cli.lab.claims import report_lab

    report_lab(out, page, as_json)


def _run() -> None:
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
        sys.stdout.reconfigure(errors="backslashreplace")  # what GBK lacks ends no command, as on stderr
    if language.language() == "en":
        app()
    else:
        from regard.language.command_help import run_localised

        run_localised(typer.main.get_command(app))


def main() -> None:
    """Errors a user can mend are one sentence and exit code 2; --debug, anywhere, shows the traceback instead."""
    from regard.errors import RegardError

    debug = "--debug" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    try:
        language.check_language()
        _run()
    except RegardError as error:
        if debug:
            raise
        print(f"regard: {language.localise(str(error))}", file=sys.stderr)
        raise SystemExit(2) from None
    except OSError as error:
        if debug:
            raise
        what = f"{error.filename or 'output'}: {error.strerror or error}"
        print(f"regard: {language.localise(what)}", file=sys.stderr)
        raise SystemExit(2) from None
    except (RuntimeError, MemoryError) as error:  # torch's own words for full memory, or an absent GPU
        gpu = "CUDA" in str(error)
        full = isinstance(error, MemoryError) or "out of memory" in str(error) or "allocate memory" in str(error)
        if debug or not (gpu or full):
            raise
        what = "the GPU is out of memory" if gpu else "the machine is out of memory"
        instead = "give less at a time (--batch-tokens)" + (", or --device cpu" if gpu else "")
        sentence = f"{what if full else str(error).splitlines()[0]}; {instead}"
        print(f"regard: {language.localise(sentence)}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print(f"regard: {language.localise('interrupted')}", file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
