"""Commands that use a trained model on texts."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from regard.cli.commands.app import RenamedOptions, app, with_plugins
from regard.cli.commands.options import (
    Accept,
    BatchTokens,
    Beam,
    Device,
    Draft,
    DraftTokens,
    Engine,
    Greedy,
    Input,
    Json,
    Long,
    MinP,
    Others,
    Output,
    Precision,
    Run,
    Search,
    SlowBeam,
    Stats,
    Temperature,
    TopK,
    TopP,
    Trees,
    UsesShortlist,
    Weights,
    long_option,
)


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
    shortlist: UsesShortlist = False,
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


@app.command("shortlist")
@with_plugins
def learn_shortlist(
    run: Run,
    source: Annotated[Path | None, Option(help="Source sentences. Default: what the model was trained on.")] = None,
    target: Annotated[Path | None, Option(help="Their translations, line by line.")] = None,
    candidates: Annotated[int, Option(min=1, help="Of each source piece so many likeliest target pieces.")] = 50,
    frequent: Annotated[int, Option(min=0, help="And so many most frequent ones for every sentence.")] = 100,
) -> None:
    """Learn which target pieces a source may need, for --shortlist: IBM model 1, written into the model's folder."""
    from regard.cli.interop import learn_shortlist as body

    body(run, source, target, candidates, frequent)


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
