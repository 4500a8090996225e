"""Whole models made of `regard.nn`, and the batches that they read. A new one is a file that is imported here.

model = Transformer.base(32000); logits = model(PairBatch(source, target=target))
"""

from regard.models.batch import PairBatch, TextBatch
from regard.models.bert import Bert, BertConfig, BertPretraining, MaskedLM
from regard.models.bytenet import ByteNetConfig
from regard.models.contract import ModelConfig
from regard.models.conv import ConvConfig
from regard.models.decoders.pairs import DecoderOnly, DecoderOnlyConfig
from regard.models.elmo import ElmoConfig
from regard.models.init import INITS
from regard.models.lm import LanguageModel, LanguageModelConfig
from regard.models.lstm import BiLstmConfig, LstmConfig
from regard.models.rnn import RnnConfig
from regard.models.state import DecoderState
from regard.models.transformer import Transformer, TransformerConfig

__all__ = [
    "INITS",
    "Bert",
    "BertConfig",
    "BertPretraining",
    "BiLstmConfig",
    "ByteNetConfig",
    "ConvConfig",
    "DecoderOnly",
    "DecoderOnlyConfig",
    "DecoderState",
    "ElmoConfig",
    "LanguageModel",
    "LanguageModelConfig",
    "LstmConfig",
    "MaskedLM",
    "ModelConfig",
    "PairBatch",
    "RnnConfig",
    "TextBatch",
    "Transformer",
    "TransformerConfig",
]
