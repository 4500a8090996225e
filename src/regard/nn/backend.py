"""Kernels that compute an attention faster than the plain function does, and which choices each can serve.

They give the plain function's numbers at every real place; what a padded query receives is nobody's business.
"""

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor

from regard.nn.layout import Call
from regard.nn.pattern import Pattern

if TYPE_CHECKING:
    from regard.nn.attention import MultiHeadAttention


def serves_sdpa(layer: "MultiHeadAttention", pattern: Pattern, call: Call) -> bool:
    """A scaled dot product under softmax, with nothing added behind it."""
    return (
        layer.score.scale is not None
        and getattr(layer.normalise, "fused", False)
        and not layer.position.mixes
        and pattern.gain(call) is None
    )


def sdpa(
    layer: "MultiHeadAttention", q: Tensor, k: Tensor, v: Tensor, call: Call, pattern: Pattern, bias: Tensor | None
) -> Tensor:
    """torch's scaled_dot_product_attention; a dense mask only where the pattern needs one."""
    dropout = layer.dropout if layer.training else 0.0
    shape = pattern.shape(call)
    if bias is None and shape != "mask":
        return F.scaled_dot_product_attention(
            q, k, v, dropout_p=dropout, is_causal=shape == "causal", scale=layer.score.scale
        )
    mask = pattern.mask(call, layer.heads)
    if bias is not None:
        mask = bias if mask is None else bias.masked_fill(~mask, float("-inf"))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, scale=layer.score.scale)
