"""Commands that use a trained model on texts."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from regard.cli.commands.app import RenamedOptions, app, with_plugins
from regard.cli.commands.options import (
    ChatOptions,
    Device,
    EmbedOptions,
    FillOptions,
    GenerateOptions,
    Input,
    Json,
    LineOptions,
    Run,
    SummariseOptions,
    TranslateOptions,
    Trees,
    Weights,
)


@app.command()
@with_plugins
def generate(options: GenerateOptions) -> None:
    """Continue a text with a language model, as it is being written."""
    from regard.cli.generate import generate as body

    body(options)


@app.command()
@with_plugins
def chat(options: ChatOptions) -> None:
    """Talk with a model: in a terminal line by line (/help), else one turn a line in, one reply a line out."""
    from regard.cli.chat import chat as body

    body(options)


@app.command()
@with_plugins
def fill(options: FillOptions) -> None:
    """Fill gaps with a pretrained BERT: text with [MASK] in, the likeliest words and their probabilities out.

    One line for one line: word and probability in turn, a tab between gaps. A line without [MASK] gives an empty line
    and a note.
    """
    from regard.cli.pretrained import fill as body

    body(options)


@app.command()
@with_plugins
def embed(options: EmbedOptions) -> None:
    """Turn texts into vectors with a BERT: one line in, one vector out, tabs between its numbers, empty lines kept."""
    from regard.cli.pretrained import embed as body

    body(options)


@app.command(cls=RenamedOptions)
@with_plugins
def translate(options: TranslateOptions) -> None:
    """Translate text: one line in, one line out, empty lines kept; or a whole document (docs/long-text.md)."""
    from regard.cli.translate import translate as body

    body(options)


@app.command()
@with_plugins
def summarise(options: SummariseOptions) -> None:
    """Summarise a document with a model that was trained on texts and their summaries (docs/long-text.md)."""
    from regard.cli.documents.summarise import summarise as body

    body(options)


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
def classify(options: LineOptions) -> None:
    """Label texts, one a line, or pairs, as first TAB second: a label a line, or a number; empty lines are kept."""
    from regard.cli.finetuned import classify as body

    body(options)


@app.command()
@with_plugins
def tag(options: LineOptions) -> None:
    """Tag words, a sentence a line, with spaces between words: the tags of a line, with spaces between them."""
    from regard.cli.finetuned import tag as body

    body(options)


@app.command()
@with_plugins
def answer(options: LineOptions) -> None:
    """Answer questions by parts of texts: question TAB text a line, or JSON with question and context."""
    from regard.cli.finetuned import answer as body

    body(options)


@app.command()
@with_plugins
def choose(options: LineOptions) -> None:
    """Choose an option: text TAB question TAB options a line, or JSON with context, question and options."""
    from regard.cli.finetuned import choose as body

    body(options)


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
