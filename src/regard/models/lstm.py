"""LSTM language models: ULMFiT's, whose states pass from batch to batch, and ELMo's, which is bidirectional.

`Lstm` and `BiLstm` are bodies, on which heads classify or tag as on a BERT. They know no task.
"""

from itertools import pairwise
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import at_least, below_one, choice, option
from regard.models.batch import TextBatch
from regard.models.contract import ModelConfig
from regard.models.recurrent import Recurrent
from regard.models.state import DecoderState
from regard.nn.cache import StateTensors
from regard.nn.dropout import RowDropout
from regard.nn.embedding import BiasedOutput, Embedding, Output, WordDropout
from regard.nn.layers import ModuleList
from regard.nn.record import AttentionRecorder

LstmStates = dict[str, Tensor]  # of each layer [B, 1, 2, D]: its h and c


@choice(
    "lstm_lm",
    "A13",
    "h_t = LSTM(x_t, h_t−1); p(w_t+1) = softmax(E h_t + b); a class from [h_T; max h; mean h]",
    "Howard 2018",
)
class LstmConfig(ModelConfig):
    """A language model of LSTM layers, whose states pass from batch to batch; a head on its body classifies."""

    layers: int = option(3, "how many of them")
    size: int = option(400, "D, the width of words and of the last layer")
    hidden: int = option(1150, "the width of the layers before the last")
    dropout: float = option(0.3, "on words, between layers and on the last states; the same at all places of a row")
    word_dropout: float = option(0.05, "share of the vocabulary whose vectors are nothing, drawn for each batch")
    weight_dropout: float = option(0.3, "on the matrices from state to state (DropConnect)")

    @property
    def carries(self) -> bool:
        return True

    def __post_init__(self) -> None:
        at_least(self, 1, "layers", "size", "hidden")
        below_one(self, "dropout", "word_dropout", "weight_dropout")

    def check(self, longest: int) -> None:
        """Any length will do."""

    def widths(self) -> list[int]:
        return [self.size, *[self.hidden] * (self.layers - 1), self.size]

    def body(self, entries: int) -> "Lstm":
        return Lstm(self, entries)

    def build(self, entries: int) -> "LstmLanguageModel":
        return LstmLanguageModel(self.body(entries))


@choice(
    "bilstm_lm",
    "A12",
    "p(w_t | w_<t) · p(w_t | w_>t); h ← h + LSTM(h) after the first layer, in each direction",
    "Peters 2018, 3.1",
)
class BiLstmConfig(LstmConfig):
    """A language model in both directions, with shared words: what ELMo's features are made of."""

    layers: int = option(2, "how many of them, in each direction")
    size: int = option(512, "D, the width of words and of each direction")
    hidden: int | None = option(None, "as size: layers are added to what they read")  # type: ignore[assignment]
    dropout: float = option(0.1, "on words, between layers and on the last states; the same at all places of a row")
    word_dropout: float = option(0.0, "share of the vocabulary whose vectors are nothing, drawn for each batch")
    weight_dropout: float = option(0.0, "on the matrices from state to state (DropConnect)")

    @property
    def carries(self) -> bool:
        return False  # the backward direction has no state to continue

    def __post_init__(self) -> None:
        if self.hidden not in (None, self.size):
            raise ValueError(f"hidden must be as size, {self.size}, since layers are added to what they read")
        object.__setattr__(self, "hidden", self.size)
        super().__post_init__()

    def body(self, entries: int) -> "BiLstm":
        return BiLstm(self, entries)

    def build(self, entries: int) -> "BiLstmLanguageModel":
        return BiLstmLanguageModel(self.body(entries))


# --- layers --------------------------------------------------------------------------------------------------------


class WeightDropLstm(Recurrent):
    """One LSTM layer, whose matrix from state to state loses some of its weights while it learns (Merity 2018, 2)."""

    def __init__(self, inputs: int, size: int, weight_dropout: float) -> None:
        super().__init__("lstm", inputs, size, 1, 0.0)
        self.weight_dropout = weight_dropout
        self.reset_parameters()

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        if not (self.training and self.weight_dropout):
            return super().forward(x, state)
        own: Any = self.layers
        past = F.dropout(own.weight_hh_l0, self.weight_dropout)
        weights = [own.weight_ih_l0, past, own.bias_ih_l0, own.bias_hh_l0]
        h, c = state.permute(2, 1, 0, 3).contiguous().to(x.dtype).unbind(0)  # [1, B, D] each
        top, h, c = torch._VF.lstm(x, (h, c), weights, True, 1, 0.0, True, False, True)
        return top, torch.stack([h, c]).permute(2, 1, 0, 3)


class LstmStack(nn.Module):
    """Layers in one direction; those after the first may have residuals."""

    def __init__(self, config: LstmConfig, residual: bool) -> None:
        super().__init__()
        widths, self.residual = config.widths(), residual
        self.layers = ModuleList(
            WeightDropLstm(inputs, size, config.weight_dropout) for inputs, size in pairwise(widths)
        )
        self.dropout = RowDropout(config.dropout)

    def forward(self, x: Tensor, states: LstmStates, real: Tensor | None = None) -> tuple[list[Tensor], LstmStates]:
        """The output of each layer for [B, T, D], and its last state: at the end, or at each row's own where `real`.

        A layer without a state begins with zeros.
        """
        outputs, ended = [], dict[str, Tensor]()
        for n, layer in enumerate(self.layers):
            inputs, name = self.dropout(x), f"layer{n}"
            if real is not None:
                out, last = layer.read(inputs, real)
                ended[name] = last.squeeze(3)
            else:
                empty = inputs.new_zeros(len(x), 1, 2, layer.layers.hidden_size)
                out, ended[name] = layer(inputs, states.get(name, empty).to(inputs.dtype))
            x = x + out if self.residual and n else out
            outputs.append(x)
        return outputs, ended


# --- bodies --------------------------------------------------------------------------------------------------------


class Lstm(nn.Module):
    capturable = False  # by a CUDA graph: how many steps a layer takes is the host's to know

    def __init__(self, config: LstmConfig, entries: int, residual: bool = False) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(entries, config.size, scale=False)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        self.word_dropout = WordDropout(config.word_dropout)
        self.ahead = LstmStack(config, residual)

    def embed(self, ids: Tensor) -> Tensor:
        return self.word_dropout(self.embedding(ids), ids, len(self.embedding.weight))  # [B, T, D]

    def forward(self, batch: TextBatch, record: AttentionRecorder | None = None) -> Tensor:
        """The last layer's states [B, T, D]."""
        return self.ahead(self.embed(batch.ids), {})[0][-1]

    def pooler(self) -> "ConcatPooler":
        return ConcatPooler(self.config.size)

    def parts(self) -> list[list[nn.Module]]:
        """Its layers from the top down, for layer-wise learning rates."""
        return [[layer] for layer in reversed(self.ahead.layers)]


class BiLstm(Lstm):
    def __init__(self, config: BiLstmConfig, entries: int) -> None:
        super().__init__(config, entries, residual=True)
        self.back = LstmStack(config, residual=True)

    def bidirectional(self, ids: Tensor, lengths: Tensor) -> list[Tensor]:
        """Embeddings and the output of each layer, both directions side by side: L + 1 times [B, T, 2D]."""
        x = self.embed(ids)
        ahead, back = self.ahead(x, {})[0], self.back(reverse_rows(x, lengths), {})[0]
        pairs = zip([x, *ahead], [x, *(reverse_rows(one, lengths) for one in back)], strict=True)
        return [torch.cat(pair, -1) for pair in pairs]

    def forward(self, batch: TextBatch, record: AttentionRecorder | None = None) -> Tensor:
        return self.bidirectional(batch.ids, batch.lengths())[-1]


def reverse_rows(x: Tensor, lengths: Tensor) -> Tensor:
    """Every row [B, T, …] backwards within its length [B]; padding stays behind it."""
    position = torch.arange(x.shape[1], device=x.device)
    own = lengths[:, None]
    index = torch.where(position < own, own - 1 - position, position)  # [B, T]
    return x[torch.arange(len(x), device=x.device)[:, None], index]


class ConcatPooler(nn.Module):
    """A row as one vector, made of its last state, the greatest and the mean of all (Howard 2018, 3.3).

    The token that closes a row is left out: a language model has learned to forget there.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(3 * size, size)

    def forward(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        position = torch.arange(hidden.shape[1], device=hidden.device)
        count = (len(position) if real is None else real.sum(1, keepdim=True)) - torch.ones_like(
            hidden[:, :1, 0].long()
        )
        seen, count = (position < count)[..., None], count[:, 0]
        last = hidden[torch.arange(len(hidden), device=hidden.device), count - 1]
        greatest = hidden.masked_fill(~seen, -torch.inf).amax(1)
        mean = (hidden * seen).sum(1) / count[:, None]
        return self.dense(torch.cat([last, greatest, mean], -1)).tanh()  # [B, D]


# --- language models -----------------------------------------------------------------------------------------------


class LstmLanguageModel(nn.Module):
    # The bias says how frequent words are: without it states must, and deep ones saturate before they learn more.
    output_class: ClassVar[type[Output]] = BiasedOutput

    def __init__(self, body: Lstm) -> None:
        super().__init__()
        self.body, self.config = body, body.config
        self.output = self.output_class(body.embedding, len(body.embedding.weight), body.config.size)
        self.dropout = RowDropout(body.config.dropout)

    def forward(
        self,
        batch: TextBatch,
        record: AttentionRecorder | None = None,
        smoothing: float | None = None,
        carry: LstmStates | None = None,
    ) -> Any:
        """Logits at `batch.label_positions` [N, V], or, with `smoothing`, the loss of its labels, summed.

        With a `carry`, that and the states after the batch, which the next continues.
        """
        assert batch.label_positions is not None
        layers, states = self.body.ahead(self.body.embed(batch.ids), carry or {})
        x = self.dropout(layers[-1]).flatten(0, 1)[batch.label_positions]  # [N, D]
        out = self.output.at(x, batch.labels, smoothing)
        return out if carry is None else (out, {name: state.detach() for name, state in states.items()})

    def parts(self) -> list[list[nn.Module]]:
        return self.body.parts()

    # --- step by step: decoding --------------------------------------------------------------------------------

    def start(self, batch: TextBatch, length: int, record: AttentionRecorder | None = None) -> DecoderState:
        """Read the prompts, all but the last token of each, which is the first that a search reads."""
        read = (batch.lengths() - 1).clamp(min=0)  # [B]
        sizes, rows = self.config.widths()[1:], len(batch.ids)
        like = next(self.parameters())
        states = {f"layer{n}": like.new_zeros(rows, 1, 2, size) for n, size in enumerate(sizes)}
        if batch.ids.shape[1] > 1 and int(read.max()):
            prompts = batch.ids[:, : int(read.max())]
            real = torch.arange(prompts.shape[1], device=batch.device) < read.clamp(min=1)[:, None]
            _, ended = self.body.ahead(self.body.embed(prompts), {}, real)
            states = {name: state * (read > 0)[:, None, None, None] for name, state in ended.items()}
        return DecoderState(read, [(StateTensors(states),)], None, 0, int(read.max()) + length, record=record)

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Read T more tokens a row [B, T]; give the logits of the token after each [B, T, V]."""
        ((kept,),) = state.layers
        layers, states = self.body.ahead(self.body.embed(tokens), kept.tensors)
        for name, value in states.items():
            kept[name] = value
        state.advance(tokens.shape[1])
        return self.output(layers[-1]), state


class BiLstmLanguageModel(LstmLanguageModel):
    """Learns in both directions; logits and generation are the forward half's."""

    output_class = Output
    body: BiLstm

    def forward(
        self,
        batch: TextBatch,
        record: AttentionRecorder | None = None,
        smoothing: float | None = None,
        carry: LstmStates | None = None,
    ) -> Any:
        if smoothing is None:
            return super().forward(batch)
        assert batch.labels is not None
        text = torch.cat([batch.ids, batch.labels.view_as(batch.ids)[:, -1:]], 1)  # [B, T + 1], all learned
        x = self.body.embed(text)
        halves = self.body.ahead(x[:, :-1], {})[0][-1], self.body.back(x[:, 1:].flip(1), {})[0][-1]
        labels = torch.cat([text[:, 1:], text[:, :-1].flip(1)])  # [2B, T]
        return self.output.at(self.dropout(torch.cat(halves)).flatten(0, 1), labels.flatten(), smoothing) / 2
