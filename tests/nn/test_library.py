"""`regard.nn` and `regard.models` in somebody else's program: parity with torch, promises of modules, mistakes."""

import copy
import io
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from regard.errors import RegardError
from regard.models import Bert, LanguageModel, PairBatch, TextBatch, Transformer
from regard.nn import (
    AttentionContext,
    DecoderLayer,
    DotConfig,
    EncoderLayer,
    FeedForward,
    GatedFeedForward,
    Layout,
    MultiHeadAttention,
    Normaliser,
    RotaryConfig,
    Score,
    SharedQueryKey,
    build_position,
    vocabulary_loss,
)

REAL = torch.arange(6) < torch.tensor([[6], [4]])  # [B, K]: the second row has padding at its end


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key_value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias.normal_(), ours.key_value.bias.normal_()]))
        theirs.out_proj.weight.copy_(ours.output.weight)
        theirs.out_proj.bias.copy_(ours.output.bias.normal_())


# --- parity --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("cross", [False, True])
def test_attention_is_torchs(cross: bool, causal: bool, side: str) -> None:
    """Output and weights, with padding at either end."""
    torch.manual_seed(0)
    ours = MultiHeadAttention(12, 3, causal=causal).double()
    theirs = nn.MultiheadAttention(12, 3, batch_first=True, dtype=torch.float64)
    copy_attention(ours, theirs)
    x = torch.randn(2, 6, 12, dtype=torch.float64)
    memory = torch.randn(2, 6, 12, dtype=torch.float64) if cross else None
    real = REAL if side == "right" else REAL.flip(1)
    hidden = torch.ones(6, 6, dtype=torch.bool).triu(1) if causal else None
    keys = x if memory is None else memory
    expected, weights = theirs(x, keys, keys, ~real, attn_mask=hidden, average_attn_weights=False)
    expected, weights = expected.nan_to_num(), weights.nan_to_num()  # theirs where nothing is to be seen
    out, seen = ours(x, memory, mask=real, return_weights=True)
    visible = real if not cross else real.cumsum(1) > 0 if causal else torch.ones_like(real)  # others see nothing
    torch.testing.assert_close(out[visible], expected[visible])
    torch.testing.assert_close(seen, weights)
    torch.testing.assert_close(ours(x, memory, mask=real), out)
    dense = real[:, None, None].expand(2, 3, 6, 6)
    torch.testing.assert_close(ours(x, memory, mask=dense)[visible], out[visible])


@pytest.mark.parametrize("residual", ["post_norm", "pre_norm"])
def test_encoder_layer_is_torchs(residual: str) -> None:
    torch.manual_seed(0)
    ours = EncoderLayer(MultiHeadAttention(12, 3), FeedForward(12, 20, "gelu"), residual).double().eval()
    theirs = nn.TransformerEncoderLayer(
        12, 3, 20, activation="gelu", batch_first=True, norm_first=residual == "pre_norm", dtype=torch.float64
    ).eval()
    copy_attention(ours.attention, theirs.self_attn)
    with torch.no_grad():
        for mine, their in ((ours.feed_forward.expand, theirs.linear1), (ours.feed_forward.contract, theirs.linear2)):
            their.weight.copy_(mine.weight)
            their.bias.copy_(mine.bias)
        for mine, their in zip(ours.residuals, (theirs.norm1, theirs.norm2), strict=True):
            their.weight.copy_(mine.norm.weight.normal_())
            their.bias.copy_(mine.norm.bias.normal_())
    x = torch.randn(2, 6, 12, dtype=torch.float64)
    expected = theirs(x, src_key_padding_mask=~REAL)
    torch.testing.assert_close(ours(x, mask=REAL)[REAL], expected[REAL])


def test_decoder_layer_makes_its_contexts() -> None:
    torch.manual_seed(0)
    layer = DecoderLayer(MultiHeadAttention(12, 3, causal=True), MultiHeadAttention(12, 3), FeedForward(12, 20)).eval()
    x, memory = torch.randn(2, 5, 12), torch.randn(2, 6, 12)
    one, source = Layout.of(5), Layout.of(6, REAL)
    expected = layer(x, memory, AttentionContext(one, one), AttentionContext(one, source))
    torch.testing.assert_close(layer(x, memory, memory_mask=REAL), expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_vocabulary_loss_is_torchs(smoothing: float) -> None:
    torch.manual_seed(0)
    x, weight, labels = torch.randn(7, 5), torch.randn(11, 5), torch.randint(11, (7,))
    expected = F.cross_entropy(x @ weight.T, labels, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(vocabulary_loss(x, weight, labels, smoothing), expected)


# --- promises ------------------------------------------------------------------------------------------------------

CHOICES = [
    {},
    {"position": "rotary", "pattern": "window(4)", "causal": True},
    {"position": "relative", "score": "additive"},
    {"position": "alibi", "normalise": "entmax", "causal": True},
    {"position": "t5", "score": "cosine"},
]


@pytest.mark.parametrize("chosen", CHOICES, ids=str)
def test_modules_copy_save_and_cast(chosen: dict) -> None:
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(16, 2, **chosen).eval(), torch.randn(2, 6, 16)
    expected = layer(x, mask=REAL)
    torch.testing.assert_close(copy.deepcopy(layer)(x, mask=REAL), expected, rtol=0, atol=0)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = MultiHeadAttention(16, 2, **chosen).eval()
    other.load_state_dict(torch.load(file, weights_only=True))
    torch.testing.assert_close(other(x, mask=REAL), expected, rtol=0, atol=0)
    half = layer.to(torch.bfloat16)(x.bfloat16(), mask=REAL)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float()[REAL], expected[REAL], atol=0.1, rtol=0.1)


@pytest.mark.parametrize("chosen", CHOICES[:2] + CHOICES[3:4], ids=str)
def test_export(chosen: dict) -> None:
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(16, 2, **chosen).eval(), torch.randn(2, 6, 16)
    program = torch.export.export(layer, (x,), {"mask": REAL}, strict=False)
    torch.testing.assert_close(program.module()(x, mask=REAL)[REAL], layer(x, mask=REAL)[REAL])


@pytest.mark.slow
@pytest.mark.parametrize("chosen", CHOICES[:2], ids=str)
def test_compile(chosen: dict) -> None:
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(16, 2, **chosen).eval(), torch.randn(2, 6, 16)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=not chosen)  # a plain call is one graph
    torch.testing.assert_close(compiled(x), layer(x))
    torch.testing.assert_close(compiled(x, mask=REAL)[REAL], layer(x, mask=REAL)[REAL])


@pytest.mark.parametrize("chosen", [{"position": "rotary"}, {"position": "alibi", "pattern": "window(3)"}], ids=str)
def test_a_cache_gives_the_same(chosen: dict) -> None:
    """A prompt of 3, then token by token."""
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(16, 2, causal=True, **chosen).double(), torch.randn(2, 6, 16, dtype=torch.float64)
    cache = layer.new_cache(2, 6)
    steps = [layer(part, cache=cache) for part in (x[:, :3], *x[:, 3:].split(1, 1))]
    torch.testing.assert_close(torch.cat(steps, 1), layer(x))
    with pytest.raises(RegardError, match="room for 6 tokens, 6 of which are taken, and 1 more"):
        layer(x[:, :1], cache=cache)


def test_a_cross_cache_stands_for_a_memory() -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(16, 2, position="rotary").double()
    x, memory = torch.randn(2, 3, 16, dtype=torch.float64), torch.randn(2, 6, 16, dtype=torch.float64)
    expected = layer(x, memory, mask=REAL)
    torch.testing.assert_close(layer(x, cache=layer.cross_cache(memory), mask=REAL), expected)


def test_a_plain_call_is_little_python() -> None:
    """No mask and no positions are made that nobody asks for, and few functions are called: 66 with torch 2.13."""
    layer, x, calls = MultiHeadAttention(16, 2, causal=True), torch.randn(1, 4, 16), []
    context = layer.context(x)
    with torch.no_grad():
        layer(x, context=context)
        sys.setprofile(
            lambda frame, event, argument: calls.append(frame.f_code.co_qualname) if event == "call" else None
        )
        layer(x, context=context)
        sys.setprofile(None)
    assert (context._memo, context.keys._position) == ({}, None)
    assert len(calls) <= 80, calls


def test_weights_carry_gradients() -> None:
    layer, x = MultiHeadAttention(8, 2), torch.randn(1, 4, 8)
    _, weights = layer(x, return_weights=True)
    weights[..., 0].sum().backward()
    assert weights.shape == (1, 2, 4, 4)
    assert layer.query.weight.grad is not None
    assert layer.query.weight.grad.abs().sum() > 0


class FixedScore(Score):
    def forward(self, q, k):
        return q.new_zeros(*q.shape[:3], k.shape[2])


class Uniform(Normaliser):
    def forward(self, scores, allow):
        allow = torch.ones_like(scores, dtype=torch.bool) if allow is None else allow.expand_as(scores)
        return allow / allow.sum(-1, keepdim=True).clamp(min=1)


def test_objects_stand_where_names_do() -> None:
    """Names, mappings, configs and modules of one's own; a position shared by two attentions has one set of weights."""
    torch.manual_seed(0)
    same = [
        MultiHeadAttention(8, 2, position=chosen)
        for chosen in ("rotary", {"kind": "rotary"}, RotaryConfig(), build_position("rotary", 8, 2))
    ]
    x = torch.randn(1, 4, 8)
    for layer in same[1:]:
        layer.load_state_dict(same[0].state_dict())
        torch.testing.assert_close(layer(x), same[0](x))
    own = MultiHeadAttention(8, 2, score=FixedScore(4), normalise=Uniform(), causal=True)
    torch.testing.assert_close(
        own(x, return_weights=True)[1][0, 0], torch.ones(4, 4).tril() / torch.arange(1, 5)[:, None]
    )
    shared = build_position("relative", 8, 2)
    pair = nn.ModuleList(MultiHeadAttention(8, 2, position=shared) for _ in range(2))
    assert len({id(p) for p in pair.parameters()}) == len(list(shared.parameters())) + 2 * 6


def test_new_weights_are_xaviers_and_shared_ones_symmetric() -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(64, 4)
    for part in (layer.query.weight, *layer.key_value.weight.chunk(2), layer.output.weight):
        assert part.abs().max() <= (6 / 128) ** 0.5
        assert abs(part.std() - (2 / 128) ** 0.5) < 0.01
    shared = SharedQueryKey(64, 4)
    assert shared.key_value.out_features == 64


# --- models --------------------------------------------------------------------------------------------------------


def test_models_by_the_name_of_their_sizes() -> None:
    torch.manual_seed(0)
    ids = torch.randint(50, (2, 7))
    transformer = Transformer.tiny(50, position="rotary").eval()
    logits = transformer(PairBatch(ids, target=ids[:, :4]))
    assert logits.shape == (2, 4, 50)
    labelled = PairBatch(ids, target=ids[:, :4], labels=ids[:, 1:5].flatten(), label_positions=torch.arange(8))
    torch.testing.assert_close(transformer(labelled), logits.flatten(0, 1))
    assert Transformer.tiny(50, 60)(PairBatch(ids, target=ids)).shape == (2, 7, 60)
    assert LanguageModel.from_preset("tiny", 50)(TextBatch(ids)).shape == (2, 7, 50)
    assert Bert.from_preset("tiny", 50)(TextBatch(ids)).shape == (2, 7, 128)


@pytest.mark.slow
def test_base_and_big_are_the_papers() -> None:
    """65 and 213 million parameters at 37,000 words (Vaswani 2017, table 3)."""
    with torch.device("meta"):
        sizes = [sum(p.numel() for p in build(37000).parameters()) for build in (Transformer.base, Transformer.big)]
    assert [round(size / 1e6) for size in sizes] == [63, 214]


# --- mistakes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: MultiHeadAttention(63, 9, position="rotary"), "a head's d_k of 7 is odd"),
        (lambda: MultiHeadAttention(64, 7), "7 heads do not divide the size 64"),
        (lambda: MultiHeadAttention(64, 0), "heads must be a whole number of at least 1, not 0"),
        (lambda: MultiHeadAttention(64.0, 8), "size must be a whole number of at least 1, not 64.0"),
        (lambda: MultiHeadAttention(64, 8, d_k=0), "d_k must be a whole number"),
        (lambda: MultiHeadAttention(64, 8, kv_heads=0), "kv_heads must be a whole number"),
        (lambda: MultiHeadAttention(64, 8, pattern=None), "pattern must be an expression or a Pattern, not None"),
        (lambda: MultiHeadAttention(64, 8, score=nn.Identity()), "a ScoreConfig or a Score, not Identity"),
        (lambda: MultiHeadAttention(64, 8, normalise=nn.Softmax(-1)), "normalise must be .* or a Normaliser, not Soft"),
        (lambda: MultiHeadAttention(64, 8, position=DotConfig()), "position must be .* or a Position, not DotConfig"),
        (lambda: PairBatch(torch.zeros(2, 5), torch.ones(2, 4) > 0), r"source_real is \[2, 4\], .* source, \[2, 5\]"),
        (lambda: PairBatch(torch.zeros(2, 5), target=torch.zeros(1, 5)), r"target is \[1, 5\], and source has 2 rows"),
        (lambda: TextBatch(torch.zeros(5)), r"ids is \[5\], and a batch has rows"),
        (lambda: Transformer.tiny(50)(PairBatch(torch.zeros(2, 5).long())), "the decoder has nothing to read"),
        (lambda: MultiHeadAttention(64, 8, position="rotray"), "MultiHeadAttention: .*rotray.* did you mean rotary"),
        (lambda: MultiHeadAttention(64, 8, position={"kind": "rotary", "bas": 1}), "did you mean base"),
        (lambda: MultiHeadAttention(64, 8, score="scaled"), "did you mean scaled_dot"),
        (lambda: MultiHeadAttention(64, 8, pattern="windw(3)"), "did you mean window"),
        (lambda: MultiHeadAttention(64, 8, position="sinusoidal"), "sinusoidal positions join the word vectors"),
        (lambda: MultiHeadAttention(64, 8, compress="linformer", causal=True), "linformer mixes all positions"),
        (lambda: MultiHeadAttention(64, 8, pattern="local_m(2)", causal=True), "not causal"),
        (lambda: MultiHeadAttention(64, 8).new_cache(2, 9), "must be causal"),
        (lambda: build_position("sinusoidal", 7), "the size 7 is odd"),
        (lambda: FeedForward(8, 16, "geluu"), "FeedForward: activation is 'geluu'; did you mean gelu"),
        (lambda: FeedForward(8, 16, "swiglu"), "write GatedFeedForward"),
        (lambda: GatedFeedForward(8, 16, "rel"), "did you mean relu"),
        (lambda: EncoderLayer(MultiHeadAttention(8, 2), residual="prenorm"), "did you mean pre_norm"),
        (lambda: Transformer.tiny(50, positon="rotary"), "positon is not a known key; did you mean position"),
        (lambda: Bert.from_preset("bas", 50), "did you mean base"),
    ],
)
def test_mistakes_are_found_when_a_thing_is_built(make, message: str) -> None:
    with pytest.raises(RegardError, match=message):
        make()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((torch.zeros(2, 6, 9),), r"x is \[2, 6, 9\], and this attention takes \[B, N, 16\]"),
        ((torch.zeros(6, 16),), r"x is \[6, 16\]"),
        ((torch.zeros(2, 6, 16), torch.zeros(3, 6, 16)), r"memory is \[3, 6, 16\], .* \[B 2, N, 16\]"),
        ((torch.zeros(2, 6, 16), None, {"mask": REAL[:, :5]}), r"mask is \[2, 5\], and this call takes \[2, 6\]"),
        ((torch.zeros(2, 6, 16), None, {"mask": REAL.float()}), "must be of bools, .*float32"),
        ((torch.zeros(2, 6, 16), None, {"mask": torch.ones(2, 3, 6, 6) > 0}), r"\[2, 3, 6, 6\], .*\[2 or 1, 2 or 1"),
    ],
)
def test_shapes_that_do_not_fit_are_named(arguments: tuple, message: str) -> None:
    x, memory, options = (*arguments, None, None)[:3]
    with pytest.raises(RegardError, match=message):
        MultiHeadAttention(16, 2)(x, memory, **(options or {}))
