"""Attention weights that were asked for: kept by place and layer, and moved with the rows they belong to."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from regard.nn.backend.contract import AttentionInputs

ROLES = ("encoder", "decoder", "cross")


@dataclass
class LayerRecord:
    """What one attention puts its weights into, call by call."""

    graph: bool  # whether gradients may flow back through what is kept
    steps: list[Tensor] = field(default_factory=list)  # [B, H, Q, K] of every call
    begun: int = 0  # how many of them came before a search began
    jobs: "list[AttentionInputs] | None" = None  # what each call was given, where that is wanted too


@dataclass
class AttentionRecorder:
    """A request for weights, and the weights once a model has run. Masked places are exactly zero."""

    places: tuple[str, ...] = ROLES
    graph: bool = False
    whole: bool = False  # keep what each attention was given beside its weights
    sinks: dict[tuple[str, int], LayerRecord] = field(default_factory=dict)

    def at(self, place: str, layer: int) -> LayerRecord | None:
        """Where that attention should put its weights; None if they were not asked for."""
        if place not in self.places:
            return None
        return self.sinks.setdefault((place, layer), LayerRecord(self.graph, jobs=[] if self.whole else None))

    def layers(self, place: str) -> list[Tensor]:
        """The weights of a place, a tensor [B, H, Q, K] for each layer; steps of decoding are joined."""
        return [_joined(self.sinks[key].steps) for key in sorted(self.sinks) if key[0] == place]

    def path(self, rows: list[int]) -> dict[str, Tensor]:
        """By place [layers, H, Q, K] the weights of a sequence that stood in these rows, step by step, as copies."""
        found: dict[str, list[Tensor]] = {}
        for place, layer in sorted(self.sinks):
            sink = self.sinks[place, layer]
            calls = zip(sink.steps, [rows[0]] * sink.begun + rows, strict=False)  # others may go on for longer
            found.setdefault(place, []).append(_joined([weights[row] for weights, row in calls]))
        return {place: torch.stack(layers) for place, layers in found.items()}

    def begin(self) -> None:
        """What was recorded so far, of a source or a prompt, comes before the steps of a search."""
        for sink in self.sinks.values():
            sink.begun = len(sink.steps)

    def reorder(self, index: Tensor) -> None:
        for sink in self.sinks.values():
            sink.steps = [weights[index] for weights in sink.steps]


def _joined(steps: list[Tensor]) -> Tensor:
    """Weights of successive queries; a later one may have seen more keys."""
    widest = max(weights.shape[-1] for weights in steps)
    return torch.cat([F.pad(weights, (0, widest - weights.shape[-1])) for weights in steps], -2)
