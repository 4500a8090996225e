"""What a language model predicts beside its next token while it learns: from lower layers, and of tokens further ahead.

Each prediction has a classifier of its own, which nothing needs later (Al-Rfou 2018, 3). Knows no run: a batch says
which layers predict.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from regard.models.batch import TextBatch
from regard.nn.embedding import Output


def lowest_predicting_layer(layers: int, step: int, steps: int) -> int:
    """Layer l of n, counted from 1, predicts until l/2n of the training is done: the lowest that still does."""
    return min(layers, 2 * layers * (step - 1) // steps + 1)


class AuxiliaryOutputs(nn.Module):
    """Classifiers by (layer, tokens ahead); the last layer's for the next token is the model's own output."""

    def __init__(self, lowest: int, layers: int, targets: int, weight: float, entries: int, size: int) -> None:
        super().__init__()
        self.weight = weight  # of the loss of further tokens, beside 1 for the next
        pairs = [(layer, ahead) for layer in range(lowest, layers + 1) for ahead in range(1, targets + 1)]
        self.terms = {f"layer{layer}_ahead{ahead}": (layer, ahead) for layer, ahead in pairs}
        del self.terms[f"layer{layers}_ahead1"]
        self.outputs = nn.ModuleDict({name: Output(None, entries, size) for name in self.terms})

    def forward(self, states: Mapping[int, Tensor], batch: TextBatch, smoothing: float) -> Tensor:
        """Σ of all losses of the layers whose states [B, T, D] are given, by their numbers."""
        total = torch.zeros((), device=batch.device)
        for name, (layer, ahead) in self.terms.items():
            output = self.outputs[name]
            assert isinstance(output, Output)
            if layer not in states or ahead > 1 + len(batch.further):
                total = total + 0.0 * output.weight.sum()  # a gradient of zero, which all processes can share
                continue
            labels, positions = (batch.labels, batch.label_positions) if ahead == 1 else batch.further[ahead - 2].both
            loss = output.at(labelled_states(states[layer], positions), labels, smoothing)
            total = total + (loss if ahead == 1 else self.weight * loss)
        return total


def labelled_states(states: Tensor, positions: Tensor | None) -> Tensor:
    """States [B, T, D] at the positions of labels, in the flattened [B·T]: [N, D]."""
    flat = states.flatten(0, 1)
    return flat if positions is None or len(positions) == len(flat) else flat[positions]


def gradient_only(loss: Tensor) -> Tensor:
    """Zero, with the gradient of this loss: it is learned from, and what is logged stays comparable."""
    return loss - loss.detach()
