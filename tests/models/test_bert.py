"""BERT: counts of the published sizes, padding and packing change nothing, segments and masks matter, both losses."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from regard import config
from regard.errors import RegardError
from regard.models.batch import RaggedRows, TextBatch, collate_texts
from regard.models.bert import BertConfig, BertPretraining
from regard.nn.record import AttentionRecorder
from tests.models.test_positions import ALL

CHOICES = [
    *({"position": position} for position in ALL),
    {"attention": {"score": ["additive", "cosine"]}},
    {"attention": {"pattern": "window(2) | global(1)"}},
    {"attention": {"normalise": "sparsemax"}},
    {"residual": "pre_norm", "segments": 0},
    {"norm": "batch"},
]
each_choice = pytest.mark.parametrize("keys", CHOICES, ids=str)


def build(**keys: object) -> BertPretraining:
    """Weights are large, so that everything matters."""
    torch.manual_seed(0)
    position = {"kind": "learned", "length": 16}
    small = {"layers": 2, "size": 16, "inner": 24, "heads": 4, "dropout": 0.0, "position": position, **keys}
    model = config.parse_config(BertConfig, small).pretraining(30).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.3)
    return model


def batch(lengths: list[int], seed: int = 0) -> TextBatch:
    g = np.random.default_rng(seed)
    rows = [g.integers(4, 30, n) for n in lengths]
    return collate_texts(RaggedRows.of(rows), 0, RaggedRows.of([np.arange(n) * 2 // n for n in lengths]))


def row(b: TextBatch, n: int, length: int) -> TextBatch:
    return TextBatch(b.ids[n : n + 1, :length], segments=b.segments[n : n + 1, :length])


def close(a: torch.Tensor, b: torch.Tensor, room: float = 1e-12) -> None:
    torch.testing.assert_close(a, b, atol=room, rtol=room)


@pytest.mark.parametrize(
    "preset, count",
    [("tiny", 4_385_920), ("mini", 11_170_560), ("small", 28_763_648), ("medium", 41_373_184),
     ("base", 109_482_240), ("large", 335_141_888)],
)  # fmt: skip
def test_parameter_counts_of_the_published_models(preset: str, count: int) -> None:
    """With 30,522 entries and the pooler, as the model cards count."""
    with torch.device("meta"):
        model = config.parse_config(BertConfig, {"preset": preset}).pretraining(30_522)
    assert sum(p.numel() for part in (model.body, model.pooler) for p in part.parameters()) == count


@each_choice
def test_a_text_alone_and_in_a_padded_batch(keys: dict) -> None:
    body, lengths = build(**keys).body, [5, 9, 1]
    b = batch(lengths)
    whole = body(b)
    for n, length in enumerate(lengths):
        close(body(row(b, n, length))[0], whole[n, :length])


@each_choice
def test_packed_documents_do_not_see_each_other(keys: dict) -> None:
    body, b = build(**keys).body, batch([5, 7])
    ids = torch.cat([b.ids[0, :5], b.ids[1]])[None]
    segments = torch.cat([b.segments[0, :5], b.segments[1]])[None]
    packed = TextBatch(ids, document=torch.tensor([[0] * 5 + [1] * 7]), segments=segments)
    found = body(packed)[0]
    close(found[:5], body(row(b, 0, 5))[0])
    close(found[5:], body(row(b, 1, 7))[0])


def test_every_place_sees_both_sides_and_its_segment() -> None:
    body, b = build().body, batch([9])
    before = body(b)
    ids = b.ids.clone()
    ids[0, 8] = 4 + (ids[0, 8] - 3) % 26
    assert (body(replace(b, ids=ids)) - before).abs().amax(-1).min() > 1e-4
    assert (body(replace(b, segments=None)) - before).abs().amax(-1).min() > 1e-4


def test_both_losses_and_the_scores() -> None:
    model, b = build(), batch([9, 4])
    b = replace(
        b, label_positions=torch.tensor([2, 5, 10]), labels=torch.tensor([7, 8, 9]), classes=torch.tensor([1, 0])
    )
    words, follows = model.scores(b)
    assert words.shape == (3, 30)
    close(model(b), words)
    both = F.cross_entropy(words, b.labels) + F.cross_entropy(follows, b.classes)  # Devlin 2019, A.2
    close(model(b, smoothing=0.0), 3 * both)
    close(model(replace(b, classes=None), smoothing=0.1), F.cross_entropy(words, b.labels, label_smoothing=0.1) * 3)
    wanted = torch.autograd.grad(3 * both, list(model.parameters()), retain_graph=True)
    found = torch.autograd.grad(model(b, smoothing=0.0), list(model.parameters()))
    for a, c in zip(found, wanted, strict=True):
        close(a, c, 1e-10)


def test_the_words_are_scored_by_the_embedding() -> None:
    model = build()
    assert model.words.output.weight is model.body.embedding.weight
    assert model.words.output.bias.shape == (30,)


def test_epsilon_reaches_every_norm() -> None:
    model = build(epsilon=1e-3, residual="pre_norm")
    norms = [m for m in model.modules() if isinstance(m, torch.nn.LayerNorm)]
    assert len(norms) == 2 * 2 + 3  # layers, embeddings, the end, the head of words
    assert {m.eps for m in norms} == {1e-3}
    assert {m.eps for m in build().modules() if isinstance(m, torch.nn.LayerNorm)} == {1e-12}


def test_weights_are_recorded() -> None:
    model, record = build(), AttentionRecorder(("encoder",))
    model.body(batch([6, 3]), record)
    weights = record.layers("encoder")
    assert [w.shape for w in weights] == [(2, 4, 6, 6)] * 2
    close(weights[0].sum(-1), torch.ones(2, 4, 6, dtype=torch.float64))
    assert weights[1][1, :, :, 3:].abs().max() == 0  # padding


def test_lengths_and_choices_are_checked_before_any_data() -> None:
    assert build().body.longest == 16
    with pytest.raises(ValueError, match=r"position\.length is 16"):
        build().body.config.check(17)
    with pytest.raises(ValueError, match="belongs to cross"):
        config.parse_config(BertConfig, {"attention": {"pattern": "local_m(2)"}}).check(16)
    with pytest.raises(RegardError, match="segments must be 0 or more"):
        config.parse_config(BertConfig, {"segments": -1})
    with pytest.raises(RegardError, match="epsilon must be above 0"):
        config.parse_config(BertConfig, {"epsilon": 0.0})


def test_positions_in_trees_are_refused_before_any_text_is_read() -> None:
    with pytest.raises(RegardError, match="translation alone reads"):
        config.parse_config(BertConfig, {"position": "structural"})
