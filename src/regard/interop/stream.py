"""The features of a model in another order: every matrix that reads or writes them is permuted, and nothing changes.

What passes from layer to layer is a vector of D features, and no layer cares which is which: norms treat all alike.
Only the waves of the positions have an order: sine beside cosine, or all sines first. Permuting all the rest turns a
model with one order into the same model with the other.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

READS = re.compile(  # [..., D]: their last axis is the features
    r"(source_embedding|target_embedding|output|.+\.(query|key_value|expand))\.weight"
)
WRITES = re.compile(r".+\.(output|contract|norm)\.(weight|bias)")  # [D, ...]: their first axis is


def sines_first(size: int) -> Tensor:
    """Where each feature comes from, when pairs of sine and cosine are put into halves."""
    return torch.cat([torch.arange(0, size, 2), torch.arange(1, size, 2)])


def permuted(weights: Mapping[str, Tensor], order: Tensor) -> dict[str, Tensor]:
    """Feature j is what feature order[j] was."""

    def change(name: str, tensor: Tensor) -> Tensor:
        if READS.fullmatch(name):
            return tensor.index_select(-1, order.to(tensor.device))
        if WRITES.fullmatch(name):
            return tensor.index_select(0, order.to(tensor.device))
        return tensor

    return {name: change(name, tensor) for name, tensor in weights.items()}
