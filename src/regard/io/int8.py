"""Weights stored in 8 bits: whole numbers from −127 to 127 and a scale for each row (symmetric, per-row).

    w[r, :] ≈ scale[r] · n[r, :], where scale[r] = max |w[r, :]| / 127

A matrix, an embedding table or a kernel `name` becomes the int8 tensor `name` and `name.row_scale` in float32; tensors
of one dimension, such as biases and norms, stay as they are. After reading all are float32. Knows no model.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from regard.errors import RegardError

SCALE = ".row_scale"
MOST = 127


def to_int8(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a model as they are stored."""
    stored: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if not weight.is_floating_point() or weight.dim() < 2 or not weight.numel():
            stored[name] = weight
            continue
        whole, stored[name + SCALE] = quantise_rows(weight.detach().flatten(1))
        stored[name] = whole.view(weight.shape)
    return stored


def quantise_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers of a matrix [R, C], and the scale of each row [R]; of what was made of such, the same again."""
    rows = weight.float()
    scale = rows.abs().amax(1) / MOST
    whole = torch.round(rows / scale.clamp_min(torch.finfo(torch.float32).tiny)[:, None])
    return whole.clamp_(-MOST, MOST).to(torch.int8), scale


def from_int8(stored: Mapping[str, Tensor], origin: object) -> dict[str, Tensor]:
    """The weights in float32; tensors without a scale are as they were stored."""
    weights = {name: tensor for name, tensor in stored.items() if not _scaled(name, stored)}
    for name in [name for name in weights if name + SCALE in stored]:
        whole, scale = stored[name], stored[name + SCALE]
        types = whole.dtype, scale.dtype
        if types != (torch.int8, torch.float32) or whole.dim() < 2 or scale.shape != whole.shape[:1]:
            raise RegardError(f"{origin}: {name} is not stored in 8 bits with a scale for each row; export it anew")
        weights[name] = whole.float() * scale.view(-1, *[1] * (whole.dim() - 1))
    return weights


def _scaled(name: str, stored: Mapping[str, object]) -> bool:
    """Whether a tensor is the scale of another."""
    return name.endswith(SCALE) and name.removesuffix(SCALE) in stored


def is_int8(stored: Mapping[str, object]) -> bool:
    """Whether the tensors of a file, by name, are stored in 8 bits."""
    return any(_scaled(name, stored) for name in stored)
