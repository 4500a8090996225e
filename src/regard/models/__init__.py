"""Whole models made of `regard.nn`, and the batches that they read.

model = Transformer.base(32000); logits = model(PairBatch(source, target=target))
"""

from regard.models.batch import PairBatch, TextBatch
from regard.models.bert import Bert, BertConfig, BertPretraining, MaskedLM
from regard.models.init import INITS
from regard.models.lm import LanguageModel, LanguageModelConfig
from regard.models.state import DecoderState
from regard.models.transformer import Transformer, TransformerConfig

__all__ = [
    "INITS",
    "Bert",
    "BertConfig",
    "BertPretraining",
    "DecoderState",
    "LanguageModel",
    "LanguageModelConfig",
    "MaskedLM",
    "PairBatch",
    "TextBatch",
    "Transformer",
    "TransformerConfig",
]
