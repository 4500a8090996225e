"""Our Transformer as a CTranslate2 model: every matrix into its place in their specification. Knows no file, no text.

CTranslate2 has the paper's model and more: both orders of norms, gates, Shaw's relative positions, T5's, rotary ones,
any table of position vectors, ALiBi in the decoder, and any scale of the scores. What else a model can be is refused.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.errors import RegardError
from regard.models.transformer import Transformer, TransformerConfig
from regard.nn.attention import MultiHeadAttention, SharedQueryKey
from regard.nn.embedding import BiasedOutput
from regard.nn.layout import Layout
from regard.nn.position import AlibiConfig, PositionConfig, RelativeConfig, RotaryConfig, T5Config
from regard.nn.score import GeneralScore

VECTORS = ("none", "sinusoidal", "learned")  # a vector for each place, added to the word vectors
WITHIN = ("relative", "rotary", "t5")  # order enters inside attention
HAS = {
    "kind": ("transformer",),
    "residual": ("post_norm", "pre_norm"),
    "norm": ("layer",),
    "feed_forward": ("dense",),
    "activation": ("relu", "gelu", "gelu_tanh", "swish", "swiglu"),
    "position.encoder": (*VECTORS, *WITHIN),
    "position.decoder": (*VECTORS, *WITHIN, "alibi"),
    **{
        f"attention.{place}.{slot}": names
        for place in ("encoder", "decoder", "cross")
        for slot, names in (
            ("score", ("scaled_dot", "dot", "general")),
            ("pattern", ("full",)),
            ("normalise", ("softmax",)),
            ("compress", ("none",)),
            ("d_k", ("none",)),
            ("d_v", ("none",)),
        )
    },
}


def more_reasons(model: TransformerConfig) -> list[str]:
    """What CTranslate2 lacks beyond the table: combinations."""
    found = []
    for side in ("encoder", "decoder"):
        positions = model.position.of(side)
        kinds = {p.kind for p in positions}
        if len(positions) > 1 and kinds != {"relative"}:
            found.append(
                f"model.position.{side} is a list, where CTranslate2 has one for all layers (but for relative)"
            )
        if any(getattr(p, "join", "add") != "add" for p in positions):
            found.append(f"model.position.{side} joins by concat, where CTranslate2 adds")
        scores = [
            getattr(model.attention, side).layer(n).score.kind for n in range(model.decoder_layers or model.layers)
        ]
        if "general" in scores and kinds & {"rotary"}:
            found.append(f"model.attention.{side}.score is general beside rotary positions, which turn keys before it")
    return found


def rooms(model: TransformerConfig, places: int) -> dict[str, int | None]:
    """How many places the exported source and target can tell apart, where there is a limit."""

    def room(side: str) -> int | None:
        position = model.position.of(side)[0]
        return min(places, getattr(position, "length", places)) if position.kind in VECTORS else None

    return {side: room(side) for side in ("encoder", "decoder")}


def library() -> Any:
    try:
        import ctranslate2
    except ImportError:
        raise RegardError('CTranslate2 is not installed; run pip install "regard[fast]"') from None
    return ctranslate2


def specification(model: Transformer, places: int) -> Any:
    """Their model with our weights, which lie on the CPU; position vectors are written out for `places` places."""
    specs = library().specs.transformer_spec
    c = model.config
    common = {"num_heads": c.heads, "pre_norm": c.residual == "pre_norm", "ffn_glu": c.activation == "swiglu"}
    common["activation"] = _activation(c.activation)
    encoder = specs.TransformerEncoderSpec(c.layers, **common, **_position_options(c.position.of("encoder")[0]))
    decoder = specs.TransformerDecoderSpec(
        c.decoder_layers or c.layers, **common, **_position_options(c.position.of("decoder")[0])
    )
    spec = specs.TransformerSpec(encoder, decoder)
    spec.config.layer_norm_epsilon = c.epsilon
    spec.config.add_source_eos = False  # the tokenizer does, as those of Hugging Face do
    _side(encoder, model.encoder, model.encoder_position, model.encoder_norm, places, c)
    _side(decoder, model.decoder, model.decoder_position, model.decoder_norm, places, c)
    encoder.embeddings[0].weight = _array(model.source_embedding.weight)
    decoder.embeddings.weight = _array(model.target_embedding.weight)
    decoder.projection.weight = _array(model.output.weight)
    if isinstance(model.output, BiasedOutput):
        decoder.projection.bias = _array(model.output.bias)
    return spec


def _activation(name: str) -> Any:
    kinds = library().specs.common_spec.Activation
    table = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "swish": "SWISH", "swiglu": "SWISH"}
    return getattr(kinds, table[name])


def _array(tensor: Tensor) -> Any:
    return tensor.detach().float().cpu().contiguous().numpy().copy()  # the library quantises in place


# --- layers ---------------------------------------------------------------------------------------------------------


def _side(spec: Any, layers: Any, positions: Any, final: nn.Module, places: int, config: TransformerConfig) -> None:
    spec.scale_embeddings = config.scale_embedding
    for n, (theirs, ours) in enumerate(zip(spec.layer, layers, strict=True)):
        norms = [residual.norm for residual in ours.residuals]
        _attention(theirs.self_attention, ours.attention, norms[0])
        _position(theirs.self_attention, ours.attention, positions[n % len(positions)])
        if hasattr(ours, "cross"):
            _attention(theirs.attention, ours.cross, norms[1])
        _feed_forward(theirs.ffn, ours.feed_forward, norms[-1])
    if config.residual == "pre_norm":
        _norm(spec.layer_norm, final)
    if hasattr(spec, "position_encodings"):
        size = layers[0].attention.sizes.size
        spec.position_encodings.encodings = _array(vectors(positions[0], size, places))


def vectors(position: Any, size: int, places: int) -> Tensor:
    """What a position adds to the word vector at each place [places, D], or at as many as it can tell apart."""
    count = min(places, position.longest or places)
    return position.embed(torch.zeros(1, count, size), Layout.of(count))[0]


def _attention(spec: Any, ours: MultiHeadAttention, norm: nn.Module) -> None:
    query, key, value = _projections(ours)
    own = len(spec.linear) == 2  # one matrix for all three, where a sequence looks at itself
    groups = [[query, key, value]] if own else [[query], [key, value]]
    for theirs, group in zip(spec.linear, groups, strict=False):
        theirs.weight = _array(torch.cat([weight for weight, _ in group]))
        theirs.bias = _array(torch.cat([bias for _, bias in group]))
    spec.linear[-1].weight, spec.linear[-1].bias = _array(ours.output.weight), _array(ours.output.bias)
    spec.queries_scale = np.float32(ours.score.scale)
    _norm(spec.layer_norm, norm)


def _projections(ours: MultiHeadAttention) -> list[tuple[Tensor, Tensor]]:
    """(weight, bias) of queries, keys and values; a score that multiplies keys by a matrix is multiplied in."""
    s = ours.sizes
    query: tuple[Tensor, Tensor] = (ours.query.weight, ours.query.bias)
    key = query if isinstance(ours, SharedQueryKey) else _rows(ours.key_value, slice(0, s.heads * s.d_k))
    value = _rows(ours.key_value, slice(-s.heads * s.d_v, None))
    if isinstance(ours.score, GeneralScore):
        matrix = ours.score.weight  # [H, d, d]
        weight = matrix @ key[0].unflatten(0, (s.heads, -1))  # [H, d, D]
        bias = matrix @ key[1].view(s.heads, -1, 1)  # [H, d, 1]
        key = (weight.flatten(0, 1), bias.flatten())
    return [query, key, value]


def _rows(linear: nn.Linear, rows: slice) -> tuple[Tensor, Tensor]:
    return linear.weight[rows], linear.bias[rows]


def _feed_forward(spec: Any, ours: Any, norm: nn.Module) -> None:
    parts = list(zip(ours.expand.weight.chunk(ours.parts), ours.expand.bias.chunk(ours.parts), strict=True))
    names = ("linear_0", "linear_0_noact")  # with the activation, and, for gates, without
    for name, (weight, bias) in zip(names, parts, strict=False):
        getattr(spec, name).weight, getattr(spec, name).bias = _array(weight), _array(bias)
    spec.linear_1.weight, spec.linear_1.bias = _array(ours.contract.weight), _array(ours.contract.bias)
    _norm(spec.layer_norm, norm)


def _norm(spec: Any, ours: Any) -> None:
    spec.gamma, spec.beta = _array(ours.weight), _array(ours.bias)


# --- positions inside attention -------------------------------------------------------------------------------------


def _position_options(config: PositionConfig) -> dict[str, Any]:
    """How their stack is to be built for a kind of position."""
    if isinstance(config, RotaryConfig):
        return {"rotary_dim": 0, "rotary_interleave": config.layout == "interleaved", "rotary_base": config.base}
    options: Mapping[type, dict[str, Any]] = {
        RelativeConfig: {"relative_position": True},
        T5Config: {"relative_attention_bias": True},
        AlibiConfig: {"alibi": True},
    }
    return options.get(type(config), {})


def _position(spec: Any, attention: MultiHeadAttention, ours: Any) -> None:
    if hasattr(spec, "relative_position_keys"):  # theirs are scaled as the scores are, ours as the paper says
        factor = ours.scale / (attention.score.scale or 1.0)
        spec.relative_position_keys = _array(ours.keys * factor)
        spec.relative_position_values = _array(ours.values if ours.mixes else torch.zeros_like(ours.keys))
    if hasattr(spec, "relative_attention_bias"):
        spec.relative_attention_bias = _array(ours.numbers)  # [buckets, H]
        spec.relative_attention_max_distance = np.int32(len(ours.bucket) // 2)
