"""Linear maps in 8 bits: weights by row and symmetric, as they are stored; inputs by row as they come.

    w[v, k] ≈ a[v] · n[v, k],  n from −127 to 127         x[r, k] ≈ s[r] · q[r, k] + m[r],  q from 0 to 255
    Σₖ x[r, k] w[v, k] ≈ s[r] · (a[v] · Σₖ q[r, k] n[v, k]) + m[r] · (a[v] · Σₖ n[v, k])

The sum over q · n is exact, in 32 bits, so a row's numbers depend on that row alone, whatever stands beside it and
whichever library multiplies. Knows no model.
"""

import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.accel.inference_weights import CHUNK, padded_count
from regard.io.int8 import quantise_rows

FBGEMM = "fbgemm"  # as torch names its engine
FEW = 16  # rows up to which FBGEMM is faster than oneDNN
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
        self.few = _fbgemm_product(self.integers, self.scale)
        self.many = _onednn_product(self.integers, self.scale)

    @property
    def weight(self) -> Tensor:
        return self.integers * self.scale[:, None]

    def rectified(self, x: Tensor) -> Tensor:
        """max(0, xWᵀ + b)"""
        return self(x).relu_()

    def forward(self, x: Tensor) -> Tensor:
        rows = x if x.dim() == 2 else x.reshape(-1, self.in_features)
        if not (count := len(rows)):
            return x.new_zeros(*x.shape[:-1], self.out_features)
        quantised = torch.ops.quantized.embedding_bag_byte_prepack(rows)  # [N, K + 8]: q, then s and m in float32
        out = (self.few if count <= FEW else self.many)(quantised.narrow(1, 0, self.in_features))
        ends = quantised.view(torch.float32)
        scale, least = ends.narrow(1, -2, 1), ends.narrow(1, -1, 1)  # [N, 1]
        if out.numel() <= CHUNK:
            torch.addcmul(torch.addcmul(self.base, least, self.sums), out, scale, out=out)
        else:  # some rows at a time, which a core's own cache holds
            size = max(1, CHUNK // self.out_features)
            for part, s, m in zip(out.split(size), scale.split(size), least.split(size), strict=True):
                torch.addcmul(torch.addcmul(self.base, m, self.sums), part, s, out=part)
        return out if x.dim() == 2 else out.view(*x.shape[:-1], self.out_features)


Product = Callable[[Tensor], Tensor]  # q [N, K] in 8 bits -> a[v] · Σₖ q n [N, V] in float32


def _onednn_product(integers: Tensor, scale: Tensor) -> Product:
    packed = torch.ops.onednn.qlinear_prepack(integers, None)
    zeros = torch.zeros(len(scale), dtype=torch.int32)

    def product(q: Tensor) -> Tensor:
        count = len(q)
        if more := padded_count(count) - count:
            q = F.pad(q, (0, 0, 0, more))
        return torch.ops.onednn.qlinear_pointwise(
            q, 1.0, 0, packed, scale, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        ).narrow(0, 0, count)

    return product


def _fbgemm_product(integers: Tensor, scale: Tensor) -> Product:
    """The same numbers; few rows take two thirds of the time. Without FBGEMM, oneDNN's."""
    engines, name = torch.backends.quantized, "linear_with_input_q_dq_qweight_dq_output_fp32"
    whole = hasattr(torch, "_make_per_channel_quantized_tensor") and hasattr(torch.ops.quantized, name)
    if FBGEMM not in engines.supported_engines or not whole:
        return _onednn_product(integers, scale)
    zeros = torch.zeros(len(scale), dtype=torch.long)
    before, engines.engine = engines.engine, FBGEMM
    try:
        with warnings.catch_warnings():  # that later versions of torch will not have these tensors
            warnings.simplefilter("ignore", UserWarning)
            weight = torch._make_per_channel_quantized_tensor(integers, scale.double(), zeros, 0)
        packed = torch.ops.quantized.linear_prepack(weight, None)
    finally:
        engines.engine = before
    return lambda q: torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(q.float(), 1.0, 0, packed)


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
