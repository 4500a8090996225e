"""Every position in a small Transformer: steps equal the parallel pass, padding is nothing, kernels agree."""

import numpy as np
import pytest
import torch

from regard import config
from regard.errors import RegardError
from regard.models.batch import PairBatch
from regard.models.transformer import Transformer, TransformerConfig
from regard.nn import attention
from regard.nn.layout import Layout
from tests.models.promises import batch

SERVED = [  # by torch's kernel too
    "sinusoidal",
    {"kind": "sinusoidal", "join": "concat"},
    {"kind": "learned", "length": 16},
    {"kind": "learned", "length": 16, "join": "concat"},
    {"kind": "learned_per_layer", "length": 16},
    {"kind": "relative", "distance": 2, "terms": "keys"},
    "rotary",
    {"kind": "rotary", "layout": "halves", "base": 100},
    "alibi",
    {"kind": "t5", "buckets": 6, "distance": 5},
    ["rotary", {"kind": "learned", "length": 16}],
]
ALL = [*SERVED, {"kind": "relative", "distance": 2}, ["alibi", {"kind": "relative", "distance": 3}]]


def build(position: object) -> Transformer:
    """Weights are large, so that positions matter."""
    torch.manual_seed(0)
    small = {"init": "xavier", "layers": 2, "size": 16, "inner": 24, "heads": 4, "dropout": 0.0, "position": position}
    model = config.parse_config(TransformerConfig, small).build(30, 30).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.3)
    return model


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("position", ALL, ids=str)
def test_order_matters_in_both(position: object) -> None:
    model = build(position)
    b, swap = batch([(6, 6)]), [0, 2, 1, 3, 4, 5, 6]
    memory, layout = model.encode(b)
    assert (model.encode(PairBatch(b.source[:, swap], None))[0][:, swap] - memory).abs().max() > 0.01
    places = Layout.of(b.target.shape[1])
    last = [model.decode(target, places, memory, layout)[0, -1] for target in (b.target, b.target[:, swap])]
    assert (last[0] - last[1]).abs().max() > 0.01


def test_order_is_nothing_without_positions() -> None:
    model, swap = build("none"), [0, 2, 1, 3, 4, 5, 6]
    b = batch([(6, 6)])
    close(model.encode(PairBatch(b.source[:, swap], None))[0][:, swap], model.encode(b)[0])


def test_alibi_alone_does_not_know_left_from_right() -> None:
    b = batch([(6, 6)])
    for position, same in (("alibi", True), ("t5", False), ("rotary", False)):
        model = build(position)
        there, back = model.encode(b)[0], model.encode(PairBatch(b.source.flip(1), None))[0].flip(1)
        assert torch.allclose(there, back, atol=1e-9) == same


@pytest.mark.parametrize("position", ALL, ids=str)
def test_step_by_step_is_the_parallel_pass(position: object) -> None:
    model = build(position)
    b = batch([(5, 9), (2, 9), (9, 3)])
    with torch.no_grad():
        state = model.start(b, b.target.shape[1])
        outs = []
        for tokens in b.target.split([3, 1, 1, 2, 1, 1, 1], 1):
            out, state = model.step(tokens, state)
            outs.append(out)
        close(torch.cat(outs, 1).flatten(0, 1)[b.label_positions], model(b))


@pytest.mark.parametrize("position", ALL, ids=str)
def test_rows_move_and_stand_at_different_positions(position: object) -> None:
    model = build(position)
    a, b = batch([(4, 8), (4, 8)], seed=1), batch([(3, 8)], seed=2)
    with torch.no_grad():
        state, fresh = model.start(a, 9), model.start(b, 9)
        _, state = model.step(a.target[:, :5], state)
        state.reorder(torch.tensor([1, 0, 0]))
        _, fresh = model.step(b.target[:, :2], fresh)
        state.write(torch.tensor([1]), fresh)
        assert state.position.tolist() == [5, 2, 5]
        tokens = torch.stack([a.target[1, 5:8], b.target[0, 2:5], a.target[0, 5:8]])
        out, _ = model.step(tokens, state)
        whole_a, whole_b = model(a).split(9), model(b)
    close(out[0], whole_a[1][5:8])
    close(out[1], whole_b[2:5])
    close(out[2], whole_a[0][5:8])


@pytest.mark.parametrize("position", ALL, ids=str)
def test_a_sentence_alone_and_in_a_padded_batch(position: object) -> None:
    model = build(position)
    many = batch([(3, 2), (9, 8), (1, 1)])
    for row, (n, expected) in enumerate(zip((4, 10, 2), model(many).split([3, 9, 2]), strict=True)):
        target = many.target[row : row + 1, : len(expected)]
        places = torch.from_numpy(np.arange(len(expected)))
        alone = PairBatch(many.source[row : row + 1, :n], None, target, label_positions=places)
        torch.testing.assert_close(model(alone), expected, atol=1e-12, rtol=1e-12)


def gradients(model: Transformer, b: PairBatch) -> list[torch.Tensor]:
    """The logits, then the gradient of every parameter."""
    model.zero_grad()
    logits = model(b)
    (logits * torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype).view_as(logits)).sum().backward()
    return [logits.detach(), *(p.grad.clone() for p in model.parameters())]


@pytest.mark.parametrize("position", SERVED, ids=str)
def test_torchs_kernel_is_the_plain_path(position: object, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(position)
    b = batch([(5, 3), (2, 6), (7, 7)])
    fast = gradients(model, b)
    assert {layer.attention.path for layer in [*model.encoder, *model.decoder]} == {"sdpa"}
    monkeypatch.setattr(attention, "choose_backend", lambda inputs: (None, ""))
    plain = gradients(model, b)
    assert model.encoder[0].attention.path == "plain"
    for x, y in zip(fast, plain, strict=True):
        close(x, y)


def test_values_are_not_for_torchs_kernel() -> None:
    model = build("relative")
    model(batch([(5, 3)]))
    assert model.decoder[1].attention.path != "sdpa"
    assert model.decoder[1].cross.path == "sdpa"


def test_one_object_serves_all_layers_and_is_not_shared_by_the_two_sides() -> None:
    model = build("t5")
    assert model.encoder[0].attention.position is model.encoder[1].attention.position
    assert model.encoder[0].attention.position is not model.decoder[0].attention.position
    assert not torch.equal(model.encoder_position[0].bucket, model.decoder_position[0].bucket)
    both, past = ([p.bucket[[0, 128, 256]].tolist()] for p in (model.encoder_position[0], model.decoder_position[0]))
    assert (both, past) == ([[15, 0, 31]], [[31, 0, 0]])


def test_learned_positions_end() -> None:
    model = build({"kind": "learned", "length": 5})
    assert model.longest == 5
    assert build("rotary").longest is None
    with pytest.raises(RegardError, match="6 tokens, but learned positions end at 5"):
        model(batch([(5, 3)]))
    keys = {"layers": 1, "size": 8, "heads": 2, "position": {"kind": "learned", "length": 5}}
    with pytest.raises(ValueError, match=r"position\.encoder\.length is 5"):
        config.parse_config(TransformerConfig, keys).check(6, 5)
