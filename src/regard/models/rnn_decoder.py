"""Recurrent decoders with attention: Bahdanau's attends with its previous state, Luong's with its current one.

All read T ≥ 1 tokens from a row's state, so that training and decoding are one function.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.models.recurrent import Recurrent, stack_states, unstack_states
from regard.nn.attention import Attention
from regard.nn.cache import StateTensors
from regard.nn.layout import AttentionContext, Layout
from regard.nn.record import LayerRecord


class ContextConcat(nn.Module):
    """[c; h]: a context vector and a state side by side, as in both papers."""

    equal_widths = False  # whether c and h must be equally wide

    def __init__(self, memory: int, size: int) -> None:
        super().__init__()
        self.widths = [memory, size]

    def forward(self, c: Tensor, h: Tensor) -> list[Tensor]:
        """What a readout reads, of these widths."""
        return [c, h]


class ContextSum(ContextConcat):
    """c + h."""

    equal_widths = True

    def __init__(self, memory: int, size: int) -> None:
        super().__init__(memory, size)
        self.widths = [size]

    def forward(self, c: Tensor, h: Tensor) -> list[Tensor]:
        return [c + h]


class ContextGate(ContextSum):
    """g∘c + (1 − g)∘h, g = σ(W[c; h] + b): how much of each, by feature."""

    def __init__(self, memory: int, size: int) -> None:
        super().__init__(memory, size)
        self.gate = nn.Linear(memory + size, size)

    def forward(self, c: Tensor, h: Tensor) -> list[Tensor]:
        return [h + self.gate(torch.cat([c, h], -1)).sigmoid() * (c - h)]


CONTEXT_JOINS = {"concat": ContextConcat, "sum": ContextSum, "gate": ContextGate}


class RnnDecoder(nn.Module):
    """Embeddings [B, T, E] to readouts [B, T, E]; `kept` holds the source's keys and values, and each row's state."""

    def __init__(self, rnn: Recurrent, attention: Attention, words: int, join: ContextConcat) -> None:
        super().__init__()
        self.rnn, self.attention, self.words, self.join = rnn, attention, words, join

    def begin(self, ended: Tensor) -> dict[str, Tensor]:
        """The initial state of a row, from the encoder's last states [B, L, P, directions, D]."""
        raise NotImplementedError

    def attend(self, q: Tensor, context: AttentionContext, kept: StateTensors, record: LayerRecord | None) -> Tensor:
        """The context vectors c of states [B, T, D]: [B, T, M]."""
        return self.attention.attend(q[:, None], kept["keys"], kept["values"], context, record)[:, 0]

    def inputs(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """The first layer's product with the embeddings, all steps at once; and its weight for the other inputs."""
        weight, bias = self.rnn.gates()
        return F.linear(words, weight[:, : self.words], bias), weight[:, self.words :]


class BahdanauDecoder(RnnDecoder):
    """c_i from s_{i−1}, then s_i = f(s_{i−1}, y_{i−1}, c_i); a word from s_i, y_{i−1}, c_i (Bahdanau 2014, eq. 4)."""

    def __init__(self, rnn: Recurrent, attention: Attention, words: int, join: ContextConcat, ended: int) -> None:
        super().__init__(rnn, attention, words, join)
        size, layers = rnn.layers.hidden_size, rnn.layers.num_layers
        self.first = nn.Linear(ended, layers * size, bias=False)
        self.readout = nn.Linear(words + sum(join.widths), 2 * words)

    def begin(self, ended: Tensor) -> dict[str, Tensor]:
        """s₀ = tanh(W ←h₁) (A.2.2), in every layer; the cell of an LSTM begins empty."""
        backward = ended[:, -1, 0, -1]  # [B, D]
        h = self.first(backward).tanh().unflatten(-1, (-1, 1, self.rnn.layers.hidden_size))  # [B, L, 1, D]
        return {"state": torch.cat([h, *[torch.zeros_like(h)] * (self.rnn.parts - 1)], 2)}

    def forward(
        self, words: Tensor, context: AttentionContext, kept: StateTensors, record: LayerRecord | None
    ) -> Tensor:
        x, beside = self.inputs(words)
        states, tops, attended = unstack_states(kept["state"]), [], []
        for step, one in zip(x.unbind(1), _step_contexts(context), strict=True):
            c = self.attend(states[-1][0][:, None], one, kept, record)[:, 0]  # [B, M]
            states = self.rnn.step(step + F.linear(c, beside), states)
            tops.append(states[-1][0])
            attended.append(c)
        kept["state"] = stack_states(states)
        *c, joined = self.join(torch.stack(attended, 1), torch.stack(tops, 1))
        t = self.readout(torch.cat([joined, words, *c], -1))  # [B, T, 2E]
        return torch.maximum(t[..., ::2], t[..., 1::2])  # maxout, A.2.2


class LuongDecoder(RnnDecoder):
    """h_t first, then c_t from h_t; a word from h̃_t = tanh(W[c_t; h_t]) (Luong 2015, eq. 5)."""

    def __init__(self, rnn: Recurrent, attention: Attention, words: int, join: ContextConcat) -> None:
        super().__init__(rnn, attention, words, join)
        self.readout = nn.Linear(sum(join.widths), words, bias=False)

    def begin(self, ended: Tensor) -> dict[str, Tensor]:
        """Every layer continues the encoder's last state."""
        return {"state": ended.flatten(-2)}

    def forward(
        self, words: Tensor, context: AttentionContext, kept: StateTensors, record: LayerRecord | None
    ) -> Tensor:
        h, kept["state"] = self.rnn(words, kept["state"])
        return self.combine(h, context, kept, record)

    def combine(self, h: Tensor, context: AttentionContext, kept: StateTensors, record: LayerRecord | None) -> Tensor:
        return self.readout(torch.cat(self.join(self.attend(h, context, kept, record), h), -1)).tanh()  # [B, T, E]


class InputFeedingDecoder(LuongDecoder):
    """h̃_{t−1} enters beside the next word, so that earlier choices are known (Luong 2015, 3.3)."""

    def begin(self, ended: Tensor) -> dict[str, Tensor]:
        return {**super().begin(ended), "fed": ended.new_zeros(len(ended), self.words)}

    def forward(
        self, words: Tensor, context: AttentionContext, kept: StateTensors, record: LayerRecord | None
    ) -> Tensor:
        x, beside = self.inputs(words)
        states, fed, out = unstack_states(kept["state"]), kept["fed"], []
        for step, one in zip(x.unbind(1), _step_contexts(context), strict=True):
            states = self.rnn.step(step + F.linear(fed, beside), states)
            fed = self.combine(states[-1][0][:, None], one, kept, record)[:, 0]
            out.append(fed)
        kept["state"], kept["fed"] = stack_states(states), fed
        return torch.stack(out, 1)


def _step_contexts(context: AttentionContext) -> Iterator[AttentionContext]:
    """One query at a time."""
    queries = context.queries
    return (AttentionContext(Layout(position, queries.end), context.keys) for position in queries.position.split(1, 1))
