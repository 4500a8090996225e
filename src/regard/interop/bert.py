"""BERT of Hugging Face (BertModel and its heads), in and out: config, weights, heads and vocabulary.

With its pre-training heads a checkpoint becomes a model that fills gaps, without them one that embeds. Models that were
fine-tuned here are written with Hugging Face's class for their task.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from regard import config
from regard.errors import RegardError
from regard.examples.codec import ExampleCodec
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
)
from regard.interop.hf_tokenizer import read_tokenizer, write_tokenizer
from regard.interop.key_map import KeyMap, rule, weight_and_bias
from regard.interop.model_folder import ImportedModel, without_data
from regard.io.files import shown, write_json
from regard.io.tensors import unique_state_dict, write_tensors
from regard.models.bert import BertConfig
from regard.nn.position import LearnedConfig
from regard.predict.base import FinetunedPredictor
from regard.predict.embedding import TextEmbedder
from regard.recipe import Recipe, TaskConfig
from regard.tasks.classify import ClassifyConfig, RegressConfig
from regard.tasks.embedding import EmbeddingConfig
from regard.tasks.finetuning import FinetuningConfig
from regard.tasks.pretraining import PretrainingConfig
from regard.tasks.tag import TagConfig
from regard.text import Tokenizer
from regard.text.pretrained import bert_tokenizer, read_bert_vocabulary

# --- names of weights -----------------------------------------------------------------------------------------------

_SELF, _OUTPUT = "encoder.layer.{n}.attention.self", "encoder.layer.{n}.attention.output"
BODY = KeyMap(  # Bert is BertModel without its pooler
    (
        rule("embedding.weight", "embeddings.word_embeddings.weight"),
        rule("position.0.table", "embeddings.position_embeddings.weight"),
        rule("segment_embedding.weight", "embeddings.token_type_embeddings.weight"),
        *weight_and_bias("embedding_norm", "embeddings.LayerNorm"),
        *weight_and_bias("layers.{n}.attention.query", f"{_SELF}.query"),
        *weight_and_bias("layers.{n}.attention.key_value", (f"{_SELF}.key", f"{_SELF}.value")),
        *weight_and_bias("layers.{n}.attention.output", f"{_OUTPUT}.dense"),
        *weight_and_bias("layers.{n}.residuals.0.norm", f"{_OUTPUT}.LayerNorm"),
        *weight_and_bias("layers.{n}.feed_forward.expand", "encoder.layer.{n}.intermediate.dense"),
        *weight_and_bias("layers.{n}.feed_forward.contract", "encoder.layer.{n}.output.dense"),
        *weight_and_bias("layers.{n}.residuals.1.norm", "encoder.layer.{n}.output.LayerNorm"),
    ),
    ignored=("embeddings.position_ids",),
    renamed_suffixes={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
)
POOLER = KeyMap(weight_and_bias("pooler.dense", "pooler.dense"))
MLM_HEAD = KeyMap(
    (
        *weight_and_bias("words.dense", "cls.predictions.transform.dense"),
        *weight_and_bias("words.norm", "cls.predictions.transform.LayerNorm"),
        rule("words.output.bias", "cls.predictions.bias"),
    ),
    tied={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
)
NSP_HEAD = KeyMap(weight_and_bias("sentence", "cls.seq_relationship"))
MASKED_LM = BODY.with_prefix("body.", "bert.") + MLM_HEAD
PRETRAINING = MASKED_LM + POOLER.with_prefix("", "bert.") + NSP_HEAD
ENCODER = BODY.with_prefix("body.") + POOLER
TOKEN_CLASSIFIER = BODY.with_prefix("body.", "bert.") + KeyMap(weight_and_bias("output", "classifier"))
CLASSIFIER = TOKEN_CLASSIFIER + POOLER.with_prefix("", "bert.")
QUESTION_ANSWERING = BODY.with_prefix("body.", "bert.") + KeyMap(weight_and_bias("output", "qa_outputs"))
ARCHITECTURES = {  # by the kind of a task's examples, head or task: Hugging Face's class, and the names of its weights
    "pairs": ("BertForPreTraining", PRETRAINING),
    "single": ("BertForMaskedLM", MASKED_LM),
    "pooler": ("BertModel", ENCODER),
    "none": ("BertModel", BODY.with_prefix("body.")),
    "classify": ("BertForSequenceClassification", CLASSIFIER),
    "regress": ("BertForSequenceClassification", CLASSIFIER),
    "tag": ("BertForTokenClassification", TOKEN_CLASSIFIER),
    "answer": ("BertForQuestionAnswering", QUESTION_ANSWERING),
    "choose": ("BertForMultipleChoice", CLASSIFIER),
}

# --- config ---------------------------------------------------------------------------------------------------------

FIXED = {"model_type": "bert", "is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute"}


def bert_config_from_hf(hf_config: HFConfig, origin: object) -> BertConfig:
    """Our config; a key that is absent has Hugging Face's default."""
    check_fixed(hf_config, FIXED, origin)
    values = {
        "layers": hf_config.get("num_hidden_layers", 12),
        "size": hf_config.get("hidden_size", 768),
        "inner": hf_config.get("intermediate_size", 3072),
        "heads": hf_config.get("num_attention_heads", 12),
        "dropout": hf_config.get("hidden_dropout_prob", 0.1),
        "epsilon": hf_config.get("layer_norm_eps", 1e-12),
        "activation": activation_from_hf(hf_config.get("hidden_act", "gelu"), origin),
        "segments": hf_config.get("type_vocab_size", 2),
        "position": {"kind": "learned", "length": hf_config.get("max_position_embeddings", 512)},
        "attention": {"dropout": hf_config.get("attention_probs_dropout_prob", 0.1)},
    }
    return config.parse_config(BertConfig, config.to_node(values, str(origin)))


def bert_config_to_hf(
    model: BertConfig, vocab_size: int, architecture: str = "BertForPreTraining"
) -> dict[str, object]:
    """Hugging Face's config without ids of special tokens; RegardError where the model is no BERT of theirs."""
    hf_config = {
        **{key: value for key, value in FIXED.items() if key != "position_embedding_type"},
        "architectures": [architecture],
        "vocab_size": vocab_size,
        "num_hidden_layers": model.layers,
        "hidden_size": model.size,
        "intermediate_size": model.inner,
        "num_attention_heads": model.heads,
        "hidden_dropout_prob": model.dropout,
        "attention_probs_dropout_prob": model.attention.dropout,
        "layer_norm_eps": model.epsilon,
        "hidden_act": activation_to_hf(model.activation) or "gelu",
        "type_vocab_size": model.segments or 2,
        "max_position_embeddings": _positions(model),
    }
    check_round_trip(model, bert_config_from_hf(hf_config, "the model"), "BERT")
    return hf_config


def _positions(model: BertConfig) -> int:
    return model.position.length if isinstance(model.position, LearnedConfig) else 512


# --- in -------------------------------------------------------------------------------------------------------------


def import_bert(checkpoint: Checkpoint, out: Path) -> ImportedModel:
    """The model of a BERT checkpoint; `out`, where its folder will be, is not needed."""
    origin, hf_config = checkpoint.folder, checkpoint.config
    model, hf_weights = bert_config_from_hf(hf_config, origin), checkpoint.tensors()
    vocab_size = _vocab_size(checkpoint, hf_weights)
    if exported := read_tokenizer(origin, vocab_size):  # by regard
        (tokenizer, sections), keys = exported, None
    else:
        tokenizer_config = checkpoint.json("tokenizer_config.json", {})
        lower = bool(tokenizer_config.get("do_lower_case", True))
        tokenizer = _tokenizer(checkpoint, tokenizer_config, lower, vocab_size)
        task, keys = _task_and_keys(checkpoint, hf_weights, _positions(model))
        sections = {"task": task, "text": {"kind": "bert", "size": tokenizer.size, "lower": lower}}
    plain = {**sections, "data": {}, "model": config.to_plain(model)}
    recipe = config.parse_config(Recipe, config.to_node(plain, str(origin)))
    module, save_tokenizer = _module(recipe, tokenizer, hf_config)
    weights = (keys or _architecture(recipe.task)[1]).from_hf(hf_weights, unique_state_dict(module), origin)
    return ImportedModel(recipe, weights, save_tokenizer)


def _module(recipe: Recipe, tokenizer: Tokenizer, hf_config: HFConfig) -> tuple[nn.Module, Callable[[Path], None]]:
    """The model, and a function that writes its vocabulary and labels into a folder."""
    task = recipe.task
    if isinstance(task, FinetuningConfig):
        names = {int(n): name for n, name in hf_config.get("id2label", {}).items()}
        codec: ExampleCodec[Any, Any, Any] = ExampleCodec(task, tokenizer, [names[n] for n in sorted(names)])
        return task.build_model(recipe, codec), codec.save
    assert isinstance(task, PretrainingConfig | EmbeddingConfig)
    return task.build(recipe, tokenizer.size), lambda out: tokenizer.save(out / TOKENIZER)


def _task_and_keys(
    checkpoint: Checkpoint, hf_weights: Mapping[str, Tensor], length: int
) -> tuple[dict[str, object], KeyMap]:
    """The task whose head the checkpoint has, as a section of a recipe, and the names of the weights."""
    prefix = "bert." if any(name.startswith("bert.") for name in hf_weights) else ""
    mlm, nsp = "cls.predictions.bias" in hf_weights, "cls.seq_relationship.weight" in hf_weights
    pooler = f"{prefix}pooler.dense.weight" in hf_weights
    if mlm and nsp and pooler:
        return {"kind": "pretraining", "unknown": "", "examples": "pairs", "length": length}, PRETRAINING
    if mlm:
        keys = MASKED_LM.ignoring(POOLER.with_prefix("", prefix) + NSP_HEAD)
        return {"kind": "pretraining", "unknown": "", "examples": "single", "length": length}, keys
    keys = BODY.with_prefix("body.", prefix)
    if pooler:
        keys += POOLER.with_prefix("", prefix)
    task = {"kind": "embedding", "head": "pooler" if pooler else "none", "length": length}
    return task | _sentence_transformer(checkpoint), keys


POOLINGS = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max"}


def _sentence_transformer(checkpoint: Checkpoint) -> dict[str, object]:
    """Pooling and length of a model of Sentence Transformers, where the folder has its files."""
    origin, modules = checkpoint.folder, checkpoint.json("modules.json", [])
    names = [str(module.get("type", "")).rsplit(".", 1)[-1] for module in modules]
    options: dict[str, object] = {"normalise": "Normalize" in names}
    for module, name in zip(modules, names, strict=True):
        if name == "Pooling":
            pooling = checkpoint.json(f"{module['path']}/config.json")
            modes = [key.removeprefix("pooling_mode_") for key in pooling if key.startswith("pooling_mode_")]
            modes = [mode for mode in modes if pooling[f"pooling_mode_{mode}"]]
            if len(modes) != 1 or modes[0] not in POOLINGS:
                raise RegardError(
                    f"{origin}: vectors are pooled by {shown(', '.join(modes))}; known: {', '.join(POOLINGS)}"
                )
            options["pooling"] = POOLINGS[modes[0]]
        elif name not in ("Transformer", "Normalize"):
            raise RegardError(f"{origin}: the module {shown(name)} cannot be read")
    limit = checkpoint.json("sentence_bert_config.json", {}).get("max_seq_length")
    return options | ({"length": limit} if limit else {})


def _tokenizer(checkpoint: Checkpoint, tokenizer_config: HFConfig, lower: bool, vocab_size: int) -> Tokenizer:
    origin = checkpoint.folder
    if tokenizer_config.get("strip_accents") is not None:
        check_fixed(tokenizer_config, {"strip_accents": lower}, origin)
    check_fixed(tokenizer_config, {"tokenize_chinese_chars": True}, origin)
    pieces = _pieces(checkpoint)
    if len(pieces) > vocab_size:
        raise RegardError(f"{origin}: the vocabulary has {len(pieces):,} pieces, and config.json says {vocab_size:,}")
    spare = [f"[spare {n}]" for n in range(vocab_size - len(pieces))]  # rows that pad the table to a round size
    return bert_tokenizer([*pieces, *spare], lower, str(origin))


def _pieces(checkpoint: Checkpoint) -> list[str]:
    if checkpoint.has("vocab.txt"):
        return read_bert_vocabulary(checkpoint.folder / "vocab.txt")
    model = checkpoint.json("tokenizer.json", {}).get("model")
    if not isinstance(model, dict) or model.get("type") != "WordPiece":
        raise RegardError(
            f"{checkpoint.folder}: there is no vocab.txt, and no tokenizer.json with a WordPiece vocabulary"
        )
    ids = model.get("vocab")
    if not isinstance(ids, dict) or not all(type(i) is int for i in ids.values()):
        raise RegardError(f"{checkpoint.folder / 'tokenizer.json'}: its vocabulary is none of pieces and their ids")
    if sorted(ids.values()) != list(range(len(ids))):
        raise RegardError(
            f"{checkpoint.folder / 'tokenizer.json'}: the ids of its pieces are not 0 to {len(ids) - 1:,}"
        )
    return sorted(ids, key=ids.__getitem__)


def _vocab_size(checkpoint: Checkpoint, hf_weights: Mapping[str, Tensor]) -> int:
    """What config.json says, and the weights too: no list is made of more pieces than there are."""
    said = int(checkpoint.config.get("vocab_size", 30_522))
    for name, tensor in hf_weights.items():
        if name.endswith("embeddings.word_embeddings.weight") and len(tensor) != said:
            raise RegardError(
                f"{checkpoint.folder}: config.json says {said:,} pieces, and {name} has {len(tensor):,} rows"
            )
    return said


# --- out ------------------------------------------------------------------------------------------------------------


def export_bert(loaded: TextEmbedder | FinetunedPredictor, run: Path, out: Path) -> str:
    """A folder that Hugging Face reads as a BERT with the same head; returns a summary."""
    recipe, tokenizer = cast(Recipe, loaded.recipe), loaded.tokenizer
    refuse_unsupported(unsupported_choices(recipe.model, {"kind": ["bert"]}, "BERT"), run, "Hugging Face")
    if isinstance(recipe.task, ClassifyConfig | RegressConfig) and recipe.task.symmetric:
        raise RegardError(f"{run}: Hugging Face reads a pair in one order, and task.symmetric in both")
    if isinstance(recipe.task, TagConfig) and recipe.task.frozen_features is not None:
        raise RegardError(f"{run}: Hugging Face has no tagger that reads joined layers (task.frozen_features)")
    architecture, keys = _architecture(recipe.task)
    hf_config = bert_config_to_hf(cast(BertConfig, recipe.model), tokenizer.size, architecture)
    write_json(out / "config.json", hf_config | {"pad_token_id": tokenizer.pad} | _labels(loaded))
    write_tensors(out / "model.safetensors", keys.to_hf(unique_state_dict(loaded.model), run), {"format": "pt"})
    return f"a {architecture}; {write_tokenizer(tokenizer, without_data(recipe), out, 'around')}"


def _architecture(task: TaskConfig) -> tuple[str, KeyMap]:
    if isinstance(task, PretrainingConfig):
        return ARCHITECTURES[task.examples.kind]
    return ARCHITECTURES[task.head if isinstance(task, EmbeddingConfig) else task.kind]


def _labels(loaded: TextEmbedder | FinetunedPredictor) -> dict[str, object]:
    if loaded.recipe.task.kind == "regress":
        return {"num_labels": 1, "problem_type": "regression"}
    names = loaded.labels if isinstance(loaded, FinetunedPredictor) else []
    return {"id2label": dict(enumerate(names)), "label2id": {name: n for n, name in enumerate(names)}} if names else {}
