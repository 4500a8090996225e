"""1-d convolutions over words: a window is laid out as one vector and mapped by one matrix.

Knows vectors and padding masks, no vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.embedding import Embedding
from regard.nn.position.learned import Learned


class Convolution(nn.Module):
    """W [x_i; x_{i+r}; …; x_{i+(k−1)r}] + b: windows of k words (Gehring 2017, 3.2), r apart (Kalchbrenner 2016, 3.5).

    `gain` is what the variance of the weights is multiplied by so that the output varies as much as the input does;
    `parts` says how many outputs lie side by side in one matrix.
    """

    def __init__(self, size: int, out: int, kernel: int, dilation: int = 1, gain: float = 1.0, parts: int = 1) -> None:
        super().__init__()
        self.kernel, self.dilation, self.gain, self.parts = kernel, dilation, gain, parts
        self.reach = (kernel - 1) * dilation  # positions of a window beside its own
        self.linear = nn.Linear(kernel * size, out)
        self.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """Every whole window of x [B, reach + N, D]: [B, N, out]."""
        length, r = x.shape[1] - self.reach, self.dilation
        window = torch.cat([x[:, j * r : j * r + length] for j in range(self.kernel)], -1)  # [B, N, k·D]
        return self.linear(window)

    def centred(self, x: Tensor, real: Tensor | None) -> Tensor:
        """Each position sees as far ahead as back; beyond the row, and at its padding, are zeros."""
        if real is not None:
            x = x.masked_fill(~real[..., None], 0.0)
        return self(F.pad(x, (0, 0, self.reach // 2, self.reach - self.reach // 2)))

    def causal(self, x: Tensor, past: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Each position sees itself and what came before: zeros, or `past` [B, reach, D]. Also gives the new past."""
        x = F.pad(x, (0, 0, self.reach, 0)) if past is None else torch.cat([past, x], 1)
        return self(x), x[:, x.shape[1] - self.reach :]

    def reset_parameters(self) -> None:
        for part in self.linear.weight.chunk(self.parts):
            nn.init.xavier_uniform_(part)
        nn.init.zeros_(self.linear.bias)


def init_keep_variance(model: nn.Module) -> None:
    """N(0, gain / fan-in) for every convolution, N(0, 0.1²) for tables of vectors (Gehring 2017, 3.5)."""
    for module in model.modules():
        if isinstance(module, Convolution):
            nn.init.normal_(module.linear.weight, std=(module.gain / module.linear.in_features) ** 0.5)
            nn.init.zeros_(module.linear.bias)
        elif isinstance(module, Embedding | Learned):
            for table in module.parameters(recurse=False):
                nn.init.normal_(table, std=0.1)


def scaled_sum(x: Tensor, y: Tensor) -> Tensor:
    """(x + y) · √½: a sum of two that varies as much as each (Gehring 2017, 3.4)."""
    return (x + y) * 0.5**0.5


def scale_gradient(x: Tensor, factor: float) -> Tensor:
    """x itself, whose gradient is multiplied by `factor` on its way back; not to be changed in place."""
    same = x.view_as(x)
    if same.requires_grad:
        same.register_hook(lambda gradient: gradient * factor)
    return same
