"""`look`: one text through one model, with the weights of every attention and what they were made of, as JSON.

Recording changes no output. Knows no page: what the numbers look like is `page/look.js`.
"""

from typing import Any

import torch
from torch import Tensor

from regard.errors import RegardError
from regard.look.pack import pack_weights
from regard.look.reading import ModelInput, prepare_input
from regard.look.walk import internals, masked_keys
from regard.nn.attention import Attention
from regard.nn.backend.contract import AttentionInputs
from regard.nn.compress import StridedConvolution
from regard.nn.record import ROLES, AttentionRecorder

TITLES = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "attention to the source"}


def has_attention(made: Any) -> bool:
    return any(isinstance(part, Attention) for part in made.model.modules())


@torch.inference_mode()
def look(made: Any, text: str, target: str | None = None) -> dict[str, Any]:
    """What the attention of a loaded model does with a text, in the form that docs/look.md describes.

    `made` is what `regard.load` gives. A translator says its own translation, unless `target` gives one; a language
    model reads the text, and the target after it.
    """
    if not has_attention(made):
        raise RegardError(f"a model of the kind {made.recipe.model.kind} has no attention to look at")
    made.model.eval()
    given = prepare_input(made, text, target)
    record = AttentionRecorder(whole=True)
    given.run(record)
    jobs: dict[
        str, list[list[AttentionInputs]]
    ] = {}  # by place, for each layer its calls: several where steps are taken
    for place in ROLES:
        if found := [record.sinks[key].jobs or [] for key in sorted(record.sinks) if key[0] == place]:
            jobs[place] = found
    weights = {place: torch.stack(record.layers(place))[:, 0].cpu().double() for place in jobs}  # [L, H, Q, K]
    return {
        "version": 1,
        "model": _model(made, weights),
        "text": text,
        "output": given.output,
        "places": [_place(place, weights[place], jobs[place], given) for place in jobs],
        "rollout": {place: pack_weights(found) for place, found in rollout(weights).items()},
        "walk": internals(made.model, given, jobs, weights),
    }


def _model(made: Any, weights: dict[str, Tensor]) -> dict[str, Any]:
    model, task = made.recipe.model, made.recipe.task
    sizes = sorted({tuple(each.shape[:2]) for each in weights.values()})
    depth = ", ".join(f"{layers} × {heads}" for layers, heads in sizes)
    return {"kind": model.kind, "task": task.kind, "title": f"{model.kind} · {task.title} · layers × heads {depth}"}


def _place(place: str, weights: Tensor, jobs: list[list[AttentionInputs]], given: ModelInput) -> dict[str, Any]:
    queries, keys = given.names[place]
    layers, heads = weights.shape[:2]
    return {
        "name": place,
        "title": TITLES[place],
        "queries": queries,
        "keys": _shortened(keys, weights.shape[3], jobs[0][0]),
        **({"says": given.says} if given.says and place == "decoder" else {}),
        "layers": layers,
        "heads": heads,
        "weights": pack_weights(weights, torch.stack([masked_keys(calls) for calls in jobs])),
        "causal": place == "decoder",
    }


def _shortened(keys: list[str], width: int, job: AttentionInputs) -> list[str]:
    """The names of the keys that are left: several words are one where neighbours are joined."""
    compress = job.layer.compress
    if not compress.shortens:
        return keys
    if isinstance(compress, StridedConvolution):
        return [" ".join(keys[n * compress.factor : (n + 1) * compress.factor]) for n in range(width)]
    return [f"#{n + 1}" for n in range(width)]  # each is a mixture of all words


def rollout(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """How much of each input is in each place after every layer [L, Q, K], if heads count alike and half of a place
    passes by in the residual: R ← (½W + ½I) R (Abnar and Zuidema 2020, 2).

    Places of a decoder hold parts of the target and of the source, which the encoder has mixed: ours, in the same way.
    """
    mean = {place: _even(each.mean(1)) for place, each in weights.items()}  # [L, Q, K]
    own = [each for place, each in mean.items() if place != "cross"]
    if not own or any(each.shape[1] != each.shape[2] for each in own):
        return {}  # recurrence and convolution mix words in other ways; shortened keys are no words
    found = {place: _rolled(each) for place, each in mean.items() if place != "cross"}
    if "cross" not in mean:
        return found
    target, source = torch.eye(own[1].shape[1]).to(own[1]), torch.zeros_like(mean["cross"][0])
    kept: dict[str, list[Tensor]] = {"decoder": [], "cross": []}
    for within, across in zip(mean["decoder"], mean["cross"], strict=True):
        target, source = ((part + within @ part) / 2 for part in (target, source))
        target, source = target / 2, (source + across @ found["encoder"][-1]) / 2
        kept["decoder"].append(target)
        kept["cross"].append(source)
    return found | {place: torch.stack(layers) for place, layers in kept.items()}


def _rolled(weights: Tensor) -> Tensor:
    rolled = [torch.eye(weights.shape[1]).to(weights)]
    for layer in weights:
        rolled.append((rolled[-1] + layer @ rolled[-1]) / 2)
    return torch.stack(rolled[1:])


def _even(weights: Tensor) -> Tensor:
    """Rows that sum to 1, where they have anything."""
    return weights / weights.sum(-1, keepdim=True).clamp(min=1e-12)
