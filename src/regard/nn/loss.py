"""The loss over a vocabulary without its scores: rows are scored, compared and forgotten, some at a time.

Cross-entropy with label smoothing needs the scores [N, V] of all N targets only to make a number and two gradients.
Both are made here while a chunk of rows is at hand, so that no more than a chunk of scores ever exists, in the forward
or in the backward pass. The plain twin is `F.cross_entropy(x @ weight.T, labels, label_smoothing=…, reduction="sum")`,
plus a bias where there is one.
"""

from typing import Any

import torch
from torch import Tensor

CHUNK = {"cpu": 1 << 22, "cuda": 1 << 26}  # scores that exist at once: what a cache holds, or enough to fill a GPU


def vocabulary_loss(x: Tensor, weight: Tensor, labels: Tensor, smoothing: float, bias: Tensor | None = None) -> Tensor:
    """Σ −(1 − ε) log p(label) − ε/V Σ_v log p(v), p = softmax(x Wᵀ + b). x [N, D], W [V, D], labels [N], b [V]."""
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weight = x.to(dtype), weight.to(dtype)
    with torch.autocast(x.device.type, enabled=False):
        return _VocabularyLoss.apply(x, weight, labels, smoothing, bias)  # type: ignore[no-any-return,no-untyped-call]


class _VocabularyLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, labels: Tensor, smoothing: float, bias: Tensor | None) -> Tensor:
        entries = len(weight)
        rows = max(1, CHUNK.get(x.device.type, 1 << 22) // entries)
        wide = torch.promote_types(x.dtype, torch.float32)
        learns = any(ctx.needs_input_grad)
        to_x = torch.empty_like(x) if learns else x
        to_weight = torch.zeros(weight.shape, dtype=wide, device=x.device) if learns else weight
        to_bias = torch.zeros(bias.shape, dtype=wide, device=x.device) if learns and bias is not None else None
        total = torch.zeros((), dtype=wide, device=x.device)
        for start in range(0, len(x), rows):
            part, right = x[start : start + rows], labels[start : start + rows, None]
            scores = (part @ weight.T).to(wide)  # [rows, V]
            if bias is not None:
                scores += bias
            most = scores.amax(-1, keepdim=True)
            picked = scores.gather(-1, right)
            mean = scores.mean(-1, keepdim=True) if smoothing else most
            powers = scores.sub_(most).exp_()  # in place: the scores are not needed again
            sums = powers.sum(-1, keepdim=True)
            whole = sums.log() + most  # log Σ exp
            total += (whole - (1 - smoothing) * picked - smoothing * mean).sum()
            if learns:  # ∂/∂score_v = p_v − (1 − ε)[v = label] − ε/V
                powers.div_(sums).sub_(smoothing / entries)
                powers.scatter_add_(-1, right, torch.full_like(picked, smoothing - 1))
                if to_bias is not None:
                    to_bias += powers.sum(0)
                change = powers.to(x.dtype)
                torch.mm(change, weight, out=to_x[start : start + rows])
                to_weight.addmm_(change.T, part) if to_weight.dtype == x.dtype else to_weight.add_(change.T @ part)
        ctx.save_for_backward(to_x, to_weight, to_bias)
        ctx.kind = weight.dtype
        return total

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor, Tensor, None, None, Tensor | None]:
        to_x, to_weight, to_bias = ctx.saved_tensors
        (scale,) = given
        to_bias = None if to_bias is None else to_bias * scale
        return to_x * scale.to(to_x.dtype), (to_weight * scale).to(ctx.kind), None, None, to_bias
