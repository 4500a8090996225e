"""What a kernel is given, and how it says that it cannot serve it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from regard.nn.layout import Call
from regard.nn.pattern import Pattern
from regard.nn.position import Bias

if TYPE_CHECKING:
    from regard.nn.attention import Attention


@dataclass(frozen=True)
class Job:
    """One attention to be computed: q [B, H, Q, d_k], k and v [B, H, K, …], under a bound pattern."""

    layer: "Attention"
    q: Tensor
    k: Tensor
    v: Tensor
    call: Call
    pattern: Pattern
    bias: Bias | None


class Kernel(Protocol):
    __name__: str

    def __call__(self, job: Job) -> Tensor:
        """The output [B, H, Q, d_v]."""


def plain_choices(job: Job) -> str | None:
    """Why the choices need the plain function; None where a kernel that knows scale · qᵀk and softmax will do."""
    if job.layer.score.scale is None:
        return f"the score {type(job.layer.score).__name__} has no fused kernel"
    if not getattr(job.layer.normalise, "fused", False):
        return f"the normaliser {type(job.layer.normalise).__name__} has no fused kernel"
    if job.pattern.gain(job.call) is not None:
        return "the pattern weighs what it lets through"
    return None
