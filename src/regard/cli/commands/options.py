"""Options that several commands have, and the option sets of commands on texts: their fields are the options."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from typer import Argument, Option

if TYPE_CHECKING:
    from regard.examples.long_text import LongConfig

T = TypeVar("T")

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
UsesShortlist = Annotated[
    bool, Option("--shortlist", help="Compute those words alone that the model's shortlist allows (regard shortlist).")
]
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


Errors = Annotated[
    str, Option(help="Input that is not UTF-8: strict stops at it, replace puts U+FFFD there and counts.")
]


def long_config(value: str | None) -> "LongConfig | None":
    """The choice that --long names."""
    from regard.examples.long_text import Truncate, to_long

    return None if value is None else to_long(value, Truncate(), "--long")


# --- option sets ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LineOptions:
    """Of commands that write what a trained model predicts for each line."""

    run: Run
    input: Input = None
    output: Output = None
    precision: Weights = None
    long: Long = None
    device: Device = "auto"
    as_json: Json = False

    def load(self, kind: type[T], command: str) -> T:
        """The model, which must be of the kind that the command is for."""
        from regard.api import load_as
        from regard.cli.streams import check_distinct_files
        from regard.interop.engines import precision_loader

        check_distinct_files([self.output], [self.input])
        return load_as(kind, self.run, self.device, command, precision_loader(self.precision))


@dataclass(frozen=True, kw_only=True)
class FillOptions(LineOptions):
    top: Annotated[int, Option(min=1, help="So many words for each gap.")] = 5
    batch_tokens: BatchTokens = 4096


@dataclass(frozen=True, kw_only=True)
class EmbedOptions(LineOptions):
    output: Annotated[
        Path | None, Option("--output", "-o", help="A name that ends in .npy holds an array. Default: stdout.")
    ] = None
    pooling: Annotated[str | None, Option(help="mean, cls, max or pooler. Default: as the model's task says.")] = None
    layer: Annotated[
        int | None, Option(help="0: what goes into the first layer; -1, the default: the last one's output.")
    ] = None
    layers: Annotated[str | None, Option(help="Several layers: -4..-1, or 0,2.")] = None
    join: Annotated[str, Option(help="How --layers become one vector: concat, sum or mean.")] = "concat"
    normalise: Annotated[bool | None, Option(help="Vectors of length 1. Default: as the model's task says.")] = None
    batch_tokens: BatchTokens = 4096


@dataclass(frozen=True, kw_only=True)
class WritingOptions:
    """Of commands whose model writes."""

    run: Run
    temperature: Temperature = None
    top_k: TopK = None
    top_p: TopP = None
    min_p: MinP = None
    repetition_penalty: Annotated[
        float | None, Option(help="Above 1: words that were there before are less likely.")
    ] = None
    seed: Annotated[int | None, Option(help="The same seed writes the same text.")] = None
    greedy: Greedy = False
    beam: SlowBeam = None
    search: Search = None
    draft: Draft = None
    draft_tokens: DraftTokens = None
    accept: Accept = None
    stats: Stats = None
    precision: Weights = None
    device: Device = "auto"
    as_json: Json = False


@dataclass(frozen=True, kw_only=True)
class GenerateOptions(WritingOptions):
    prompt: Annotated[str | None, Argument(help="What the text begins with. Default: all of stdin.")] = None
    max_tokens: Annotated[int, Option(min=1, help="Write at most so many tokens.")] = 256
    samples: Annotated[int, Option(min=1, help="So many texts.")] = 1
    stop: Annotated[list[str] | None, Option(help="End before this string; may be repeated.")] = None
    echo: Annotated[bool, Option("--echo", help="Write the prompt too.")] = False
    strict: Annotated[
        bool, Option("--strict", help="Refuse a prompt longer than the context, instead of keeping its end.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class ChatOptions(WritingOptions):
    max_tokens: Annotated[int | None, Option(help="A reply has at most so many tokens.")] = None
    repetition_penalty: Annotated[
        float | None, Option(help="Above 1: words that the reply has already are less likely.")
    ] = None
    seed: Annotated[int | None, Option(help="The same seed gives the same replies to the same turns.")] = None


@dataclass(frozen=True, kw_only=True)
class TranslateOptions:
    run: Run
    input: Input = None
    output: Output = None
    beam: Beam = None
    search: Search = None
    draft: Draft = None
    draft_tokens: DraftTokens = None
    accept: Accept = None
    stats: Stats = None
    nbest: Annotated[
        int, Option(min=1, help="Up to so many translations of each line, all different, as number, score, text.")
    ] = 1
    scores: Annotated[
        bool, Option(help="Put the score that ranks and a tab first: log-probability, by length under a beam.")
    ] = False
    sample: Annotated[bool, Option(help="Draw words at random instead of searching.")] = False
    temperature: Annotated[float | None, Option(help="For --sample: below 1 sharpens; 0: greedy. Default: 1.")] = None
    top_k: Annotated[int | None, Option(help="For --sample: from the k likeliest only.")] = None
    top_p: Annotated[float | None, Option(help="For --sample: from the likeliest with this much probability.")] = None
    seed: Annotated[int | None, Option(help="For --sample. Default: 1.")] = None
    alignments: Annotated[
        Path | None, Option(help="Also write word alignments here, a line for each output: 0-0 1-2 … (Pharaoh).")
    ] = None
    layer: Annotated[int | None, Option(min=1, help="For --alignments. Default: the one before the last.")] = None
    head: Annotated[list[int] | None, Option(min=1, help="For --alignments, may be repeated. Default: all.")] = None
    trees: Trees = None
    long: Long = None
    others: Others = None
    prefixes: Annotated[
        Path | None, Option(help="A file whose line i says how output i must begin; empty: nothing asked.")
    ] = None
    phrases: Annotated[
        Path | None, Option(help="A file whose line i has phrases, with tabs between, that output i must hold.")
    ] = None
    document: Annotated[
        Path | None, Option(help="Translate a whole file instead: its prose; all else, and its lines, stay.")
    ] = None
    form: Annotated[
        str | None, Option(help="Of --document: text or markdown. Default: markdown for names that end in .md.")
    ] = None
    by: Annotated[str, Option(help="Of --document: sentence or paragraph, what is translated at once.")] = "sentence"
    context: Annotated[
        int, Option(help="Of --document: the model reads so many sentences before each; it must be trained so.")
    ] = 0
    separator: Annotated[str, Option(help="Of --context: what stands between sentences.")] = "<sep>"
    errors: Errors = "strict"
    batch_tokens: BatchTokens = 4096
    engine: Engine = "own"
    precision: Precision = None
    shortlist: UsesShortlist = False
    device: Device = "auto"
    as_json: Json = False

    @property
    def name(self) -> str:
        """What messages call the input."""
        return str(self.input or "standard input")


@dataclass(frozen=True, kw_only=True)
class SummariseOptions:
    run: Run
    document: Annotated[Path, Option(help="The text, paragraphs with empty lines between them.")]
    output: Output = None
    long: Annotated[
        str | None,
        Option(metavar="KIND", help="What is too long: extract, the default, segments, truncate …, as there."),
    ] = None
    beam: Beam = None
    errors: Errors = "strict"
    batch_tokens: BatchTokens = 4096
    device: Device = "auto"
    as_json: Json = False


@dataclass(frozen=True, kw_only=True)
class LookOptions:
    run: Run
    text: Annotated[str | None, Argument(help="What the model reads. Default: all of stdin.")] = None
    other: Annotated[str | None, Argument(help="A second text, shown beside the first: what moved is marked.")] = None
    target: Annotated[str | None, Option(help="What it should say, or go on with, instead of its own output.")] = None
    ablate: Annotated[
        list[str] | None, Option(help="Switch a head off, as encoder.1.3: layer 1, head 3. May be given again.")
    ] = None
    lens: Annotated[
        bool, Option("--lens", help="Print what the model would say after each of its layers (logit lens).")
    ] = False
    patch: Annotated[
        list[str] | None,
        Option(
            help="Put outputs for the first text into a run on the second, and print what comes back of the first's "
            "answer: encoder.1.3, encoder.1, encoder.1@4, or all heads, layers or positions. May be given again."
        ),
    ] = None
    answer: Annotated[
        str | None, Option(help="For --patch: the token of the first output to follow. Default: what falls most.")
    ] = None
    trees: Trees = None
    referent: Annotated[
        str | None,
        Option(help="Where the guided route leads, as it=goat or it/sie=goat. Default: guessed, in English texts."),
    ] = None
    output: Annotated[Path | None, Option("--output", "-o", help="The page. Default: look.html.")] = None
    png: Annotated[Path | None, Option(help="A picture for a paper; the name may end in .pdf or .svg.")] = None
    place: Annotated[str | None, Option(help="For --png: encoder, decoder or cross. Default: the last there is.")] = (
        None
    )
    layer: Annotated[int | None, Option(min=1, help="For --png. Default: the last.")] = None
    head: Annotated[int | None, Option(min=1, help="For --png. Default: the mean of all.")] = None
    language: Annotated[str, Option(help="Of the page: en or zh. Default: the browser's.")] = ""
    device: Device = "auto"
    as_json: Json = False


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    run: Run
    split: Annotated[str | None, Option(help="test or valid of the recipe. Default: test if there is one.")] = None
    source: Annotated[Path | None, Option(help="Measure on this file instead, with --reference.")] = None
    reference: Annotated[Path | None, Option(help="What the translations should be, line by line.")] = None
    trees: Trees = None
    beam: Beam = None
    others: Others = None
    against: Annotated[
        Path | None, Option(metavar="RUN", help="Another model: is the difference more than chance? Paired bootstrap.")
    ] = None
    engine: Engine = "own"
    precision: Precision = None
    shortlist: UsesShortlist = False
    text: Annotated[Path | None, Option(help="Not for translation: measure on this file instead.")] = None
    context: Annotated[int | None, Option(min=1, help="A language model: tokens of a window.")] = None
    stride: Annotated[
        int | None, Option(min=1, help="A language model: tokens from window to window; less is slower.")
    ] = None
    memory: Annotated[
        int | None, Option(min=0, help="A language model with a memory: tokens remembered before a window.")
    ] = None
    device: Device = "auto"
    as_json: Json = False

    def of_task(self) -> dict[str, object]:
        """The options that only some tasks have, where they are given."""
        from regard.predict.options import EvaluateOptions

        given = {name: vars(self)[name] for name in EvaluateOptions.__annotations__}
        return {name: value for name, value in given.items() if value is not None}
