"""What a model scores for one text, as rows of logits with names: words at every place or mask, tags, or a label.

One forward pass by the model's own modules, so that hooks on them are called. Knows no attention.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from regard.errors import RegardError
from regard.look.model_inputs import ModelInput
from regard.models.bert import MaskedLM
from regard.models.heads import SequenceClassifier, TokenClassifier
from regard.nn.record import AttentionRecorder
from regard.predict.base import FinetunedPredictor, Predictor
from regard.predict.filling import MASK, MaskFiller


@dataclass(frozen=True)
class ScoredInput:
    """`run()` gives the logits [N, C]; `rows` names where each row stands, `names` the choices of these numbers."""

    run: Callable[[], Tensor]
    rows: list[str]
    names: Callable[[list[int]], list[str]]


def scored_input(predictor: Predictor, model_input: ModelInput) -> ScoredInput:
    """The scores of a text that `prepare_input` has prepared; RegardError where there are none to follow."""
    if model_input.token_names is not None:
        queries = model_input.names["decoder"][0]
        return ScoredInput(lambda: _run(model_input), queries, model_input.token_names)
    model, tokens = predictor.model, next(iter(model_input.names.values()))[0]
    if isinstance(predictor, MaskFiller) and isinstance(model, MaskedLM):
        masks = [n for n, i in enumerate(model_input.ids["text"]) if i == predictor.tokenizer.mask]
        if not masks:
            raise RegardError(f"the text has no {MASK}, so the model scores no word of it; write one")
        rows = [f"{tokens[n]} {n + 1}" for n in masks]
        return ScoredInput(lambda: model.words(_run(model_input)[0, masks]), rows, predictor.tokenizer.tokens)
    if isinstance(predictor, FinetunedPredictor):
        labels = partial(_labels, predictor.labels)
        if isinstance(model, SequenceClassifier) and model.orders == 1:
            return ScoredInput(lambda: model.output(model.pooler(_run(model_input))), ["label"], labels)
        if type(model) is TokenClassifier:
            return ScoredInput(lambda: model.output(_run(model_input)[0]), tokens, labels)
    raise RegardError(
        f"a model of the task {predictor.recipe.task.kind} like this one has no scores of words, tags or labels that "
        "could be followed from layer to layer"
    )


def _run(model_input: ModelInput) -> Tensor:
    out = model_input.run(AttentionRecorder(roles=()))  # a record, of nothing: no fused path is taken
    assert isinstance(out, Tensor)
    return out


def _labels(labels: list[str], numbers: list[int]) -> list[str]:
    return [labels[n] for n in numbers]
