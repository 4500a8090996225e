"""The input of each kind of trained model for one text: its batch, its tokens as they are shown, and the output.

Knows no attention: `look/attention.py` runs the forward pass.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import nn

from regard.data.labelled import LabelledText
from regard.data.questions import ChoiceQuestion, Question, parse_choice_line, parse_question_line
from regard.data.tagged import TaggedSentence
from regard.errors import RegardError
from regard.examples.pairs import check_trees, piece_trees
from regard.models.batch import RaggedRows, collate_pairs, collate_texts
from regard.models.decoders.pairs import DecoderOnly
from regard.nn.layout import Tree
from regard.nn.record import AttentionRecorder
from regard.predict.answering import QuestionAnswerer
from regard.predict.base import FinetunedPredictor, Predictor
from regard.predict.chat import ChatPredictor
from regard.predict.choosing import OptionChooser
from regard.predict.classification import TextClassifier
from regard.predict.embedding import TextEmbedder
from regard.predict.filling import MASK, MaskFiller
from regard.predict.generation import TextGenerator
from regard.predict.tagging import WordTagger
from regard.predict.translation import Translator
from regard.text import Tokenizer

LIMIT = 200  # tokens of a side: weights grow with their square


@dataclass(frozen=True)
class ModelInput:
    """One text as a batch without padding: `run(record)` is its forward pass."""

    run: Callable[[AttentionRecorder], object]
    ids: dict[str, list[int]]  # by side: source and target, or text
    names: dict[
        str, tuple[list[str], list[str]]
    ]  # by role of attention: the tokens that are queries and those that are keys
    output: str
    segments: list[int] | None = None
    says: list[str] | None = None  # the token that each decoder position predicts
    tree: Tree | None = None  # the dependency tree of the source
    token_names: Callable[[list[int]], list[str]] | None = None  # where `run` gives the logits of decoder positions


def prepare_input(
    predictor: Predictor, text: str, target: str | None = None, parents: Sequence[int] | None = None
) -> ModelInput:
    """The input of what `regard.load` gives for this text; a target replaces the model's own output, `parents` are the
    heads of the text's words."""
    if not text.strip():
        raise RegardError("there is no text to look at")
    for kind, build in BUILDERS.items():
        if isinstance(predictor, cast(Any, kind)):
            if target is not None and build in (_embedding_input, _finetuned_input):
                raise RegardError(f"a model of the task {predictor.recipe.task.kind} has no target text; "
                                  "leave out the target")  # fmt: skip
            if isinstance(predictor, Translator):
                return _translation_input(predictor, text, target, parents)
            if parents is not None:
                raise RegardError(f"a model of the task {predictor.recipe.task.kind} reads no dependency trees; "
                                  "leave out the trees")  # fmt: skip
            return build(predictor, text, target)
    raise RegardError(f"a model of the task {predictor.recipe.task.kind} cannot be looked into")


def _check_length(ids: Sequence[int], what: str, room: int | None = None) -> Sequence[int]:
    most = min(LIMIT, room or LIMIT)
    if len(ids) > most:
        reason = "that can be shown" if most == LIMIT else "that this model reads at once"
        raise RegardError(f"the {what} has {len(ids)} tokens, more than the {most} {reason}; shorten it")
    return ids


# --- one function a kind of model ----------------------------------------------------------------------------------


def _translation_input(
    predictor: Translator, text: str, target: str | None, parents: Sequence[int] | None = None
) -> ModelInput:
    source, target_tokenizer = predictor.vocabulary
    trees = None if parents is None else [parents]
    source_ids = _check_length(source.encode(text), "text", predictor.recipe.data.filters.max_length)
    if trees is not None:
        check_trees(trees, [source_ids], source)
    tree = None if trees is None else piece_trees(trees, [source_ids], source)
    if target is not None:
        target_ids = target_tokenizer.encode(target)
    else:
        best = predictor.nbest([text], 1, trees=trees)[0][0]
        target_ids, target = best.tokens, best.text
    if isinstance(predictor.model, DecoderOnly):
        ids = _check_length([*source_ids, source.eos, target_tokenizer.bos, *target_ids], "text")
        return _language_model_input(predictor.model.body, target_tokenizer, ids, target)
    return _pair_input(predictor, (source, target_tokenizer), source_ids, target_ids, target, tree)


def _generation_input(predictor: TextGenerator, text: str, target: str | None) -> ModelInput:
    ids = predictor.document_encoder.prompt(text + (target or ""))
    return _language_model_input(
        predictor.model, predictor.tokenizer, _check_length(ids, "text", predictor.context), target
    )


def _chat_input(predictor: ChatPredictor, text: str, target: str | None) -> ModelInput:
    """Turns are lines; the last is the user's."""
    t, history = predictor.tokenizer, text.split("\n")
    if target is None:
        reply = predictor.replies([history])[0]
        target_ids, output = reply.tokens, reply.text
    else:
        target_ids, output = t.encode(target), target
    source_ids = _check_length(predictor.encode_history(history, predictor.recipe.decoding)[0], "text")
    if predictor.recipe.model.kind != "lm":
        return _pair_input(predictor, (t, t), source_ids, target_ids, output)
    ids = _check_length([*source_ids, *target_ids], "text", predictor.longest)
    return _language_model_input(predictor.model, t, ids, output)


def _pair_input(
    predictor: Predictor,
    tokenizers: tuple[Tokenizer, Tokenizer],
    source_ids: Sequence[int],
    target_ids: list[int],
    output: str,
    tree: Tree | None = None,
) -> ModelInput:
    """The source and the target of an encoder-decoder."""
    source, target = tokenizers
    _check_length(target_ids, "target", (predictor.longest or LIMIT + 1) - 1)
    batch = collate_pairs(RaggedRows.of([source_ids]), RaggedRows.of([target_ids]), source, target)
    batch = replace(batch, tree=tree).to(predictor.device)
    ids = {"source": [*source_ids, source.eos], "target": [target.bos, *target_ids]}
    keys, queries = source.shown(ids["source"]), target.shown(ids["target"])
    says = target.shown([*target_ids, target.eos])
    names = {"encoder": (keys, keys), "decoder": (queries, queries), "cross": (says, keys)}
    return ModelInput(
        lambda record: predictor.model(batch, record),
        ids,
        names,
        output,
        says=says,
        tree=batch.tree,
        token_names=target.shown,
    )


def _language_model_input(model: nn.Module, tokenizer: Tokenizer, ids: Sequence[int], output: str | None) -> ModelInput:
    """All tokens of a language model; the likeliest next token is its output, where there is no target."""
    batch = collate_texts([ids], tokenizer.pad)
    batch = replace(batch, label_positions=torch.arange(len(ids))).to(next(model.parameters()).device)
    names, likeliest = tokenizer.shown(ids), int(model(batch)[-1].argmax())
    says = [*names[1:], *tokenizer.shown([likeliest])]
    shown = {"decoder": (names, names)}
    return ModelInput(
        lambda record: model(batch, record),
        {"text": list(ids)},
        shown,
        output or says[-1],
        says=says,
        token_names=tokenizer.shown,
    )


def _embedding_input(predictor: TextEmbedder, text: str, target: str | None) -> ModelInput:
    t, special = predictor.tokenizer, {MASK: predictor.tokenizer.mask} if predictor.tokenizer.mask is not None else {}
    (encoded,) = predictor.sentence_encoder.encode([text], special)
    ids = list(_check_length([t.bos, *encoded, t.eos], "text", predictor.context))
    batch = collate_texts([ids], t.pad).to(predictor.device)
    guesses = predictor.fill([text], 1)[0] if isinstance(predictor, MaskFiller) else []
    names = t.shown(ids)
    output = " ".join(best[0].word for best in guesses)
    return ModelInput(lambda record: predictor.body(batch, record), {"text": ids}, {"encoder": (names, names)}, output)


def _finetuned_input(predictor: Any, text: str, target: str | None) -> ModelInput:
    example, output, best = EXAMPLES[type(predictor)](predictor, text)
    features = predictor.codec.features([example])
    if len(features) > 1:
        raise RegardError(f"the text is longer than the {predictor.codec.settings.length} tokens of a row; shorten it")
    row = features[0].rows[best]
    _check_length(row.ids, "text")
    batch = collate_texts([row.ids], predictor.tokenizer.pad, RaggedRows.of([row.segments]))
    batch = batch.to(next(predictor.model.parameters()).device)
    special_tokens = predictor.codec.special_tokens
    names, role = special_tokens.shown(row.ids), "decoder" if special_tokens.causal else "encoder"
    run = lambda record: predictor.model.body(batch, record)  # noqa: E731
    return ModelInput(run, {"text": row.ids}, {role: (names, names)}, output, row.segments)


def _classification(predictor: TextClassifier, text: str) -> tuple[LabelledText, str, int]:
    sides = tuple(text.split("\t", 1))
    return LabelledText("", sides, ""), predictor.classify([sides if len(sides) == 2 else text])[0].label, 0


def _tagging(predictor: WordTagger, text: str) -> tuple[TaggedSentence, str, int]:
    return TaggedSentence("the text", text.split(), []), " ".join(predictor.tag([text])[0].tags), 0


def _answer(predictor: QuestionAnswerer, text: str) -> tuple[Question, str, int]:
    question, context = parse_question_line(text, "the text")
    return Question("the text", question, context, (), known=False), predictor.answer([(question, context)])[0].text, 0


def _choice(predictor: OptionChooser, text: str) -> tuple[ChoiceQuestion, str, int]:
    context, asked, options = parse_choice_line(text, "the text")
    chosen = predictor.choose([(context, asked, options)])[0]
    return ChoiceQuestion("the text", context, asked, tuple(options)), chosen.text, chosen.index


EXAMPLES: dict[type, Callable[..., tuple[object, str, int]]] = {
    TextClassifier: _classification,
    WordTagger: _tagging,
    QuestionAnswerer: _answer,
    OptionChooser: _choice,
}
BUILDERS: dict[type, Callable[..., ModelInput]] = {
    Translator: _translation_input,
    TextGenerator: _generation_input,
    ChatPredictor: _chat_input,
    TextEmbedder: _embedding_input,
    FinetunedPredictor: _finetuned_input,
}
