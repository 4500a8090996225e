"""Marian (OPUS-MT) in Hugging Face's form: its config and the names of its weights, in and out. Knows no file.

Marian is the Transformer with post-norm, one matrix for all embeddings, a bias on the scores of words, padding as the
first word that the decoder reads, and all sines before all cosines in its waves.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from regard import config
from regard.errors import RegardError
from regard.interop.choices import ACTIVATIONS, activation_there
from regard.interop.keys import ROW, KeyMap, both, rule
from regard.models.transformer import TransformerConfig
from regard.nn.position import SinusoidalConfig, sinusoids

# Every choice of a Transformer that Marian can express.
HAS = {
    "kind": ("transformer",),
    "residual": ("post_norm",),
    "norm": ("layer",),
    "feed_forward": ("dense",),
    "activation": ("relu", "gelu", "gelu_tanh", "swish"),
    **{f"position.{place}": ("sinusoidal",) for place in ("encoder", "decoder")},
    **{
        f"attention.{place}.{slot}": (name,)
        for place in ("encoder", "decoder", "cross")
        for slot, name in (("score", "scaled_dot"), ("pattern", "full"), ("normalise", "softmax"), ("compress", "none"))
    },
    **{f"attention.{place}.{slot}": ("none",) for place in ("encoder", "decoder", "cross") for slot in ("d_k", "d_v")},
}

# --- weights --------------------------------------------------------------------------------------------------------


def _attention(ours: str, theirs: str) -> KeyMap:
    return KeyMap(
        (
            *both(f"{ours}.query", f"{theirs}.q_proj"),
            *both(f"{ours}.key_value", (f"{theirs}.k_proj", f"{theirs}.v_proj")),
            *both(f"{ours}.output", f"{theirs}.out_proj"),
        )
    )


def _layers(side: str, norms: tuple[str, ...]) -> KeyMap:
    ours, theirs = f"{side}.{{n}}", f"model.{side}.layers.{{n}}"
    network = (
        *both(f"{ours}.feed_forward.expand", f"{theirs}.fc1"),
        *both(f"{ours}.feed_forward.contract", f"{theirs}.fc2"),
    )
    residuals = [
        part for n, norm in enumerate(norms) for part in both(f"{ours}.residuals.{n}.norm", f"{theirs}.{norm}")
    ]
    return _attention(f"{ours}.attention", f"{theirs}.self_attn") + KeyMap((*network, *residuals))


LAYERS = (
    _layers("encoder", ("self_attn_layer_norm", "final_layer_norm"))
    + _layers("decoder", ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"))
    + _attention("decoder.{n}.cross", "model.decoder.layers.{n}.encoder_attn")
    + KeyMap((rule("output.bias", "final_logits_bias", turn=ROW, optional=True),))
)
SHARED, SOURCE, TARGET = (f"model.{part}.weight" for part in ("shared", "encoder.embed_tokens", "decoder.embed_tokens"))
EMBEDDINGS = {  # by what is shared
    "all": KeyMap(
        (rule("source_embedding.weight", SHARED),), copies=dict.fromkeys((SOURCE, TARGET, "lm_head.weight"), SHARED)
    ),
    "target": KeyMap(
        (rule("source_embedding.weight", SOURCE), rule("target_embedding.weight", TARGET)),
        copies={"lm_head.weight": TARGET},
        ignored=(SHARED,),
    ),
    "none": KeyMap(
        (
            rule("source_embedding.weight", SOURCE),
            rule("target_embedding.weight", TARGET),
            rule("output.weight", "lm_head.weight"),
        ),
        ignored=(SHARED,),
    ),
}
POSITIONS = tuple(f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder"))


def key_map(share: str) -> KeyMap:
    return LAYERS + EMBEDDINGS[share]


def without_positions(tensors: Mapping[str, Tensor], origin: object) -> dict[str, Tensor]:
    """Older files hold the waves too; they are computed here, if they are the same."""
    for name in POSITIONS:
        if name in tensors:
            count, size = tensors[name].shape
            waves = sinusoids(torch.arange(count), size, "halves").to(tensors[name])
            if not torch.allclose(tensors[name], waves, atol=1e-3):  # they may have been kept in float16
                raise RegardError(f"{origin}: {name} is not the table of sines and cosines that Marian has")
    return {name: tensor for name, tensor in tensors.items() if name not in POSITIONS}


# --- config, in -----------------------------------------------------------------------------------------------------

SIZES = ("d_model", "encoder_layers", "decoder_layers", "encoder_ffn_dim", "encoder_attention_heads", "vocab_size")
MARKS = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
# What a config may ask for that a Marian model here does not have: key -> the value that asks for nothing.
WITHOUT = {
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
    "is_decoder": False,
    "quantization_config": None,
}


def read_model(theirs: Mapping[str, Any], bias: bool, origin: object) -> TransformerConfig:
    """Our config of the model that a Hugging Face config describes; `bias` says whether its words have one."""
    found = _unsupported(theirs)
    if found:
        raise RegardError(f"{origin}: config.json asks for what is not supported: {'; '.join(found)}")
    tied = theirs.get("tie_word_embeddings", True)
    shared = "all" if theirs.get("share_encoder_decoder_embeddings", True) else "target"
    keys = {
        "layers": theirs["encoder_layers"],
        "decoder_layers": theirs["decoder_layers"],
        "size": theirs["d_model"],
        "inner": theirs["encoder_ffn_dim"],
        "heads": theirs["encoder_attention_heads"],
        "dropout": theirs.get("dropout", 0.1),
        "activation": ACTIVATIONS[theirs.get("activation_function", "gelu")],
        "share": shared if tied else "none",
        "output_bias": bias,
        "scale_embedding": theirs.get("scale_embedding", False),
        "position": {"kind": "sinusoidal", "layout": "halves"},
        "attention": {"dropout": theirs.get("attention_dropout", 0.0)},
    }
    try:
        return config.parse_config(TransformerConfig, config.to_node(keys, f"{origin}/config.json"))
    except TypeError as error:
        raise RegardError(f"{origin}: config.json is not that of a Marian model ({error})") from None


def _unsupported(theirs: Mapping[str, Any]) -> list[str]:
    whole = [key for key in (*SIZES, *MARKS) if type(theirs.get(key)) is not int]
    if whole:
        return [f"{key} is {theirs.get(key)!r}, not a whole number" for key in whole]
    kinds = theirs.get("architectures") or ["MarianMTModel"]
    found = [f"the architecture {kinds[0]}"] if kinds[0] != "MarianMTModel" else []
    found += [
        f"{key} {theirs[key]!r}" for key, value in WITHOUT.items() if key in theirs and theirs[key] not in (value, None)
    ]
    for part in ("ffn_dim", "attention_heads"):
        encoder, decoder = (theirs.get(f"{side}_{part}", theirs[f"encoder_{part}"]) for side in ("encoder", "decoder"))
        if encoder != decoder:
            found.append(f"encoder_{part} {encoder} beside decoder_{part} {decoder}")
    activation = theirs.get("activation_function", "gelu")
    if activation not in ACTIVATIONS:
        found.append(f"activation_function {activation!r} ({', '.join(ACTIVATIONS)} are)")
    return found


def read_decoding(theirs: Mapping[str, Any]) -> dict[str, Any]:
    """How the checkpoint says that its model should search."""
    beams = theirs.get("num_beams") or 1
    if beams == 1:
        return {"kind": "greedy"}
    penalty = theirs.get("length_penalty")
    return {"kind": "beam", "size": beams, "length_penalty": 1.0 if penalty is None else float(penalty)}


# --- config, out ----------------------------------------------------------------------------------------------------


def write_model(
    model: TransformerConfig, entries: tuple[int, int], marks: Mapping[str, int], places: int
) -> dict[str, Any]:
    """Hugging Face's config of one of our models; `places` is how many positions its table has."""
    decoder = model.decoder_layers or model.layers
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": entries[0],
        "decoder_vocab_size": entries[1],
        "d_model": model.size,
        **{f"{side}_layers": count for side, count in (("encoder", model.layers), ("decoder", decoder))},
        **{f"{side}_ffn_dim": model.inner for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": model.heads for side in ("encoder", "decoder")},
        "activation_function": activation_there(model.activation),
        "dropout": model.dropout,
        "attention_dropout": model.attention.encoder.dropout,
        "scale_embedding": model.scale_embedding,
        "share_encoder_decoder_embeddings": model.share == "all",
        "tie_word_embeddings": model.share != "none",
        "max_position_embeddings": places,
        "dtype": "float32",
        **marks,
        "forced_eos_token_id": marks["eos_token_id"],
    }


def more_reasons(model: TransformerConfig) -> list[str]:
    """What Marian lacks beyond the table: the details of its norms and waves."""
    waves = [p for side in ("encoder", "decoder") for p in model.position.of(side) if isinstance(p, SinusoidalConfig)]
    found = [] if model.epsilon == 1e-5 else [f"model.epsilon is {model.epsilon:g}, where Marian has 1e-05"]
    if any(p.join != "add" for p in waves):
        found.append("model.position joins by concat, where Marian adds")
    if len({p.layout for p in waves}) > 1:
        found.append("encoder and decoder order their waves differently")
    if any(len(model.position.of(side)) > 1 for side in ("encoder", "decoder")):
        found.append("model.position is a list, where Marian has one")
    return found
