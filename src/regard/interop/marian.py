"""Marian (OPUS-MT) of Hugging Face, in and out: config, weights and vocabularies of a translation model.

Marian is the Transformer with post-norm, one matrix for all embeddings, a bias on the logits, padding as the first
token that the decoder reads, and all sines before all cosines in its sinusoidal positions.
"""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from regard import config
from regard.decoding import Beam
from regard.errors import RegardError
from regard.examples.recipe_like import ModelSettings
from regard.examples.vocabulary import Vocabulary
from regard.interop.checkpoint import Checkpoint
from regard.interop.compatibility import (
    ACTIVATIONS,
    HFConfig,
    activation_to_hf,
    refuse_unsupported,
    unsupported_choices,
    without_proposals,
)
from regard.interop.hf_tokenizer import SECTIONS, read_sections, write_tokenizers
from regard.interop.key_map import SQUEEZE, KeyMap, rule, weight_and_bias
from regard.interop.model_folder import ImportedModel
from regard.io import run_folder as folder
from regard.io.files import write_json
from regard.io.tensors import unique_state_dict, write_tensors
from regard.models.transformer import TransformerConfig
from regard.nn.multi_head import SharedQueryKey
from regard.nn.position import SinusoidalConfig, sinusoids
from regard.predict.translation import Translator
from regard.recipe import Recipe
from regard.text.marian import SPM, MarianSpecials, from_marian, read_id_table

TOKENIZER = "tokenizer"  # in a model folder, and in an exported one: the vocabulary in our own form
TABLES = {"source": "vocab.json", "target": "target_vocab.json"}

# --- names of weights -----------------------------------------------------------------------------------------------


def _attention(ours: str, hf: str) -> KeyMap:
    return KeyMap(
        (
            *weight_and_bias(f"{ours}.query", f"{hf}.q_proj"),
            *weight_and_bias(f"{ours}.key_value", (f"{hf}.k_proj", f"{hf}.v_proj")),
            *weight_and_bias(f"{ours}.output", f"{hf}.out_proj"),
        )
    )


def _layers(side: str, norms: tuple[str, ...]) -> KeyMap:
    ours, hf = f"{side}.{{n}}", f"model.{side}.layers.{{n}}"
    feed_forward = (
        *weight_and_bias(f"{ours}.feed_forward.expand", f"{hf}.fc1"),
        *weight_and_bias(f"{ours}.feed_forward.contract", f"{hf}.fc2"),
    )
    residuals = [
        each for n, norm in enumerate(norms) for each in weight_and_bias(f"{ours}.residuals.{n}.norm", f"{hf}.{norm}")
    ]
    return _attention(f"{ours}.attention", f"{hf}.self_attn") + KeyMap((*feed_forward, *residuals))


LAYERS = (
    _layers("encoder", ("self_attn_layer_norm", "final_layer_norm"))
    + _layers("decoder", ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"))
    + _attention("decoder.{n}.cross", "model.decoder.layers.{n}.encoder_attn")
    + KeyMap((rule("output.bias", "final_logits_bias", transform=SQUEEZE, optional=True),))
)
SHARED, SOURCE, TARGET = (f"model.{part}.weight" for part in ("shared", "encoder.embed_tokens", "decoder.embed_tokens"))
EMBEDDINGS = {  # by model.share
    "all": KeyMap(
        (rule("source_embedding.weight", SHARED),), tied=dict.fromkeys((SOURCE, TARGET, "lm_head.weight"), SHARED)
    ),
    "target": KeyMap(
        (rule("source_embedding.weight", SOURCE), rule("target_embedding.weight", TARGET)),
        tied={"lm_head.weight": TARGET},
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


def marian_key_map(share: str) -> KeyMap:
    return LAYERS + EMBEDDINGS[share]


def without_sinusoids(tensors: Mapping[str, Tensor], origin: object) -> dict[str, Tensor]:
    """Without the sinusoids that older files hold; they are computed here, if they are the same."""
    for name in POSITIONS:
        if name in tensors:
            count, size = tensors[name].shape
            expected = sinusoids(torch.arange(count), size, "halves").to(tensors[name])
            if not torch.allclose(tensors[name], expected, atol=1e-3):  # they may have been kept in float16
                raise RegardError(f"{origin}: {name} is not the table of sines and cosines that Marian has")
    return {name: tensor for name, tensor in tensors.items() if name not in POSITIONS}


# --- config --------------------------------------------------------------------------------------------------------

SIZES = ("d_model", "encoder_layers", "decoder_layers", "encoder_ffn_dim", "encoder_attention_heads", "vocab_size")
SPECIAL_TOKENS = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
# Keys of a config whose other values are not supported.
FIXED = {
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
    "is_decoder": False,
    "quantization_config": None,
}


def marian_config_from_hf(hf_config: HFConfig, output_bias: bool, origin: object) -> TransformerConfig:
    """Our config; `output_bias` tells whether the checkpoint has a bias on its logits."""
    reasons = _unsupported_keys(hf_config)
    if reasons:
        raise RegardError(f"{origin}: config.json asks for what is not supported: {'; '.join(reasons)[:400]}")
    tied = hf_config.get("tie_word_embeddings", True)
    shared = "all" if hf_config.get("share_encoder_decoder_embeddings", True) else "target"
    values = {
        "layers": hf_config["encoder_layers"],
        "decoder_layers": hf_config["decoder_layers"],
        "size": hf_config["d_model"],
        "inner": hf_config["encoder_ffn_dim"],
        "heads": hf_config["encoder_attention_heads"],
        "dropout": hf_config.get("dropout", 0.1),
        "activation": ACTIVATIONS[hf_config.get("activation_function", "gelu")],
        "share": shared if tied else "none",
        "output_bias": output_bias,
        "scale_embedding": hf_config.get("scale_embedding", False),
        "position": {"kind": "sinusoidal", "layout": "halves"},
        "attention": {"dropout": hf_config.get("attention_dropout", 0.0)},
    }
    try:
        return config.parse_config(TransformerConfig, config.to_node(values, f"{origin}/config.json"))
    except TypeError as error:
        raise RegardError(f"{origin}: config.json is not that of a Marian model ({error})") from None


def _unsupported_keys(hf_config: HFConfig) -> list[str]:
    wrong = [key for key in (*SIZES, *SPECIAL_TOKENS) if type(hf_config.get(key)) is not int]
    if wrong:
        return [f"{key} is {hf_config.get(key)!r}, not a whole number" for key in wrong]
    architecture = (hf_config.get("architectures") or ["MarianMTModel"])[0]
    reasons = [f"the architecture {architecture}"] if architecture != "MarianMTModel" else []
    reasons += [
        f"{key} {hf_config[key]!r}"
        for key, value in FIXED.items()
        if key in hf_config and hf_config[key] not in (value, None)
    ]
    for part in ("ffn_dim", "attention_heads"):
        encoder, decoder = (
            hf_config.get(f"{side}_{part}", hf_config[f"encoder_{part}"]) for side in ("encoder", "decoder")
        )
        if encoder != decoder:
            reasons.append(f"encoder_{part} {encoder} beside decoder_{part} {decoder}")
    activation = hf_config.get("activation_function", "gelu")
    if activation not in ACTIVATIONS:
        reasons.append(f"activation_function {activation!r} ({', '.join(ACTIVATIONS)} are)")
    return reasons


def marian_decoding_from_hf(hf_config: HFConfig) -> dict[str, object]:
    """The decoding section of a recipe, as the checkpoint's generation config says."""
    beams = hf_config.get("num_beams") or 1
    if beams == 1:
        return {"kind": "greedy"}
    penalty = hf_config.get("length_penalty")
    return {"kind": "beam", "size": beams, "length_penalty": 1.0 if penalty is None else float(penalty)}


# --- config, out ----------------------------------------------------------------------------------------------------


def marian_config_to_hf(
    model: TransformerConfig, vocab_sizes: tuple[int, int], special: Mapping[str, int], positions: int
) -> dict[str, object]:
    """Hugging Face's config; `positions` is the size of its table of positions."""
    decoder = model.decoder_layers or model.layers
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": vocab_sizes[0],
        "decoder_vocab_size": vocab_sizes[1],
        "d_model": model.size,
        **{f"{side}_layers": count for side, count in (("encoder", model.layers), ("decoder", decoder))},
        **{f"{side}_ffn_dim": model.inner for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": model.heads for side in ("encoder", "decoder")},
        "activation_function": activation_to_hf(model.activation),
        "dropout": model.dropout,
        "attention_dropout": model.attention.encoder.dropout,
        "scale_embedding": model.scale_embedding,
        "share_encoder_decoder_embeddings": model.share == "all",
        "tie_word_embeddings": model.share != "none",
        "max_position_embeddings": positions,
        "dtype": "float32",
        **special,
        "forced_eos_token_id": special["eos_token_id"],
    }


SUPPORTED = {  # every choice of a Transformer that Marian can express
    "kind": ("transformer",),
    "decoder_self": ("attention",),
    "residual": ("post_norm",),
    "norm": ("layer",),
    "norm_gain": ("True",),
    "norm_bias": ("True",),
    "feed_forward": ("dense",),
    "activation": ("relu", "gelu", "gelu_tanh", "swish"),
    **{f"position.{side}": ("sinusoidal",) for side in ("encoder", "decoder")},
    **{
        f"attention.{part}.{slot}": (name,)
        for part in ("encoder", "decoder", "cross")
        for slot, name in (("score", "scaled_dot"), ("pattern", "full"), ("normalise", "softmax"), ("compress", "none"))
    },
    **{
        f"attention.{part}.{slot}": ("none",)
        for part in ("encoder", "decoder", "cross")
        for slot in ("d_k", "d_v", "heads", "kv_heads")
    },
    **{f"attention.{part}.qk_norm": ("False",) for part in ("encoder", "decoder", "cross")},
}


def _unsupported_reasons(model: ModelSettings) -> list[str]:
    """Choices that Marian has not, else details of its norms and positions."""
    reasons = unsupported_choices(model, SUPPORTED, "Marian")
    if reasons or not isinstance(model, TransformerConfig):
        return reasons
    positions = [model.position.of(side) for side in ("encoder", "decoder")]
    sinusoidal = [p for side in positions for p in side if isinstance(p, SinusoidalConfig)]
    if model.epsilon != 1e-5:
        reasons.append(f"model.epsilon is {model.epsilon:g}, where Marian has 1e-05")
    if any(p.join != "add" for p in sinusoidal):
        reasons.append("model.position joins by concat, where Marian adds")
    if len({p.layout for p in sinusoidal}) > 1:
        reasons.append("encoder and decoder order their sines and cosines differently")
    if any(len(side) > 1 for side in positions):
        reasons.append("model.position is a list, where Marian has one")
    return reasons


# --- in -------------------------------------------------------------------------------------------------------------


def import_marian(checkpoint: Checkpoint, out: Path) -> ImportedModel:
    """The model of a Marian checkpoint; `out` is where its folder will be, of which the recipe has the path."""
    origin, hf_config = checkpoint.folder, checkpoint.config
    hf_weights = without_sinusoids(checkpoint.tensors(), origin)
    model = marian_config_from_hf(hf_config, "final_logits_bias" in hf_weights, origin)
    vocabulary, files, sections = _vocabulary(checkpoint)
    if files:
        path = str((out / TOKENIZER).absolute())
        sections["text"] = {"kind": "marian", "path": path, "shared": model.share == "all"}
    sections |= {
        "data": {"filters": {"max_length": hf_config.get("max_position_embeddings", 512) - 1}},
        "model": config.to_plain(model),
        "decoding": marian_decoding_from_hf(hf_config | checkpoint.json("generation_config.json", {})),
    }
    recipe = config.parse_config(Recipe, config.to_node(sections, str(origin)))
    own = unique_state_dict(model.build(vocabulary.source.size, vocabulary.target.size))
    weights = marian_key_map(model.share).from_hf(hf_weights, own, origin)

    def save_tokenizer(home: Path) -> None:
        (home / TOKENIZER).mkdir()
        vocabulary.save(home / TOKENIZER)
        for path in files:
            shutil.copy(path, home / TOKENIZER / path.name)

    return ImportedModel(recipe, weights, save_tokenizer)


def _vocabulary(checkpoint: Checkpoint) -> tuple[Vocabulary, list[Path], dict[str, object]]:
    """The two tokenizers, the files they come from, and the sections of the recipe about them."""
    origin, hf_config = checkpoint.folder, checkpoint.config
    if (origin / TOKENIZER / SECTIONS).is_file():  # exported by regard
        sections = read_sections(origin / TOKENIZER / SECTIONS)
        languages = (str(sections["task"].get("source", "en")), str(sections["task"].get("target", "de")))
        vocabulary = Vocabulary.load(origin / TOKENIZER, languages)
        _check_vocab_sizes(hf_config, [side.size for side in vocabulary], origin)
        return vocabulary, [], sections
    tokenizer_config = checkpoint.json("tokenizer_config.json", {})
    separate = bool(tokenizer_config.get("separate_vocabs"))
    names = {side: TABLES[side if separate else "source"] for side in SPM}
    needed = list(dict.fromkeys((*SPM.values(), *names.values())))
    missing = [name for name in needed if not checkpoint.has(name)]
    if missing:
        raise RegardError(f"{origin}: the vocabulary is not whole ({', '.join(missing)} not there)")
    unk = tokenizer_config.get("unk_token", "<unk>")
    pad, eos, start = (hf_config[key] for key in SPECIAL_TOKENS)
    specials = MarianSpecials(pad, eos, start, unk["content"] if isinstance(unk, dict) else unk)
    languages = (tokenizer_config.get("source_lang") or "en", tokenizer_config.get("target_lang") or "en")
    tables = [read_id_table(origin / name) for name in names.values()]
    _check_vocab_sizes(hf_config, list(map(len, tables)), origin)
    source, target = (
        from_marian(origin / name, table, specials, language)
        for name, table, language in zip(SPM.values(), tables, languages, strict=True)
    )
    task = {"kind": "translation", "source": languages[0], "target": languages[1]}
    return Vocabulary(source, target, shared=False), [origin / name for name in needed], {"task": task}


def _check_vocab_sizes(hf_config: HFConfig, sizes: list[int], origin: Path) -> None:
    for key, size in zip(("vocab_size", "decoder_vocab_size"), sizes, strict=True):
        expected = hf_config.get(key) or hf_config["vocab_size"]
        if expected != size:
            raise RegardError(
                f"{origin}: the vocabulary does not match: {size:,} pieces, where {key} in config.json is {expected:,}"
            )


# --- out ------------------------------------------------------------------------------------------------------------


def export_marian(translator: Translator, run: Path, out: Path) -> str:
    """A folder that Hugging Face reads as a Marian model; returns a summary."""
    recipe, vocabulary = translator.recipe, translator.vocabulary
    model = recipe.model
    refuse_unsupported(_unsupported_reasons(model), run, "Hugging Face")
    assert isinstance(model, TransformerConfig)
    weights = marian_key_map(model.share).to_hf(_marian_layout(translator, model), run)
    write_tensors(out / "model.safetensors", weights, {"format": "pt"})
    source, target = vocabulary.source, vocabulary.target
    special = dict(zip(SPECIAL_TOKENS, (target.pad, target.eos, target.bos), strict=True))
    longest = recipe.data.filters.max_length
    positions = max(512, longest + 1, recipe.decoding.limit(longest) + 1)
    write_json(out / "config.json", marian_config_to_hf(model, (source.size, target.size), special, positions))
    write_json(out / "generation_config.json", _generation_config(translator, special, positions))
    return write_tokenizers(vocabulary, recipe, folder.run_folder_of(run) / TOKENIZER, out)


def _marian_layout(translator: Translator, model: TransformerConfig) -> dict[str, Tensor]:
    """Our weights with separate queries and keys, and with features in Marian's order."""
    weights = without_proposals(unique_state_dict(translator.model))
    for name, module in translator.model.named_modules():
        if isinstance(module, SharedQueryKey):
            for part in ("weight", "bias"):
                matrices = [weights[f"{name}.{matrix}.{part}"] for matrix in ("query", "key_value")]
                weights[f"{name}.key_value.{part}"] = torch.cat(matrices)
    layouts = {p.layout for p in model.position.of("encoder") if isinstance(p, SinusoidalConfig)}
    return permute_features(weights, sines_first(model.size)) if layouts == {"interleaved"} else weights


def _generation_config(translator: Translator, special: dict[str, int], positions: int) -> dict[str, object]:
    decoding = translator.recipe.decoding
    beam: dict[str, object] = {}
    if isinstance(decoding, Beam):  # Hugging Face divides by nᵅ; for another penalty its default α stays
        beam = {"num_beams": decoding.size, "early_stopping": True}
        beam |= {"length_penalty": decoding.length_penalty} if decoding.penalty == "power" else {}
    return {
        **special,
        "forced_eos_token_id": special["eos_token_id"],
        **beam,
        "max_length": positions,
        "bad_words_ids": [[i] for i in sorted(set(translator.symbols.suppressed))],
    }


# --- order of features ----------------------------------------------------------------------------------------------
# The D features of the residual stream have no order of their own: norms treat all alike. Only sinusoidal positions
# have one, sine beside cosine or all sines first. Permuting every matrix that reads or writes features turns a model
# with one order into the same model with the other.

READS_FEATURES = re.compile(  # [..., D]: the last axis is the features
    r"(source_embedding|target_embedding|output|.+\.(query|key_value|expand))\.weight"
)
WRITES_FEATURES = re.compile(r".+\.(output|contract|norm)\.(weight|bias)")  # [D, ...]: the first axis is


def sines_first(size: int) -> Tensor:
    """The permutation that puts pairs of sine and cosine into halves: the index of each feature before."""
    return torch.cat([torch.arange(0, size, 2), torch.arange(1, size, 2)])


def permute_features(weights: Mapping[str, Tensor], order: Tensor) -> dict[str, Tensor]:
    """Feature j is what feature order[j] was."""

    def permuted(name: str, tensor: Tensor) -> Tensor:
        if READS_FEATURES.fullmatch(name):
            return tensor.index_select(-1, order.to(tensor.device))
        if WRITES_FEATURES.fullmatch(name):
            return tensor.index_select(0, order.to(tensor.device))
        return tensor

    return {name: permuted(name, tensor) for name, tensor in weights.items()}
