"""The loss over a vocabulary without its scores: rows are scored, compared and forgotten, some at a time.

Cross-entropy with label smoothing needs the scores [N, V] of all N targets only to make a number and two gradients.
Both are made here while a chunk of rows is at hand, so that no more than a chunk of scores ever exists, in the forward
or in the backward pass. The plain twin is `F.cross_entropy(x @ weight.T, labels, label_smoothing=…, reduction="sum")`.
"""

from typing import Any

import torch
from torch import Tensor

CHUNK = {"cpu": 1 << 21, "cuda": 1 << 26}  # scores that exist at once: what a cache holds, or enough to fill a GPU


def vocabulary_loss(x: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Σ −(1 − ε) log p(label) − ε/V Σ_v log p(v), with p = softmax(x Wᵀ). x [N, D], weight [V, D], labels [N]."""
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))
    with torch.autocast(x.device.type, enabled=False):
        return _VocabularyLoss.apply(x, weight, labels, smoothing)  # type: ignore[no-any-return,no-untyped-call]


class _VocabularyLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        table = weight.to(x.dtype)
        rows = max(1, CHUNK.get(x.device.type, CHUNK["cpu"]) // len(weight))
        wide = torch.promote_types(x.dtype, torch.float32)
        learns = any(ctx.needs_input_grad[:2])
        to_x = torch.empty_like(x) if learns else x
        to_weight = torch.zeros_like(weight, dtype=wide) if learns else weight
        total = torch.zeros((), dtype=wide, device=x.device)
        for start in range(0, len(x), rows):
            part = x[start : start + rows]
            loss, change = _compare(part @ table.T, labels[start : start + rows], smoothing, learns)
            total += loss
            if learns:
                torch.mm(change, table, out=to_x[start : start + rows])
                to_weight.addmm_(change.T, part) if to_weight.dtype == x.dtype else to_weight.add_(change.T @ part)
        ctx.save_for_backward(to_x, to_weight)
        ctx.kind = weight.dtype
        return total

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor, Tensor, None, None]:
        to_x, to_weight = ctx.saved_tensors
        (scale,) = given
        return to_x * scale.to(to_x.dtype), (to_weight * scale).to(ctx.kind), None, None


def _compare(scores: Tensor, labels: Tensor, smoothing: float, learns: bool) -> tuple[Tensor, Tensor]:
    """The loss of scores [rows, V], summed; where something `learns`, its gradient by them, which takes their place."""
    right = labels[:, None]
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    most, picked = wide.amax(-1), wide.gather(-1, right)
    mean = wide.mean(-1) if smoothing else most
    p = torch.softmax(wide, -1, out=wide)  # in place, since fresh memory is slow
    whole = most - p.amax(-1).log()  # log Σ exp(score), since the largest p is exp(most) over that sum
    loss = (whole - (1 - smoothing) * picked[:, 0] - smoothing * mean).sum()
    if learns:  # ∂/∂score_v = p_v − (1 − ε)[v = label] − ε/V
        p.sub_(smoothing / p.shape[1]).scatter_add_(-1, right, torch.full_like(picked, smoothing - 1))
    return loss, scores.copy_(p)
