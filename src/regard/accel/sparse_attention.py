"""Sparse patterns on a GPU: our own kernels meet only the tiles of queries and keys that a pattern lists.

Time and memory are linear in the length, forward and backward, and one compilation serves all lengths. FlexAttention
is not used: where places see all, a few of its programs work long after all others; its gradients have no tiles of 64
on a Hopper GPU; and it compiles again for other lengths.
"""

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.accel.sparse_plan import KEYS, Plan, make_plan
from regard.nn.backend.contract import AttentionInputs, unfused_reason
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


def refuses(inputs: AttentionInputs) -> str | None:
    if inputs.q.device.type != "cuda":
        return ""
    plan = plan_of(inputs)
    if plan is None:
        return ""
    if plan.ids.shape[-1] * KEYS > inputs.k.shape[2]:
        return "the pattern hides too little of so short an input"
    return unfused_reason(inputs) or _unsupported_reason(inputs)


def _unsupported_reason(inputs: AttentionInputs) -> str | None:
    """What is asked for that these kernels do not know."""
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


def plan_of(inputs: AttentionInputs) -> Plan | None:
    """Padding is left to the kernels, so that without packed documents a plan depends on the length alone."""
    context, q, k = inputs.context, inputs.context.queries, inputs.context.keys

    def find() -> Plan | None:
        if not (q.right_padded and k.right_padded and q.length == k.length):
            return None
        parts = tuple(
            p for p in inputs.pattern.parts() if p != Padding() and (p != Document() or k.document is not None)
        )
        return _kept(parts, k.length, k.position.device) if all(map(_by_place, parts)) else make_plan(parts, context)

    return context.once(("tiles", inputs.pattern), find)


def _by_place(pattern: Pattern) -> bool:
    """Whether what is visible follows from positions alone."""
    if isinstance(pattern, And | Or):
        return _by_place(pattern.left) and _by_place(pattern.right)
    return isinstance(pattern, Band | Causal | SampledBlocks | Full | Global)


@lru_cache(maxsize=64)
@torch.inference_mode(False)
def _kept(parts: tuple[Pattern, ...], length: int, device: torch.device) -> Plan | None:
    layout = Layout.of(length, device=device)
    return make_plan(parts, AttentionContext(layout, layout))


class SparseAttention(torch.autograd.Function):
    """softmax(scale · qᵀk) v over the tiles of a plan; q, k and v are [B, H, N, d]."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, plan: Plan, lengths: Tensor | None, scale: float) -> Tensor:
        from regard.accel.sparse_attention_kernels import forward_kernel, merge_kernel

        (rows, heads, n, _), d_v, splits = q.shape, v.shape[-1], -(-plan.asked // STRIDE)
        out = q.new_empty(rows, n, heads, d_v).transpose(1, 2)
        lse = q.new_empty(rows, heads, plan.asking * plan.rows, dtype=torch.float32)
        parts = [_parts_of(q, splits, plan.tops * plan.rows, *size) for size in ((d_v,), (), ())]
        sizes = _sizes(plan, q, v, lengths)
        with torch.cuda.device_of(q):
            forward_kernel[plan.tops * (splits - 1) + plan.asking, rows * heads](
                q, k, v, out, lse, *parts,
                plan.ids, plan.refs, plan.counts, plan.every, plan.top, plan.bits, lengths,
                *_strides(q, k, v, out), plan.of_row, plan.of_head, heads, n, plan.asked, plan.width, splits,
                scale * LOG2E, **sizes, EDGE=plan.tops, **_options("forward", plan, q, v),
            )  # fmt: skip
            if plan.tops:
                merge_kernel[plan.tops, rows * heads](
                    out, lse, *parts, lengths, *_strides(out), heads, n, splits,
                    ROWS=plan.rows, D_V=d_v, EDGE=plan.tops, PADDED=lengths is not None,
                )  # fmt: skip
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.plan, ctx.lengths, ctx.scale = plan, lengths, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        from regard.accel.sparse_attention_kernels import keys_kernel, queries_kernel

        (q, k, v, out, lse), plan, lengths, scale = ctx.saved_tensors, ctx.plan, ctx.lengths, ctx.scale
        (rows, heads, n, d_k), d_v = q.shape, v.shape[-1]
        d_out = d_out if d_out.stride(-1) == 1 else d_out.contiguous()
        delta, d_q, d_keys, d_values = (torch.empty_like(x) for x in (lse, q, k, v))
        sizes = _sizes(plan, q, v, lengths)
        lists = plan.of_row, plan.of_head, heads, n, plan.asked, plan.width
        with torch.cuda.device_of(q):
            splits = -(-plan.asked // STRIDE)
            part = _parts_of(q, splits, plan.tops * plan.rows, d_k)
            queries_kernel[plan.tops * (splits - 1) + plan.asking, rows * heads](
                q, k, v, out, d_out, lse, delta, d_q, part,
                plan.ids, plan.refs, plan.counts, plan.every, plan.top, plan.bits, lengths,
                *_strides(q, k, v, out, d_out, d_q), *lists, splits, scale * LOG2E, scale,
                **sizes, EDGE=plan.tops, **_options("queries", plan, q, v),
            )  # fmt: skip
            _add_up(d_q, part)
            splits = -(-plan.asking // STRIDE)
            part_k, part_v = (_parts_of(q, splits, plan.edge * KEYS, size) for size in (d_k, d_v))
            keys_kernel[plan.edge * (splits - 1) + plan.asked, rows * heads](
                q, k, v, d_out, lse, delta, d_keys, d_values, part_k, part_v,
                plan.refs, plan.starts, plan.asks, plan.ask_refs, plan.every, plan.bits, lengths,
                *_strides(q, k, v, d_out, d_keys, d_values), *lists, splits, scale * LOG2E, scale,
                **sizes, SOME=64, EDGE=plan.edge, **_options("keys", plan, q, v),
            )  # fmt: skip
            _add_up(d_keys, part_k)
            _add_up(d_values, part_v)
        return d_q, d_keys, d_values, None, None, None


def _parts_of(q: Tensor, splits: int, places: int, *size: int) -> Tensor:
    """Room for what the splits of the edge find."""
    return q.new_empty(*q.shape[:2], splits, places, *size, dtype=torch.float32)


def _add_up(whole: Tensor, part: Tensor) -> None:
    """The first places of `whole` [B, H, N, d] become the sum over splits [B, H, splits, places, d]."""
    places = min(part.shape[3], whole.shape[2])
    if places:
        whole[:, :, :places] = part.sum(2)[:, :, :places]


def _sizes(plan: Plan, q: Tensor, v: Tensor, lengths: Tensor | None) -> dict[str, int]:
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


def _options(kernel: str, plan: Plan, q: Tensor, v: Tensor) -> dict[str, int]:
    options = OPTIONS[kernel][plan.rows]
    if max(q.shape[-1], v.shape[-1]) > 64:  # large heads need all registers
        return {name: value for name, value in options.items() if name != "maxnreg"}
    return options
