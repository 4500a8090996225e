"""Attention within packed sequences, many short ones end to end: a program holds all of one, so no tile is empty.

Serves the usual attention of translation models: scaled dot products, softmax, and sequences that see themselves, their
past, or their source. Longer ones are left to other kernels.
"""

import math
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.accel import launch
from regard.nn import dispatch
from regard.nn.backend.contract import AttentionInputs, nonstandard_reason, split_heads
from regard.nn.dispatch import GradientContext
from regard.nn.layout import Layout, SequenceSpans
from regard.nn.pattern import Causal

if TYPE_CHECKING:
    from regard.nn.attention import Attention

LONGEST = 128  # positions of a sequence that one tile holds
HEADS = (16, 32, 64, 128)  # dimensions that tensor cores take
LOG2E = math.log2(math.e)  # exponentials are taken to the base 2
PROGRAMS = {16: 528, 32: 528, 64: 264, 128: 132}  # that take sequences by turns, for each head
WARPS = {16: 1, 32: 1, 64: 4, 128: 8}  # by the longer side of the tile


def packed_unsupported_reason(inputs: AttentionInputs) -> str | None:
    q, k = inputs.context.queries, inputs.context.keys
    if q.spans is None or k.spans is None or not dispatch.usable(inputs.q):
        return ""
    if not (fits_tile(q) and fits_tile(k)):
        return f"sequences have more than {LONGEST} positions"
    return unsupported_layer(inputs.layer)


def fits_tile(layout: Layout) -> bool:
    return layout.spans is not None and layout.spans.longest <= LONGEST


def unsupported_layer(layer: "Attention") -> str | None:
    """Why these kernels cannot serve a layer; None: they can."""
    if not {layer.sizes.d_k, layer.sizes.d_v} <= set(HEADS):
        return f"heads have other than {', '.join(map(str, HEADS))} dimensions"
    return nonstandard_reason(layer)


def packed_attention(inputs: AttentionInputs) -> Tensor:
    layer, queries, keys = inputs.layer, inputs.context.queries.spans, inputs.context.keys.spans
    causal = Causal() in inputs.pattern.parts()
    dropout = layer.dropout if layer.training else 0.0
    heads, d_k, d_v = inputs.q.shape[1], inputs.k.shape[-1], inputs.v.shape[-1]
    parts = inputs.parts or tuple(x.transpose(1, 2).flatten(2) for x in (inputs.q, inputs.k, inputs.v))
    assert queries is not None
    assert keys is not None
    assert layer.score.scale is not None
    call = _PackedCall(queries, keys, heads, d_k, d_v, layer.score.scale, causal, dropout, launch.call_seed(dropout))
    out = PackedAttention.apply(call, *parts)
    return out.unflatten(-1, (heads, d_v)).transpose(1, 2)  # [1, H, N, d_v]


class _PackedCall(NamedTuple):
    queries: SequenceSpans
    keys: SequenceSpans
    heads: int
    d_k: int
    d_v: int
    scale: float
    causal: bool
    dropout: float
    call_seed: int

    @property
    def grid(self) -> tuple[int, int]:
        return PROGRAMS[max(self.tile)], self.heads

    @property
    def tile(self) -> tuple[int, int]:
        return launch.power_of_2(self.queries.longest), launch.power_of_2(self.keys.longest)

    @property
    def spans(self) -> tuple[Tensor, ...]:
        return self.queries.start, self.queries.length, self.keys.start, self.keys.length, self.queries.count

    def compiled(self, dtype: torch.dtype) -> dict[str, int | bool | str]:
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

    def split_heads(self, parts: tuple[Tensor, ...]) -> list[Tensor]:
        """q, k and v [1, H, N, d] as they lie in what was computed."""
        return split_heads(parts, self.heads, self.d_k, self.d_k, self.d_v)


class _PackedContext(GradientContext, Protocol):
    call: _PackedCall


class PackedAttention(torch.autograd.Function):
    """softmax(scale · qᵀk) v within each span; `parts` [1, N, …] hold q, k and v, the output is [1, N, H·d_v]."""

    @staticmethod
    def forward(ctx: _PackedContext, call: _PackedCall, *parts: Tensor) -> Tensor:
        from regard.accel.packed_attention_kernels import packed_forward_kernel

        q, k, v = call.split_heads(parts)
        out = q.new_empty(1, q.shape[2], call.heads * call.d_v)
        with launch.device_of(q):
            packed_forward_kernel[call.grid](
                q, k, v, out, *call.spans, *_strides(q, k, v, *split_heads((out,), call.heads, call.d_v)),
                call.scale * LOG2E, call.dropout, launch.step_seed(q), call.call_seed, **call.compiled(q.dtype),
            )  # fmt: skip
        ctx.save_for_backward(*parts)
        ctx.call = call
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: _PackedContext, d_out: Tensor) -> tuple[Tensor | None, ...]:
        from regard.accel.packed_attention_kernels import packed_backward_kernel

        call, parts = ctx.call, ctx.saved_tensors
        d_parts = tuple(map(torch.empty_like, parts))
        (q, k, v), gradients = call.split_heads(parts), call.split_heads(d_parts)
        d_out = d_out.contiguous()
        with launch.device_of(q):
            packed_backward_kernel[call.grid](
                q, k, v, d_out, *gradients, *call.spans,
                *_strides(q, k, v, *split_heads((d_out,), call.heads, call.d_v), *gradients),
                call.scale * LOG2E, call.scale, call.dropout, launch.step_seed(q), call.call_seed,
                **call.compiled(q.dtype),
            )  # fmt: skip
        return None, *d_parts


def _strides(*tensors: Tensor) -> tuple[int, ...]:
    """Of positions and of heads."""
    return tuple(stride for tensor in tensors for stride in (tensor.stride(2), tensor.stride(1)))
