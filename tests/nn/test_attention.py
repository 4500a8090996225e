"""Attention against the numpy loop, torch's own kernels and its own layout contract."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard import config
from regard.errors import RegardError
from regard.nn.attention import AttentionConfig, attention, choose_backend, slow_paths
from regard.nn.backend import SDPA
from regard.nn.backend.contract import AttentionInputs
from regard.nn.layout import AttentionContext, Layout
from regard.nn.multi_head import build_attention
from regard.nn.normalise import Softmax
from regard.nn.pattern import Causal, Document, Full, Padding, Pattern
from regard.nn.position import Position
from regard.nn.record import LayerRecord
from regard.nn.score import AdditiveConfig, ScaledDotConfig, ScaledDotScore


def loop(q, k, v, allow):
    """softmax(qᵀk/√d) v by hand, one query at a time; a row with nothing to see gives zeros."""
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    for b, h, i in np.ndindex(q.shape[:3]):
        seen = [j for j in range(k.shape[2]) if allow[b, h, i, j]]
        if seen:
            s = np.array([q[b, h, i] @ k[b, h, j] / math.sqrt(q.shape[-1]) for j in seen])
            w = np.exp(s - s.max())
            out[b, h, i] = sum(wj / w.sum() * v[b, h, j] for wj, j in zip(w, seen, strict=True))
    return out


@pytest.mark.parametrize("seed", range(3))
def test_plain_function_is_the_formula(seed: int) -> None:
    g = np.random.default_rng(seed)
    q, k, v = g.normal(size=(2, 3, 4, 5)), g.normal(size=(2, 3, 6, 5)), g.normal(size=(2, 3, 6, 7))
    allow = g.random((2, 3, 4, 6)) < 0.6
    allow[0, 0, 0] = False
    out, weights = attention(*(torch.tensor(x) for x in (q, k, v)), ScaledDotScore(5), Softmax(), torch.tensor(allow))
    np.testing.assert_allclose(out, loop(q, k, v, allow), atol=1e-12)
    assert (weights.numpy()[~allow] == 0).all()
    np.testing.assert_allclose(weights.sum(-1)[torch.tensor(allow).any(-1)], 1)


def test_plain_function_is_sdpa() -> None:
    q, k, v = torch.randn(3, 2, 4, 5, 8, dtype=torch.float64)
    ours, _ = attention(q, k, v, ScaledDotScore(8), Softmax())
    torch.testing.assert_close(ours, nn.functional.scaled_dot_product_attention(q, k, v))


def layer_and_torch(size: int = 12, heads: int = 3):
    """Our layer and torch's MultiheadAttention with the same weights."""
    ours = build_attention(AttentionConfig(), size, heads, Position(), Full() & Padding()).double()
    theirs = nn.MultiheadAttention(size, heads, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key_value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias.normal_(), ours.key_value.bias.normal_()]))
        theirs.out_proj.weight.copy_(ours.output.weight)
        theirs.out_proj.bias.copy_(ours.output.bias)
    return ours, theirs


def test_multi_head_is_torchs() -> None:
    torch.manual_seed(0)
    ours, theirs = layer_and_torch()
    x, memory = torch.randn(2, 4, 12, dtype=torch.float64), torch.randn(2, 6, 12, dtype=torch.float64)
    real = torch.tensor([[True] * 6, [True] * 3 + [False] * 3])
    context = AttentionContext(Layout.of(4), Layout.of(6, real))
    seen = LayerRecord(keep_graph=False)
    out = ours(x, memory, context, record=seen)
    expected, weights = theirs(x, memory, memory, key_padding_mask=~real, average_attn_weights=False)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(seen.weights[0], weights)


PATTERNS = [
    Full(),
    Full() & Padding(),
    Causal() & Padding(),
    Causal() & Padding() & Document(),
    Full() & Document(),
    Causal() | Padding(),
]


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(PATTERNS),
    st.integers(1, 7),
    st.lists(st.integers(1, 7), min_size=1, max_size=4),
    st.booleans(),
    st.booleans(),
)
def test_sdpa_is_the_reference_with_gradients(pattern, heads_size, lengths, double, packed) -> None:
    """At every real place, whatever the shape, padding and packing; lengths of 1 included."""
    torch.manual_seed(len(lengths))
    dtype, tolerance = (torch.float64, 1e-10) if double else (torch.float32, 1e-5)
    layer = build_attention(AttentionConfig(), 2 * heads_size, 2, Position(), pattern).to(dtype)
    n = max(lengths)
    real = torch.arange(n) < torch.tensor(lengths)[:, None]
    document = (torch.arange(n) // 2).expand(len(lengths), n) if packed else None
    layout = Layout(torch.arange(n)[None], n, real, document, right_padded=True)
    context = AttentionContext(layout, layout)
    results = []
    for path in ("sdpa", "reference"):
        torch.manual_seed(1)
        q, k, v = (torch.randn(len(lengths), 2, n, heads_size, dtype=dtype, requires_grad=True) for _ in range(3))
        inputs = AttentionInputs(layer, q, k, v, context, pattern, None)
        assert choose_backend(inputs) == (SDPA, "")
        out = SDPA.compute(inputs) if path == "sdpa" else layer.reference(inputs)[0]
        kept = out.transpose(1, 2)[real]
        (kept * torch.linspace(-1, 1, kept.numel(), dtype=dtype).view_as(kept)).sum().backward()
        results.append([kept, *(x.grad.transpose(1, 2)[real] for x in (q, k, v))])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


def test_under_autocast_a_cpu_attends_in_float32() -> None:
    """The numbers of torch's kernel for the same bf16 queries, keys and values in float32, gradients included."""
    torch.manual_seed(0)
    pattern = Causal() & Padding()
    layer = build_attention(AttentionConfig(), 16, 2, Position(), pattern)
    context = AttentionContext(Layout.of(9), Layout.of(9))
    given = [torch.randn(3, 2, 9, 8).bfloat16().requires_grad_() for _ in range(3)]
    wide = [x.detach().float().requires_grad_() for x in given]
    with torch.autocast("cpu", torch.bfloat16):
        ours = SDPA.compute(AttentionInputs(layer, *given, context, pattern, None))
    theirs = nn.functional.scaled_dot_product_attention(*wide, is_causal=True)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, theirs, atol=0, rtol=0)
    slope = torch.randn_like(ours)
    for a, b in zip(torch.autograd.grad(ours, given, slope), torch.autograd.grad(theirs, wide, slope), strict=True):
        torch.testing.assert_close(a, b.bfloat16(), atol=0, rtol=0)


def test_recording_changes_nothing() -> None:
    layer = build_attention(AttentionConfig(), 8, 2, Position(), Causal() & Padding())
    x = torch.randn(2, 5, 8)
    context = AttentionContext(Layout.of(5), Layout.of(5))
    seen = LayerRecord(keep_graph=False)
    assert torch.equal(layer(x, x, context), layer(x, x, context, record=seen))
    assert seen.weights[0].shape == (2, 2, 5, 5)
    assert (seen.weights[0].triu(1) == 0).all()


def test_causal_gradient_of_the_future_is_exactly_zero() -> None:
    layer = build_attention(AttentionConfig(), 8, 2, Position(), Causal() & Padding())
    x = torch.randn(1, 6, 8, requires_grad=True)
    context = AttentionContext(Layout.of(6), Layout.of(6))
    for t in range(6):
        (grad,) = torch.autograd.grad(layer(x, x, context)[0, t].sum(), x)
        assert (grad[0, t + 1 :] == 0).all()
        assert (grad[0, : t + 1] != 0).any(-1).all()


def test_patterns_combine() -> None:
    layout = Layout(torch.arange(4)[None], 4, torch.tensor([[True, True, True, False]]), torch.tensor([[0, 0, 1, 1]]))
    context = AttentionContext(layout, layout)
    both = (Causal() & Document() & Padding()).mask(context)
    assert both is not None
    assert both[0, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0]]
    either = (Causal() | Document()).mask(context)
    assert either is not None
    assert either[0, 0].int().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]]


def test_every_row_has_its_own_documents() -> None:
    layout = Layout(torch.arange(3)[None], 3, None, torch.tensor([[0, 0, 1], [0, 1, 1]]))
    mask = (Full() & Document()).mask(AttentionContext(layout, layout))
    assert mask is not None
    assert mask[:, 0, 1].int().tolist() == [[1, 1, 0], [0, 1, 1]]


@dataclass(frozen=True)
class OneKeyAHead(Pattern):
    """Head h sees key h alone, shifted by a number that binding sets."""

    by_head = True
    shift: int = 0

    def bind(self, q, context, layer, past=False):
        return OneKeyAHead(layer)

    def allow(self, context, b, h, i, j):
        return (j == h + self.shift) & (i >= 0)


def test_patterns_may_differ_by_head_and_by_layer() -> None:
    layer = build_attention(AttentionConfig(), 8, 2, Position(), OneKeyAHead() & Padding(), layer=1).double()
    x = torch.randn(2, 4, 8, dtype=torch.float64)
    context = AttentionContext(Layout.of(4), Layout.of(4))
    seen = LayerRecord(keep_graph=False)
    out = layer(x, x, context, record=seen)
    assert seen.weights[0][:, 0, :, 1].eq(1).all()
    assert seen.weights[0][:, 1, :, 2].eq(1).all()
    _, v = layer.project_kv(x)
    expected = layer.output(torch.cat([v[:, 0, 1], v[:, 1, 2]], -1))[:, None].expand_as(out)
    torch.testing.assert_close(out, expected)


def test_causal_with_right_padding_needs_no_mask() -> None:
    real = torch.tensor([[True, True, False]])
    layout = Layout.of(3, real)
    assert (Causal() & (Padding() & Document())).mask_kind(AttentionContext(layout, layout)) == "causal"
    packed = Layout(layout.position, 3, real, torch.tensor([[0, 1, 1]]), right_padded=True)
    assert (Causal() & (Padding() & Document())).mask_kind(AttentionContext(packed, packed)) == "mask"


def test_heads_must_divide() -> None:
    with pytest.raises(RegardError, match="3 heads do not divide the size 8"):
        build_attention(AttentionConfig(), 8, 3, Position(), Full())


def test_what_has_no_kernel_is_said_with_the_reason() -> None:
    model = nn.ModuleDict(
        {
            name: build_attention(AttentionConfig(score=score), 8, 2, Position(), Full() & Padding())
            for name, score in (("fast", ScaledDotConfig()), ("slow", AdditiveConfig()))
        }
    )
    assert slow_paths(model) == []  # nothing has run yet
    x = torch.randn(1, 3, 8)
    for layer in model.values():
        layer(x, x, AttentionContext(Layout.of(3), Layout.of(3)))
    assert slow_paths(model) == [
        "attention in slow is computed by the plain function: the score Additive has no fused kernel"
    ]


@pytest.mark.parametrize("width", [2, 4, 8])
@pytest.mark.parametrize("projection", ["separate", "shared"])
def test_every_projection_begins_by_xavier_of_its_own_size(width: int, projection: str) -> None:
    """Of 64 with 8 heads, one of the widths makes the output as wide as keys and values together."""
    chosen = {"d_k": width, "d_v": width, "projection": projection}
    layer = build_attention(config.parse_config(AttentionConfig, chosen), 64, 8, Position(), Padding())
    layer.reset_parameters()
    bound = (6 / (64 + 8 * width)) ** 0.5
    for each in (layer.query, layer.key_value, layer.output):
        assert 0.9 * bound < float(each.weight.detach().abs().max()) <= bound
