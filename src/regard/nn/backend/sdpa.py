"""torch's scaled_dot_product_attention; a dense mask only where the pattern needs one.

Nor do compressed keys under a causal mask: of every s neighbouring queries each meets a copy of the keys of its own.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.nn import dispatch
from regard.nn.backend.contract import SIMPLE_MASKS, AttentionInputs, Backend, unfused_reason
from regard.nn.pattern import Causal


def _unsupported_reason(inputs: AttentionInputs) -> str | None:
    return unfused_reason(inputs) or ("the position adds to the output" if inputs.layer.position.mixes else None)


def _sdpa(inputs: AttentionInputs) -> Tensor:
    if torch.is_grad_enabled() or not dispatch.on_cpu(inputs.q.device):
        inputs = inputs.repeat_keys()  # not every kernel of torch's takes groups
    if torch.is_autocast_enabled("cpu") and dispatch.on_cpu(inputs.q.device):
        # torch's CPU kernel is slow at small products in half precision: its gradients took 7 times as long (2.13).
        with torch.autocast("cpu", enabled=False):
            return _attend(inputs, inputs.q.float(), inputs.k.float(), inputs.v.float())
    return _attend(inputs, inputs.q, inputs.k, inputs.v)


def _attend(inputs: AttentionInputs, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    layer = inputs.layer
    dropout = layer.dropout if layer.training else 0.0
    kind, grouped = inputs.pattern.mask_kind(inputs.context), q.shape[1] != k.shape[1]
    if inputs.bias is None and kind != "mask":
        return F.scaled_dot_product_attention(
            q, k, v, dropout_p=dropout, is_causal=kind == "causal", scale=layer.score.scale, enable_gqa=grouped
        )
    if inputs.bias is None and _strided_causal(inputs):
        return _attend_strided(q, k, v, inputs.context.keys.stride, dropout, layer.score.scale)
    mask = inputs.pattern.mask(inputs.context, q.shape[1])
    if inputs.bias is not None:
        bias = inputs.bias.dense(inputs.context).to(q.dtype)
        mask = bias if mask is None else bias.masked_fill(~mask, float("-inf"))
    return F.scaled_dot_product_attention(q, k, v, mask, dropout, scale=layer.score.scale, enable_gqa=grouped)


def _strided_causal(inputs: AttentionInputs) -> bool:
    """Whether query i sees the first ⌊(i + 1) / s⌋ keys, each made of s neighbours; padding lies in the future."""
    context, parts = inputs.context, set(inputs.pattern.parts())
    q, k = context.queries, context.keys
    if k.stride == 1 or not q.right_padded or k.length != -(-q.length // k.stride):
        return False
    alone = q.document is None and q.past is None and (k.real is None or q.real is not None)
    return alone and Causal() in parts and parts <= SIMPLE_MASKS


def _attend_strided(q: Tensor, k: Tensor, v: Tensor, s: int, dropout: float, scale: float | None) -> Tensor:
    """Queries with the same (i + 1) mod s see 1, 2, 3 … keys: a causal attention of their own, s of them in the batch.

    q [B, H, Q, d_k], k and v [B, H, ⌈Q/s⌉, …]: [B, H, Q, d_v], of which the first s − 1 see nothing.
    """
    rows, n = len(q), q.shape[2]
    count, first = n // s, min(s - 1, n)  # keys that any query sees
    q = F.pad(q[:, :, first:], (0, 0, 0, count * s - (n - first)))
    q = q.unflatten(2, (count, s)).permute(0, 3, 1, 2, 4).flatten(0, 1)  # [B·s, H, Q/s, d_k]
    k, v = (x[:, :, :count].repeat_interleave(s, 0) for x in (k, v))
    out = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True, scale=scale)
    out = out.unflatten(0, (rows, s)).permute(0, 2, 3, 1, 4).flatten(2, 3)  # [B, H, Q/s·s, d_v]
    return F.pad(out[:, :, : n - first], (0, 0, first, 0))


SDPA = Backend("sdpa", _sdpa, _unsupported_reason, grouped=True)
