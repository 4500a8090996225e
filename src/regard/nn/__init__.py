"""Attention and what stands around it, for any PyTorch model. Knows no text, no files, no devices and no processes.

y = MultiHeadAttention(512, 8, position="rotary", pattern="window(64)", causal=True)(x, mask=real)

Attention is in `attention.py`, its heads in `multi_head.py`, masks in `pattern/masks.py`; docs/library.md has examples.
Letters for shapes, everywhere: B batch, T/S target/source length, Q/K query/key length, D model, H heads, V vocabulary.
"""

from regard.nn.attention import Attention, AttentionConfig, slow_paths
from regard.nn.cache import CrossKVCache, KVCache, SegmentMemory
from regard.nn.compress import (
    CompressConfig,
    Compressor,
    LinformerConfig,
    NoCompressionConfig,
    StridedConvolutionConfig,
)
from regard.nn.dropout import Dropout, RowDropout
from regard.nn.embedding import BiasedOutput, Embedding, Output, WordDropout
from regard.nn.feed_forward import FeedForward, GatedFeedForward, feed_forward
from regard.nn.layers import DecoderLayer, EncoderLayer, ModuleList, NoResidual, PostNorm, PreNorm, Residual
from regard.nn.layout import AttentionContext, Layout, Tree
from regard.nn.loss import vocabulary_loss
from regard.nn.multi_head import MultiHeadAttention, SharedQueryKey, build_attention, build_position
from regard.nn.norm import BatchNorm, LayerNorm
from regard.nn.normalise import EntmaxConfig, HardConfig, NormaliseConfig, Normaliser, SoftmaxConfig, SparsemaxConfig
from regard.nn.pattern import PATTERNS, Causal, DenseMask, Document, Full, Padding, Pattern, parse_pattern
from regard.nn.position import (
    AlibiConfig,
    LearnedConfig,
    NoPositionConfig,
    Position,
    PositionConfig,
    RelativeConfig,
    RotaryConfig,
    SinusoidalConfig,
    StructuralConfig,
    T5Config,
    TransformerXLConfig,
    sinusoids,
)
from regard.nn.record import AttentionRecorder, LayerRecord
from regard.nn.score import (
    AdditiveConfig,
    ConcatConfig,
    CosineConfig,
    DotConfig,
    GeneralConfig,
    ScaledDotConfig,
    Score,
    ScoreConfig,
)
from regard.nn.sizes import Sizes

__all__ = [
    "PATTERNS",
    "AdditiveConfig",
    "AlibiConfig",
    "Attention",
    "AttentionConfig",
    "AttentionContext",
    "AttentionRecorder",
    "BatchNorm",
    "BiasedOutput",
    "Causal",
    "CompressConfig",
    "Compressor",
    "ConcatConfig",
    "CosineConfig",
    "CrossKVCache",
    "DecoderLayer",
    "DenseMask",
    "Document",
    "DotConfig",
    "Dropout",
    "Embedding",
    "EncoderLayer",
    "EntmaxConfig",
    "FeedForward",
    "Full",
    "GatedFeedForward",
    "GeneralConfig",
    "HardConfig",
    "KVCache",
    "LayerNorm",
    "LayerRecord",
    "Layout",
    "LearnedConfig",
    "LinformerConfig",
    "ModuleList",
    "MultiHeadAttention",
    "NoCompressionConfig",
    "NoPositionConfig",
    "NoResidual",
    "NormaliseConfig",
    "Normaliser",
    "Output",
    "Padding",
    "Pattern",
    "Position",
    "PositionConfig",
    "PostNorm",
    "PreNorm",
    "RelativeConfig",
    "Residual",
    "RotaryConfig",
    "RowDropout",
    "ScaledDotConfig",
    "Score",
    "ScoreConfig",
    "SegmentMemory",
    "SharedQueryKey",
    "SinusoidalConfig",
    "Sizes",
    "SoftmaxConfig",
    "SparsemaxConfig",
    "StridedConvolutionConfig",
    "StructuralConfig",
    "T5Config",
    "TransformerXLConfig",
    "Tree",
    "WordDropout",
    "build_attention",
    "build_position",
    "feed_forward",
    "parse_pattern",
    "sinusoids",
    "slow_paths",
    "vocabulary_loss",
]
