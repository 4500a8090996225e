"""Cross-entropy with label smoothing and its gradient in one kernel. The plain twin: `nn/loss.py`."""

import torch
from torch import Tensor

from regard.accel import launch

BLOCK = 4096  # scores of a row that the kernel reads at once


def smoothed_cross_entropy(
    scores: Tensor, labels: Tensor, smoothing: float, learns: bool, entries: int
) -> tuple[Tensor, Tensor]:
    """The loss of scores [rows, V], summed; their gradient is left where they were."""
    from regard.accel.kernels import cross_entropy_kernel

    losses = scores.new_empty(len(scores), dtype=torch.float32)
    with launch.device_of(scores):
        cross_entropy_kernel[(len(scores),)](
            scores, labels, losses, scores.shape[1], entries, smoothing, BLOCK=BLOCK, num_warps=8
        )  # fmt: skip
    return losses.sum(), scores
