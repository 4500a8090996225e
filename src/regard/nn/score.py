"""How alike are a query and a key? One class a choice; each maps q [B,H,Q,d], k [B,H,K,d] to scores [B,H,Q,K]."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.config import Choice, at_least, choice, option
from regard.nn.sizes import Sizes


class Score(nn.Module):
    scale: float | None = None  # set where the score is scale · qᵀk of prepared keys, which fast kernels compute
    query_gain: float = 1.0  # what the query projection is multiplied by when weights begin

    def __init__(self, key_size: int) -> None:
        super().__init__()
        self.key_size = key_size  # of a key that `keys` has prepared

    def keys(self, k: Tensor) -> Tensor:
        """What a key becomes before it is compared; done once, and cached when decoding. [B, H, K, key_size]"""
        return k

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        """Scores of queries and of keys that `keys` has prepared."""
        raise NotImplementedError


class DotScore(Score):
    def __init__(self, key_size: int, scale: float = 1.0, query_gain: float = 1.0) -> None:
        super().__init__(key_size)
        self.scale: float = scale
        self.query_gain = query_gain

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return (q * self.scale) @ k.transpose(-2, -1)


class ScaledDotScore(DotScore):
    def __init__(self, d_k: int) -> None:
        super().__init__(d_k, d_k**-0.5)


class GeneralScore(DotScore):
    """The dot product of a query and of Wk, which is all that a cache need keep."""

    def __init__(self, heads: int, d_q: int, d_k: int) -> None:
        super().__init__(d_q)
        self.weight = nn.Parameter(torch.empty(heads, d_q, d_k))  # W
        self.reset_own()

    def reset_own(self) -> None:
        """The identity by √d: training begins as the scaled dot product does."""
        _, d_q, d_k = self.weight.shape
        with torch.no_grad():
            self.weight.copy_(torch.eye(d_q, d_k) * min(d_q, d_k) ** -0.5)

    def keys(self, k: Tensor) -> Tensor:
        return torch.einsum("bhkd,hqd->bhkq", k, self.weight)  # [B, H, K, d_q]


class PerceptronScore(Score):
    """vᵀtanh(Aq + Bk); its two kinds differ in how A and B are kept."""

    def __init__(self, heads: int, size: int) -> None:
        super().__init__(size)
        self.vector = nn.Parameter(torch.empty(heads, 1, size))  # v

    def matrices(self) -> tuple[Tensor, Tensor]:
        """A [H, size, d_q] and B [H, size, d_k]."""
        raise NotImplementedError

    def reset_own(self) -> None:
        for parameter in self.parameters():
            for head in parameter:
                nn.init.xavier_uniform_(head)

    def keys(self, k: Tensor) -> Tensor:
        return torch.einsum("bhkd,hsd->bhks", k, self.matrices()[1])  # [B, H, K, size]

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        q = torch.einsum("bhqd,hsd->bhqs", q, self.matrices()[0])  # [B, H, Q, size]; @ would copy W for every row
        if not torch.is_grad_enabled() or q.shape[2] == 1:  # one query at a time, as in recurrent models
            return self._compare(q, k)
        # With many, the hidden layer is the largest tensor of a model: it is made again for the gradient, not kept.
        return checkpoint(self._compare, q, k, use_reentrant=False, preserve_rng_state=False)

    def _compare(self, q: Tensor, k: Tensor) -> Tensor:
        hidden = torch.tanh(q[:, :, :, None] + k[:, :, None])  # [B, H, Q, K, size]
        return torch.einsum("bhqks,hs->bhqk", hidden, self.vector[:, 0])  # [B, H, Q, K]


class AdditiveScore(PerceptronScore):
    def __init__(self, heads: int, d_q: int, d_k: int, size: int) -> None:
        super().__init__(heads, size)
        self.query = nn.Parameter(torch.empty(heads, size, d_q))  # W₁
        self.key = nn.Parameter(torch.empty(heads, size, d_k))  # W₂
        self.reset_own()

    def matrices(self) -> tuple[Tensor, Tensor]:
        return self.query, self.key


class ConcatScore(PerceptronScore):
    """W[q;k] is the sum of what W's left half makes of q and its right half of k."""

    def __init__(self, heads: int, d_q: int, d_k: int, size: int) -> None:
        super().__init__(heads, size)
        self.d_q = d_q
        self.weight = nn.Parameter(torch.empty(heads, size, d_q + d_k))  # W
        self.reset_own()

    def matrices(self) -> tuple[Tensor, Tensor]:
        return self.weight[:, :, : self.d_q], self.weight[:, :, self.d_q :]


class CosineScore(Score):
    def __init__(self, d_k: int, strength: float) -> None:
        super().__init__(d_k)
        self.strength = strength

    def keys(self, k: Tensor) -> Tensor:
        return _unit(k)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return (_unit(q) * self.strength) @ k.transpose(-2, -1)


def _unit(x: Tensor) -> Tensor:
    """x / ‖x‖; a zero vector stays zero, and so does its gradient, which has no direction either."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / norm.masked_fill(norm == 0, torch.inf)


# --- the choices -------------------------------------------------------------------------------------------------


class ScoreConfig(Choice, slot="score"):
    must_define = ("build",)

    def build(self, sizes: Sizes, d_q: int | None = None) -> Score:
        """The score of queries of the size `d_q`, where that is not the keys'."""
        raise NotImplementedError


@choice("dot", "S1, S7", "qᵀk", "Luong 2015, eq. 8; compensated: Raffel 2020 (T5)")
class DotConfig(ScoreConfig):
    """The dot product as it is; its variance grows with the size of a head unless weights begin smaller."""

    init: Literal["plain", "compensated"] = option(
        "plain", "compensated: the query projection begins divided by √d_k, as in T5"
    )

    def build(self, sizes: Sizes, d_q: int | None = None) -> Score:
        _same_size(self.kind, sizes, d_q)
        return DotScore(sizes.d_k, query_gain=sizes.d_k**-0.5 if self.init == "compensated" else 1.0)


@choice("scaled_dot", "S2", "qᵀk / √d_k", "Vaswani 2017, eq. 1")
class ScaledDotConfig(ScoreConfig):
    """The dot product by √d_k: keeps the variance of scores at 1 whatever the size of a head."""

    def build(self, sizes: Sizes, d_q: int | None = None) -> Score:
        _same_size(self.kind, sizes, d_q)
        return ScaledDotScore(sizes.d_k)


@choice("general", "S3", "qᵀWk", "Luong 2015, eq. 8")
class GeneralConfig(ScoreConfig):
    """A learned matrix between query and key, one for each head."""

    def build(self, sizes: Sizes, d_q: int | None = None) -> Score:
        return GeneralScore(sizes.heads, d_q or sizes.d_k, sizes.d_k)


@choice("additive", "S4", "vᵀtanh(W₁q + W₂k)", "Bahdanau 2014, A.1.2")
class AdditiveConfig(ScoreConfig):
    """A small network with one hidden layer, a matrix for queries and one for keys."""

    size: int | None = option(None, "of the hidden layer; none: d_k")

    def __post_init__(self) -> None:
        at_least(self, 1, "size")

    def build(self, sizes: Sizes, d_q: int | None = None) -> Score:
        return AdditiveScore(sizes.heads, d_q or sizes.d_k, sizes.d_k, self.size or sizes.d_k)


@choice("concat", "S5", "vᵀtanh(W[q;k])", "Luong 2015, eq. 8")
class ConcatConfig(ScoreConfig):
    """A small network with one hidden layer, one matrix over query and key end to end."""

    size: int | None = option(None, "of the hidden layer; none: d_k")

    def __post_init__(self) -> None:
        at_least(self, 1, "size")

    def build(self, sizes: Sizes, d_q: int | None = None) -> Score:
        return ConcatScore(sizes.heads, d_q or sizes.d_k, sizes.d_k, self.size or sizes.d_k)


@choice("cosine", "S6", "scale · qᵀk / (‖q‖‖k‖)", "Graves 2014 (NTM), eq. 6")
class CosineConfig(ScoreConfig):
    """The angle alone; within ±1 a softmax over n keys gives none more than e²/(e² + n − 1), so there is a factor."""

    scale: float = option(1.0, "a factor on the cosine, β in the paper; above 1 weights can be sharper")

    def __post_init__(self) -> None:
        if not self.scale > 0:
            raise ValueError(f"scale must be above 0, not {self.scale}")

    def build(self, sizes: Sizes, d_q: int | None = None) -> Score:
        _same_size(self.kind, sizes, d_q)
        return CosineScore(sizes.d_k, self.scale)


def _same_size(kind: str, sizes: Sizes, d_q: int | None) -> None:
    if d_q not in (None, sizes.d_k):
        raise ValueError(
            f"the score {kind} needs queries and keys of one size, not {d_q} and {sizes.d_k}; "
            "general, additive and concat do not"
        )
