"""`look`: one text through one model, with the weights of every attention and how they are computed, as JSON.

Recording changes no output. The page is `page/look.js`; a notebook shows it (`LookResult`).
"""

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.errors import RegardError
from regard.look.ablation import Head, heads_off, parse_heads, recorded_attentions
from regard.look.html import page
from regard.look.internals import internals, masked_keys
from regard.look.model_inputs import ModelInput, prepare_input
from regard.look.quantize import Json, pack_weights, weight_array
from regard.look.route import guided_route
from regard.look.sublayers import watch_sublayers
from regard.nn.attention import Attention
from regard.nn.backend.contract import AttentionInputs
from regard.nn.compress import StridedConvolution
from regard.nn.record import ROLES, AttentionRecorder
from regard.nn.recurrence import Recurrence
from regard.predict.pairs import NamedWeights

TITLES = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "attention to the source"}


class ShownResult(dict[str, Any]):
    """JSON as docs/look.md describes it, which a notebook shows as the page."""

    def _repr_html_(self) -> str:
        frame = 'sandbox="allow-scripts allow-downloads" style="width: 100%; height: 640px; border: 0"'
        return f'<iframe {frame} srcdoc="{escape(page(self))}"></iframe>'


class LookResult(ShownResult):
    """What `look` gives."""

    @property
    def attention(self) -> dict[str, NamedWeights]:
        """The weights by role, with named axes."""
        return {
            place["name"]: NamedWeights(
                np.nan_to_num(weight_array(place["weights"]).round(4)), place["queries"], place["keys"]
            )
            for place in self["places"]
        }


def has_attention(predictor: Any) -> bool:
    return any(isinstance(part, Attention) for part in predictor.model.modules())


@torch.inference_mode()
def look(
    predictor: Any,
    text: str,
    target: str | None = None,
    ablate: Sequence[str] = (),
    *,
    trees: Sequence[Sequence[int]] | None = None,
    referent: str | None = None,
) -> LookResult:
    """What the attention of a loaded model does with a text, in the form that docs/look.md describes.

    `predictor` is what `regard.load` gives. The target is the model's own translation, unless `target` is given; a
    language model reads the text, and the target after it. `ablate` names heads that are switched off, as
    `encoder.1.3` (layer 1, head 3). `trees` has the heads of the text's words, for structural positions, as
    `translate` takes them for several texts. `referent` says where the guided route leads, as `it=goat`; by default it
    is guessed.
    """
    if not has_attention(predictor):
        raise RegardError(f"a model of the kind {predictor.recipe.model.kind} has no attention to look at")
    predictor.model.eval()
    if trees is not None and len(trees) != 1:
        raise RegardError(f"one text, but heads for {len(trees)}; write trees=[[2, 0, 2]]")
    parents = None if trees is None else trees[0]
    model_input = prepare_input(predictor, text, target, parents)
    if not ablate:
        return _recorded(predictor, model_input, text, referent)
    record = AttentionRecorder(keep_inputs=True)
    model_input.run(record)
    attentions = recorded_attentions(record)
    heads = parse_heads(ablate, attentions)
    with heads_off(heads, attentions):
        unfused = predictor.unfused()
        result = _recorded(unfused, prepare_input(unfused, text, target, parents), text, referent, heads)
    result["ablated"] = [f"{role}.{layer + 1}.{head + 1}" for role, layer, head in heads]
    result["output_before"] = model_input.output
    return result


def _recorded(
    predictor: Any, model_input: ModelInput, text: str, referent: str | None, off: Sequence[Head] = ()
) -> LookResult:
    record = AttentionRecorder(keep_inputs=True)
    with watch_sublayers(predictor.model) as sublayers:
        logits = model_input.run(record)
    passes: dict[str, list[list[AttentionInputs]]] = {}  # by role, for each layer: several where steps are taken
    for role in ROLES:
        if layers := [record.records[key].inputs or [] for key in sorted(record.records) if key[0] == role]:
            passes[role] = layers
    for role in passes:
        if len({each.shape for each in record.layers(role)}) > 1:
            raise RegardError("layers that differ in how they compress keys cannot be shown side by side")
    weights = {role: torch.stack(record.layers(role))[:, 0].cpu().double() for role in passes}  # [L, H, Q, K]
    result = {
        "version": 1,
        "model": _model(predictor, weights),
        "text": text,
        "output": model_input.output,
        "places": [_place(role, weights[role], passes[role], model_input) for role in passes],
        "rollout": {role: pack_weights(rolled) for role, rolled in rollout(weights).items()},
        "walk": internals(predictor.model, model_input, passes, weights, sublayers, logits),
    }
    route = guided_route(predictor, result, model_input, referent, off)
    return LookResult(result if route is None else {**result, "route": route})


def _model(predictor: Any, weights: dict[str, Tensor]) -> Json:
    model, task = predictor.recipe.model, predictor.recipe.task
    sizes = sorted({tuple(each.shape[:2]) for each in weights.values()})
    depth = ", ".join(f"{layers} × {heads}" for layers, heads in sizes)
    recurrences = [type(part).__name__ for part in predictor.model.modules() if isinstance(part, Recurrence)]
    title = f"{model.kind} · {task.title} · layers × heads {depth}"
    title += f" · {recurrences[0]} in the place of decoder self-attention, without weights" if recurrences else ""
    parts = {"languages": task.title.removeprefix(task.kind).strip(), "sizes": depth}  # the page names them itself
    parts |= {"recurrence": recurrences[0]} if recurrences else {}
    return {"kind": model.kind, "task": task.kind, "title": title, **parts}


def _place(role: str, weights: Tensor, layer_inputs: list[list[AttentionInputs]], model_input: ModelInput) -> Json:
    """The attentions of one role."""
    queries, keys = model_input.names[role]
    layers, heads = weights.shape[:2]
    return {
        "name": role,
        "title": TITLES[role],
        "queries": queries,
        "keys": _compressed_names(keys, weights.shape[3], layer_inputs[0][0]),
        **({"says": model_input.says} if model_input.says and role == "decoder" else {}),
        "layers": layers,
        "heads": heads,
        "weights": pack_weights(weights, torch.stack([masked_keys(steps) for steps in layer_inputs])),
        "causal": role == "decoder",
    }


def _compressed_names(keys: list[str], width: int, inputs: AttentionInputs) -> list[str]:
    """The names of compressed keys: several tokens are one where neighbours are joined."""
    compress = inputs.layer.compress
    if not compress.shortens:
        return keys
    if isinstance(compress, StridedConvolution):
        return [" ".join(keys[n * compress.factor : (n + 1) * compress.factor]) for n in range(width)]
    return [f"#{n + 1}" for n in range(width)]  # each is a mixture of all words


def rollout(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Attention rollout: how much of each input is in each position after every layer [L, Q, K], if heads count alike
    and half of a position passes by in the residual: R ← (½W + ½I) R (Abnar and Zuidema 2020, 2).

    Positions of a decoder hold parts of the target and of the source, which the encoder has mixed: ours, likewise.
    """
    mean = {role: _even(each.mean(1)) for role, each in weights.items()}  # [L, Q, K]
    own = [each for role, each in mean.items() if role != "cross"]
    if len(own) < (2 if "cross" in mean else 1) or any(each.shape[1] != each.shape[2] for each in own):
        return {}  # recurrence and convolution mix words in other ways; shortened keys are no words
    rolled = {role: _rolled(each) for role, each in mean.items() if role != "cross"}
    if "cross" not in mean:
        return rolled
    target, source = torch.eye(own[1].shape[1]).to(own[1]), torch.zeros_like(mean["cross"][0])
    kept: dict[str, list[Tensor]] = {"decoder": [], "cross": []}
    for within, across in zip(mean["decoder"], mean["cross"], strict=True):
        target, source = ((part + within @ part) / 2 for part in (target, source))
        target, source = target / 2, (source + across @ rolled["encoder"][-1]) / 2
        kept["decoder"].append(target)
        kept["cross"].append(source)
    return rolled | {role: torch.stack(layers) for role, layers in kept.items()}


def _rolled(weights: Tensor) -> Tensor:
    rolled = [torch.eye(weights.shape[1]).to(weights)]
    for layer in weights:
        rolled.append((rolled[-1] + layer @ rolled[-1]) / 2)
    return torch.stack(rolled[1:])


def _even(weights: Tensor) -> Tensor:
    """Rows that sum to 1, where they have anything."""
    return weights / weights.sum(-1, keepdim=True).clamp(min=1e-12)
