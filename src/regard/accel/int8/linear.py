"""Linear maps in 8 bits: weights by row and symmetric, as they are stored; inputs by row as they come.

    w[v, k] ≈ a[v] · n[v, k],  n from −127 to 127         x[r, k] ≈ s[r] · q[r, k] + m[r],  q from 0 to 255
    Σₖ x[r, k] w[v, k] ≈ s[r] · (a[v] · Σₖ q[r, k] n[v, k]) + m[r] · (a[v] · Σₖ n[v, k])

The sum over q · n is exact, in 32 bits. A row's numbers depend on that row alone, whatever stands beside it; but a
single row goes to FBGEMM, which rounds it otherwise and takes two thirds of the time. Knows no model.
"""

import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.accel.inference_weights import CHUNK, padded_count
from regard.io.int8 import quantise_rows

FBGEMM = "fbgemm"  # as torch names its engine
LEAST = 1 << 12  # weights of a linear map that is worth it, which a head of a few classes is not


class Int8Linear(nn.Module):
    """xWᵀ + b, as nn.Linear, in 8 bits. For what reads the weights themselves, they are made anew each time."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.integers, self.scale = quantise_rows(weight.detach())  # [V, K], [V]
        self.bias = None if bias is None else bias.detach().float()
        self.base = torch.zeros(1) if self.bias is None else self.bias
        self.sums = self.scale * self.integers.sum(1)  # [V]
        self.zeros = torch.zeros(self.out_features, dtype=torch.int32)
        self.packed = torch.ops.onednn.qlinear_prepack(self.integers, None)
        self.single = _fbgemm_weight(self.integers, self.scale, self.bias)

    @property
    def weight(self) -> Tensor:
        return self.integers * self.scale[:, None]

    def forward(self, x: Tensor) -> Tensor:
        if self._alone(x):
            return torch.ops.quantized.linear_dynamic(x, self.single)
        return self._product(x)

    def rectified(self, x: Tensor) -> Tensor:
        """max(0, xWᵀ + b)"""
        if self._alone(x):
            return torch.ops.quantized.linear_relu_dynamic(x, self.single)
        return self._product(x).relu_()

    def _alone(self, x: Tensor) -> bool:
        return self.single is not None and x.numel() == self.in_features and x.dim() > 1

    def _product(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, self.in_features)
        count = len(rows)
        if not count:
            return x.new_zeros(*x.shape[:-1], self.out_features)
        quantised = torch.ops.quantized.embedding_bag_byte_prepack(rows)  # [N, K + 8]: q, then s and m in float32
        ends = quantised.view(torch.float32)
        scale, least = ends[:, -2:-1], ends[:, -1:]  # [N, 1]
        whole = quantised[:, : self.in_features]
        if more := padded_count(count) - count:
            whole = F.pad(whole, (0, 0, 0, more))
        out = torch.ops.onednn.qlinear_pointwise(
            whole, 1.0, 0, self.packed, self.scale, self.zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )[:count]
        size = max(1, CHUNK // self.out_features)
        for part, s, m in zip(out.split(size), scale.split(size), least.split(size), strict=True):
            torch.addcmul(torch.addcmul(self.base, m, self.sums), part, s, out=part)
        return out.view(*x.shape[:-1], self.out_features)


class Int8Output(Int8Linear):
    """Logits in 8 bits, for an `Output`."""

    def at(self, x: Tensor, labels: Tensor | None, smoothing: float | None) -> Tensor:
        """The logits of x [N, D], or, with `smoothing`, the loss of its labels [N], summed."""
        if smoothing is None:
            return self(x)
        assert labels is not None
        rows = max(1, CHUNK // self.out_features)
        return torch.stack([
            F.cross_entropy(self(part), own, reduction="sum", label_smoothing=smoothing)
            for part, own in zip(x.split(rows), labels.split(rows), strict=True)
        ]).sum()  # fmt: skip


def _fbgemm_weight(integers: Tensor, scale: Tensor, bias: Tensor | None) -> object | None:
    """The weights as FBGEMM takes them; None without it."""
    engines = torch.backends.quantized
    if FBGEMM not in engines.supported_engines or not hasattr(torch, "_make_per_channel_quantized_tensor"):
        return None
    zeros = torch.zeros(len(scale), dtype=torch.long)
    before, engines.engine = engines.engine, FBGEMM
    try:
        with warnings.catch_warnings():  # that later versions of torch will not have these tensors
            warnings.simplefilter("ignore", UserWarning)
            whole = torch._make_per_channel_quantized_tensor(integers, scale.double(), zeros, 0)
        return torch.ops.quantized.linear_prepack(whole, bias)
    finally:
        engines.engine = before
