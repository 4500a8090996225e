"""What weights are made of, step by step: queries, keys, values, and the choices between them. For `page/look.js`,
which computes scores, weights and sums from these numbers, so that any word, layer and head can be walked through.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard.look.pack import pack_vectors
from regard.look.reading import ModelInput
from regard.models.stack import embed_positions
from regard.nn import normalise, score
from regard.nn.backend.contract import AttentionInputs
from regard.nn.layout import Layout
from regard.nn.position import Position

BUDGET = 5_000_000  # numbers that a page may hold; each is two bytes
FIRST = 8  # numbers of a word's vector that are shown
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
SIDES = {"source": "encoder_position", "target": "decoder_position", "text": "position"}  # where models keep theirs


def internals(
    model: nn.Module, given: ModelInput, jobs: dict[str, list[list[AttentionInputs]]], weights: dict[str, Tensor]
) -> dict[str, Any]:
    """By place what each layer's attention was given, and how words enter the model; `left_out` says why it is not."""
    size = sum(sum(job.q.numel() for job in calls) + calls[0].k.numel() + calls[0].v.numel()
               for layers in jobs.values() for calls in layers)  # fmt: skip
    if size > BUDGET:
        return {"left_out": "size"}
    if strange := [
        type(part).__name__
        for layers in jobs.values()
        for calls in layers
        for part, known in ((calls[0].layer.score, SCORES), (calls[0].layer.normalise, NORMALISERS))
        if type(part) not in known
    ]:
        return {"left_out": strange[0]}
    sides = {side: _entering(model, side, given) for side in given.ids}
    return {"sides": sides} | {
        place: [_layer(calls, own) for calls, own in zip(layers, weights[place], strict=True)]
        for place, layers in jobs.items()
    }


# --- how words enter ---------------------------------------------------------------------------------------------


def _entering(model: nn.Module, side: str, given: ModelInput) -> dict[str, Any]:
    """The first numbers of what a word, its segment and its position add up to; a norm may follow."""
    body: Any = getattr(model, "body", model)
    embedding = getattr(body, f"{side}_embedding", None) or body.embedding
    ids = torch.tensor([given.ids[side]], device=embedding.weight.device)
    parts = {"word": embedding(ids)}  # [1, N, D]
    x = parts["word"]
    if getattr(body, "segment_embedding", None) is not None:
        segments = torch.zeros_like(ids) if given.segments is None else torch.tensor([given.segments]).to(ids)
        parts["segment"] = body.segment_embedding(segments)
        x = x + parts["segment"]
    found: Any = getattr(body, SIDES[side], None)
    positions: Any = nn.ModuleList([found]) if isinstance(found, Position) else found or nn.ModuleList()
    layout = Layout.of(ids.shape[1], device=ids.device)
    if any(type(each).embed is not Position.embed for each in positions):
        alone, joined = embed_positions(positions, torch.zeros_like(x), layout), embed_positions(positions, x, layout)
        parts["position" if torch.allclose(x + alone, joined, atol=1e-5) else "joined"] = alone
        x = joined
        if "joined" in parts:
            parts["joined"] = joined  # by a matrix: what each of the two adds cannot be told apart
    if getattr(body, "embedding_norm", None) is not None:
        parts["norm"] = body.embedding_norm(x, None)
    first = {name: _rounded(each[0, :, :FIRST]) for name, each in parts.items()}
    return {"size": x.shape[-1], "parts": first}


def _rounded(x: Tensor) -> list[Any]:
    return [[round(value, 6) for value in row] for row in x.double().tolist()]


# --- one attention -------------------------------------------------------------------------------------------------


def _layer(calls: list[AttentionInputs], weights: Tensor) -> dict[str, Any]:
    """Everything between the queries and the output of a layer's heads. `weights` [H, Q, K] are those recorded."""
    layer, first = calls[0].layer, calls[0]
    scores, normaliser = SCORES[type(layer.score)], NORMALISERS[type(layer.normalise)]
    q, how = _compared(layer.score, torch.cat([job.q for job in calls], 2)[0])
    rotates = type(layer.position).rotate is not Position.rotate
    found: dict[str, Any] = {
        "score": {"kind": scores.kind, "formula": scores.formula, **how},
        "normalise": {"kind": normaliser.kind, "formula": normaliser.formula},
        "d_k": layer.sizes.d_k,
        "d_v": layer.sizes.d_v,
        "projected": hasattr(layer, "output"),  # else states of the model are queries, keys and values themselves
        "position": type(layer.position).__name__.lower() if rotates or layer.position.biases else "",
        "rotates": rotates,
        "shortened": layer.compress.shortens,
        "q": pack_vectors(q),
        "k": pack_vectors(first.k[0]),
        "v": pack_vectors(first.v[0]),
    }
    if (bias := _joined(calls, lambda job: None if job.bias is None else job.bias.dense(job.call))) is not None:
        found["bias"] = pack_vectors(bias)
    if (gain := _joined(calls, lambda job: job.pattern.gain(job.call))) is not None:
        found["gain"] = pack_vectors(gain)
    mixed = layer.position.mix(weights[None].to(first.v), first.call, first.call.grid())
    if mixed is not None:
        found["mixed"] = pack_vectors(mixed[0])
    return found


def _compared(made: nn.Module, q: Tensor) -> tuple[Tensor, dict[str, Any]]:
    """Queries [H, Q, d] as they meet prepared keys, and how: scale · qᵀk, or vᵀtanh(q + k)."""
    if isinstance(made, score.PerceptronScore):
        return torch.einsum("hqd,hsd->hqs", q, made.matrices()[0]), {"vector": pack_vectors(made.vector[:, 0])}
    if isinstance(made, score.CosineScore):
        return score._unit(q), {"scale": made.strength}
    return q, {"scale": made.scale}


def masked_keys(calls: list[AttentionInputs]) -> Tensor:
    """True where a key may not be seen [H, Q, K]."""
    found = _joined(calls, lambda job: job.pattern.mask(job.call, job.q.shape[1]), fill=True)
    assert found is not None
    return ~found


def _joined(
    calls: list[AttentionInputs], part: Callable[[AttentionInputs], Tensor | None], fill: bool | None = None
) -> Tensor | None:
    """A part of every call, whose queries follow each other [H, Q, K]; a call that has none has `fill`."""
    found = []
    for job in calls:
        shape = (1, job.q.shape[1], job.q.shape[2], job.k.shape[2])
        own = part(job)
        if own is None and fill is None:
            return None
        own = torch.full((1, 1, 1, 1), bool(fill), device=job.q.device) if own is None else own
        found.append(own.expand(shape))
    return torch.cat(found, 2)[0]
