"""Residual connections: post-norm (the paper), pre-norm, or none. Objects, no flag."""

from collections.abc import Callable

from torch import Tensor, nn

from regard.nn.dropout import Dropout, add_dropout
from regard.nn.norm import add_norm, norm_beside


class _Residual(nn.Module):
    needs_final_norm = False  # whether the stack needs one norm more at its end

    def __init__(self, norm: nn.Module, dropout: Dropout) -> None:
        super().__init__()
        self.norm, self.dropout = norm, dropout


class PostNorm(_Residual):
    """norm(x + dropout(f(x))) (Vaswani 2017, 3.1)."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], real: Tensor | None = None) -> Tensor:
        return add_norm(x, sublayer(x), self.norm, self.dropout, real)


class PreNorm(_Residual):
    """x + dropout(f(norm(x))): the way through is never normalised, so the stack needs one norm at its end."""

    needs_final_norm = True

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], real: Tensor | None = None) -> Tensor:
        normal, x = norm_beside(x, self.norm, real)
        return add_dropout(x, sublayer(normal), self.dropout)


class NoResidual(_Residual):
    """norm(dropout(f(x))): nothing passes by the sub-layer; for the comparison."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], real: Tensor | None = None) -> Tensor:
        return self.norm(self.dropout(sublayer(x)), real)


RESIDUALS: dict[str, type[_Residual]] = {"post_norm": PostNorm, "pre_norm": PreNorm, "none": NoResidual}
