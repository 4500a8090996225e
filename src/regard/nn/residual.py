"""How a sub-layer's output joins what came in: post-norm (the paper) or pre-norm. Two objects, no flag."""

from collections.abc import Callable

from torch import Tensor, nn


class PostNorm(nn.Module):
    """norm(x + dropout(f(x))) (Vaswani 2017, 3.1)."""

    final_norm = False  # the last sub-layer has normalised already

    def __init__(self, size: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return self.norm(x + self.dropout(sublayer(x)))


class PreNorm(nn.Module):
    """x + dropout(f(norm(x))): the way through is never normalised, so the stack needs one norm at its end."""

    final_norm = True

    def __init__(self, size: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return x + self.dropout(sublayer(self.norm(x)))


RESIDUALS: dict[str, type[PostNorm] | type[PreNorm]] = {"post_norm": PostNorm, "pre_norm": PreNorm}
