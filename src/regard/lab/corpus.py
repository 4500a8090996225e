"""The embedded corpus for tiny models: its words as ids, masked words, next words, and translations.

A token is what stands between two spaces, without marks and in lower case, so that the dependency trees number it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import parse_config, to_node
from regard.data import embedded
from regard.data.embedded import Pair, bare
from regard.lab.tiny import FittedModel, TinyEncoder, descend, learned
from regard.models import TransformerConfig
from regard.models.batch import PairBatch, RaggedRows, collate_pairs
from regard.models.rnn import RnnConfig
from regard.nn.record import LayerRecord

PAD, UNKNOWN, BOS, EOS, MASK = range(5)
REST = 5  # ids of words begin here
SHARE = 0.15  # of the words that are asked for (Devlin 2019, 3.1)


@dataclass
class _Special:
    """The special ids, as batches name them."""

    pad: int = PAD
    bos: int = BOS
    eos: int = EOS


def tokens(text: str) -> list[str]:
    return [bare(word) for word in text.split()]


@cache
def word_ids(side: str) -> dict[str, int]:
    """The words of the training sentences, `source` (English) or `target`."""
    texts = (pair.source if side == "source" else pair.target for pair in embedded.pairs("train"))
    words = dict.fromkeys(word for text in texts for word in tokens(text))
    return dict(zip(words, count(REST), strict=False))


def entries(side: str = "source") -> int:
    return REST + len(word_ids(side))


def encoded(text: str, side: str = "source") -> list[int]:
    known = word_ids(side)
    return [known.get(word, UNKNOWN) for word in tokens(text)]


@cache
def english(split: embedded.Split, most: int = 20_000) -> Tensor:
    """The first sentences of a split, padded [S, N]."""
    return padded([encoded(pair.source) for pair in embedded.pairs(split)[:most]])


def drawn(rows: Tensor, number: int = 48) -> Tensor:
    """Some of the rows, without columns that are padding in all of them."""
    chosen = rows[torch.randint(len(rows), (number,))]
    return chosen[:, : int((chosen != PAD).sum(1).max())]


def padded(rows: Sequence[Sequence[int]], padding: int = PAD) -> Tensor:
    """[S, N]"""
    values, real = RaggedRows.of(rows).padded(PAD)
    return torch.from_numpy(values).masked_fill(~torch.from_numpy(real), padding)


# --- encoders ------------------------------------------------------------------------------------------------------


class WordEncoder(TinyEncoder):
    """The tiny encoder over words, whose padding nobody sees."""

    def states(self, ids: Tensor, mask: Tensor | None = None, records: Sequence[LayerRecord | None] = ()) -> Tensor:
        return super().states(ids, ids != PAD, records)

    @torch.no_grad()
    def weights(self, ids: Tensor) -> Tensor:
        """How much every place looks at every other [L, S, H, N, N]."""
        records = [LayerRecord(keep_graph=False) for _ in self.layers]
        self.states(ids, records=records)
        return torch.stack([record.weights[0] for record in records])


def masked(ids: Tensor, kinds: tuple[float, float] = (0.8, 0.1), count: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs and labels of masked words: of the chosen these shares become [MASK], or any word; the others stay."""
    chosen = (torch.rand(ids.shape) < SHARE) & (ids >= REST)
    draw, words = torch.rand(ids.shape), torch.randint(REST, count or entries(), ids.shape)
    inputs = ids.masked_fill(chosen & (draw < kinds[0]), MASK)
    inputs = inputs.where(~(chosen & (draw >= kinds[0]) & (draw < sum(kinds))), words)
    return inputs, ids.masked_fill(~chosen, -100)


def masked_encoder(
    seed: int,
    size: int,
    steps: int,
    heads: int = 4,
    kinds: tuple[float, float] = (0.8, 0.1),
    text: tuple[Tensor, int] | None = None,
) -> FittedModel:
    """Two layers that have learned to guess masked words: of the training sentences, or of a text's rows and words."""
    rows, words = text or (english("train"), entries())
    return learned(
        seed, lambda: WordEncoder(words, size, layers=2, heads=heads),
        lambda: masked(drawn(rows), kinds, words), steps, 5e-3,
    )  # fmt: skip


def next_words(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs <s> w₁ …, and as labels the words."""
    return torch.cat([torch.full_like(ids[:, :1], BOS), ids[:, :-1]], 1), ids.masked_fill(ids == PAD, -100)


@torch.no_grad()
def mean_loss(model: nn.Module, ids: Tensor, labels: Tensor) -> float:
    """Nats for each label."""
    return float(F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), ignore_index=-100))


def head_offsets(split: embedded.Split, most: int) -> Tensor:
    """Of every word how far away its head in the tree stands, from −4 to 4, as classes; 0: it is the root [S, N]."""
    return padded([
        [0 if head == 0 else max(-4, min(4, head - n)) + 5 for n, head in enumerate(pair.heads, 1)]
        for pair in embedded.pairs(split)[:most]
    ], -100)  # fmt: skip


def probe(train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]) -> float:
    """Accuracy of a linear map from frozen states [S, N, D] to classes, by ridge regression."""
    (x, y), (x_test, y_test) = ((states[labels != -100].double(), labels[labels != -100]) for states, labels in
                                (train, test))  # fmt: skip
    mean, deviation = x.mean(0), x.std(0) + 1e-6
    x, x_test = (F.pad((each - mean) / deviation, (0, 1), value=1.0) for each in (x, x_test))
    targets = F.one_hot(y).double()
    weights = torch.linalg.solve(x.mT @ x + torch.eye(x.shape[1]).double(), x.mT @ targets)
    return float(((x_test @ weights).argmax(-1) == y_test).double().mean())


# --- translators ---------------------------------------------------------------------------------------------------


def pair_batch(pairs: Sequence[Pair]) -> PairBatch:
    sides = [RaggedRows.of([encoded(text, side) for text in texts]) for side, texts in
             (("source", [p.source for p in pairs]), ("target", [p.target for p in pairs]))]  # fmt: skip
    return collate_pairs(sides[0], sides[1], _Special(), _Special())


def tiny_translator(kind: type[TransformerConfig | RnnConfig], **keys: object) -> nn.Module:
    """A model of the corpus's words."""
    config = parse_config(kind, to_node({**keys, "share": "target"}, "lab"))
    return config.build(entries(), entries("target"))


def fit_translator(model: nn.Module, steps: int, rate: float, rows: int, constructions: str = "") -> None:
    """Train on pairs of the corpus, or of some constructions."""
    pairs = [pair for pair in embedded.pairs("train") if pair.construction.startswith(constructions)]

    def loss() -> Tensor:
        batch = pair_batch([pairs[n] for n in torch.randint(len(pairs), (rows,)).tolist()])
        assert batch.labels is not None
        return F.cross_entropy(model(batch), batch.labels)

    descend(model, loss, steps, rate, steps / 8)


@torch.no_grad()
def translation_loss(model: nn.Module, most: int = 500) -> float:
    """Nats for each word of the validation sentences."""
    batch = pair_batch(embedded.pairs("valid")[:most])
    assert batch.labels is not None
    return float(F.cross_entropy(model.eval()(batch), batch.labels))


def parameters_built(build: Callable[[], nn.Module]) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in build().parameters())


def same_size(build: Callable[[int], nn.Module], target: int, sizes: Sequence[int]) -> int:
    """The size whose model has most nearly so many parameters."""
    return min(sizes, key=lambda size: abs(parameters_built(lambda: build(size)) - target))
