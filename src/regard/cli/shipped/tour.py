"""A tour in the terminal: for each model what it does with a few texts, below the command that does the same."""

import shlex
from collections.abc import Iterator, Sequence
from functools import singledispatch
from pathlib import Path

from regard import api
from regard.cli.streams import warn
from regard.errors import RegardError
from regard.io.model_card import read_card
from regard.language import localise
from regard.predict.base import Predictor
from regard.predict.chat import ChatPredictor
from regard.predict.classification import TextClassifier
from regard.predict.filling import MaskFiller
from regard.predict.generation import TextGenerator
from regard.predict.translation import Translator

GOATS = (
    "The goat couldn't carry the basket because it was too thirsty.",
    "The goat couldn't carry the basket because it was too heavy.",
    "Every evening my sister washes her car.",
)
TEXTS = {  # by kind of predictor, where a model's card names none
    Translator: ("The animal didn't cross the street because it was too tired.", "Hello, how are you?"),
    TextGenerator: ("As aliens entered our planet",),
    ChatPredictor: ("Hi how are you", "What are you doing tonight?"),
    MaskFiller: ("The animal didn't cross the [MASK] because it was too tired.", "He opened the [MASK] and went out."),
    TextClassifier: ("A warm, funny and beautifully acted film.", "Two hours that I will never get back."),
}
WRITTEN = 60  # tokens of a text that goes on
GAP_WORDS = 4


def terminal_tour(runs: dict[str, Path], device: str) -> None:
    """Loads one model after the other; `runs` are their folders, by the names to type."""
    shown = 0
    for number, (name, folder) in enumerate(runs.items(), 1):
        try:
            predictor: Predictor = api.load(folder, device)
        except RegardError as error:
            if number == len(runs) and not shown:
                raise
            warn(f"{name}: left out; {error}")
            continue
        shown += 1
        for line in lines_of(predictor, name, texts_for(predictor, folder)):
            print(line, end="", flush=True)
        print()
    more = "More: regard models list; regard look MODEL TEXT writes its attention as a page; regard --help"
    print(localise(more))


def texts_for(predictor: Predictor, folder: Path) -> Sequence[str]:
    """Those of its card; or of its kind, but what knows the words of the embedded corpus alone gets these."""
    card = read_card(folder)
    if card and card.examples:
        return card.examples
    if any(str(corpus.set).startswith("embedded:") for corpus in predictor.recipe.data.train):
        return GOATS
    return next((texts for kind, texts in TEXTS.items() if isinstance(predictor, kind)), ())


def _quoted(text: str) -> str:
    """As a person would type it in a shell."""
    return shlex.quote(text) if set('"$`\\!') & set(text) else f'"{text}"'


@singledispatch
def lines_of(predictor: Predictor, name: str, texts: Sequence[str]) -> Iterator[str]:
    """What is printed of a model, as it comes; of a kind without a short text to show, its command."""
    command = api.COMMANDS.get(predictor.recipe.task.kind, predictor.recipe.task.kind)
    yield f"$ regard {command} {name} --help\n"


@lines_of.register
def _translation(translator: Translator, name: str, texts: Sequence[str]) -> Iterator[str]:
    for number, text in enumerate(texts):
        yield f"$ echo {_quoted(text)} | regard translate {name}\n"
        (best,) = translator.nbest([text], 1, attention=["cross"])[0]
        yield f"{best.text}\n"
        pairs = [] if number else translator.alignment(text, best)
        words, output = text.split(), best.text.split()
        if pairs and max(pair[0] for pair in pairs) < len(words) and max(pair[1] for pair in pairs) < len(output):
            seen = "  ".join(f"{output[target]}←{words[source]}" for source, target in pairs)
            yield localise(f"the word that each attended to most: {seen}") + "\n"


@lines_of.register
def _story(generator: TextGenerator, name: str, texts: Sequence[str]) -> Iterator[str]:
    text = texts[0]
    yield f"$ regard generate {name} {_quoted(text)} --max-tokens {WRITTEN} --echo\n{text}"
    for delta in generator.stream(text, max_tokens=WRITTEN):
        yield delta.text
    yield "\n"


@lines_of.register
def _conversation(chat: ChatPredictor, name: str, texts: Sequence[str]) -> Iterator[str]:
    turns: list[str] = []
    yield f"$ regard chat {name}\n"
    for text in texts:
        turns += [text]
        turns += [" ".join(chat.reply(turns).split())]
        yield f"> {text}\n{turns[-1]}\n"


@lines_of.register
def _gaps(filler: MaskFiller, name: str, texts: Sequence[str]) -> Iterator[str]:
    for text in texts:
        yield f"$ echo {_quoted(text)} | regard fill {name}\n"
        for gap in filler.fill([text], GAP_WORDS)[0]:
            yield "   ".join(f"{guess.word} {guess.probability:.0%}" for guess in gap) + "\n"


@lines_of.register
def _labels(classifier: TextClassifier, name: str, texts: Sequence[str]) -> Iterator[str]:
    labels = [found.label for found in classifier.classify(list(texts))]
    for text, label in zip(texts, labels, strict=True):
        yield f"$ echo {_quoted(text)} | regard classify {name}\n{label}\n"
