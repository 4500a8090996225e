"""Recorded attention weights: kept by role and layer where they are requested, and moved with the rows of a search."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from regard.nn.backend.contract import AttentionInputs

ROLES = ("encoder", "decoder", "cross")  # what an attention is: encoder or decoder self-attention, or cross-attention


@dataclass
class LayerRecord:
    """The weights of one attention, forward pass by forward pass."""

    keep_graph: bool  # whether gradients may flow back through the weights
    weights: list[Tensor] = field(default_factory=list)  # [B, H, Q, K] of every pass
    prefill: int = 0  # how many of them came before a search began
    inputs: "list[AttentionInputs] | None" = None  # of every pass, where they are requested too


@dataclass
class AttentionRecorder:
    """A request for attention weights, and the weights once a model has run. Masked positions are exactly zero."""

    roles: tuple[str, ...] = ROLES
    keep_graph: bool = False
    keep_inputs: bool = False  # keep the inputs of each attention beside its weights
    records: dict[tuple[str, int], LayerRecord] = field(default_factory=dict)

    def at(self, role: str, layer: int) -> LayerRecord | None:
        """Where that attention puts its weights; None if they are not requested."""
        if role not in self.roles:
            return None
        empty = LayerRecord(self.keep_graph, inputs=[] if self.keep_inputs else None)
        return self.records.setdefault((role, layer), empty)

    def layers(self, role: str) -> list[Tensor]:
        """The weights of a role, a tensor [B, H, Q, K] for each layer; decoding steps are concatenated."""
        return [_concatenated(self.records[key].weights) for key in sorted(self.records) if key[0] == role]

    def trace(self, rows: list[int]) -> dict[str, Tensor]:
        """By role [layers, H, Q, K] the weights of a hypothesis that stood in these rows, step by step, as copies."""
        layers: dict[str, list[Tensor]] = {}
        for role, layer in sorted(self.records):
            record = self.records[role, layer]
            steps = zip(record.weights, [rows[0]] * record.prefill + rows, strict=False)  # others may be longer
            layers.setdefault(role, []).append(_concatenated([weights[row] for weights, row in steps]))
        return {role: torch.stack(weights) for role, weights in layers.items()}

    def mark_prefill(self) -> None:
        """What was recorded so far, of a source or a prompt, comes before the steps of a search."""
        for record in self.records.values():
            record.prefill = len(record.weights)

    def reorder(self, index: Tensor) -> None:
        for record in self.records.values():
            record.weights = [weights[index] for weights in record.weights]


def _concatenated(steps: list[Tensor]) -> Tensor:
    """Weights of successive queries; a later one may have seen more keys."""
    widest = max(weights.shape[-1] for weights in steps)
    return torch.cat([F.pad(weights, (0, widest - weights.shape[-1])) for weights in steps], -2)
