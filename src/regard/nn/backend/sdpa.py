"""torch's scaled_dot_product_attention; a dense mask only where the pattern needs one."""

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.nn import dispatch
from regard.nn.backend.contract import AttentionInputs, unfused_reason


def refuses(job: AttentionInputs) -> str | None:
    return unfused_reason(job) or ("the position adds to the output" if job.layer.position.mixes else None)


def sdpa(job: AttentionInputs) -> Tensor:
    if dispatch.on_cpu(job.q.device) and torch.is_autocast_enabled("cpu"):
        # torch's CPU kernel is slow at small products in half precision: its gradients took 7 times as long (2.13).
        with torch.autocast("cpu", enabled=False):
            return _attend(job, job.q.float(), job.k.float(), job.v.float())
    return _attend(job, job.q, job.k, job.v)


def _attend(job: AttentionInputs, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    layer = job.layer
    dropout = layer.dropout if layer.training else 0.0
    shape = job.pattern.shape(job.call)
    if job.bias is None and shape != "mask":
        return F.scaled_dot_product_attention(
            q, k, v, dropout_p=dropout, is_causal=shape == "causal", scale=layer.score.scale
        )
    mask = job.pattern.mask(job.call, q.shape[1])
    if job.bias is not None:
        bias = job.bias.dense(job.call).to(q.dtype)
        mask = bias if mask is None else bias.masked_fill(~mask, float("-inf"))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, scale=layer.score.scale)
