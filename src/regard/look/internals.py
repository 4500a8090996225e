"""How attention weights are computed: queries, keys, values, and what the choices add, for `page/look.js`.

The page computes scores, weights and sums from these numbers, so that any token, layer and head can be followed.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard.look.model_inputs import ModelInput
from regard.look.quantize import FIRST, Json, pack_vectors, rounded
from regard.look.sublayers import Sublayer, after_heads, source_lines, word_scores
from regard.models.stack import embed_positions
from regard.nn import normalise, score
from regard.nn.backend.contract import AttentionInputs
from regard.nn.layout import Layout
from regard.nn.position import Position

BUDGET = 5_000_000  # numbers that a page may hold; each is two bytes
SCORES: dict[type[nn.Module], Any] = {
    score.DotScore: score.DotConfig,
    score.ScaledDotScore: score.ScaledDotConfig,
    score.GeneralScore: score.GeneralConfig,
    score.AdditiveScore: score.AdditiveConfig,
    score.ConcatScore: score.ConcatConfig,
    score.CosineScore: score.CosineConfig,
}
NORMALISERS: dict[type[nn.Module], Any] = {
    normalise.Softmax: normalise.SoftmaxConfig,
    normalise.Hard: normalise.HardConfig,
    normalise.Sparsemax: normalise.SparsemaxConfig,
    normalise.Entmax15: normalise.EntmaxConfig,
}
SIDES = {"source": "encoder_position", "target": "decoder_position", "text": "position"}  # their attribute in a model


def internals(
    model: nn.Module,
    model_input: ModelInput,
    passes: dict[str, list[list[AttentionInputs]]],
    weights: dict[str, Tensor],
    sublayers: dict[nn.Module, list[Sublayer]],
    logits: object,
) -> Json:
    """By role the inputs of each layer's attention, and the embeddings; `left_out` says why they are not there."""
    layers = [steps for role_layers in passes.values() for steps in role_layers]
    if (
        sum(sum(inputs.q.numel() for inputs in steps) + steps[0].k.numel() + steps[0].v.numel() for steps in layers)
        > BUDGET
    ):
        return {"left_out": "size"}
    for layer in (steps[0].layer for steps in layers):
        for part, known in ((layer.score, SCORES), (layer.normalise, NORMALISERS)):
            if type(part) not in known:
                return {"left_out": type(part).__name__}
    sides = {side: _embedding(model, side, model_input) for side in model_input.ids}
    return {"sides": sides, **word_scores(logits, model_input)} | {
        role: [
            _layer(steps, own)
            | after_heads(steps[0].layer, parts := sublayers.get(steps[0].layer, []))
            | {"sources": source_lines(model, steps[0].layer, parts)}
            for steps, own in zip(role_layers, weights[role], strict=True)
        ]
        for role, role_layers in passes.items()
    }


# --- embeddings --------------------------------------------------------------------------------------------------


def _embedding(model: nn.Module, side: str, model_input: ModelInput) -> Json:
    """The first numbers of the embeddings of token, segment and position, and of their sum; a norm may follow."""
    body: Any = getattr(model, "body", model)
    embedding = getattr(body, f"{side}_embedding", None) or body.embedding
    ids = torch.tensor([model_input.ids[side]], device=embedding.weight.device)
    parts = {"word": embedding(ids)}  # [1, N, D]
    x = parts["word"]
    if getattr(body, "segment_embedding", None) is not None:
        segments = (
            torch.zeros_like(ids) if model_input.segments is None else torch.tensor([model_input.segments]).to(ids)
        )
        parts["segment"] = body.segment_embedding(segments)
        x = x + parts["segment"]
    position: Any = getattr(body, SIDES[side], None)
    positions: Any = nn.ModuleList([position]) if isinstance(position, Position) else position or nn.ModuleList()
    layout = Layout.of(ids.shape[1], device=ids.device, tree=model_input.tree if side == "source" else None)
    if any(type(each).embed is not Position.embed and not each.joins_layers for each in positions):
        alone, joined = embed_positions(positions, torch.zeros_like(x), layout), embed_positions(positions, x, layout)
        parts["position" if torch.allclose(x + alone, joined, atol=1e-5) else "joined"] = alone
        x = joined
        if "joined" in parts:
            parts["joined"] = joined  # by a matrix: the two terms cannot be separated
    if getattr(body, "embedding_norm", None) is not None:
        parts["norm"] = body.embedding_norm(x, None)
    first = {name: rounded(each[0, :, :FIRST]) for name, each in parts.items()}
    return {"size": x.shape[-1], "parts": first}


# --- one attention -------------------------------------------------------------------------------------------------


def _layer(steps: list[AttentionInputs], weights: Tensor) -> Json:
    """Everything between the queries and the output of a layer's heads. `weights` [H, Q, K] are those recorded."""
    layer, first = steps[0].layer, steps[0]
    scores, normaliser = SCORES[type(layer.score)], NORMALISERS[type(layer.normalise)]
    q, how = _compared_queries(layer.score, torch.cat([inputs.q for inputs in steps], 2)[0])
    rotates = layer.position.rotates
    data: Json = {
        "score": {"kind": scores.kind, "formula": scores.formula, **how},
        "normalise": {"kind": normaliser.kind, "formula": normaliser.formula},
        "d_k": layer.sizes.d_k,
        "d_v": layer.sizes.d_v,
        "projected": hasattr(layer, "output"),  # else the model's states are queries, keys and values
        "position": type(layer.position).__name__.lower() if rotates or layer.position.biases else "",
        "rotates": rotates,
        "shortened": layer.compress.shortens,
        "q": pack_vectors(q),
        "k": pack_vectors(first.k[0]),
        "v": pack_vectors(first.v[0]),
    }
    if (
        bias := _concatenated(steps, lambda inputs: None if inputs.bias is None else inputs.bias.dense(inputs.context))
    ) is not None:
        data["bias"] = pack_vectors(bias)
    if (gain := _concatenated(steps, lambda inputs: inputs.pattern.gain(inputs.context))) is not None:
        data["gain"] = pack_vectors(gain)
    mixed = layer.position.mix(weights[None].to(first.v), first.context, first.context.grid())
    if mixed is not None:
        data["mixed"] = pack_vectors(mixed[0])
    return data


def _compared_queries(module: nn.Module, q: Tensor) -> tuple[Tensor, Json]:
    """Queries [H, Q, d] as they are compared with prepared keys, and how: scale · qᵀk, or vᵀtanh(q + k)."""
    if isinstance(module, score.PerceptronScore):
        return torch.einsum("hqd,hsd->hqs", q, module.matrices()[0]), {"vector": pack_vectors(module.vector[:, 0])}
    if isinstance(module, score.CosineScore):
        return score._unit(q), {"scale": module.strength}
    return q, {"scale": module.scale}


def masked_keys(steps: list[AttentionInputs]) -> Tensor:
    """True where a key is masked [H, Q, K]."""
    allowed = _concatenated(steps, lambda inputs: inputs.pattern.mask(inputs.context, inputs.q.shape[1]), fill=True)
    assert allowed is not None
    return ~allowed


def _concatenated(
    steps: list[AttentionInputs], part: Callable[[AttentionInputs], Tensor | None], fill: bool | None = None
) -> Tensor | None:
    """A part of every step, whose queries follow each other [H, Q, K]; a step that has none has `fill`."""
    parts = []
    for inputs in steps:
        shape = (1, inputs.q.shape[1], inputs.q.shape[2], inputs.k.shape[2])
        own = part(inputs)
        if own is None and fill is None:
            return None
        own = torch.full((1, 1, 1, 1), bool(fill), device=inputs.q.device) if own is None else own
        parts.append(own.expand(shape))
    return torch.cat(parts, 2)[0]
