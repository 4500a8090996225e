"""Whole models made of `regard.nn`. A new one is a file that is imported here."""

from regard.models.bert import BertConfig
from regard.models.bytenet import ByteNetConfig
from regard.models.contract import ModelConfig
from regard.models.conv import ConvConfig
from regard.models.elmo import ElmoConfig
from regard.models.lm import LanguageModelConfig
from regard.models.lstm import BiLstmConfig, LstmConfig
from regard.models.rnn import RnnConfig
from regard.models.transformer import TransformerConfig

__all__ = [
    "BertConfig",
    "BiLstmConfig",
    "ByteNetConfig",
    "ConvConfig",
    "ElmoConfig",
    "LanguageModelConfig",
    "LstmConfig",
    "ModelConfig",
    "RnnConfig",
    "TransformerConfig",
]
