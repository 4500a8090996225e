"""How do scores become weights? Masked keys get exactly zero; a query with all keys masked gives zeros, not NaN."""

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from regard.config import Choice, choice, option
from regard.nn.dispatch import GradientContext


class Normaliser(nn.Module):
    fused = False  # True where fast kernels apply it themselves
    needs_order = False  # True where neighbouring keys must be neighbours in the text

    def forward(self, scores: Tensor, allow: Tensor | None) -> Tensor:
        """Weights [B, H, Q, K] of scores [B, H, Q, K]; `allow` is the mask."""
        raise NotImplementedError


class Softmax(Normaliser):
    fused = True

    def forward(self, scores: Tensor, allow: Tensor | None) -> Tensor:
        if allow is None:
            return scores.softmax(-1)
        weights = scores.masked_fill(~allow, -torch.inf).softmax(-1)
        return weights.masked_fill(~allow, 0.0)  # also replaces the NaN of rows where all is masked


class Hard(Softmax):
    """The best key alone; while training, a key sampled from the softmax, so that others are tried too."""

    fused = False

    def forward(self, scores: Tensor, allow: Tensor | None) -> Tensor:
        with torch.no_grad():
            weights = super().forward(scores, allow)
            best = weights / torch.empty_like(weights).exponential_() if self.training else weights
            # argmax p / Exp(1) is a sample from p; where all is masked it counts for nothing
            sample = F.one_hot(best.argmax(-1), scores.shape[-1]).to(weights.dtype) * (weights > 0)
        return ReinMax.apply(scores, weights, sample) if self.training else sample


class HardRegion(Hard):
    """The best key with its neighbours, `width` in all, which share the weight: 1/n for each of the n visible ones."""

    needs_order = True

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, scores: Tensor, allow: Tensor | None) -> Tensor:
        middle = super().forward(scores, allow)
        visible = torch.ones_like(scores) if allow is None else allow.expand_as(scores).to(scores.dtype)
        shares = middle / self._around(visible).clamp(min=1)
        return self._around(shares) * visible

    def _around(self, x: Tensor) -> Tensor:
        """Sums over `width` keys with each in the middle [B, H, Q, K]."""
        return F.pad(x, (self.width // 2, self.width // 2)).unfold(-1, self.width, 1).sum(-1)


class ReinMax(Function):
    """A sampled key whose gradient is, on average, that of the expectation, up to the second order (Liu 2023).

    With f's gradient g at the sample D from π, and J(p) = diag(p) − ppᵀ: (2 J((π + D) / 2) − ½ J(π)) g.
    """

    @staticmethod
    def forward(ctx: GradientContext, scores: Tensor, weights: Tensor, sample: Tensor) -> Tensor:
        ctx.save_for_backward(weights, sample)
        return sample.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: GradientContext, g: Tensor) -> tuple[Tensor, None, None]:
        weights, sample = ctx.saved_tensors
        between = (weights + sample) / 2
        return 2 * _through(between, g) - _through(weights, g) / 2, None, None


def _through(p: Tensor, g: Tensor) -> Tensor:
    """The Jacobian of a softmax that gave p, times g."""
    return p * (g - (p * g).sum(-1, keepdim=True))


class Sparsemax(Normaliser):
    """The point of the simplex nearest to the scores."""

    alpha = 2.0

    def forward(self, scores: Tensor, allow: Tensor | None) -> Tensor:
        exact = scores.to(torch.promote_types(scores.dtype, torch.float32))
        return Entmax.apply(exact, allow, self.alpha).to(scores.dtype)


class Entmax15(Sparsemax):
    """Half-way between softmax and sparsemax."""

    alpha = 1.5


class _EntmaxContext(GradientContext, Protocol):
    alpha: float


class Entmax(Function):
    """α-entmax: p = relu((α − 1)s − τ)^(1/(α − 1)), with τ such that Σp = 1 (Peters 2019)."""

    @staticmethod
    def forward(ctx: _EntmaxContext, scores: Tensor, allow: Tensor | None, alpha: float) -> Tensor:
        z = scores * (alpha - 1) if allow is None else (scores * (alpha - 1)).masked_fill(~allow, -torch.inf)
        top = z.amax(-1, keepdim=True)
        z = z - top.masked_fill(top == -torch.inf, 0.0)
        z = z.clamp(min=-2.0)  # what lies 1 or more below the best gets nothing; −∞ would spoil the sums
        p = (z - THRESHOLDS[alpha](z.sort(-1, descending=True).values)).relu() ** (1 / (alpha - 1))
        p = p if allow is None else p.masked_fill(~allow, 0.0)
        ctx.alpha = alpha
        ctx.save_for_backward(p)
        return p

    @staticmethod
    @once_differentiable
    def backward(ctx: _EntmaxContext, g: Tensor) -> tuple[Tensor, None, None]:
        """J = diag(s) − ssᵀ/Σs with s = p^(2 − α) where p > 0 (Peters 2019)."""
        (p,) = ctx.saved_tensors
        s = torch.where(p > 0, p ** (2 - ctx.alpha), 0.0)
        total = s.sum(-1, keepdim=True).clamp(min=1.0)  # never below 1, save where all is masked
        return s * (g - (s * g).sum(-1, keepdim=True) / total), None, None


def _threshold_2(z: Tensor) -> Tensor:
    """τ of sparsemax, for scores in falling order (Martins 2016, algorithm 1)."""
    rank = torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)
    tau = (z.cumsum(-1) - 1) / rank  # if the first so many were the support
    return _last(tau, z > tau)


def _threshold_15(z: Tensor) -> Tensor:
    """τ of 1.5-entmax, for halved scores in falling order (Peters 2019, algorithm 2)."""
    rank = torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)
    mean = z.cumsum(-1) / rank
    spread = (z**2).cumsum(-1) - rank * mean**2  # Σ(z − mean)² over the first so many
    tau = mean - ((1 - spread) / rank).clamp(min=0.0).sqrt()
    return _last(tau, z >= tau)


def _last(tau: Tensor, support: Tensor) -> Tensor:
    """The threshold of the largest support."""
    return tau.gather(-1, support.sum(-1, keepdim=True).clamp(min=1) - 1)


THRESHOLDS = {2.0: _threshold_2, 1.5: _threshold_15}


# --- the choices -------------------------------------------------------------------------------------------------


class NormaliseConfig(Choice, slot="normalise"):
    must_define = ("build",)

    def build(self) -> Normaliser:
        raise NotImplementedError


@choice("softmax", "N1", "exp(s_j) / Σ exp(s)", "Bahdanau 2014, eq. 6")
class SoftmaxConfig(NormaliseConfig):
    """Every visible key gets some weight."""

    def build(self) -> Normaliser:
        return Softmax()


@choice(
    "hard", "N2", "1 at argmax s; training: 1 at j ~ softmax(s)", "Xu 2015, 4.1; learning signal: Liu 2023 (ReinMax)"
)
class HardConfig(NormaliseConfig):
    """One key gets all the weight: the best, or one sampled from the softmax while training."""

    width: int = option(1, "of the region around that key, an odd number: its visible keys share the weight")

    def __post_init__(self) -> None:
        if self.width < 1 or self.width % 2 == 0:
            raise ValueError(f"width must be odd, so that a region has a middle, not {self.width}")

    def build(self) -> Normaliser:
        return Hard() if self.width == 1 else HardRegion(self.width)


@choice("sparsemax", "N3", "argmin_p ‖p − s‖²", "Martins 2016")
class SparsemaxConfig(NormaliseConfig):
    """Low scores get exactly nothing: the nearest distribution to the scores themselves."""

    def build(self) -> Normaliser:
        return Sparsemax()


@choice("entmax", "N3", "relu(s/2 − τ)², Σ = 1", "Peters 2019")
class EntmaxConfig(NormaliseConfig):
    """Low scores get exactly nothing, less abruptly than by sparsemax (α = 1.5)."""

    def build(self) -> Normaliser:
        return Entmax15()
