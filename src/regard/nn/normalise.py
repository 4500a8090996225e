"""How do scores become weights? Hidden places get exactly zero; a row with nothing to see gives zeros, not NaN."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn


class Softmax(nn.Module):
    fused = True  # fast kernels apply this one themselves

    def forward(self, scores: Tensor, allow: Tensor | None) -> Tensor:
        if allow is None:
            return scores.softmax(-1)
        weights = scores.masked_fill(~allow, -torch.inf).softmax(-1)
        return weights.masked_fill(~allow, 0.0)  # also mends the NaN of rows where all is hidden


@dataclass(frozen=True)
class SoftmaxConfig:
    """Every visible place gets some weight."""

    id: ClassVar[str] = "N1"
    formula: ClassVar[str] = "exp(s_j) / Σ exp(s)"
    paper: ClassVar[str] = "Bahdanau 2014, eq. 6"

    kind: Literal["softmax"] = "softmax"

    def build(self) -> nn.Module:
        return Softmax()


NormaliseConfig = SoftmaxConfig
