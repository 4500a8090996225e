"""Compressors against numpy; what a compressed key covers decides who sees it; decoding equals the parallel pass."""

import numpy as np
import pytest
import torch

from regard import config
from regard.errors import RegardError
from regard.io.tensors import read_tensors, unique_state_dict, write_tensors
from regard.models.transformer import TransformerConfig
from regard.nn.attention import AttentionConfig
from regard.nn.compress import LinformerConfig, StridedConvolutionConfig
from regard.nn.layout import AttentionContext, Layout
from regard.nn.multi_head import MultiHeadAttention, build_attention
from regard.nn.pattern import Causal, Full, Padding
from regard.nn.position import Position
from regard.nn.sizes import Sizes
from tests.models.promises import rows_move
from tests.models.test_transformer import batch, build
from tests.nn.test_score import same_alone_and_stepwise

SIZES = Sizes(8, 2, 4, 3)
REAL = torch.tensor([[True] * 8, [True] * 4 + [False] * 4, [False] * 8])


def keys_and_values(length: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(3, 2, length, 4, dtype=torch.float64), torch.randn(3, 2, length, 3, dtype=torch.float64)


def randomised(module: torch.nn.Module) -> torch.nn.Module:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_()
    return module.double()


# --- linformer ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sharing", ["none", "heads", "key_value", "layers"])
def test_linformer_is_the_formula(sharing) -> None:
    module = LinformerConfig(length=10, size=5, sharing=sharing).build(SIZES)
    randomised(module)
    k, v = keys_and_values()
    ours = module(k, v, Layout.of(8, REAL))
    e, f = module.key.detach().numpy(), module.value.detach().numpy()
    assert e.shape == f.shape == (2 if sharing == "none" else 1, 5, 10)
    assert (module.key is module.value) == (sharing in ("key_value", "layers"))
    for side, matrix, out in ((k, e, ours[0]), (v, f, ours[1])):
        for b, h, r in np.ndindex(3, 2, 5):
            expected = sum(
                matrix[h % len(matrix), r, n] * side[b, h, n].numpy() for n in range(8) if REAL[b, n]
            )  # padding is zero
            np.testing.assert_allclose(out[b, h, r].detach(), expected, atol=1e-12)
    assert ours[2].real.tolist() == [[True] * 5, [True] * 5, [False] * 5]
    assert ours[2].position.tolist() == [[7] * 5, [3] * 5, [0] * 5]  # the last real place of a row


def test_linformers_parameters_as_the_paper_counts_them() -> None:
    """12 layers of 12 heads: 288 matrices without sharing, then 24, 12 and 1 (section 4)."""
    counts = {}
    for sharing in ("none", "heads", "key_value", "layers"):
        keys = {"layers": 12, "size": 24, "heads": 12, "inner": 4, "decoder_layers": 1}
        compress = {"kind": "linformer", "length": 7, "size": 3, "sharing": sharing}
        model = build(**keys, attention={"encoder": {"compress": compress}})
        plain = build(**keys)
        counts[sharing] = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in plain.parameters())
    assert counts == {"none": 288 * 21, "heads": 24 * 21, "key_value": 12 * 21, "layers": 21}


@pytest.mark.parametrize("init", ["xavier", "normal"])
def test_linformer_begins_as_a_random_projection(init) -> None:
    compress = {"kind": "linformer", "length": 90, "size": 64}
    layer = build(init=init, attention={"encoder": {"compress": compress}}).encoder[1].attention
    for matrix in (layer.compress.key, layer.compress.value):
        assert float(matrix.detach().std()) == pytest.approx(1 / 8, rel=0.05)


def test_linformer_belongs_to_the_encoder_and_has_a_length() -> None:
    choice = LinformerConfig(length=16, size=4)
    choice.check("encoder", 16)
    with pytest.raises(ValueError, match="length is 16, shorter than the longest input of 17"):
        choice.check("encoder", 17)
    for place in ("decoder", "cross"):
        with pytest.raises(ValueError, match=f"linformer belongs to the encoder, not {place}"):
            choice.check(place, 4)
        model = config.parse_config(TransformerConfig, {"attention": {place: {"compress": "linformer"}}})
        with pytest.raises(ValueError, match="see the future"):
            model.check(8, 8)
    with pytest.raises(RegardError, match="a length of 16, and this input has 17 tokens"):
        choice.build(SIZES)(*(x.float() for x in keys_and_values(17)), Layout.of(17))
    with pytest.raises(ValueError, match="size must be at least 1"):
        LinformerConfig(size=0)


@pytest.mark.parametrize("position", ["relative", "alibi", "t5", "rotary"])
@pytest.mark.parametrize("compress", [{"kind": "linformer", "length": 12, "size": 3}, "strided_conv"], ids=str)
def test_with_positions_by_distance(compress, position) -> None:
    """Compressed keys stand where padding has no say."""
    same_alone_and_stepwise(build(position=position, attention={"encoder": {"compress": compress}}))


@pytest.mark.parametrize("sharing", ["none", "heads", "key_value", "layers"])
def test_linformer_in_an_encoder(sharing, tmp_path) -> None:
    compress = {"kind": "linformer", "length": 12, "size": 3, "sharing": sharing}
    model = build(attention={"encoder": {"compress": compress}})
    same_alone_and_stepwise(model)
    model(batch([(3, 2), (5, 4)])).square().sum().backward()
    for layer in model.encoder:
        assert layer.attention.compress.key.grad.abs().max() > 0
        assert layer.attention.compress.value.grad.abs().max() > 0
    write_tensors(tmp_path / "w", unique_state_dict(model))  # shared matrices are one tensor
    again = randomised(build(attention={"encoder": {"compress": compress}}))
    again.load_state_dict(read_tensors(tmp_path / "w"), strict=False)
    torch.testing.assert_close(again(batch([(3, 2)])), model(batch([(3, 2)])))


# --- strided convolution -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [2, 3, 5])
@pytest.mark.parametrize("padded", [False, True])
def test_strided_convolution_is_the_formula(factor, padded) -> None:
    module = randomised(StridedConvolutionConfig(factor=factor).build(SIZES))
    real = REAL if padded else torch.ones_like(REAL)
    k, v = keys_and_values()
    ours = module(k, v, Layout.of(8, REAL if padded else None))
    count = -(-8 // factor)
    for side, weight, bias, out in (
        (k, module.key, module.key_bias, ours[0]),
        (v, module.value, module.value_bias, ours[1]),
    ):
        assert out.shape == (3, 2, count, side.shape[-1])
        d = side.shape[-1]
        taps = weight.detach().numpy().reshape(2, factor, d, d)  # [H, r, in, out]
        for b, h, c in np.ndindex(3, 2, count):
            covered = [n for n in range(c * factor, (c + 1) * factor) if n < 8 and real[b, n]]
            expected = bias[h, 0].detach().numpy() + sum(
                side[b, h, n].numpy() @ taps[h, n - c * factor] for n in covered
            )
            np.testing.assert_allclose(out[b, h, c].detach(), expected, atol=1e-12)
    blocks = [[any(real[b, c * factor : (c + 1) * factor]) for c in range(count)] for b in range(3)]
    assert (ours[2].real.tolist() if padded else [[True] * count] * 3) == blocks
    assert ours[2].position.tolist() == [[(c + 1) * factor - 1 for c in range(count)]]
    assert ours[2].position.max() < ours[2].end
    assert not ours[2].right_padded


def test_strided_convolution_is_torchs() -> None:
    """A grouped convolution with kernel and stride `factor`, one group a head."""
    module = randomised(StridedConvolutionConfig(factor=4).build(SIZES))
    k, v = keys_and_values()
    weight = module.key.unflatten(1, (4, 4)).permute(0, 3, 2, 1).flatten(0, 1)  # [H·out, in, r]
    expected = torch.nn.functional.conv1d(
        k.transpose(2, 3).flatten(1, 2), weight, module.key_bias.flatten(), stride=4, groups=2
    )
    torch.testing.assert_close(module(k, v, Layout.of(8))[0], expected.unflatten(1, (2, 4)).transpose(2, 3))


def test_a_block_is_seen_once_its_last_place_is() -> None:
    """Query 0 and 1 see nothing and get zeros; query t sees ⌊(t + 1) / 3⌋ blocks, and nothing later changes it."""
    choices = AttentionConfig(compress=StridedConvolutionConfig(factor=3))
    layer = build_attention(choices, 8, 2, Position(), Causal() & Padding()).double()
    q, k, v = (torch.randn(1, 2, 8, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    layout = Layout.of(8)
    out = layer.attend(q, k, v, AttentionContext(layout, layout))
    assert (out[:, :, :2] == 0).all()
    for t in range(8):
        for g in torch.autograd.grad(out[:, :, t].sum(), (k, v), retain_graph=True):
            touched = g.abs().sum((0, 1, 3)) > 0
            assert not touched[(t + 1) // 3 * 3 :].any()
    assert (torch.autograd.grad(out[:, :, 7].sum(), v)[0].abs().sum((0, 1, 3)) > 0).tolist() == [True] * 6 + [False] * 2


@pytest.mark.parametrize("factor", [2, 3])
@pytest.mark.parametrize("score", ["scaled_dot", {"kind": "additive", "size": 5}, "general"], ids=str)
@pytest.mark.parametrize("place", ["encoder", "decoder", "cross"])
def test_strided_convolution_in_a_transformer(place, score, factor) -> None:
    choices = {"compress": {"kind": "strided_conv", "factor": factor}, "score": score}
    model = build(attention={place: choices})
    for layer in (*model.encoder, *model.decoder):  # biases too, so that none is left untested at 0
        randomised(layer.attention.compress)
    same_alone_and_stepwise(model)
    rows_move(model)


def test_alternating_layers_as_in_t_dmca() -> None:
    model = build(layers=3, attention={"decoder": {"compress": ["none", "strided_conv"]}})
    assert [layer.attention.compress.shortens for layer in model.decoder] == [False, True, False]
    same_alone_and_stepwise(model)
    rows_move(model)


@pytest.mark.parametrize("init", ["xavier", "normal"])
def test_convolutions_begin_so_that_keys_keep_their_size(init) -> None:
    compress = {"kind": "strided_conv", "factor": 3}
    module = build(init=init, size=256, heads=2, attention={"decoder": {"compress": compress}}).decoder[0].attention
    k = torch.randn(50, 2, 30, 128, dtype=torch.float64)
    short, _, _ = module.compress(k, k, Layout.of(30))
    assert float(short.detach().var()) == pytest.approx(1.5, rel=0.05)  # 2·factor / (factor + 1)


@pytest.mark.parametrize("choice", [LinformerConfig(), StridedConvolutionConfig()])
def test_packed_documents_are_refused(choice) -> None:
    layout = Layout(torch.arange(4)[None], 4, document=torch.tensor([[0, 0, 1, 1]]), right_padded=True)
    layer = build_attention(AttentionConfig(compress=choice), 8, 2, Position(), Full())
    x = torch.randn(1, 4, 8)
    with pytest.raises(RegardError, match="would mix the documents"):
        layer(x, x, AttentionContext(layout, layout))


def test_a_factor_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="factor must be at least 2"):
        StridedConvolutionConfig(factor=1)


def test_layers_share_the_mask_of_compressed_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one context it is built once; another factor has its own."""
    made: list[int] = []
    allow = Causal.allow
    monkeypatch.setattr(Causal, "allow", lambda self, context, *grid: made.append(1) or allow(self, context, *grid))
    context = AttentionContext(Layout.of(12), Layout.of(12))
    for factor, count in ((3, 1), (3, 1), (2, 2)):
        compress = {"kind": "strided_conv", "factor": factor}
        layer = MultiHeadAttention(8, 2, compress=compress, position="alibi", causal=True)
        layer(torch.zeros(1, 12, 8), context=context)
        assert len(made) == count


@pytest.mark.parametrize("lengths", [(1,), (2,), (3,), (8,), (9, 9), (10, 7, 2), (32, 31)], ids=str)
@pytest.mark.parametrize("factor", [2, 3, 5])
def test_a_causal_layer_needs_no_mask(factor: int, lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel gives what the plain function gives, gradients too; of padded rows where they are real."""
    layer = MultiHeadAttention(8, 2, compress={"kind": "strided_conv", "factor": factor}, causal=True)
    layer = randomised(layer)
    x = torch.randn(len(lengths), max(lengths), 8, dtype=torch.float64, requires_grad=True)
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    found = []
    for plain in (False, True):
        if plain:
            monkeypatch.setattr("regard.nn.attention.BACKENDS", [])
        else:
            monkeypatch.setattr("regard.nn.pattern.masks.Pattern.mask", None)  # it is never asked for
        layer.zero_grad()
        x.grad = None
        out = layer(x, mask=real)
        (out * real[..., None]).square().sum().backward()
        assert layer.path.startswith("plain" if plain else "sdpa")
        found.append([out[real], x.grad, *(p.grad for p in layer.parameters())])
        monkeypatch.undo()
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-8, rtol=1e-9)
