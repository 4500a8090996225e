"""Our Transformer as a CTranslate2 model: weights in their specification, an exported folder, and one cached by a run.

CTranslate2 has the paper's model and more: both orders of norms, gates, Shaw's relative positions, T5's, rotary ones,
any table of position vectors, ALiBi in the decoder, and any scale of the scores. Any other model is refused.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from regard import api
from regard.data.prepared import file_hash
from regard.decoding.shortlist import FILE as SHORTLIST
from regard.decoding.shortlist import Shortlist, read_shortlist
from regard.errors import RegardError
from regard.examples.recipe_like import ModelSettings, RecipeLike
from regard.interop.compatibility import refuse_unsupported, unsupported_choices
from regard.interop.ct2_example import write_example
from regard.interop.tokenizers_file import token_strings
from regard.io import run_folder as folder
from regard.io.atomic import atomic_folder
from regard.models.transformer import Transformer, TransformerConfig
from regard.nn.embedding import BiasedOutput
from regard.nn.feed_forward import FeedForward
from regard.nn.layout import Layout
from regard.nn.multi_head import MultiHeadAttention, SharedQueryKey
from regard.nn.position import (
    AlibiConfig,
    LearnedConfig,
    Position,
    PositionConfig,
    RelativeConfig,
    RotaryConfig,
    SinusoidalConfig,
    T5Config,
)
from regard.nn.score import GeneralConfig, GeneralScore
from regard.predict.translation import Translator

Spec = Any  # specifications of CTranslate2, which have no types
PRECISIONS = ("float32", "int8")
METADATA = "regard.json"  # fingerprint of the model that was exported
VERSION = 2
VMAP = "vmap.txt"  # as CTranslate2 names its map of vocabularies

ABSOLUTE = ("none", "sinusoidal", "learned")  # a vector for each position, added to the embeddings
IN_ATTENTION = ("relative", "rotary", "t5")
SUPPORTED = {
    "kind": ("transformer",),
    "decoder_self": ("attention",),
    "residual": ("post_norm", "pre_norm"),
    "norm": ("layer",),
    "norm_gain": ("True",),
    "norm_bias": ("True",),
    "feed_forward": ("dense",),
    "activation": ("relu", "gelu", "gelu_tanh", "swish", "swiglu"),
    "position.encoder": (*ABSOLUTE, *IN_ATTENTION),
    "position.decoder": (*ABSOLUTE, *IN_ATTENTION, "alibi"),
    **{
        f"attention.{part}.{slot}": names
        for part in ("encoder", "decoder", "cross")
        for slot, names in (
            ("score", ("scaled_dot", "dot", "general")),
            ("pattern", ("full",)),
            ("normalise", ("softmax",)),
            ("compress", ("none",)),
            ("d_k", ("none",)),
            ("d_v", ("none",)),
            ("heads", ("none",)),
            ("kv_heads", ("none",)),
            ("qk_norm", ("False",)),
        )
    },
}


# --- folders --------------------------------------------------------------------------------------------------------


def check_precision(precision: str) -> None:
    if precision not in PRECISIONS:
        raise RegardError(f"--precision is {precision!r}; write {' or '.join(PRECISIONS)}")


def export_ct2(translator: Translator, run: Path, out: Path, precision: str) -> str:
    """A CTranslate2 model in an empty folder, with its tokenizers and an example of its use; returns a summary."""
    check_precision(precision)
    refuse_unsupported(_unsupported_reasons(translator.recipe.model), run, "CTranslate2")
    spec = build_spec(cast(Transformer, translator.model), position_count(translator.recipe))
    target, names = translator.vocabulary.target, token_strings(translator.vocabulary)
    spec.register_source_vocabulary(names[0])
    spec.register_target_vocabulary(names[1])
    for key, i in (("unk", target.unk), ("bos", target.bos), ("eos", target.eos), ("decoder_start", target.bos)):
        setattr(spec.config, f"{key}_token", names[1][i])
    home = folder.run_folder_of(run)
    if (home / SHORTLIST).exists() and vocabulary_map_reason(names) is None:
        _write_vocabulary_map(read_shortlist(home, len(names[0]), len(names[1])), names, out / VMAP)
    spec.validate()
    spec.optimize(quantization=precision)
    spec.save(str(out))
    (out / METADATA).write_text(json.dumps({"made_from": export_fingerprint(run)}), encoding="utf-8")
    summary = write_example(translator, names, folder.run_folder_of(run) / "tokenizer", out)
    return f"a CTranslate2 model in {precision}; {summary}"


def vocabulary_map_reason(names: Sequence[Sequence[str]]) -> str | None:
    """Why CTranslate2 cannot be given a shortlist of these tokens; None: it can."""
    spaced = next((token for tokens in names for token in tokens if any(c.isspace() for c in token)), None)
    return spaced and f"its map of vocabularies has spaces between pieces, and {spaced!r} has one in it"


def _write_vocabulary_map(shortlist: Shortlist, names: Sequence[Sequence[str]], path: Path) -> None:
    """A line for each source token: itself, a tab, and the target tokens that it allows; without one, for all."""
    always = shortlist.always.tolist()
    lines = [f"\t{' '.join(names[1][i] for i in always)}"]
    for token, row in zip(names[0], shortlist.candidates.tolist(), strict=True):
        lines.append(f"{token}\t{' '.join(names[1][i] for i in row if i >= 0)}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def cached_export(run: Path, precision: str) -> Path:
    """The export beside the model; written if it is not there, or if the model has changed since."""
    export = run / f"ct2-{precision}"
    try:
        if json.loads((export / METADATA).read_text(encoding="utf-8"))["made_from"] == export_fingerprint(run):
            return export
    except (OSError, ValueError, KeyError, TypeError):
        pass  # absent, or damaged: written anew
    translator = api.load(run, "cpu")
    if not os.access(run, os.W_OK):
        export = Path(tempfile.mkdtemp(prefix="regard-")) / export.name
    shutil.rmtree(export, ignore_errors=True)
    with atomic_folder(export) as out:
        export_ct2(translator, run, out, precision)
    return export


def export_fingerprint(run: Path) -> str:
    """Version, weights and config that an export depends on, as one line."""
    home = folder.run_folder_of(run)
    files = [*sorted(run.glob("model*.safetensors")), *home.glob(SHORTLIST), folder.run_folder_of(run) / folder.CONFIG]
    return " ".join([str(VERSION), *(file_hash(path) for path in files)])


def position_count(recipe: RecipeLike) -> int:
    """How many position vectors are exported: enough for the longest text that is translated."""
    longest = recipe.data.filters.max_length
    return max(1024, longest + 1, recipe.decoding.limit(longest) + 2)


def position_limits(recipe: RecipeLike) -> dict[str, int | None]:
    """The most positions of source and target in the exported model; None where there is no limit."""
    model, count = recipe.model, position_count(recipe)
    assert isinstance(model, TransformerConfig)

    def limit(side: str) -> int | None:
        position = model.position.of(side)[0]
        if isinstance(position, LearnedConfig):
            return min(count, position.length)
        return count if position.kind in ABSOLUTE else None

    return {side: limit(side) for side in ("encoder", "decoder")}


def _unsupported_reasons(model: ModelSettings) -> list[str]:
    """Choices that CTranslate2 has not, else combinations that it has not."""
    reasons = unsupported_choices(model, SUPPORTED, "CTranslate2")
    if reasons or not isinstance(model, TransformerConfig):
        return reasons
    for side in ("encoder", "decoder"):
        positions = model.position.of(side)
        kinds = {p.kind for p in positions}
        if len(positions) > 1 and kinds != {"relative"}:
            reasons.append(
                f"model.position.{side} is a list, where CTranslate2 has one for all layers (but for relative)"
            )
        if any(isinstance(p, SinusoidalConfig | LearnedConfig) and p.join != "add" for p in positions):
            reasons.append(f"model.position.{side} joins by concat, where CTranslate2 adds")
        attention = model.attention.encoder if side == "encoder" else model.attention.decoder
        scores = [attention.layer(n).score for n in range(model.decoder_layers or model.layers)]
        if any(isinstance(score, GeneralConfig) for score in scores) and kinds & {"rotary"}:
            reasons.append(
                f"model.attention.{side}.score is general beside rotary positions, which turn keys before it"
            )
    return reasons


# --- specification --------------------------------------------------------------------------------------------------


def ctranslate2_module() -> Any:
    try:
        import ctranslate2
    except ImportError:
        raise RegardError('CTranslate2 is not installed; run pip install "regard[fast]"') from None
    return ctranslate2


def build_spec(model: Transformer, positions: int) -> Spec:
    """CTranslate2's specification with our weights, which are on the CPU, and so many position vectors."""
    specs = ctranslate2_module().specs.transformer_spec
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
    _set_stack(encoder, model.encoder, model.encoder_position, model.encoder_norm, positions, c)
    _set_stack(decoder, model.decoder, model.decoder_position, model.decoder_norm, positions, c)
    encoder.embeddings[0].weight = _array(model.source_embedding.weight)
    decoder.embeddings.weight = _array(model.target_embedding.weight)
    decoder.projection.weight = _array(model.output.weight)
    if isinstance(model.output, BiasedOutput):
        decoder.projection.bias = _array(model.output.bias)
    return spec


def _activation(name: str) -> Any:
    activations = ctranslate2_module().specs.common_spec.Activation
    table = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "swish": "SWISH", "swiglu": "SWISH"}
    return getattr(activations, table[name])


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().contiguous().numpy().copy()  # the library quantises in place


# --- layers ---------------------------------------------------------------------------------------------------------


def _set_stack(spec: Spec, layers: Any, positions: Any, norm: nn.Module, count: int, config: TransformerConfig) -> None:
    spec.scale_embeddings = config.scale_embedding
    for n, (layer_spec, layer) in enumerate(zip(spec.layer, layers, strict=True)):
        norms = [residual.norm for residual in layer.residuals]
        _set_attention(layer_spec.self_attention, layer.attention, norms[0])
        _set_position(layer_spec.self_attention, layer.attention, positions[n % len(positions)])
        if hasattr(layer, "cross"):
            _set_attention(layer_spec.attention, layer.cross, norms[1])
        _set_feed_forward(layer_spec.ffn, layer.feed_forward, norms[-1])
    if config.residual == "pre_norm":
        _set_norm(spec.layer_norm, norm)
    if hasattr(spec, "position_encodings"):
        size = layers[0].attention.sizes.size
        spec.position_encodings.encodings = _array(position_vectors(positions[0], size, count))


def position_vectors(position: Position, size: int, count: int) -> Tensor:
    """What a position encoding adds to embeddings [count, D]; fewer where it has fewer vectors."""
    count = min(count, position.longest or count)
    return position.embed(torch.zeros(1, count, size), Layout.of(count))[0]


def _set_attention(spec: Spec, attention: MultiHeadAttention, norm: nn.Module) -> None:
    query, key, value = _projections(attention)
    fused = len(spec.linear) == 2  # one matrix for all three in self-attention
    groups = [[query, key, value]] if fused else [[query], [key, value]]
    for linear, group in zip(spec.linear, groups, strict=False):
        linear.weight = _array(torch.cat([weight for weight, _ in group]))
        linear.bias = _array(torch.cat([bias for _, bias in group]))
    spec.linear[-1].weight, spec.linear[-1].bias = _array(attention.output.weight), _array(attention.output.bias)
    spec.queries_scale = np.float32(attention.score.scale)
    _set_norm(spec.layer_norm, norm)


def _projections(attention: MultiHeadAttention) -> list[tuple[Tensor, Tensor]]:
    """(weight, bias) of queries, keys and values; a score that multiplies keys by a matrix is multiplied in."""
    s = attention.sizes
    query: tuple[Tensor, Tensor] = (attention.query.weight, attention.query.bias)
    key = query if isinstance(attention, SharedQueryKey) else _rows(attention.key_value, slice(0, s.heads * s.d_k))
    value = _rows(attention.key_value, slice(-s.heads * s.d_v, None))
    if isinstance(attention.score, GeneralScore):
        matrix = attention.score.weight  # [H, d, d]
        weight = matrix @ key[0].unflatten(0, (s.heads, -1))  # [H, d, D]
        bias = matrix @ key[1].view(s.heads, -1, 1)  # [H, d, 1]
        key = (weight.flatten(0, 1), bias.flatten())
    return [query, key, value]


def _rows(linear: nn.Linear, rows: slice) -> tuple[Tensor, Tensor]:
    return linear.weight[rows], linear.bias[rows]


def _set_feed_forward(spec: Spec, network: FeedForward, norm: nn.Module) -> None:
    parts = list(zip(network.expand.weight.chunk(network.parts), network.expand.bias.chunk(network.parts), strict=True))
    linears = [spec.linear_0, spec.linear_0_noact] if len(parts) == 2 else [spec.linear_0]  # the gate, and the rest
    for linear, (weight, bias) in zip(linears, parts, strict=True):
        linear.weight, linear.bias = _array(weight), _array(bias)
    spec.linear_1.weight, spec.linear_1.bias = _array(network.contract.weight), _array(network.contract.bias)
    _set_norm(spec.layer_norm, norm)


def _set_norm(spec: Spec, norm: Any) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


# --- positions inside attention -------------------------------------------------------------------------------------


def _position_options(config: PositionConfig) -> dict[str, object]:
    """Arguments of an encoder or decoder specification for a kind of position."""
    if isinstance(config, RotaryConfig):
        return {"rotary_dim": 0, "rotary_interleave": config.layout == "interleaved", "rotary_base": config.base}
    options: Mapping[type, dict[str, object]] = {
        RelativeConfig: {"relative_position": True},
        T5Config: {"relative_attention_bias": True},
        AlibiConfig: {"alibi": True},
    }
    return options.get(type(config), {})


def _set_position(spec: Spec, attention: MultiHeadAttention, position: Any) -> None:
    if hasattr(spec, "relative_position_keys"):  # scaled as the scores are there, as the paper says here
        factor = position.scale / (attention.score.scale or 1.0)
        spec.relative_position_keys = _array(position.keys * factor)
        spec.relative_position_values = _array(position.values if position.mixes else torch.zeros_like(position.keys))
    if hasattr(spec, "relative_attention_bias"):
        spec.relative_attention_bias = _array(position.numbers)  # [buckets, H]
        spec.relative_attention_max_distance = np.int32(len(position.bucket) // 2)
