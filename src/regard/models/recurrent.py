"""Recurrent layers: all steps at once by torch's kernels, or one step at a time with the same weights.

They know nothing of attention, which stands between the steps of a decoder.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

LayerState = tuple[Tensor, ...]  # one layer's state: (h,) of a GRU, (h, c) of an LSTM, each [B, D]


def gru(x: Tensor, state: LayerState, weight: Tensor, bias: Tensor) -> LayerState:
    """Cho 2014, with the reset gate behind the product as in cuDNN: h ← (1−z)∘tanh(x + r∘Uh) + z∘h."""
    (h,) = state
    gates = 2 * h.shape[-1]  # r and z; the rest is the candidate
    past = F.linear(h, weight, bias)  # [B, 3D]
    r, z = (x[:, :gates] + past[:, :gates]).sigmoid().chunk(2, -1)
    candidate = (x[:, gates:] + r * past[:, gates:]).tanh()
    return (candidate + z * (h - candidate),)


def lstm(x: Tensor, state: LayerState, weight: Tensor, bias: Tensor) -> LayerState:
    """Hochreiter 1997, with a forget gate: c ← σ(f)∘c + σ(i)∘tanh(g), h ← σ(o)∘tanh(c)."""
    h, c = state
    i, f, g, o = (x + F.linear(h, weight, bias)).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


Cell = Callable[[Tensor, LayerState, Tensor, Tensor], LayerState]
CELLS: dict[str, tuple[type[nn.GRU] | type[nn.LSTM], Cell, int]] = {"gru": (nn.GRU, gru, 1), "lstm": (nn.LSTM, lstm, 2)}


class Recurrent(nn.Module):
    """Layers of one kind of cell. A state is [B, L, P, D]: P is 1 (h) for a GRU, 2 (h and c) for an LSTM."""

    def __init__(self, cell: str, inputs: int, size: int, layers: int, dropout: float, directions: int = 1) -> None:
        super().__init__()
        kind, self.cell, self.parts = CELLS[cell]
        self.dropout = dropout if layers > 1 else 0.0  # between layers
        self.layers = kind(inputs, size, layers, batch_first=True, dropout=self.dropout, bidirectional=directions == 2)
        self.directions = directions

    def read(self, x: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        """Whole sequences [B, S, I]: top states [B, S, directions·D], and where each ended [B, L, P, directions, D]."""
        if real is None:
            top, last = self.layers(x)
        else:  # a direction that begins at the end must begin at the row's own end
            packed = pack_padded_sequence(x, real.sum(-1).cpu(), batch_first=True, enforce_sorted=False)
            top, last = self.layers(packed)
            top = pad_packed_sequence(top, batch_first=True, total_length=x.shape[1])[0]
        last = torch.stack(last if isinstance(last, tuple) else (last,))  # [P, L·directions, B, D]
        return top, last.unflatten(1, (-1, self.directions)).permute(3, 1, 0, 2, 4)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """All steps of [B, T, I] at once from a state: top states [B, T, D], and the new state."""
        parts = state.permute(2, 1, 0, 3).contiguous().unbind(0)  # [L, B, D] each
        top, last = self.layers(x, parts if self.parts > 1 else parts[0])
        last = torch.stack(last if isinstance(last, tuple) else (last,))  # [P, L, B, D]
        return top, last.permute(2, 1, 0, 3)

    def gates(self, layer: int = 0) -> tuple[Tensor, Tensor]:
        """What a layer makes of its input: weight [G·D, I] and bias."""
        weight, _, bias, _ = self.layers.all_weights[layer]
        return weight, bias

    def step(self, x: Tensor, states: list[LayerState]) -> list[LayerState]:
        """One step of all layers, given what the first makes of its input [B, G·D]."""
        new: list[LayerState] = []
        for n, state in enumerate(states):
            if n:
                x = F.linear(F.dropout(new[-1][0], self.dropout, self.training), *self.gates(n))
            _, weight, _, bias = self.layers.all_weights[n]
            new.append(self.cell(x, state, weight, bias))
        return new

    def reset_parameters(self) -> None:
        """By gate: Xavier from the input, orthogonal from the past (Bahdanau 2014, B.1); an LSTM begins by keeping."""
        size = self.layers.hidden_size
        for name, p in self.layers.named_parameters():
            if name.startswith("bias"):
                nn.init.zeros_(p)
                if self.parts == 2 and name.startswith("bias_ih"):
                    nn.init.ones_(p.data[size : 2 * size])  # the forget gate's
            else:
                for gate in p.data.split(size):
                    (nn.init.orthogonal_ if name.startswith("weight_hh") else nn.init.xavier_uniform_)(gate)


def unstack_states(state: Tensor) -> list[LayerState]:
    """[B, L, P, D] layer by layer."""
    return [layer.unbind(1) for layer in state.unbind(1)]


def stack_states(states: list[LayerState]) -> Tensor:
    return torch.stack([torch.stack(layer, 1) for layer in states], 1)  # [B, L, P, D]
