"""The inputs of an attention backend, and how a backend says that it cannot serve them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import Tensor

from regard.nn.layout import AttentionContext
from regard.nn.pattern import Causal, Document, Padding, Pattern
from regard.nn.position import Bias

if TYPE_CHECKING:
    from regard.nn.attention import Attention

SIMPLE_MASKS = {Causal(), Padding(), Document()}


@dataclass(slots=True)  # not frozen: one is made at every call, and a frozen one takes four times as long
class AttentionInputs:
    """One attention to be computed: q [B, H, Q, d_k], k and v [B, H or kv_heads, K, …], under a bound pattern."""

    layer: "Attention"
    q: Tensor
    k: Tensor
    v: Tensor
    context: AttentionContext
    pattern: Pattern
    bias: Bias | None
    parts: tuple[Tensor, ...] | None = None  # the products [B, N, …] that q, k and v are views of, where they are

    def repeat_keys(self) -> "AttentionInputs":
        """The same with keys and values for every head of queries: copies, where several share them."""
        times = self.q.shape[1] // self.k.shape[1]
        if times == 1:
            return self
        return replace(self, k=self.k.repeat_interleave(times, 1), v=self.v.repeat_interleave(times, 1))


@dataclass(frozen=True)
class Backend:
    """`compute` gives the output [B, H, Q, d_v]; `unsupported_reason` gives None, or why it cannot serve the inputs.

    An empty reason says that the inputs are none of its business, and is not reported.
    """

    name: str
    compute: Callable[[AttentionInputs], Tensor]
    unsupported_reason: Callable[[AttentionInputs], str | None]
    grouped: bool = False  # whether it takes keys and values of fewer heads than queries have


def unfused_reason(inputs: AttentionInputs) -> str | None:
    """Why the choices need the plain function; None where a kernel for softmax(scale · qᵀk) v will do."""
    if (reason := unfused_layer_reason(inputs.layer)) is not None:
        return reason
    weighs = inputs.pattern.weighs and inputs.pattern.gain(inputs.context) is not None
    return "the pattern weighs what it lets through" if weighs else None


def unfused_layer_reason(layer: "Attention") -> str | None:
    if layer.score.scale is None:
        return f"the score {type(layer.score).__name__.removesuffix('Score')} has no fused kernel"
    if not layer.normalise.fused:
        return f"the normaliser {type(layer.normalise).__name__} has no fused kernel"
    return None


def nonstandard_reason(layer: "Attention") -> str | None:
    """What a layer has beyond scaled dot products, softmax, and causal, padding and document masks."""
    if layer.compress.shortens:
        return "the keys are compressed"
    if not set(layer.pattern.parts()) <= SIMPLE_MASKS:
        return "the pattern hides more than the future and other sequences"
    if layer.position.biases or layer.position.mixes:
        return "the position adds to scores or output"
    if layer.position.changes_queries:
        return "the position changes queries alone"
    return unfused_layer_reason(layer)


def split_heads(parts: tuple[Tensor, ...], heads: int | Sequence[int], *sizes: int) -> list[Tensor]:
    """Vectors of these sizes, which lie in `parts` [B, N, …] for all heads: [B, H, N, size] each.

    The last part has all those side by side that have no part of their own. Each may have its own number of heads.
    """
    counts = [heads] * len(sizes) if isinstance(heads, int) else heads
    if len(parts) < len(sizes):
        *alone, last = parts
        widths = [count * size for count, size in zip(counts, sizes, strict=True)]
        parts = (*alone, *last.split_with_sizes(widths[len(alone) :], -1))
    return [
        part.view(part.shape[0], part.shape[1], count, size).transpose(1, 2)
        for part, count, size in zip(parts, counts, sizes, strict=True)
    ]
