"""BERT, the encoder-only model, and its pretraining heads. `Bert` is the body; heads for tasks are in `heads.py`.

Sizes live in PRESETS, as data.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import Presets, choice, option
from regard.models import stack
from regard.models.batch import TextBatch
from regard.models.init import INITS
from regard.models.stack import Positions, StackConfig
from regard.nn.attention import AttentionConfig
from regard.nn.dropout import Dropout
from regard.nn.embedding import BiasedOutput, Embedding
from regard.nn.feed_forward import ACTIVATIONS, Activation
from regard.nn.layers import EncoderLayer, ModuleList
from regard.nn.layout import AttentionContext
from regard.nn.pattern import Document, Padding
from regard.nn.position import LearnedConfig
from regard.nn.record import AttentionRecorder


def _published(layers: int, size: int) -> dict[str, int | float | str | bool]:
    return {"layers": layers, "size": size, "inner": 4 * size, "heads": size // 64, "dropout": 0.1}


PRESETS: Presets = {
    "tiny": _published(2, 128),  # these four: Turc 2019, table 1
    "mini": _published(4, 256),
    "small": _published(4, 512),
    "medium": _published(8, 512),
    "base": _published(12, 768),  # Devlin 2019, 3
    "large": _published(24, 1024),
}


@choice(
    "bert",
    "A8",
    "x = norm(E[w] + S[segment] + P[place]); x ← norm(x + f(x)), f: attention, feed-forward",
    "Devlin 2019",
)
class BertConfig(StackConfig):
    """An encoder alone, pretrained by masked language modelling and next-sentence prediction."""

    presets: ClassVar[Presets] = PRESETS

    preset: str | None = option(None, f"named sizes: {', '.join(PRESETS)}; any key given beside it wins")
    layers: int = option(12, "how many of them")
    size: int = option(768, "D, the width of the model")
    inner: int = option(3072, "width inside the feed-forward network")
    heads: int = option(12, "H; each has size/heads dimensions")
    epsilon: float = option(1e-12, "ε of the norm, added to the variance")
    activation: Activation = option("gelu", "in the feed-forward network; swiglu adds a gate")
    segments: int = option(2, "sentences that are told apart; 0: none are")
    init: Literal["xavier", "normal", "depth"] = option(
        "normal", "how weights begin: by fan-in and fan-out, N(0, 0.02²), or that with less from each sub-layer"
    )
    position: Positions = option(LearnedConfig(length=512), "how order enters; a list is tiled over the layers")
    attention: AttentionConfig = option(AttentionConfig, "the five choices")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.segments < 0:
            raise ValueError(f"segments must be 0 or more, not {self.segments}")
        stack.check_positions(self.position, "encoder", self.attention.sizes(self.size, self.heads))
        if "structural" in {position.kind for position in stack.as_list(self.position)}:
            raise ValueError("structural positions need dependency trees, which translation alone reads")

    def check(self, longest: int) -> None:
        """Raise ValueError where the choices cannot serve sequences of this length."""
        self.attention.check("encoder", longest, self.layers)
        stack.check_max_length(self.position, "position", longest, "task.length")

    def build(self, entries: int) -> "Bert":
        return Bert(self, entries)

    def pretraining(self, entries: int) -> "BertPretraining":
        """The body with its pretraining heads."""
        return BertPretraining(self.build(entries))

    def masked(self, entries: int) -> "MaskedLM":
        """The body with the masked language model's head alone."""
        return MaskedLM(self.build(entries))

    def encoder(self, entries: int, pooled: bool) -> "BertEncoder":
        """The body alone, or with a pooler."""
        return BertEncoder(self.build(entries), Pooler(self.size) if pooled else None)


# --- layers as features --------------------------------------------------------------------------------------------

LayerJoin = Literal["concat", "sum", "mean"]
LAYER_JOINS: dict[LayerJoin, Callable[[list[Tensor]], Tensor]] = {
    "concat": lambda states: torch.cat(states, -1),
    "sum": lambda states: torch.stack(states).sum(0),
    "mean": lambda states: torch.stack(states).mean(0),
}
_LAYER_RANGES = re.compile(r"\s*(-?\d+)(?:\s*\.\.\s*(-?\d+))?\s*")


def layer_numbers(chosen: str | Sequence[int], layers: int) -> list[int]:
    """The layers that `-4..-1`, `0,2` or a list means: 0 is the input of the first, -1 the output of the last."""
    numbers: list[int] = []
    for part in chosen.split(",") if isinstance(chosen, str) else map(str, chosen):
        found = _LAYER_RANGES.fullmatch(part)
        if found is None:
            raise ValueError(f"{part!r} names no layers; write a number, or two with dots between them: -4..-1")
        first, last = (int(n) for n in (found[1], found[2] or found[1]))
        if outside := [n for n in (first, last) if not -layers - 1 <= n <= layers]:
            raise ValueError(
                f"there is no layer {outside[0]}; write 0 to {layers}, or -1 to {-layers - 1} from the last on"
            )
        first, last = first % (layers + 1), last % (layers + 1)
        if first > last:
            raise ValueError(f"{part.strip()} is empty, since layer {first} stands above layer {last}; turn it round")
        numbers += range(first, last + 1)
    if not numbers:
        raise ValueError("no layers are named; write some, such as -4..-1")
    return numbers


# --- the body ---------------------------------------------------------------------------------------------------------


class Bert(nn.Module):
    def __init__(self, config: BertConfig, entries: int) -> None:
        super().__init__()
        c, self.config = config, config
        self.embedding = Embedding(entries, c.size, scale=False)
        self.segment_embedding = Embedding(c.segments, c.size, scale=False) if c.segments else None
        self.position = stack.build_positions(c.position, c.attention.sizes(c.size, c.heads), "encoder", c.layers)
        self.embedding_norm = c.build_norm()
        self.dropout = Dropout(c.dropout)
        attentions = c.build_attentions(c.attention, c.layers, self.position, Padding() & Document())
        self.layers = ModuleList(EncoderLayer(own, c.build_feed_forward(), c.build_residuals(2)) for own in attentions)
        self.norm = c.build_final_norm()
        INITS[c.init](self)

    @classmethod
    def from_preset(cls, preset: str, vocabulary: int, **keys: object) -> "Bert":
        """A new model by the name of its sizes; further keys are those of `model:` in a recipe."""
        return cls(stack.config_from_preset(BertConfig, preset, keys), vocabulary)

    @property
    def longest(self) -> int | None:
        """How many positions the model can tell apart, where there is a limit."""
        return stack.max_length(self.position)

    @property
    def capturable(self) -> bool:
        """Whether padded batches of one shape take the same operations, as a CUDA graph needs."""
        return stack.capturable(self, self.layers)

    def pooler(self) -> "Pooler":
        pooler = Pooler(self.config.size)
        init_linear(pooler.dense)
        return pooler

    def parts(self) -> list[list[nn.Module]]:
        """Its layers from the top down, for layer-wise learning rates; what is in none of them lies below all."""
        return [[layer] for layer in reversed(self.layers)]

    def forward(self, batch: TextBatch, record: AttentionRecorder | None = None, layers: int | None = None) -> Tensor:
        """Hidden states [B, T, D], after all layers or the first so many of them."""
        states = self.hidden_states(batch, record)
        x = next(states)
        for layer in islice(states, layers):
            x = layer
        return x

    def hidden_states(self, batch: TextBatch, record: AttentionRecorder | None = None) -> Iterator[Tensor]:
        """What goes into the first layer, then the output of each, one after the other [B, T, D]."""
        layout = batch.layout()
        context = AttentionContext(layout, layout)
        x = self.embedding(batch.ids)
        if self.segment_embedding is not None:
            segments = torch.zeros_like(batch.ids) if batch.segments is None else batch.segments
            x = x + self.segment_embedding(segments)
        x = self.dropout(self.embedding_norm(stack.embed_positions(self.position, x, layout), layout.real))
        yield x
        for n, layer in enumerate(self.layers):
            x = layer(x, context, record and record.at("encoder", n))
            yield self.norm(x, layout.real) if layer is self.layers[-1] else x

    def joined_layers(self, batch: TextBatch, layers: Sequence[int], join: LayerJoin) -> Tensor:
        """Some of the hidden states, joined: [B, T, D], or the width of all where they are concatenated."""
        states = islice(self.hidden_states(batch), max(layers) + 1)
        kept = {n: state for n, state in enumerate(states) if n in layers}
        return LAYER_JOINS[join]([kept[n] for n in layers])


# --- heads ---------------------------------------------------------------------------------------------------------


class Pooler(nn.Module):
    """tanh(W x₁ + b): a row as one vector, from its first position."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(size, size)

    def forward(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        return self.dense(hidden[:, 0]).tanh()  # [B, D]


class MaskedLMHead(nn.Module):
    """Logits of masked words: norm(f(W x + b)), scored by the embedding's own matrix (Devlin 2019, 3.1)."""

    def __init__(self, body: Bert) -> None:
        super().__init__()
        c = body.config
        self.dense = nn.Linear(c.size, c.size)
        self.activation = ACTIVATIONS.get(c.activation, nn.SiLU)()
        self.norm = c.build_norm()
        self.output = BiasedOutput(body.embedding, len(body.embedding.weight), c.size)

    def forward(self, x: Tensor, labels: Tensor | None = None, smoothing: float | None = None) -> Tensor:
        """The logits of x [N, D], or, with `smoothing`, the loss of its labels [N], summed."""
        return self.output.at(self.norm(self.activation(self.dense(x))), labels, smoothing)


class MaskedLM(nn.Module):
    """Masked language modelling alone."""

    def __init__(self, body: Bert) -> None:
        super().__init__()
        self.body, self.words = body, MaskedLMHead(body)
        init_linear(self.words.dense)

    @property
    def config(self) -> BertConfig:
        return self.body.config

    def scores(self, batch: TextBatch, record: AttentionRecorder | None = None) -> tuple[Tensor, Tensor | None]:
        """Logits at `batch.label_positions` [N, V], and of next-sentence prediction [B, 2] where it is learned."""
        hidden = self.body(batch, record)
        return self.words(hidden.flatten(0, 1)[batch.label_positions]), self.next_sentence(hidden)

    def next_sentence(self, hidden: Tensor) -> Tensor | None:
        return None

    def forward(
        self, batch: TextBatch, record: AttentionRecorder | None = None, smoothing: float | None = None
    ) -> Tensor:
        """Logits at `batch.label_positions` [N, V]; with `smoothing`, the loss instead.

        That is a sum over the N masked words: divided by N it is the mean of the words and the mean of the rows, added.
        A label below zero is there to fill a shape, and counts for nothing; only our kernels know it.
        """
        assert batch.label_positions is not None
        hidden = self.body(batch, record)  # [B, T, D]
        words = self.words(hidden.flatten(0, 1)[batch.label_positions], batch.labels, smoothing)
        if smoothing is None or batch.classes is None or (next_sentence := self.next_sentence(hidden)) is None:
            return words
        assert batch.labels is not None
        next_sentence = next_sentence.to(torch.promote_types(next_sentence.dtype, torch.float32))
        return words + (batch.labels >= 0).sum() * F.cross_entropy(next_sentence, batch.classes)


class BertPretraining(MaskedLM):
    """Masked language modelling and next-sentence prediction."""

    def __init__(self, body: Bert) -> None:
        super().__init__(body)
        self.pooler = Pooler(body.config.size)
        self.sentence = nn.Linear(body.config.size, 2)  # 0: the second sentence follows the first; 1: it does not
        init_linear(self.pooler.dense, self.sentence)

    def next_sentence(self, hidden: Tensor) -> Tensor:
        return self.sentence(self.pooler(hidden))


class BertEncoder(nn.Module):
    """A pretrained body without a head, for embeddings."""

    def __init__(self, body: Bert, pooler: Pooler | None) -> None:
        super().__init__()
        self.body, self.pooler = body, pooler

    def forward(self, batch: TextBatch, record: AttentionRecorder | None = None) -> Tensor:
        return self.body(batch, record)


def init_linear(*heads: nn.Linear) -> None:
    """BERT's first weights: N(0, 0.02²), and no bias."""
    for head in heads:
        nn.init.normal_(head.weight, std=0.02)
        nn.init.zeros_(head.bias)
