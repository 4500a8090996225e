"""Attention within packed sequences, many short ones end to end: a program holds all of one, so no tile is empty.

Serves what translation models do most: scaled products, softmax, and sequences that see themselves, their past, or
their source. Longer ones are left to other kernels.
"""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.accel import launch
from regard.nn import dispatch
from regard.nn.backend.contract import AttentionInputs, nonstandard_reason, split_heads
from regard.nn.layout import Layout, SequenceSpans
from regard.nn.pattern import Causal

if TYPE_CHECKING:
    from regard.nn.attention import Attention

LONGEST = 128  # places of a sequence that one tile holds
HEADS = (16, 32, 64, 128)  # dimensions that tensor cores take
LOG2E = math.log2(math.e)  # exponentials are taken to the base 2
PROGRAMS = {16: 528, 32: 528, 64: 264, 128: 132}  # that take sequences by turns, for each head
WARPS = {16: 1, 32: 1, 64: 4, 128: 8}  # by the longer side of the tile


def refuses(inputs: AttentionInputs) -> str | None:
    q, k = inputs.context.queries, inputs.context.keys
    if q.spans is None or k.spans is None or not dispatch.usable(inputs.q):
        return ""
    if not (fits(q) and fits(k)):
        return f"sequences have more than {LONGEST} places"
    return unsupported_reason(inputs.layer)


def fits(layout: Layout) -> bool:
    return layout.spans is not None and layout.spans.longest <= LONGEST


def unsupported_reason(layer: "Attention") -> str | None:
    """What a layer asks for that these kernels do not know."""
    if not {layer.sizes.d_k, layer.sizes.d_v} <= set(HEADS):
        return f"heads have other than {', '.join(map(str, HEADS))} dimensions"
    return nonstandard_reason(layer)


def packed_attention(inputs: AttentionInputs) -> Tensor:
    layer, queries, keys = inputs.layer, inputs.context.queries.spans, inputs.context.keys.spans
    causal = Causal() in inputs.pattern.parts()
    dropout = layer.dropout if layer.training else 0.0
    heads, d_k, d_v = inputs.q.shape[1], inputs.k.shape[-1], inputs.v.shape[-1]
    parts = inputs.parts or tuple(x.transpose(1, 2).flatten(2) for x in (inputs.q, inputs.k, inputs.v))
    how = (queries, keys, heads, d_k, d_v, layer.score.scale, causal, dropout, launch.salt(dropout))
    out = PackedAttention.apply(_How(*how), *parts)  # type: ignore[arg-type]
    return out.unflatten(-1, (heads, d_v)).transpose(1, 2)  # [1, H, N, d_v]


class _How(NamedTuple):
    queries: SequenceSpans
    keys: SequenceSpans
    heads: int
    d_k: int
    d_v: int
    scale: float
    causal: bool
    dropout: float
    salt: int

    @property
    def grid(self) -> tuple[int, int]:
        return PROGRAMS[max(self.tile)], self.heads

    @property
    def tile(self) -> tuple[int, int]:
        return launch.power(self.queries.longest), launch.power(self.keys.longest)

    @property
    def spans(self) -> tuple[Tensor, ...]:
        return self.queries.start, self.queries.length, self.keys.start, self.keys.length, self.queries.count

    def compiled(self, dtype: torch.dtype) -> dict[str, Any]:
        rows, columns = self.tile
        return {
            "ROWS": rows,
            "COLS": columns,
            "D_K": self.d_k,
            "D_V": self.d_v,
            "CAUSAL": self.causal,
            "DROPS": self.dropout > 0,
            "PRECISION": "ieee" if dtype == torch.float32 else "tf32",
            "num_warps": WARPS[max(rows, columns)],
            "num_stages": 1,
        }

    def views(self, parts: tuple[Tensor, ...]) -> list[Tensor]:
        """q, k and v [1, H, N, d] as they lie in what was computed."""
        return split_heads(parts, self.heads, self.d_k, self.d_k, self.d_v)


class PackedAttention(torch.autograd.Function):
    """softmax(scale · qᵀk) v within each span; `parts` [1, N, …] hold q, k and v, the output is [1, N, H·d_v]."""

    @staticmethod
    def forward(ctx: Any, how: _How, *parts: Tensor) -> Tensor:
        from regard.accel.packed_attention_kernels import forward_kernel

        q, k, v = how.views(parts)
        out = q.new_empty(1, q.shape[2], how.heads * how.d_v)
        with launch.on(q):
            forward_kernel[how.grid](
                q, k, v, out, *how.spans, *_strides(q, k, v, *split_heads((out,), how.heads, how.d_v)),
                how.scale * LOG2E, how.dropout, launch.seed(q), how.salt, **how.compiled(q.dtype),
            )  # fmt: skip
        ctx.save_for_backward(*parts)
        ctx.how = how
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        from regard.accel.packed_attention_kernels import backward_kernel

        how, parts = ctx.how, ctx.saved_tensors
        changes = tuple(map(torch.empty_like, parts))
        (q, k, v), made = how.views(parts), how.views(changes)
        d_out = d_out.contiguous()
        with launch.on(q):
            backward_kernel[how.grid](
                q, k, v, d_out, *made, *how.spans,
                *_strides(q, k, v, *split_heads((d_out,), how.heads, how.d_v), *made),
                how.scale * LOG2E, how.scale, how.dropout, launch.seed(q), how.salt, **how.compiled(q.dtype),
            )  # fmt: skip
        return None, *changes


def _strides(*tensors: Tensor) -> tuple[int, ...]:
    """Of places and of heads."""
    return tuple(stride for tensor in tensors for stride in (tensor.stride(2), tensor.stride(1)))
