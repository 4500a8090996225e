"""What follows the heads of an attention: output projection, residual connection, norm, feed-forward, and the scores of
words; the first numbers of every vector, for `page/after.js`, and the lines of source that compute them.

Forward hooks read the vectors while one text runs through the model; they change nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import regard
from regard.look.model_inputs import ModelInput
from regard.look.quantize import FIRST, Json, pack_vectors, rounded
from regard.nn import norm
from regard.nn.attention import Attention, attention
from regard.nn.feed_forward import FeedForward, GatedFeedForward
from regard.nn.layers import RESIDUALS, DecoderLayer, EncoderLayer
from regard.nn.multi_head import MultiHeadAttention

TOP = 40  # words of every place whose scores are kept; the others are counted by their score
BINS = 32
NORM_KINDS = {norm.LayerNorm: "layer", norm.PartialLayerNorm: "layer", norm.RMSNorm: "rms", norm.BatchNorm: "batch"}
RESIDUAL_KINDS: dict[type, str] = {residual: kind for kind, residual in RESIDUALS.items()}
SOURCE = Path(regard.__file__).parent


@dataclass
class Sublayer:
    """One attention or feed-forward with the residual connection around it, and what went through them."""

    module: nn.Module
    residual: nn.Module
    x: Tensor = field(default_factory=lambda: torch.empty(0))  # what enters the connection [Q, D]
    y: Tensor = field(default_factory=lambda: torch.empty(0))  # what the module adds
    out: Tensor = field(default_factory=lambda: torch.empty(0))  # what leaves it
    inner: Tensor = field(default_factory=lambda: torch.empty(0))  # a feed-forward's inner layer [Q, inner]


@contextmanager
def watch_sublayers(model: nn.Module) -> Iterator[dict[nn.Module, list[Sublayer]]]:
    """For each attention its sub-layer, and the feed-forward's where that follows; filled while the model runs."""
    sublayers: dict[nn.Module, list[Sublayer]] = {}
    handles = []
    for layer in model.modules():
        if isinstance(layer, EncoderLayer | DecoderLayer):
            attentions = [layer.attention, layer.cross] if isinstance(layer, DecoderLayer) else [layer.attention]
            modules = [*attentions, *([layer.feed_forward] if layer.feed_forward is not None else [])]
            parts = [Sublayer(*pair) for pair in zip(modules, layer.residuals, strict=True)]
            sublayers |= {part.module: [part] for part in parts[: len(attentions)]}
            sublayers[attentions[-1]] = parts[len(attentions) - 1 :]
            handles += [handle for part in parts for handle in _hooks(part)]
    try:
        yield sublayers
    finally:
        for handle in handles:
            handle.remove()


def _hooks(part: Sublayer) -> Iterator[Any]:
    def read(name: str) -> Any:
        return lambda module, args, out=None: setattr(part, name, (args[0] if out is None else out)[0])

    yield part.residual.register_forward_pre_hook(read("x"))
    yield part.residual.register_forward_hook(read("out"))
    yield part.module.register_forward_hook(read("y"))
    if isinstance(part.module, FeedForward):
        yield part.module.contract.register_forward_pre_hook(read("inner"))


# --- after the heads -----------------------------------------------------------------------------------------------


def after_heads(attention: Attention, parts: list[Sublayer]) -> Json:
    """The output projection's first rows, and the sub-layers; nothing where a model's attention has none of them."""
    if not isinstance(attention, MultiHeadAttention) or not parts or not len(parts[0].out):
        return {}
    weight = attention.output.weight[:FIRST].unflatten(1, (attention.heads, -1))  # [8, H, d_v]
    output = {"weight": pack_vectors(weight.transpose(0, 1)), "bias": rounded(attention.output.bias[:FIRST])}
    return {"after": {"output": output, "parts": [_sublayer(part) for part in parts]}}


def _sublayer(part: Sublayer) -> Json:
    data: Json = {
        "residual": RESIDUAL_KINDS.get(type(part.residual), type(part.residual).__name__),
        "vectors": pack_vectors(torch.stack([part.x, part.y, part.out])[..., :FIRST]),  # [3, Q, 8]
        "norm": _norm(part),
    }
    if isinstance(part.module, FeedForward):
        data["feed_forward"] = {
            "gated": isinstance(part.module, GatedFeedForward),
            "activation": type(part.module.activation).__name__,
            "size": part.inner.shape[-1],
            "above": (part.inner > 0).sum(-1).tolist(),  # of the inner numbers, by place
            "inner": pack_vectors(part.inner[None, :, :FIRST]),
        }
    return data


def _norm(part: Sublayer) -> Json:
    """A norm over a position's features as its mean and deviation there, with the first gains and biases."""
    module: Any = part.residual.norm
    kind = NORM_KINDS.get(type(module), "none" if isinstance(module, norm.NoNorm) else type(module).__name__)
    data: Json = {"kind": kind}
    if kind in ("layer", "rms"):
        normed = {"pre_norm": part.x, "post_norm": part.x + part.y}
        x = normed.get(RESIDUAL_KINDS.get(type(part.residual), ""), part.y).double()
        mean = x.mean(-1) if kind == "layer" else torch.zeros_like(x[:, 0])
        eps = torch.finfo(part.x.dtype).eps if module.eps is None else module.eps
        data["mean"] = rounded(mean)
        data["deviation"] = rounded(((x - mean[:, None]).square().mean(-1) + eps).sqrt())
        data |= {
            name: rounded(value[:FIRST])
            for name, value in (("gain", module.weight), ("bias", getattr(module, "bias", None)))
            if value is not None
        }
    return data


# --- scores of words -----------------------------------------------------------------------------------------------


def word_scores(logits: object, model_input: ModelInput) -> Json:
    """The highest logits at each place, with their words; all others in bins, by their score and number."""
    names = model_input.token_names
    if names is None or not isinstance(logits, Tensor):
        return {}
    best = logits.cpu().double().sort(-1, descending=True)  # [Q, V]
    top, rest = best.values[:, :TOP], best.values[:, TOP:]
    tokens, ids = best.indices[:, :TOP].unique(return_inverse=True)
    data: Json = {
        "vocabulary": logits.shape[-1],
        "words": [names([token])[0] for token in tokens.tolist()],
        "ids": ids.tolist(),
        "logits": pack_vectors(top[None]),  # [1, Q, 40]
    }
    if rest.shape[1]:
        groups = rest.tensor_split(min(BINS, rest.shape[1]), -1)
        sums = torch.stack([group.logsumexp(-1) for group in groups], -1)  # [Q, bins]
        counts = torch.tensor([group.shape[1] for group in groups]).log()
        data["rest"] = pack_vectors((sums - counts)[None])  # e^s·n of a bin is right at temperature 1
        data["counts"] = [group.shape[1] for group in groups]
    return {"scores": data}


# --- where it is written -------------------------------------------------------------------------------------------


def source_lines(model: nn.Module, layer: Attention, parts: list[Sublayer]) -> dict[str, str]:
    """Of each step of the walk the file and line that compute it."""
    children = dict(model.named_children())
    inside = dict(children.get("body", model).named_children())
    embedding = inside.get("source_embedding", inside.get("embedding"))
    steps: dict[str, Any] = {
        "embedding": embedding and type(embedding).forward,
        "score": type(layer.score).forward,
        "normalise": type(layer.normalise).forward,
        "attention": attention,
    }
    if isinstance(layer, MultiHeadAttention):
        steps |= {"projection": type(layer).project_qkv, "heads": MultiHeadAttention._join}
    for part in parts:
        steps |= {"residual": type(part.residual).forward, "norm": type(part.residual.get_submodule("norm")).forward}
        if isinstance(part.module, FeedForward):
            steps["feed_forward"] = type(part.module).forward
    output = children.get("output")
    if output is not None:
        steps["scores"] = type(output).forward
    return {name: where for name, step in steps.items() if (where := source_line(step))}


def source_line(function: Any) -> str:
    """`regard/nn/score.py:57` of a function; nothing of what is not written in Python."""
    code = getattr(function, "__code__", None)
    if code is None:
        return ""
    path = Path(code.co_filename)
    shown = path.relative_to(SOURCE.parent) if path.is_relative_to(SOURCE) else Path(path.name)
    return f"{shown.as_posix()}:{code.co_firstlineno}"
