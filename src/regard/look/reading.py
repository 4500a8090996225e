"""How each kind of trained model reads one text: the batch of it, the words as they are shown, and what it says.

Knows no attention: the recording asks for a forward pass and is given one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from regard.data.choices import Choice
from regard.data.labelled import Labelled
from regard.data.question_lines import pair_of, question_of
from regard.data.questions import Question
from regard.data.tagged import Tagged
from regard.errors import RegardError
from regard.models.batch import Packed, pairs
from regard.models.texts import texts
from regard.predict.answering import QuestionAnswerer
from regard.predict.chat import ChatPredictor
from regard.predict.choosing import OptionChooser
from regard.predict.classification import TextClassifier
from regard.predict.embedding import TextEmbedder
from regard.predict.filling import MASK, MaskFiller
from regard.predict.finetuned import FinetunedPredictor
from regard.predict.generation import TextGenerator
from regard.predict.tagging import WordTagger
from regard.predict.translation import Translator
from regard.text import Tokenizer

LIMIT = 200  # tokens of a side: weights grow with their square


@dataclass(frozen=True)
class Read:
    """One text, read: `run(record)` computes it, in a batch of its own that has no padding."""

    run: Callable[[Any], Any]
    ids: dict[str, list[int]]  # by side: source and target, or text
    names: dict[str, tuple[list[str], list[str]]]  # by place: the words that ask and those that are asked
    output: str
    segments: list[int] | None = None
    says: list[str] | None = None  # what each place that is read by a decoder leads to


def read(made: Any, text: str, target: str | None = None) -> Read:
    """What `regard.load` gave, reading this text; a target is said, or gone on with, instead of the model's own."""
    if not text.strip():
        raise RegardError("there is no text to look at")
    for kind, reader in READERS.items():
        if isinstance(made, cast(Any, kind)):
            if target is not None and reader in (_embedded, _asked):
                raise RegardError(f"a model of the task {made.recipe.task.kind} reads a text and says no other; "
                                  "leave out the target")  # fmt: skip
            return reader(made, text, target)
    raise RegardError(f"a model of the task {made.recipe.task.kind} cannot be looked into")


def _fits(ids: Sequence[int], what: str, room: int | None = None) -> Sequence[int]:
    most = min(LIMIT, room or LIMIT)
    if len(ids) > most:
        reason = "that can be shown" if most == LIMIT else "that this model reads at once"
        raise RegardError(f"the {what} has {len(ids)} tokens, more than the {most} {reason}; shorten it")
    return ids


# --- one function a kind of model ----------------------------------------------------------------------------------


def _translated(made: Translator, text: str, target: str | None) -> Read:
    source, marks = made.vocabulary
    read = _fits(source.encode(text), "text", made.recipe.data.filters.max_length)
    if target is not None:
        return _pair(made, (source, marks), read, marks.encode(target), target)
    best = made.nbest([text], 1)[0][0]
    return _pair(made, (source, marks), read, best.tokens, best.text)


def _written(made: TextGenerator, text: str, target: str | None) -> Read:
    return _continued(made, _fits(made.document_encoder.prompt(text + (target or "")), "text", made.context), target)


def _talked(made: ChatPredictor, text: str, target: str | None) -> Read:
    """Turns are lines; the last is the other's."""
    t, history = made.tokenizer, text.split("\n")
    if target is None:
        reply = made.replies([history])[0]
        said, output = reply.tokens, reply.text
    else:
        said, output = t.encode(target), target
    read = _fits(made.encode_history(history, made.recipe.decoding)[0], "text")
    if made.recipe.model.kind != "lm":
        return _pair(made, (t, t), read, said, output)
    return _continued(made, _fits([*read, *said], "text", getattr(made.model, "longest", None)), output)


def _pair(made: Any, marks: tuple[Tokenizer, Tokenizer], read: Sequence[int], said: list[int], output: str) -> Read:
    """A source that is read, and a target that is said, by a model of two sides."""
    source, target = marks
    _fits(said, "target", (getattr(made.model, "longest", None) or LIMIT + 1) - 1)
    batch = pairs(Packed.of([read]), Packed.of([said]), source, target).to(made.device)
    ids = {"source": [*read, source.eos], "target": [target.bos, *said]}
    asked, heard = source.shown(ids["source"]), target.shown(ids["target"])
    says = target.shown([*said, target.eos])
    names = {"encoder": (asked, asked), "decoder": (heard, heard), "cross": (says, asked)}
    return Read(lambda record: made.model(batch, record), ids, names, output, says=says)


def _continued(made: Any, ids: Sequence[int], output: str | None) -> Read:
    """A language model reads all; what it would say next is its output, where nothing else is."""
    batch = texts([ids], made.tokenizer.pad)
    batch = replace(batch, places=torch.tensor([len(ids) - 1])).to(made.device)
    names, likeliest = made.tokenizer.shown(ids), int(made.model(batch).argmax())
    says = [*names[1:], *made.tokenizer.shown([likeliest])]
    places = {"decoder": (names, names)}
    return Read(lambda record: made.model(batch, record), {"text": list(ids)}, places, output or says[-1], says=says)


def _embedded(made: TextEmbedder, text: str, target: str | None) -> Read:
    t, marks = made.tokenizer, {MASK: made.tokenizer.mask} if made.tokenizer.mask is not None else {}
    ids = list(_fits([t.bos, *made.sentence_encoder.encode([text], marks)[0], t.eos], "text", made.context))
    batch = texts([ids], t.pad).to(made.device)
    guesses = made.fill([text], 1)[0] if isinstance(made, MaskFiller) else []
    names = t.shown(ids)
    output = " ".join(best[0].word for best in guesses)
    return Read(lambda record: made.body(batch, record), {"text": ids}, {"encoder": (names, names)}, output)


def _asked(made: Any, text: str, target: str | None) -> Read:
    example, output, best = EXAMPLES[type(made)](made, text)
    features = made.codec.features([example])
    if len(features) > 1:
        raise RegardError(f"the text is longer than the {made.codec.settings.length} tokens of a row; shorten it")
    row = features[0].rows[best]
    _fits(row.ids, "text")
    batch = texts([row.ids], made.codec.special_tokens.pad, Packed.of([row.segments]))
    batch = batch.to(next(made.model.parameters()).device)
    names = made.tokenizer.shown(row.ids)
    run = lambda record: made.model.body(batch, record)  # noqa: E731
    return Read(run, {"text": row.ids}, {"encoder": (names, names)}, output, row.segments)


def _classified(made: TextClassifier, text: str) -> tuple[Any, str, int]:
    sides = tuple(text.split("\t", 1))
    return Labelled("", sides, ""), made.classify([sides if len(sides) == 2 else text])[0].label, 0  # type: ignore


def _tagged(made: WordTagger, text: str) -> tuple[Any, str, int]:
    return Tagged("the text", text.split(), []), " ".join(made.tag([text])[0].tags), 0


def _answered(made: QuestionAnswerer, text: str) -> tuple[Any, str, int]:
    question, context = pair_of(text, "the text")
    return Question("the text", question, context, (), known=False), made.answer([(question, context)])[0].text, 0


def _chosen(made: OptionChooser, text: str) -> tuple[Any, str, int]:
    context, asked, options = question_of(text, "the text")
    chosen = made.choose([(context, asked, options)])[0]
    return Choice("the text", context, asked, tuple(options)), chosen.text, chosen.index


EXAMPLES: dict[type, Callable[..., tuple[Any, str, int]]] = {
    TextClassifier: _classified,
    WordTagger: _tagged,
    QuestionAnswerer: _answered,
    OptionChooser: _chosen,
}
READERS: dict[type, Callable[..., Read]] = {
    Translator: _translated,
    TextGenerator: _written,
    ChatPredictor: _talked,
    TextEmbedder: _embedded,
    FinetunedPredictor: _asked,
}
