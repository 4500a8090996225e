"""What a decoder layer may have in the place of self-attention. One file a choice, imported here."""

from regard.nn.recurrence.average import AverageAttention, AverageAttentionConfig
from regard.nn.recurrence.contract import DecoderSelfConfig, Recurrence, SelfAttentionConfig
from regard.nn.recurrence.ssru import SSRU, SSRUConfig

__all__ = [
    "SSRU",
    "AverageAttention",
    "AverageAttentionConfig",
    "DecoderSelfConfig",
    "Recurrence",
    "SSRUConfig",
    "SelfAttentionConfig",
]
