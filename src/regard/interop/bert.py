"""BERT in Hugging Face's form (BertModel, BertForPreTraining): its config and the names of its weights, in and out."""

from collections.abc import Mapping
from typing import Any

from regard.config import parse_config, to_node
from regard.interop.choices import activation_here, activation_there, demand, refuse_what_is_lost
from regard.interop.keys import KeyMap, both, rule
from regard.models.bert import BertConfig

_SELF, _DONE = "encoder.layer.{n}.attention.self", "encoder.layer.{n}.attention.output"
BODY = KeyMap(  # Bert is their BertModel without its pooler
    (
        rule("embedding.weight", "embeddings.word_embeddings.weight"),
        rule("position.0.table", "embeddings.position_embeddings.weight"),
        rule("segment_embedding.weight", "embeddings.token_type_embeddings.weight"),
        *both("embedding_norm", "embeddings.LayerNorm"),
        *both("layers.{n}.attention.query", f"{_SELF}.query"),
        *both("layers.{n}.attention.key_value", (f"{_SELF}.key", f"{_SELF}.value")),
        *both("layers.{n}.attention.output", f"{_DONE}.dense"),
        *both("layers.{n}.residuals.0.norm", f"{_DONE}.LayerNorm"),
        *both("layers.{n}.feed_forward.expand", "encoder.layer.{n}.intermediate.dense"),
        *both("layers.{n}.feed_forward.contract", "encoder.layer.{n}.output.dense"),
        *both("layers.{n}.residuals.1.norm", "encoder.layer.{n}.output.LayerNorm"),
    ),
    ignored=("embeddings.position_ids",),
    older={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
)
POOLER = KeyMap(both("pooler.dense", "pooler.dense"))
WORDS = KeyMap(
    (
        *both("words.dense", "cls.predictions.transform.dense"),
        *both("words.norm", "cls.predictions.transform.LayerNorm"),
        rule("words.output.bias", "cls.predictions.bias"),
    ),
    copies={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
)
SENTENCE = KeyMap(both("sentence", "cls.seq_relationship"))
MASKED = BODY.under("body.", "bert.") + WORDS  # MaskedLanguage is BertForMaskedLM
PRETRAINING = MASKED + POOLER.under("", "bert.") + SENTENCE  # Pretraining is BertForPreTraining
READER = BODY.under("body.") + POOLER  # Encoder is BertModel
TAGGER = BODY.under("body.", "bert.") + KeyMap(both("output", "classifier"))  # BertForTokenClassification
CLASSIFIER = TAGGER + POOLER.under("", "bert.")  # BertForSequenceClassification, BertForMultipleChoice
ANSWERER = BODY.under("body.", "bert.") + KeyMap(both("output", "qa_outputs"))  # BertForQuestionAnswering
FIXED = {"model_type": "bert", "is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute"}


def config_here(theirs: Mapping[str, Any], origin: object) -> BertConfig:
    """From the mapping in their config.json; what is absent has their default."""
    demand(theirs, FIXED, origin)
    said = {
        "layers": theirs.get("num_hidden_layers", 12),
        "size": theirs.get("hidden_size", 768),
        "inner": theirs.get("intermediate_size", 3072),
        "heads": theirs.get("num_attention_heads", 12),
        "dropout": theirs.get("hidden_dropout_prob", 0.1),
        "epsilon": theirs.get("layer_norm_eps", 1e-12),
        "activation": activation_here(theirs.get("hidden_act", "gelu"), origin),
        "segments": theirs.get("type_vocab_size", 2),
        "position": {"kind": "learned", "length": theirs.get("max_position_embeddings", 512)},
        "attention": {"dropout": theirs.get("attention_probs_dropout_prob", 0.1)},
    }
    return parse_config(BertConfig, to_node(said, str(origin)))


def config_there(ours: BertConfig, entries: int, architecture: str = "BertForPreTraining") -> dict[str, Any]:
    """The mapping of their config.json, without the ids of marks, or a refusal where BERT is another kind of model."""
    said = {
        **{key: value for key, value in FIXED.items() if key != "position_embedding_type"},
        "architectures": [architecture],
        "vocab_size": entries,
        "num_hidden_layers": ours.layers,
        "hidden_size": ours.size,
        "intermediate_size": ours.inner,
        "num_attention_heads": ours.heads,
        "hidden_dropout_prob": ours.dropout,
        "attention_probs_dropout_prob": ours.attention.dropout,
        "layer_norm_eps": ours.epsilon,
        "hidden_act": activation_there(ours.activation) or "gelu",
        "type_vocab_size": ours.segments or 2,
        "max_position_embeddings": getattr(ours.position, "length", 512),
    }
    refuse_what_is_lost(ours, config_here(said, "the model"), "BERT")
    return said
