"""The fast path is the same function: no padding and our own kernels, against torch's operations on padded batches."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import config
from regard.accel import packed_attention as short
from regard.models.batch import PairBatch
from regard.models.transformer import Transformer, TransformerConfig
from regard.nn import dispatch
from regard.nn.layout import Tree
from regard.nn.record import AttentionRecorder
from tests.models.promises import batch

LENGTHS = [(5, 3), (2, 9), (14, 0), (0, 5)]
SMALL = {"init": "xavier", "layers": 1, "size": 16, "inner": 20, "heads": 1, "dropout": 0.0}


def build(device: torch.device, **keys: Any) -> Transformer:
    """Weights are large, and biases are not zero, so that everything counts."""
    torch.manual_seed(0)
    model = config.parse_config(TransformerConfig, {**SMALL, **keys}).build(30, 30).to(device)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape).to(device) * 0.1)
    return model


def scores(model: Transformer, b: PairBatch) -> Tensor:
    return model(b).detach()


def learned(model: Transformer, b: PairBatch) -> list[Tensor]:
    """The loss, and the gradient of every parameter."""
    model.zero_grad()
    loss = model(b, None, 0.1)
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


def plainly(function, model: Transformer, b: PairBatch) -> Any:
    with dispatch.disabled():
        assert not model.takes_packed(b)
        return function(model, b)


def same(model: Transformer, b: PairBatch) -> None:
    """Both ways, the scores, the loss and every gradient."""
    close("logits", scores(model, b), plainly(scores, model, b))
    names = ["loss", *(name for name, _ in model.named_parameters())]
    for name, ours, plain in zip(names, learned(model, b), plainly(learned, model, b), strict=True):
        close(name, ours, plain)


def close(name: str, ours: Tensor, plain: Tensor) -> None:
    torch.testing.assert_close(ours, plain, atol=2e-5, rtol=2e-5, msg=lambda text: f"{name}: {text}")


def compare(model: Transformer, b: PairBatch) -> None:
    assert model.takes_packed(b)
    same(model, b)


@pytest.mark.parametrize(
    "keys",
    [
        {"layers": 2, "size": 32, "heads": 2},
        {"residual": "pre_norm"},
        {"residual": "none"},
        {"position": "rotary"},
        {"position": {"kind": "learned", "length": 16}},
        {"position": {"kind": "sinusoidal", "join": "concat"}},
        {"activation": "swiglu"},
        {"activation": "gelu"},
        {"feed_forward": "none"},
        {"attention": {"projection": "shared"}},
        {"attention": {"projection": "shared"}, "position": "rotary"},
        {"attention": {"score": "general"}},
        {"attention": {"d_k": 16, "d_v": 32}, "heads": 2},
        {"attention": {"encoder": {"pattern": "causal"}}},
        {"share": "none"},
        {"decoder_self": "ssru"},
        {"decoder_self": "average", "layers": 2},
    ],
    ids=str,
)
def test_it_is_the_same_function(device: torch.device, keys: dict[str, Any]) -> None:
    b = batch(LENGTHS).to(device)
    assert b.source_real is not None
    assert float(b.source_real.float().mean()) < 0.7
    assert float(b.target_real.float().mean()) < 0.7
    compare(build(device, **keys), b)


def test_dropout_is_for_training(device: torch.device) -> None:
    model, b = build(device, dropout=0.5, attention={"dropout": 0.5}).eval(), batch(LENGTHS).to(device)
    close("logits", scores(model, b), plainly(scores, model, b))


@pytest.mark.parametrize("residual", ["post_norm", "pre_norm"])
def test_dropout_follows_torchs_seed(device: torch.device, residual: str) -> None:
    model, b = build(device, dropout=0.3, attention={"dropout": 0.3}, residual=residual), batch(LENGTHS).to(device)
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(scores(model, b))
    assert found[0].isfinite().all()
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


# --- what cannot be computed so ------------------------------------------------------------------------------------

BIASED, HIDDEN = "the position adds to scores or output", "the pattern hides more than the future and other sequences"


@pytest.mark.parametrize(
    "keys, why",
    [
        ({"position": "relative"}, BIASED),
        ({"position": "alibi"}, BIASED),
        ({"position": {"encoder": "t5", "decoder": "sinusoidal"}}, BIASED),
        ({"attention": {"encoder": {"pattern": "window(2)"}}}, HIDDEN),
        ({"attention": {"cross": {"score": "additive"}}}, "the score Additive has no fused kernel"),
        ({"heads": 2}, "heads have other than 16, 32, 64, 128 dimensions"),
        ({"norm": "batch"}, "BatchNorm would count padding"),
    ],
    ids=str,
)
def test_others_say_why_and_give_the_same_numbers(device: torch.device, keys: dict[str, Any], why: str) -> None:
    model, b = build(device, **keys), batch(LENGTHS).to(device)
    assert model.packing_refusal == why
    falls_back(model, b)


def falls_back(model: Transformer, b: PairBatch) -> None:
    assert not model.takes_packed(b)
    same(model, b)


def test_structural_positions(device: torch.device) -> None:
    """Filler hangs in no tree."""
    b, n = batch(LENGTHS), 15
    places = torch.arange(n).expand(len(LENGTHS), n)  # every word hangs on the one before
    b = replace(b, tree=Tree(places, places, torch.full_like(places, n))).to(device)
    for terms, foreign in (("both", True), ("absolute", False)):
        position = {"encoder": {"kind": "structural", "terms": terms}, "decoder": "sinusoidal"}
        model = build(device, position=position)
        assert (model.packing_refusal is not None) == foreign
        falls_back(model, b)


def test_where_nothing_is_learned(device: torch.device) -> None:
    """Small kernels, as a search launches them, are torch's."""
    model, b = build(device), batch(LENGTHS).to(device)
    ours = scores(model, b)
    with torch.no_grad():
        assert not model.takes_packed(b)
        close("logits", ours, model(b))


def test_long_sentences(device: torch.device) -> None:
    model = build(device)
    assert model.takes_packed(batch([(127, 127)]).to(device))
    assert not model.takes_packed(batch([(128, 3)]).to(device))
    assert not model.takes_packed(batch([(3, 128)]).to(device))


def test_a_batch_that_learned_positions_hardly_hold(device: torch.device) -> None:
    """Filler may be as long as a tile: where the table is shorter, there is no room for it."""
    model = build(device, position={"kind": "learned", "length": 20})
    assert model.takes_packed(batch([(15, 15)]).to(device))
    falls_back(model, batch([(19, 3), (2, 16)]).to(device))


def test_recording_takes_the_plain_path(device: torch.device) -> None:
    model, b = build(device), batch(LENGTHS).to(device)
    record = AttentionRecorder(("cross",))
    logits = model(b, record)
    assert model.decoder[0].cross.path != "packed_attention"
    torch.testing.assert_close(model(b), logits, atol=1e-5, rtol=1e-5)
    assert model.decoder[0].cross.path == "packed_attention"


# --- that the comparison would notice ------------------------------------------------------------------------------


def changed(b: PairBatch, side: int, **spans: Tensor) -> PairBatch:
    assert b.packed is not None
    strips = list(b.packed)
    layout = strips[side].layout
    assert layout.spans is not None
    strips[side] = replace(strips[side], layout=replace(layout, spans=replace(layout.spans, **spans)))
    return replace(b, packed=tuple(strips))


def test_spans_that_reach_into_their_neighbours_are_noticed(device: torch.device) -> None:
    model, b = build(device), batch(LENGTHS).to(device)
    assert b.packed is not None
    for side in (0, 1):
        spans = b.packed[side].layout.spans
        assert spans is not None
        longer = (spans.length + (torch.arange(len(spans.length), device=device) == 1)).int()  # the second, by one
        with pytest.raises(AssertionError, match="logits"):
            compare(model, changed(b, side, length=longer))


def test_sentences_that_ask_others_sources_are_noticed(device: torch.device) -> None:
    model, b = build(device), batch([(5, 3), (5, 9), (14, 0), (0, 5)]).to(device)
    assert b.packed is not None
    spans = b.packed[0].layout.spans
    assert spans is not None
    start = spans.start.clone()
    start[[0, 1]] = start[[1, 0]]
    with pytest.raises(AssertionError, match="logits"):
        compare(model, changed(b, 0, start=start))


def test_a_future_that_is_seen_is_noticed(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    model, b = build(device), batch(LENGTHS).to(device)
    assert model.packing_refusal is None
    monkeypatch.setattr(short, "Causal", lambda: None)
    with pytest.raises(AssertionError, match="logits"):
        compare(model, b)


def test_filler_that_counts_is_noticed(device: torch.device) -> None:
    model, b = build(device), batch(LENGTHS).to(device)
    assert b.packed is not None
    source, target = b.packed
    assert target.labels is not None
    with pytest.raises(AssertionError, match="loss"):
        compare(model, replace(b, packed=(source, replace(target, labels=target.labels.clamp(min=0)))))
