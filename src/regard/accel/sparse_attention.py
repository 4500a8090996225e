"""Sparse patterns on a GPU: our own kernels meet only the tiles of queries and keys that a pattern lists.

Time and memory are linear in the length, forward and backward, and one compilation serves all lengths. FlexAttention
is not used: where positions see all, a few of its programs work long after all others; its gradients have no tiles of
64 on a Hopper GPU; and it compiles again for other lengths.
"""

import math
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.accel import launch
from regard.accel.sparse_plan import KEYS, SparsePlan, make_plan, merged_plan
from regard.nn.backend.contract import AttentionInputs, unfused_reason
from regard.nn.dispatch import GradientContext
from regard.nn.layout import AttentionContext, Layout
from regard.nn.pattern import And, Causal, Document, Full, Or, Padding, Pattern
from regard.nn.pattern.sparse import Band, Global, SampledBlocks

STRIDE = 32  # tiles in one split of those that meet all others
LOG2E = math.log2(math.e)  # exponentials are taken to the base 2
OPTIONS: dict[str, dict[int, dict[str, int]]] = {  # how each kernel is compiled, by the queries in a tile
    "forward": {64: {"num_warps": 4, "num_stages": 3}, 128: {"num_warps": 8, "num_stages": 3}},
    "queries": {64: {"num_warps": 4, "num_stages": 3}, 128: {"num_warps": 8, "num_stages": 3}},
    "keys": {
        rows: {"num_warps": 4, "num_stages": 3, "maxnreg": 168} for rows in (64, 128)
    },  # so that three fit at once
}


def sparse_unsupported_reason(inputs: AttentionInputs) -> str | None:
    if inputs.q.device.type != "cuda":
        return ""
    if inputs.context.caller_mask is not None:
        return "the caller's own mask differs from query to query"
    plan = plan_of(inputs)
    if plan is None:
        return ""
    if plan.ids.shape[-1] * KEYS > inputs.k.shape[2]:
        return "the pattern hides too little of so short an input"
    return unfused_reason(inputs) or _unknown_choice(inputs)


def _unknown_choice(inputs: AttentionInputs) -> str | None:
    """What these kernels do not know of the layer and its inputs."""
    if inputs.bias is not None or inputs.layer.position.mixes:
        return "the position adds to scores or output"
    if inputs.layer.dropout and inputs.layer.training:
        return "dropout on the weights needs all of them"
    if inputs.q.dtype not in (torch.bfloat16, torch.float16):
        return f"tensor cores have no {str(inputs.q.dtype).removeprefix('torch.')}"
    known = (16, 32, 64, 128) if torch.cuda.get_device_capability(inputs.q.device) >= (9, 0) else (16, 32, 64)
    if any(x.shape[-1] not in known for x in (inputs.q, inputs.k, inputs.v)):
        return f"heads have other than {', '.join(map(str, known))} dimensions"
    return None


def sparse_attention(inputs: AttentionInputs) -> Tensor:
    plan, keys = plan_of(inputs), inputs.context.keys
    assert plan is not None
    padded = keys.real is not None and Padding() in inputs.pattern.parts()
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (inputs.q, inputs.k, inputs.v))
    return SparseAttention.apply(q, k, v, plan, keys.lengths().int() if padded else None, inputs.layer.score.scale)


def plan_of(inputs: AttentionInputs) -> SparsePlan | None:
    """Padding is left to the kernels, so that without packed documents a plan depends on the length alone."""
    context, q, k = inputs.context, inputs.context.queries, inputs.context.keys

    def build() -> SparsePlan | None:
        if not (q.right_padded and k.right_padded and q.length == k.length):
            return None
        unpadded = (p for p in inputs.pattern.parts() if p != Padding())
        parts = tuple(p for p in unpadded if p != Document() or k.document is not None)
        if all(map(_by_position, parts)):
            return _cached_plan(parts, k.length, k.position.device)
        by_row = [tuple(_of_row(part, row) for part in parts) for row in range(context.rows)]
        if not all(map(_by_position, by_row[0])):
            return make_plan(parts, context)
        return merged_plan([_cached_plan(own, k.length, k.position.device) for own in by_row])

    return context.once(("tiles", inputs.pattern), build)


def _by_position(pattern: Pattern) -> bool:
    """Whether the mask follows from positions alone, so that a plan serves other batches: not from rows' lengths."""
    if isinstance(pattern, And | Or):
        return _by_position(pattern.left) and _by_position(pattern.right)
    if isinstance(pattern, SampledBlocks):
        return len(pattern.table) == 1
    return isinstance(pattern, Band | Causal | Full | Global)


def _of_row(pattern: Pattern, row: int) -> Pattern:
    """The pattern of one row of a batch, where rows drew their blocks for themselves."""
    if isinstance(pattern, And | Or):
        return type(pattern)(_of_row(pattern.left, row), _of_row(pattern.right, row))
    return pattern.of_rows[row] if isinstance(pattern, SampledBlocks) and pattern.of_rows else pattern


@lru_cache(maxsize=1024)
@torch.inference_mode(False)
def _cached_plan(parts: tuple[Pattern, ...], length: int, device: torch.device) -> SparsePlan | None:
    layout = Layout.of(length, device=device)
    return make_plan(parts, AttentionContext(layout, layout))


class _SparseContext(GradientContext, Protocol):
    plan: SparsePlan
    lengths: Tensor | None
    scale: float


class SparseAttention(torch.autograd.Function):
    """softmax(scale · qᵀk) v over the tiles of a plan; q, k and v are [B, H, N, d]."""

    @staticmethod
    def forward(
        ctx: _SparseContext, q: Tensor, k: Tensor, v: Tensor, plan: SparsePlan, lengths: Tensor | None, scale: float
    ) -> Tensor:
        from regard.accel.sparse_attention_kernels import merge_splits_kernel, sparse_forward_kernel

        (rows, heads, n, _), d_v, splits = q.shape, v.shape[-1], -(-plan.key_tiles // STRIDE)
        out = q.new_empty(rows, n, heads, d_v).transpose(1, 2)
        lse = q.new_empty(rows, heads, plan.query_tiles * plan.rows, dtype=torch.float32)
        parts = [_parts_of(q, splits, plan.tops * plan.rows, *size) for size in ((d_v,), (), ())]
        sizes = _sizes(plan, q, v, lengths)
        with launch.device_of(q):
            sparse_forward_kernel[plan.tops * (splits - 1) + plan.query_tiles, rows * heads](
                q, k, v, out, lse, *parts,
                plan.ids, plan.refs, plan.counts, plan.every, plan.top, plan.bits, lengths,
                *_strides(q, k, v, out), plan.of_row, plan.of_head, heads, n, plan.key_tiles, plan.width, splits,
                scale * LOG2E, **sizes, EDGE=plan.tops, **_options("forward", plan, q, v),
            )  # fmt: skip
            if plan.tops:
                merge_splits_kernel[plan.tops, rows * heads](
                    out, lse, *parts, lengths, *_strides(out), heads, n, splits,
                    ROWS=plan.rows, D_V=d_v, EDGE=plan.tops, PADDED=lengths is not None,
                )  # fmt: skip
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.plan, ctx.lengths, ctx.scale = plan, lengths, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: _SparseContext, d_out: Tensor) -> tuple[Tensor | None, ...]:
        from regard.accel.sparse_attention_kernels import d_keys_values_kernel, d_queries_kernel

        (q, k, v, out, lse), plan, lengths, scale = ctx.saved_tensors, ctx.plan, ctx.lengths, ctx.scale
        (rows, heads, n, d_k), d_v = q.shape, v.shape[-1]
        d_out = d_out if d_out.stride(-1) == 1 else d_out.contiguous()
        delta, d_q, d_keys, d_values = (torch.empty_like(x) for x in (lse, q, k, v))
        sizes = _sizes(plan, q, v, lengths)
        lists = plan.of_row, plan.of_head, heads, n, plan.key_tiles, plan.width
        with launch.device_of(q):
            splits = -(-plan.key_tiles // STRIDE)
            part = _parts_of(q, splits, plan.tops * plan.rows, d_k)
            d_queries_kernel[plan.tops * (splits - 1) + plan.query_tiles, rows * heads](
                q, k, v, out, d_out, lse, delta, d_q, part,
                plan.ids, plan.refs, plan.counts, plan.every, plan.top, plan.bits, lengths,
                *_strides(q, k, v, out, d_out, d_q), *lists, splits, scale * LOG2E, scale,
                **sizes, EDGE=plan.tops, **_options("queries", plan, q, v),
            )  # fmt: skip
            _add_up(d_q, part)
            splits = -(-plan.query_tiles // STRIDE)
            part_k, part_v = (_parts_of(q, splits, plan.edge * KEYS, size) for size in (d_k, d_v))
            d_keys_values_kernel[plan.edge * (splits - 1) + plan.key_tiles, rows * heads](
                q, k, v, d_out, lse, delta, d_keys, d_values, part_k, part_v,
                plan.refs, plan.starts, plan.query_ids, plan.query_refs, plan.every, plan.bits, lengths,
                *_strides(q, k, v, d_out, d_keys, d_values), *lists, splits, scale * LOG2E, scale,
                **sizes, SOME=64, EDGE=plan.edge, **_options("keys", plan, q, v),
            )  # fmt: skip
            _add_up(d_keys, part_k)
            _add_up(d_values, part_v)
        return d_q, d_keys, d_values, None, None, None


def _parts_of(q: Tensor, splits: int, positions: int, *size: int) -> Tensor:
    """Room for what the splits of the edge find."""
    return q.new_empty(*q.shape[:2], splits, positions, *size, dtype=torch.float32)


def _add_up(whole: Tensor, part: Tensor) -> None:
    """The first positions of `whole` [B, H, N, d] become the sum over splits [B, H, splits, positions, d]."""
    positions = min(part.shape[3], whole.shape[2])
    if positions:
        whole[:, :, :positions] = part.sum(2)[:, :, :positions]


def _sizes(plan: SparsePlan, q: Tensor, v: Tensor, lengths: Tensor | None) -> dict[str, int]:
    """What the kernels are compiled for."""
    return {
        "ROWS": plan.rows,
        "COLS": KEYS,
        "D_K": q.shape[-1],
        "D_V": v.shape[-1],
        "STRIDE": STRIDE,
        "EVEN": q.shape[2] % plan.rows == 0,
        "PADDED": lengths is not None,
    }


def _strides(*tensors: Tensor) -> tuple[int, ...]:
    return tuple(stride for tensor in tensors for stride in tensor.stride()[:3])


def _options(kernel: str, plan: SparsePlan, q: Tensor, v: Tensor) -> dict[str, int]:
    options = OPTIONS[kernel][plan.rows]
    if max(q.shape[-1], v.shape[-1]) > 64:  # large heads need all registers
        return {name: value for name, value in options.items() if name != "maxnreg"}
    return options
