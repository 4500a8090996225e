"""The logit lens: what a model would say if its last layers were left out, after every sub-layer of its last stack.

The states after a sub-layer stand for those after the last layer, by a hook, so that the model's own final norm, head
and output projection score them (nostalgebraist 2020). For language models, translators (with cross-attention), masked
words, tags and labels.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import RegardError
from regard.look.model_inputs import prepare_input
from regard.look.quantize import Json
from regard.look.scoring import scored_input
from regard.look.sublayers import watch_sublayers
from regard.models.conv import ConvDecoderLayer
from regard.nn.layers import DecoderLayer, EncoderLayer
from regard.predict.base import Predictor

TOP = 5  # choices that are named of every row


@dataclass(frozen=True)
class _Stage:
    """States [T, D] somewhere in the stack: `layer` 0 is what goes into the first."""

    layer: int
    after: str
    states: Tensor


@torch.inference_mode()
def logit_lens(
    predictor: Predictor, text: str, target: str | None = None, *, trees: Sequence[Sequence[int]] | None = None
) -> Json:
    """`rows`: of each place the likeliest choices after every sub-layer, `probability` that of the final choice, and
    `settled`, the first stage from which on the final choice is the likeliest. `stages` names the sub-layers."""
    predictor.model.eval()
    model_input = prepare_input(predictor, text, target, None if trees is None else trees[0])
    scored = scored_input(predictor, model_input)
    layers = last_stack(predictor.model, predictor.recipe.model.kind)
    stages = _stages(predictor.model, layers, scored.run)
    scores = []
    for stage in stages:
        with _output_replaced(layers[-1], stage.states):
            scores.append(scored.run().double().softmax(-1))  # [N, C]
    found = torch.stack(scores, 1).cpu()  # [N, stages, C]
    final = found[:, -1].argmax(-1)  # [N]
    best = found.topk(min(TOP, found.shape[-1]))
    same = best.indices[..., 0] == final[:, None]  # [N, stages]
    rows = []
    for n, name in enumerate(scored.rows):
        chosen = [
            {
                "words": scored.names(best.indices[n, stage].tolist()),
                "probabilities": [round(p, 4) for p in best.values[n, stage].tolist()],
                "probability": round(float(found[n, stage, final[n]]), 4),
            }
            for stage in range(len(stages))
        ]
        unsettled = (~same[n]).nonzero()
        settled = int(unsettled[-1]) + 1 if len(unsettled) else 0
        rows.append({"at": name, "says": scored.names([int(final[n])])[0], "settled": settled, "stages": chosen})
    return {
        "version": 1,
        "model": {"kind": predictor.recipe.model.kind, "task": predictor.recipe.task.kind},
        "text": text,
        "output": model_input.output,
        "stages": [{"layer": stage.layer, "after": stage.after} for stage in stages],
        "rows": rows,
    }


def last_stack(model: nn.Module, kind: str) -> list[nn.Module]:
    """The layers whose states are scored: a decoder's, where there is one."""
    for wanted in (DecoderLayer, ConvDecoderLayer, EncoderLayer):
        layers: list[nn.Module] = [module for module in model.modules() if isinstance(module, wanted)]
        if layers:
            return layers
    raise RegardError(f"a model of the kind {kind} has no stack of layers, so there is nothing between them to score")


def _stages(model: nn.Module, layers: list[nn.Module], run: Any) -> list[_Stage]:
    """The states before the first layer and after every sub-layer, from one forward pass."""
    if isinstance(layers[0], ConvDecoderLayer):
        return _layer_outputs(layers, run)
    with watch_sublayers(model) as sublayers:
        run()
    stages: list[_Stage] = []
    for n, layer in enumerate(layers, 1):
        names = ["attention", "cross"] if isinstance(layer, DecoderLayer) else ["attention"]
        parts = [part for name in names for part in sublayers[layer.get_submodule(name)]]
        if n == 1:
            stages.append(_Stage(0, "embedding", parts[0].x))
        stages += [_Stage(n, after, part.out) for after, part in zip([*names, "feed_forward"], parts, strict=False)]
    return stages


def _layer_outputs(layers: list[nn.Module], run: Any) -> list[_Stage]:
    states: list[Tensor] = []
    handles = [layers[0].register_forward_pre_hook(lambda module, args: states.append(args[0][0]))]
    handles += [each.register_forward_hook(lambda module, args, out: states.append(out[0][0])) for each in layers]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return [_Stage(n, "layer" if n else "embedding", each) for n, each in enumerate(states)]


@contextmanager
def _output_replaced(layer: nn.Module, states: Tensor) -> Iterator[None]:
    """The layer gives these states [T, D], whatever it computes."""

    def hook(module: nn.Module, args: object, out: Any) -> Any:
        return (states[None], *out[1:]) if isinstance(out, tuple) else states[None]

    handle = layer.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()
