"""torch's scaled_dot_product_attention; a dense mask only where the pattern needs one."""

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.nn import dispatch
from regard.nn.backend.contract import AttentionInputs, Backend, unfused_reason


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
    mask = inputs.pattern.mask(inputs.context, q.shape[1])
    if inputs.bias is not None:
        bias = inputs.bias.dense(inputs.context).to(q.dtype)
        mask = bias if mask is None else bias.masked_fill(~mask, float("-inf"))
    return F.scaled_dot_product_attention(q, k, v, mask, dropout, scale=layer.score.scale, enable_gqa=grouped)


SDPA = Backend("sdpa", _sdpa, _unsupported_reason, grouped=True)
