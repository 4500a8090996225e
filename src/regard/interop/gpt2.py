"""GPT-2 of Hugging Face (GPT2LMHeadModel), in and out: config, weights and vocabulary of a language model.

Matrices are [in, out] there, and queries, keys and values come from one.
"""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from regard import config
from regard.examples.preparing import TOKENIZER
from regard.interop.checkpoint import Checkpoint
from regard.interop.compatibility import (
    HFConfig,
    activation_from_hf,
    activation_to_hf,
    check_fixed,
    check_round_trip,
    refuse_unsupported,
    unsupported_choices,
    without_proposals,
)
from regard.interop.hf_tokenizer import check_vocab_size, read_tokenizer, write_tokenizer
from regard.interop.key_map import TRANSPOSE, KeyMap, rule, weight_and_bias
from regard.interop.model_folder import ImportedModel
from regard.io.files import write_json
from regard.io.tensors import unique_state_dict, write_tensors
from regard.models.lm import LanguageModelConfig
from regard.nn.position import LearnedConfig
from regard.nn.score import DotConfig
from regard.predict.generation import TextGenerator
from regard.recipe import Recipe
from regard.text import Tokenizer
from regard.text.pretrained import from_gpt2

# --- names of weights -----------------------------------------------------------------------------------------------

BODY = KeyMap(
    (
        rule("embedding.weight", "wte.weight"),
        rule("position.0.table", "wpe.weight"),
        *weight_and_bias("layers.{n}.residuals.0.norm", "h.{n}.ln_1"),
        *weight_and_bias(
            ("layers.{n}.attention.query", "layers.{n}.attention.key_value"),
            "h.{n}.attn.c_attn",
            sizes=(1, 2),
            transform=TRANSPOSE,
        ),
        *weight_and_bias("layers.{n}.attention.output", "h.{n}.attn.c_proj", transform=TRANSPOSE),
        *weight_and_bias("layers.{n}.residuals.1.norm", "h.{n}.ln_2"),
        *weight_and_bias("layers.{n}.feed_forward.expand", "h.{n}.mlp.c_fc", transform=TRANSPOSE),
        *weight_and_bias("layers.{n}.feed_forward.contract", "h.{n}.mlp.c_proj", transform=TRANSPOSE),
        *weight_and_bias("norm", "ln_f"),
    ),
    ignored=("h.{n}.attn.bias", "h.{n}.attn.masked_bias"),  # the causal mask, which older versions saved
)
OUTPUTS = {
    "tied": KeyMap((), tied={"lm_head.weight": "transformer.wte.weight"}),
    "own": KeyMap((rule("output.weight", "lm_head.weight"),)),
}


def gpt2_key_map(model: LanguageModelConfig, prefix: str = "transformer.") -> KeyMap:
    """Names of the weights; the prefix is absent in files that were saved without a head."""
    return BODY.with_prefix(hf=prefix) + OUTPUTS[model.output]


def gpt2_weights_from_hf(
    hf_weights: Mapping[str, Tensor], model: LanguageModelConfig, own: Mapping[str, Tensor], origin: object
) -> dict[str, Tensor]:
    """Hugging Face's tensors under our names, for the model whose own tensors are `own`."""
    prefix = "transformer." if any(name.startswith("transformer.") for name in hf_weights) else ""
    return gpt2_key_map(model, prefix).from_hf(hf_weights, own, origin)


# --- config ---------------------------------------------------------------------------------------------------------

FIXED = {"model_type": "gpt2", "add_cross_attention": False, "scale_attn_by_inverse_layer_idx": False}


def gpt2_config_from_hf(hf_config: HFConfig, origin: object) -> LanguageModelConfig:
    """Our config; a key that is absent has Hugging Face's default."""
    check_fixed(hf_config, FIXED, origin)
    size = hf_config.get("n_embd", 768)
    dropout, embedding_dropout = (hf_config.get(f"{part}_pdrop", 0.1) for part in ("resid", "embd"))
    values = {
        "layers": hf_config.get("n_layer", 12),
        "size": size,
        "inner": hf_config.get("n_inner") or 4 * size,
        "heads": hf_config.get("n_head", 12),
        "dropout": dropout,
        "embedding_dropout": None if embedding_dropout == dropout else embedding_dropout,
        "epsilon": hf_config.get("layer_norm_epsilon", 1e-5),
        "activation": activation_from_hf(hf_config.get("activation_function", "gelu_new"), origin),
        "output": "tied" if hf_config.get("tie_word_embeddings", True) else "own",
        "position": {"kind": "learned", "length": hf_config.get("n_positions", 1024)},
        "attention": {
            "score": "scaled_dot" if hf_config.get("scale_attn_weights", True) else "dot",
            "dropout": hf_config.get("attn_pdrop", 0.1),
        },
    }
    return config.parse_config(LanguageModelConfig, config.to_node(values, str(origin)))


def gpt2_config_to_hf(model: LanguageModelConfig, vocab_size: int) -> dict[str, object]:
    """Hugging Face's config without ids of special tokens; RegardError where the model is no GPT-2."""
    hf_config = {
        **FIXED,
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": vocab_size,
        "n_layer": model.layers,
        "n_embd": model.size,
        "n_inner": model.inner,
        "n_head": model.heads,
        "n_positions": model.position.length if isinstance(model.position, LearnedConfig) else 1024,
        "embd_pdrop": model.dropout if model.embedding_dropout is None else model.embedding_dropout,
        "resid_pdrop": model.dropout,
        "attn_pdrop": model.attention.dropout,
        "layer_norm_epsilon": model.epsilon,
        "activation_function": activation_to_hf(model.activation) or "gelu_new",
        "scale_attn_weights": model.attention.score != DotConfig(),
        "tie_word_embeddings": model.output == "tied",
    }
    check_round_trip(model, gpt2_config_from_hf(hf_config, "the model"), "GPT-2")
    return hf_config


# --- in and out -----------------------------------------------------------------------------------------------------


def import_gpt2(checkpoint: Checkpoint, out: Path) -> ImportedModel:
    """The model of a GPT-2 checkpoint; `out`, where its folder will be, is not needed."""
    origin, hf_config = checkpoint.folder, checkpoint.config
    model = gpt2_config_from_hf(hf_config, origin)
    vocab_size = int(hf_config.get("vocab_size", 50_257))
    tokenizer, sections = read_tokenizer(origin, vocab_size) or _gpt2_tokenizer(checkpoint, vocab_size)
    plain = {**sections, "data": {}, "model": config.to_plain(model)}
    recipe = config.parse_config(Recipe, config.to_node(plain, str(origin)))
    own = unique_state_dict(model.build(vocab_size))
    weights = gpt2_weights_from_hf(checkpoint.tensors(), model, own, origin)
    return ImportedModel(recipe, weights, lambda out: tokenizer.save(out / TOKENIZER))


def _gpt2_tokenizer(checkpoint: Checkpoint, vocab_size: int) -> tuple[Tokenizer, dict[str, object]]:
    """GPT-2's own vocabulary, and the sections of the recipe about it."""
    origin = checkpoint.folder
    tokenizer = from_gpt2(origin / "vocab.json", origin / "merges.txt")
    check_vocab_size(tokenizer, vocab_size, origin)
    task = {"kind": "lm", "length": checkpoint.config.get("n_positions", 1024)}
    return tokenizer, {"task": task, "text": {"kind": "byte_bpe", "size": vocab_size}}


def export_gpt2(generator: TextGenerator, run: Path, out: Path) -> str:
    """A folder that Hugging Face reads as a GPT2LMHeadModel; returns a summary."""
    model, tokenizer = generator.recipe.model, generator.tokenizer
    refuse_unsupported(unsupported_choices(model, {"kind": ["lm"]}, "GPT-2"), run, "Hugging Face")
    assert isinstance(model, LanguageModelConfig)
    end = generator.document_encoder.end
    special = {"bos_token_id": tokenizer.bos, "eos_token_id": end, "pad_token_id": tokenizer.pad}
    write_json(out / "config.json", gpt2_config_to_hf(model, tokenizer.size) | special)
    suppressed = [[i] for i in generator.symbols.suppressed]
    write_json(out / "generation_config.json", special | ({"bad_words_ids": suppressed} if suppressed else {}))
    weights = gpt2_key_map(model).to_hf(without_proposals(unique_state_dict(generator.model)), run)
    write_tensors(out / "model.safetensors", weights, {"format": "pt"})
    return write_tokenizer(tokenizer, generator.recipe, out, "none")
