"""Inference weights: a model whose weights will not change any more, in another precision or in a CPU's own layout.

With few rows at a time a product mostly waits for its weights. oneDNN reads them fastest in a layout of its own, which
is made once here; MKL, which torch uses else, takes two to four times as long for a vocabulary on some processors.
"""

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.accel.topk import topk
from regard.nn import dispatch
from regard.nn.embedding import Output
from regard.nn.norm import BatchNorm

PACKS = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
KINDS = (torch.float32, torch.bfloat16)  # what oneDNN computes with here
HALF = (torch.bfloat16, torch.float16)
ROWS = 64  # the layout is chosen for about so many rows
REFINED = 16  # tokens of each row that are scored exactly
CHUNK = 1 << 18  # scores at once: what a core's own cache holds
WIDE = 8192  # outputs from which even a single row is worth sharing among threads, in float32
# Up to so many rows, steps of …: oneDNN makes code for every number of rows (half a millisecond), and keeps it.
STEPS = ((32, 1), (128, 8), (float("inf"), 32))
SMALL = 1 << 16  # weights up to which oneDNN's way to its product takes longer than the product, in float32


def padded_count(count: int) -> int:
    """The number of rows that oneDNN is given for so many."""
    return count + -count % next(step for most, step in STEPS if count <= most)


class OneDnnLinear(nn.Module):
    """xWᵀ + b, as nn.Linear, with W in oneDNN's layout."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias
        exact = weight.dtype == torch.float32
        self.small, self.narrow = exact and weight.numel() <= SMALL, exact and len(weight) < WIDE
        if not self.small:
            self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), ROWS)

    def forward(self, x: Tensor) -> Tensor:
        if self.small or (self.narrow and x.numel() == x.shape[-1]):
            return F.linear(x, self.weight, self.bias)
        return self._product(x, "none")

    def rectified(self, x: Tensor) -> Tensor:
        """max(0, xWᵀ + b)"""
        if self.small:
            return F.linear(x, self.weight, self.bias).relu_()
        return self._product(x, "relu")

    def _product(self, x: Tensor, then: str) -> Tensor:
        count = x.numel() // x.shape[-1]
        if more := padded_count(count) - count:
            x, shape = F.pad(x.reshape(count, -1), (0, 0, 0, more)), x.shape
            return self._product(x, then)[:count].view(*shape[:-1], -1)
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, then, [], "")


class RefinedOutput(OneDnnLinear):
    """Logits by a product in half precision, of which each row's best are then computed in float32.

    Rounding to bf16 leaves tokens equal that are not, and a search depends on just those.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, exact: Tensor) -> None:
        super().__init__(weight, bias)
        self.exact = exact.detach().float()

    def forward(self, x: Tensor) -> Tensor:
        rough, inputs = super().forward(x).flatten(0, -2), x.flatten(0, -2).float()  # [N, V], [N, D]
        scores = torch.empty(rough.shape, dtype=torch.float32)
        rows = max(1, CHUNK // rough.shape[1])
        for part, rounded, vectors in zip(scores.split(rows), rough.split(rows), inputs.split(rows), strict=True):
            tokens = topk(part.copy_(rounded), REFINED)[1]
            fine = (self.exact[tokens] @ vectors[..., None])[..., 0]
            part.scatter_(1, tokens, fine if self.bias is None else fine + self.bias[tokens])
        return scores.view(*x.shape[:-1], -1)


class Float32Output(nn.Module):
    """Logits of a product in half precision on a GPU, given in float32: so many are not rounded to a few values."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias

    def forward(self, x: Tensor) -> Tensor:
        out = torch.mm(x.flatten(0, -2), self.weight.T, out_dtype=torch.float32)
        out = out if self.bias is None else out + self.bias
        return out.view(*x.shape[:-1], len(self.weight))


def inference_weights(model: nn.Module, dtype: torch.dtype | None = None) -> nn.Module:
    """The model for decoding alone. The given one stays as it is; weights that need not change are shared with it."""
    weights = list(model.parameters())
    kinds = {dtype if dtype and p.is_floating_point() else p.dtype for p in weights}
    packs = PACKS and all(dispatch.on_cpu(p.device) for p in weights) and kinds <= set(KINDS)
    if not packs and (dtype is None or all(p.dtype == dtype for p in weights)):
        return model
    memo: dict[int, object] = {}
    wide = {id(p) for norm in model.modules() if isinstance(norm, BatchNorm) for p in norm.parameters()}
    for p in weights:
        cast = dtype and p.is_floating_point() and id(p) not in wide  # of the type of its running averages
        kept = p.detach().to(dtype) if cast else p.detach()
        memo[id(p)] = nn.Parameter(kept, requires_grad=False)
    exact = {id(memo[id(p)]): p for p in weights}
    frozen = copy.deepcopy(model, memo).eval()
    if packs and dtype in HALF:
        _replace(frozen, Output, lambda w, b: RefinedOutput(w, b, exact[id(w)]))
    elif packs:
        _replace(frozen, Output, OneDnnLinear)
    elif dtype in HALF and all(dispatch.on_gpu(p.device) for p in weights):
        _replace(frozen, Output, Float32Output)
    if packs:
        _replace(frozen, nn.Linear, OneDnnLinear)
    return frozen


def _replace(model: nn.Module, kind: type[nn.Module], make: Callable[[Tensor, Tensor | None], nn.Module]) -> None:
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, kind):
                setattr(module, name, make(child.weight, getattr(child, "bias", None)))  # type: ignore[arg-type]
