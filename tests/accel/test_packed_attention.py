"""Attention within many short sequences: the kernels against the plain function, one by one, with gradients."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.accel import launch
from regard.accel import packed_attention as backend
from regard.nn import dispatch
from regard.nn.attention import Attention, AttentionConfig, attention
from regard.nn.backend.contract import AttentionInputs, split_heads
from regard.nn.compress import StridedConvolutionConfig
from regard.nn.layout import AttentionContext, Layout, SequenceSpans
from regard.nn.multi_head import build_attention
from regard.nn.normalise import EntmaxConfig
from regard.nn.pattern import Causal, Document, Padding
from regard.nn.position import AlibiConfig, Position, RelativeConfig
from regard.nn.score import AdditiveConfig
from regard.nn.sizes import Sizes

SEEN = Padding() & Document()


def layer_of(heads: int = 2, d_k: int = 16, d_v: int = 16, causal: bool = False, dropout: float = 0.0) -> Attention:
    always = Causal() & SEEN if causal else SEEN
    return Attention(Sizes(heads * d_k, heads, d_k, d_v), AttentionConfig(dropout=dropout), Position(), always)


def end_to_end(lengths: list[int], device: torch.device, longest: int | None = None) -> Layout:
    """SequenceSpans of these lengths, as those who pack batches give them: with room to spare in the table."""
    length = torch.tensor([*lengths, 99, 99], dtype=torch.int32)  # what is past the count is never read
    start = length.cumsum(0, dtype=torch.int32) - length
    position = torch.cat([torch.arange(n) for n in lengths])
    count, longest = torch.tensor([len(lengths)], dtype=torch.int32), longest or max(lengths)
    spans = SequenceSpans(start.to(device), length.to(device), count.to(device), longest)
    return Layout(position[None].to(device), longest, spans=spans)


def job_of(layer: Attention, parts: tuple[Tensor, ...], context: AttentionContext) -> AttentionInputs:
    q, k, v = split_heads(parts, layer.sizes.heads, layer.sizes.d_k, layer.sizes.d_k, layer.sizes.d_v)
    return AttentionInputs(layer, q, k, v, context, layer.pattern.bind(q, context, 0), None, parts)


def each(length: Tensor, count: Tensor) -> list[int]:
    return length[: int(count)].tolist()


def one_by_one(inputs: AttentionInputs, masks: list[Tensor] | None = None) -> Tensor:
    """Each sequence by itself, by the plain function; `masks` [H, q, k] are what its weights are multiplied with."""
    q, k = inputs.context.queries.spans, inputs.context.keys.spans
    assert q is not None
    assert k is not None
    asks, asked = each(q.length, q.count), each(k.length, k.count)
    outs = []
    for n, (a, b, c) in enumerate(
        zip(inputs.q.split(asks, 2), inputs.k.split(asked, 2), inputs.v.split(asked, 2), strict=True)
    ):
        allow = torch.ones(a.shape[2], b.shape[2], dtype=torch.bool, device=a.device)
        allow = allow.tril() if Causal() in inputs.pattern.parts() else allow
        out, weights = attention(a, b, c, inputs.layer.score, inputs.layer.normalise, allow)
        outs.append(out if masks is None else (weights * masks[n]) @ c)
    return torch.cat(outs, 2)


def with_gradients(path, layer: Attention, parts: tuple[Tensor, ...], context: AttentionContext) -> list[Tensor]:
    parts = tuple(part.detach().clone().requires_grad_() for part in parts)
    out = path(job_of(layer, parts, context))
    torch.manual_seed(7)
    out.backward(torch.randn(out.shape, dtype=torch.float64).to(out))
    return [out.detach(), *(part.grad for part in parts)]


def random_parts(layer: Attention, context: AttentionContext, shape: str) -> tuple[Tensor, ...]:
    """Queries, keys and values in one tensor, in two, or each in its own."""
    torch.manual_seed(3)
    s = layer.sizes
    widths = {"one": [2 * s.d_k + s.d_v], "two": [s.d_k, s.d_k + s.d_v], "three": [s.d_k, s.d_k, s.d_v]}[shape]
    places = [context.queries.length, context.keys.length, context.keys.length]
    device = context.queries.position.device
    return tuple(torch.randn(1, n, s.heads * width).to(device) for n, width in zip(places, widths, strict=False))


def compare(layer: Attention, asks: Layout, asked: Layout, shape: str) -> None:
    context = AttentionContext(asks, asked)
    parts = random_parts(layer, context, shape)
    ours = with_gradients(backend.packed_attention, layer, parts, context)
    plain = with_gradients(one_by_one, layer.double(), tuple(part.double() for part in parts), context)
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a.double(), b, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "lengths", [[5, 1, 16, 9, 3], [1], [1, 1, 1], [16, 16], [32, 7], [40, 3]], ids=lambda lengths: f"of {lengths}"
)
def test_sequences_that_ask_themselves(device: torch.device, lengths: list[int], causal: bool) -> None:
    """Lengths of 1, lengths that fill a tile, and more sequences than programs."""
    layout = end_to_end(lengths, device)
    compare(layer_of(causal=causal), layout, layout, "one")


@pytest.mark.parametrize("shape", ["two", "three"])
@pytest.mark.parametrize("sizes", [(16, 16), (16, 32), (32, 16)], ids=lambda sizes: "d_k {}, d_v {}".format(*sizes))
def test_sequences_that_ask_others(device: torch.device, shape: str, sizes: tuple[int, int]) -> None:
    asks, asked = end_to_end([4, 17, 1, 6], device), end_to_end([11, 2, 16, 1], device)
    compare(layer_of(3, *sizes), asks, asked, shape)


def test_no_keys_no_queries(device: torch.device) -> None:
    """Filler: where there is nothing to see, zeros and no NaN; what nobody asks has a gradient of zero."""
    asks, asked = end_to_end([4, 5, 3, 0], device), end_to_end([6, 0, 2, 7], device)
    layer, context = layer_of(), AttentionContext(asks, asked)
    compare(layer, asks, asked, "two")
    parts = random_parts(layer, context, "two")
    out, d_q, d_kv = with_gradients(backend.packed_attention, layer.float(), parts, context)
    assert (out[:, :, 4:9] == 0).all()
    assert (d_q[:, 4:9] == 0).all()
    assert (d_kv[:, 8:] == 0).all()
    assert all(x.isfinite().all() for x in (out, d_q, d_kv))


def test_a_tile_larger_than_any_sequence(device: torch.device) -> None:
    """What a batch is compiled for follows from its widest, not from what is in it."""
    layout = end_to_end([5, 2], device, longest=32)
    compare(layer_of(causal=True), layout, layout, "one")


@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(1, 18), st.integers(0, 18)), min_size=1, max_size=4),
    st.sampled_from(["one", "two", "three"]),
    st.booleans(),
)
def test_whatever_the_lengths(device: torch.device, lengths: list[tuple[int, int]], shape: str, causal: bool) -> None:
    asks = end_to_end([n for n, _ in lengths], device)
    asked = asks if shape == "one" or causal else end_to_end([n for _, n in lengths], device, longest=18)
    compare(layer_of(causal=causal), asks, asked, shape)


def test_it_is_chosen_and_a_neighbour_is_never_seen(device: torch.device) -> None:
    """Through the layer: what one sequence says changes no other's output."""
    layer, layout = layer_of(), end_to_end([5, 8, 3], device)
    q, k, v = torch.randn(3, 1, 2, 16, 16).to(device)
    first = layer.attend(q, k, v, AttentionContext(layout, layout))
    assert layer.path == "packed_attention"
    k[:, :, 5:13], v[:, :, 5:13] = 9.0, -9.0
    again = layer.attend(q, k, v, AttentionContext(layout, layout))
    changed = (first != again).any(-1)[0].any(0)
    assert changed.tolist() == [5 <= n < 13 for n in range(16)]


# --- dropout on the weights ----------------------------------------------------------------------------------------

LENGTHS = [16, 16, 9, 16]


def dropped(layer: Attention, call_seed: int, context: AttentionContext) -> list[Tensor]:
    """The weights as dropout left them, [H, q, k] of each sequence: every value is the name of its place."""
    names = torch.cat([torch.eye(16)[:n] for n in LENGTHS]).to(context.queries.position.device)
    q, k, _ = random_parts(layer, context, "three")
    torch.manual_seed(call_seed)
    out = backend.packed_attention(job_of(layer, (q, k, names.repeat(1, layer.sizes.heads)[None]), context))
    return [part[0, :, :, :n] for part, n in zip(out.split(LENGTHS, 2), LENGTHS, strict=True)]


def masks_of(layer: Attention, call_seed: int, context: AttentionContext) -> list[Tensor]:
    return [(weights > 0).double() / (1 - layer.dropout) for weights in dropped(layer, call_seed, context)]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x > 0, y > 0) for x, y in zip(a, b, strict=True))


def test_dropout_drops_its_share_and_scales_the_rest(device: torch.device) -> None:
    layout = end_to_end(LENGTHS, device)
    layer, context = layer_of(4, dropout=0.3).train(), AttentionContext(layout, layout)
    found = dropped(layer, 1, context)
    whole = dropped(layer_of(4), 1, context)
    for weights, before in zip(found, whole, strict=True):
        torch.testing.assert_close(weights, torch.where(weights > 0, before / 0.7, 0.0), atol=1e-6, rtol=1e-5)
    kept = torch.cat([(weights > 0).flatten() for weights in found]).float()
    assert len(kept) == 4 * (3 * 256 + 81)
    assert float(kept.mean()) == pytest.approx(0.7, abs=0.03)
    seen = [head > 0 for weights in found if weights.shape[-1] == 16 for head in weights]
    assert all(not torch.equal(a, b) for n, a in enumerate(seen) for b in seen[:n])  # by sequence and by head
    assert all(same(dropped(layer.eval(), call_seed, context), whole) for call_seed in (1, 2))


def test_the_mask_follows_from_both_seeds(device: torch.device) -> None:
    layout = end_to_end(LENGTHS, device)
    layer, context = layer_of(2, dropout=0.3).train(), AttentionContext(layout, layout)
    seed = launch.step_seed(layout.position)
    try:
        first, again, other_call_seed = (dropped(layer, call_seed, context) for call_seed in (1, 1, 2))
        seed.fill_(5)
        other_seed = dropped(layer, 1, context)
        seed.fill_(0)
        back = dropped(layer, 1, context)
    finally:
        seed.fill_(0)
    assert same(first, again)
    assert same(first, back)
    assert not same(first, other_call_seed)
    assert not same(first, other_seed)
    assert not same(other_call_seed, other_seed)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_with_the_same_mask(device: torch.device, causal: bool) -> None:
    layout = end_to_end(LENGTHS, device)
    layer, context = layer_of(2, causal=causal, dropout=0.3).train(), AttentionContext(layout, layout)
    masks = masks_of(layer, 1, context)
    parts = random_parts(layer, context, "one")

    def ours(inputs: AttentionInputs) -> Tensor:
        torch.manual_seed(1)
        return backend.packed_attention(inputs)

    found = with_gradients(ours, layer, parts, context)
    plain = with_gradients(
        lambda inputs: one_by_one(inputs, masks), layer.double(), tuple(part.double() for part in parts), context
    )
    for a, b in zip(found, plain, strict=True):
        torch.testing.assert_close(a.double(), b, atol=1e-5, rtol=1e-5)


# --- what is left to other kernels ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys, position, sizes, why",
    [
        ({"compress": StridedConvolutionConfig()}, Position(), (16, 16), "the keys are compressed"),
        ({"pattern": "window(3)"}, Position(), (16, 16), "the pattern hides more than the future and other sequences"),
        ({"pattern": "causal | global(1)"}, Position(), (16, 16), "the pattern hides more"),
        ({}, AlibiConfig().build(Sizes(32, 2, 16, 16)), (16, 16), "the position adds to scores or output"),
        ({}, RelativeConfig().build(Sizes(32, 2, 16, 16)), (16, 16), "the position adds to scores or output"),
        ({}, Position(), (8, 16), "heads have other than 16, 32, 64, 128 dimensions"),
        ({}, Position(), (16, 24), "heads have other than 16, 32, 64, 128 dimensions"),
        ({"score": AdditiveConfig()}, Position(), (16, 16), "the score Additive has no fused kernel"),
        ({"normalise": EntmaxConfig()}, Position(), (16, 16), "the normaliser Entmax15 has no fused kernel"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_foreign_choices(keys: dict, position: Position, sizes: tuple[int, int], why: str) -> None:
    layer = Attention(Sizes(32, 2, *sizes), AttentionConfig(**keys), position, SEEN)
    assert (backend.unsupported_layer(layer) or "").startswith(why)


def test_served_choices() -> None:
    for layer in (layer_of(), layer_of(causal=True), layer_of(1, 128, 64, dropout=0.1)):
        assert backend.unsupported_layer(layer) is None


def test_what_is_refused(device: torch.device) -> None:
    layer = layer_of()

    def reason(asks: Layout, asked: Layout, dtype: torch.dtype = torch.float32) -> str | None:
        q, k = (torch.zeros(1, 2, layout.length, 16, dtype=dtype, device=device) for layout in (asks, asked))
        return backend.packed_unsupported_reason(
            AttentionInputs(layer, q, k, k, AttentionContext(asks, asked), SEEN, None)
        )

    packed, long = end_to_end([5, 3], device), end_to_end([129], device)
    assert reason(packed, packed) is None
    assert reason(end_to_end([128], device), packed) is None
    assert reason(Layout.of(8, device=device), packed) == reason(packed, Layout.of(8, device=device)) == ""
    assert reason(packed, packed, torch.float64) == ""
    assert reason(long, packed) == reason(packed, long) == "sequences have more than 128 positions"
    with dispatch.disabled():
        assert reason(packed, packed) == ""
    with dispatch.disabled(False):
        assert reason(packed, packed) is None
    with torch.no_grad():  # a search is faster without
        assert reason(packed, packed) == ""


def test_a_cpu_has_none() -> None:
    """Outside of tests that interpret them."""
    assert not dispatch.usable(torch.zeros(1))


@pytest.mark.parametrize("keys", [{"kv_heads": 1}, {"qk_norm": True}], ids=str)
def test_projections_of_other_kinds_are_served(device: torch.device, keys: dict) -> None:
    """Grouped and normalised keys reach the kernel as heads of their own; each sequence alone gives the same."""
    torch.manual_seed(0)
    choices = AttentionConfig(**keys)
    layer = build_attention(choices, 32, 2, Position(), Causal() & Padding() & Document()).to(device)
    x = torch.randn(1, 8, 32, device=device, requires_grad=True)
    spans = end_to_end([3, 5], device)
    out = layer(x, x, AttentionContext(spans, spans))
    assert layer.path == "packed_attention"
    alone = []
    for part in x.split([3, 5], 1):
        layout = Layout.of(part.shape[1], device=device)
        alone.append(layer(part, part, AttentionContext(layout, layout)))
    torch.testing.assert_close(out, torch.cat(alone, 1), atol=1e-5, rtol=1e-4)
    weight = torch.randn_like(out)
    ours, theirs = (torch.autograd.grad(each, x, weight)[0] for each in (out, torch.cat(alone, 1)))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
