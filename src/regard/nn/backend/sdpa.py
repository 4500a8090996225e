"""torch's scaled_dot_product_attention; a dense mask only where the pattern needs one."""

import torch.nn.functional as F
from torch import Tensor

from regard.nn.backend.contract import Job, plain_choices


def refuses(job: Job) -> str | None:
    return plain_choices(job) or ("the position adds to the output" if job.layer.position.mixes else None)


def sdpa(job: Job) -> Tensor:
    layer, q, k, v = job.layer, job.q, job.k, job.v
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
