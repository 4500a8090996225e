"""GPT-2 in Hugging Face's form (GPT2LMHeadModel): its config and the names of its weights, in and out.

Matrices are [in, out] there, and queries, keys and values are made by one.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.config import parse_config, to_node
from regard.interop.choices import activation_here, activation_there, demand, refuse_what_is_lost
from regard.interop.keys import TRANSPOSED, KeyMap, both, rule
from regard.models.lm import LanguageModelConfig
from regard.nn.score import DotConfig

BODY = KeyMap(
    (
        rule("embedding.weight", "wte.weight"),
        rule("position.0.table", "wpe.weight"),
        *both("layers.{n}.residuals.0.norm", "h.{n}.ln_1"),
        *both(
            ("layers.{n}.attention.query", "layers.{n}.attention.key_value"),
            "h.{n}.attn.c_attn",
            shares=(1, 2),
            turn=TRANSPOSED,
        ),
        *both("layers.{n}.attention.output", "h.{n}.attn.c_proj", turn=TRANSPOSED),
        *both("layers.{n}.residuals.1.norm", "h.{n}.ln_2"),
        *both("layers.{n}.feed_forward.expand", "h.{n}.mlp.c_fc", turn=TRANSPOSED),
        *both("layers.{n}.feed_forward.contract", "h.{n}.mlp.c_proj", turn=TRANSPOSED),
        *both("norm", "ln_f"),
    ),
    ignored=("h.{n}.attn.bias", "h.{n}.attn.masked_bias"),  # the causal mask, which older versions saved
)
OUTPUTS = {
    "tied": KeyMap((), copies={"lm_head.weight": "transformer.wte.weight"}),
    "own": KeyMap((rule("output.weight", "lm_head.weight"),)),
}
FIXED = {"model_type": "gpt2", "add_cross_attention": False, "scale_attn_by_inverse_layer_idx": False}


def keys(config: LanguageModelConfig, prefix: str = "transformer.") -> KeyMap:
    """Of a model with this config; the prefix is missing in files that were saved without a head."""
    return BODY.under(theirs=prefix) + OUTPUTS[config.output]


def weights_here(
    theirs: Mapping[str, Tensor], config: LanguageModelConfig, own: Mapping[str, Tensor], origin: object
) -> dict[str, Tensor]:
    """Their tensors under our names, for the model whose own are given."""
    prefix = "transformer." if any(name.startswith("transformer.") for name in theirs) else ""
    return keys(config, prefix).to_ours(theirs, own, origin)


def weights_there(ours: Mapping[str, Tensor], config: LanguageModelConfig, origin: object) -> dict[str, Tensor]:
    return keys(config).to_theirs(ours, origin)


def config_here(theirs: Mapping[str, Any], origin: object) -> LanguageModelConfig:
    """From the mapping in their config.json; what is absent has their default."""
    demand(theirs, FIXED, origin)
    size = theirs.get("n_embd", 768)
    dropout, embedding_dropout = (theirs.get(f"{place}_pdrop", 0.1) for place in ("resid", "embd"))
    said = {
        "layers": theirs.get("n_layer", 12),
        "size": size,
        "inner": theirs.get("n_inner") or 4 * size,
        "heads": theirs.get("n_head", 12),
        "dropout": dropout,
        "embedding_dropout": None if embedding_dropout == dropout else embedding_dropout,
        "epsilon": theirs.get("layer_norm_epsilon", 1e-5),
        "activation": activation_here(theirs.get("activation_function", "gelu_new"), origin),
        "output": "tied" if theirs.get("tie_word_embeddings", True) else "own",
        "position": {"kind": "learned", "length": theirs.get("n_positions", 1024)},
        "attention": {
            "score": "scaled_dot" if theirs.get("scale_attn_weights", True) else "dot",
            "dropout": theirs.get("attn_pdrop", 0.1),
        },
    }
    return parse_config(LanguageModelConfig, to_node(said, str(origin)))


def config_there(ours: LanguageModelConfig, entries: int) -> dict[str, Any]:
    """The mapping of their config.json, without the ids of marks, or a refusal where GPT-2 is another kind of model."""
    said = {
        **FIXED,
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": entries,
        "n_layer": ours.layers,
        "n_embd": ours.size,
        "n_inner": ours.inner,
        "n_head": ours.heads,
        "n_positions": getattr(ours.position, "length", 1024),
        "embd_pdrop": ours.dropout if ours.embedding_dropout is None else ours.embedding_dropout,
        "resid_pdrop": ours.dropout,
        "attn_pdrop": ours.attention.dropout,
        "layer_norm_epsilon": ours.epsilon,
        "activation_function": activation_there(ours.activation) or "gelu_new",
        "scale_attn_weights": ours.attention.score != DotConfig(),
        "tie_word_embeddings": ours.output == "tied",
    }
    refuse_what_is_lost(ours, config_here(said, "the model"), "GPT-2")
    return said
