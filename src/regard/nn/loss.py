"""The loss over a vocabulary without its scores: rows are scored, compared and forgotten, some at a time.

Cross-entropy with label smoothing needs the scores [N, V] of all N targets only to make a number and two gradients.
Both are made here while a chunk of rows is at hand, so that no more than a chunk of scores ever exists, in the forward
or in the backward pass. The plain twin is `F.cross_entropy(x @ weight.T, labels, label_smoothing=…, reduction="sum")`.
"""

from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.nn import dispatch
from regard.nn.dispatch import GradientContext

CHUNK = {"cpu": 1 << 21, "cuda": 1 << 26}  # scores that exist at once: what a cache holds, or enough to fill a GPU
FUSED = 1 << 28  # the same for our own kernel, which has no wider copy of them
ROUND = 64  # a GPU's table is filled up to a multiple of it


def vocabulary_loss(x: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Σ −(1 − ε) log p(label) − ε/V Σ_v log p(v), with p = softmax(x Wᵀ). x [N, D], weight [V, D], labels [N]."""
    x = x.to(dispatch.product_dtype(x))
    fused = dispatch.fast("smoothed_cross_entropy", x)
    with torch.autocast(x.device.type, enabled=False):
        return _VocabularyLoss.apply(x, weight, labels, smoothing, fused)


Comparison = Callable[[Tensor, Tensor, float, bool, int], tuple[Tensor, Tensor]]  # `_compare` and its fast twin


class _LossContext(GradientContext, Protocol):
    kind: torch.dtype
    entries: int


class _VocabularyLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: _LossContext, x: Tensor, weight: Tensor, labels: Tensor, smoothing: float, fused: Comparison | None
    ) -> Tensor:
        compare = fused or _compare
        table = weight.to(x.dtype)
        if fused:  # products are fast where rows begin at round addresses
            table = F.pad(table, (0, 0, 0, -len(table) % ROUND))
        rows = max(1, (FUSED if fused else CHUNK.get(x.device.type, CHUNK["cpu"])) // len(table))
        wide = torch.promote_types(x.dtype, torch.float32)
        learns = any(ctx.needs_input_grad[:2])
        to_x = torch.empty_like(x) if learns else x
        to_weight = torch.zeros_like(table, dtype=wide) if learns else weight
        total = torch.zeros((), dtype=wide, device=x.device)
        for start in range(0, len(x), rows):
            part, right = x[start : start + rows], labels[start : start + rows]
            loss, change = compare(part @ table.T, right, smoothing, learns, len(weight))
            total += loss
            if learns:
                torch.mm(change, table, out=to_x[start : start + rows])
                to_weight.addmm_(change.T, part) if to_weight.dtype == x.dtype else to_weight.add_(change.T @ part)
            del change  # before the next chunk's scores are there
        ctx.save_for_backward(to_x, to_weight)
        ctx.kind, ctx.entries = weight.dtype, len(weight)
        return total

    @staticmethod
    def backward(ctx: _LossContext, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        to_x, to_weight = ctx.saved_tensors
        (scale,) = gradients
        return to_x * scale.to(to_x.dtype), (to_weight[: ctx.entries] * scale).to(ctx.kind), None, None, None


def _compare(scores: Tensor, labels: Tensor, smoothing: float, learns: bool, entries: int) -> tuple[Tensor, Tensor]:
    """The loss of scores [rows, V], summed; where something `learns`, its gradient by them, in the same memory."""
    right = labels[:, None]
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    most, picked = wide.amax(-1), wide.gather(-1, right)
    mean = wide.mean(-1) if smoothing else most
    p = torch.softmax(wide, -1, out=wide if wide.device.type == "cpu" else None)  # fresh memory is slow there
    whole = most - p.amax(-1).log()  # log Σ exp(score), since the largest p is exp(most) over that sum
    loss = (whole - (1 - smoothing) * picked[:, 0] - smoothing * mean).sum()
    if learns:  # ∂/∂score_v = p_v − (1 − ε)[v = label] − ε/V
        p.sub_(smoothing / entries).scatter_add_(-1, right, torch.full_like(picked, smoothing - 1))
    return loss, scores.copy_(p)
