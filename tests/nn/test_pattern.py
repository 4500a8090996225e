"""Sparse and local patterns: numpy loops, blocks that hide nothing visible, draws, and decoding step by step."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import config
from regard.models.batch import PairBatch, RaggedRows, collate_pairs
from regard.models.transformer import Transformer, TransformerConfig
from regard.nn.attention import Attention, AttentionConfig
from regard.nn.layout import AttentionContext, Layout
from regard.nn.pattern import PATTERNS, Document, Padding, Pattern, parse_pattern
from regard.nn.pattern.sparse import BlockSampler
from regard.nn.position import Position
from regard.nn.sizes import Sizes

MARKS = SimpleNamespace(pad=0, bos=2, eos=3)


def call_of(lengths: list[int]) -> AttentionContext:
    n = max(lengths)
    real = torch.arange(n) < torch.tensor(lengths)[:, None]
    layout = Layout.of(n, None if real.all() else real)
    return AttentionContext(layout, layout)


def bound(text: str, context: AttentionContext, heads: int = 2, layer: int = 0) -> Pattern:
    return parse_pattern(text, PATTERNS).bind(
        torch.zeros(context.rows, heads, context.queries.length, 1), context, layer
    )


def mask_of(text: str, lengths: list[int], heads: int = 2, layer: int = 0) -> np.ndarray:
    """[B, H, N, N]"""
    context = call_of(lengths)
    mask = bound(text, context, heads, layer).mask(context, heads)
    assert mask is not None
    return mask.expand(context.rows, heads, -1, -1).numpy()


# --- what is visible ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, sees",
    [
        ("window(2)", lambda i, j: abs(i - j) <= 2),
        ("window(2) & causal", lambda i, j: 0 <= i - j <= 2),
        ("global(3)", lambda i, j: i < 3 or j < 3),
        ("blocks(4)", lambda i, j: i // 4 == j // 4),
        ("blocks(4) & causal", lambda i, j: i // 4 == j // 4 and j <= i),
        ("blocks(1) | global(1)", lambda i, j: i == j or min(i, j) == 0),
        ("window(1) | global(1)", lambda i, j: abs(i - j) <= 1 or min(i, j) == 0),
        ("bigbird(3, global=1, random=0)", lambda i, j: abs(i // 3 - j // 3) <= 1 or min(i, j) < 3),
        ("bigbird(2, window=1, global=0, random=0) & causal", lambda i, j: i // 2 == j // 2 and j <= i),
    ],
)
def test_fixed_patterns_by_hand(text: str, sees) -> None:
    assert mask_of(text, [11])[0, 0].tolist() == [[bool(sees(i, j)) for j in range(11)] for i in range(11)]


def test_random_blocks() -> None:
    """Each block of 3 queries sees 2 blocks of 3 keys, others for every seed, layer and head."""
    first = mask_of("random(2, block=3)", [21])
    blocks = first[0, 0].reshape(7, 3, 7, 3)
    assert (blocks == blocks[:, :1, :, :1]).all()  # whole blocks
    assert (blocks[:, 0, :, 0].sum(-1) == 2).all()
    others = [first[:, 1:], mask_of("random(2, block=3, seed=1)", [21]), mask_of("random(2, block=3)", [21], layer=1)]
    for other in others:
        assert (other[0, 0] != first[0, 0]).any()


@pytest.mark.parametrize("causal", [False, True])
def test_bigbird_draws_from_the_rest(causal: bool) -> None:
    mask = mask_of("bigbird(2, window=3, global=2, random=3)" + " & causal" * causal, [40], heads=3)[0]
    blocks = mask.reshape(3, 20, 2, 20, 2).any((2, 4))  # [H, query blocks, key blocks]
    for head in blocks:
        for q in range(2, 20):
            fixed = {k for k in range(20) if k < 2 or abs(q - k) <= 1} & set(range(q + 1 if causal else 20))
            drawn = set(np.flatnonzero(head[q])) - fixed
            rest = [k for k in range(2, q - 1 if causal else 20) if abs(q - k) > 1]
            assert len(drawn) == min(3, len(rest))
            assert drawn <= set(rest)


def test_draws_are_even() -> None:
    """10 of 40 without replacement, 3,000 times: each is drawn a quarter of the time, within 5 standard deviations."""
    table = BlockSampler(10, 1, seed=5, layer=0, heads=3, past=False).sample(1000, torch.tensor([40]))
    assert (table.sort(-1).values.diff(dim=-1) > 0).all()
    spread = math.sqrt(3000 * 0.25 * 0.75)
    assert (torch.bincount(table.flatten(), minlength=40) - 750).abs().max() < 5 * spread


def test_draws_of_today_are_those_of_tomorrow() -> None:
    """A trained model has learned with its blocks: they must never change."""
    assert BlockSampler(2, 64, seed=0, layer=1, heads=2, past=False).sample(3, torch.tensor([640])).tolist() == [
        [[[2, 8], [1, 3], [0, 7]], [[6, 0], [8, 0], [8, 7]]]
    ]


def test_fewer_candidates_than_asked_for() -> None:
    table = BlockSampler(3, 2, seed=0, layer=0, heads=1, past=False).sample(4, torch.tensor([8, 4, 1]))
    assert [sorted(k for k in row if k >= 0) for row in table[:, 0, 0].tolist()[1:]] == [[0, 1], [0]]
    assert len(set(table[0, 0, 0].tolist())) == 3
    past = BlockSampler(2, 2, seed=0, layer=0, heads=1, past=True).sample(4, torch.tensor([0]))[0, 0]
    assert [sorted(k for k in row if k >= 0) for row in past.tolist()[:3]] == [[], [0], [0, 1]]


@pytest.mark.parametrize("text", ["random(2, block=3)", "bigbird(2, global=1, random=2)"])
def test_draws_follow_a_rows_own_length(text: str) -> None:
    together, lengths = mask_of(text, [31, 17, 1]), [31, 17, 1]
    for row, n in enumerate(lengths):
        assert (together[row, :, :n, :n] == mask_of(text, [n])[0]).all()
    past = mask_of(f"({text}) & causal", [31])
    assert (past[0, :, :17, :17] == mask_of(f"({text}) & causal", [17])[0]).all()


# --- blocks hide nothing that is visible -------------------------------------------------------------------------


@settings(deadline=None, max_examples=200)
@given(
    st.sampled_from(
        [
            "window(3)",
            "window(7) & causal",
            "window(3) | global(2)",
            "(window(2) | global(5)) & causal",
            "blocks(8)",
            "blocks(6) & causal | global(1)",
            "bigbird(4, random=1)",
            "bigbird(2, window=1, global=1, random=3) & causal",
            "bigbird(8, global=1, random=1) | window(3)",
            "window(1) | random(2, block=4)",
            "window(9) & global(3)",
            "window(2) & causal | random(1, block=2)",
        ]
    ),
    st.lists(st.integers(1, 37), min_size=1, max_size=3),
    st.sampled_from([1, 2, 4, 8]),
)
def test_every_visible_pair_is_listed_once(text, lengths, size) -> None:
    context, n = call_of(lengths), max(lengths)
    pattern = bound(text, context)
    listed = pattern.blocks(context, size)
    if listed is None:
        assert "block" in text or "bigbird" in text  # their own blocks are smaller than those asked for
        return
    rows, count = context.rows, -(-n // size)
    keys = listed.keys.expand(rows, 2, count, -1)
    for b in range(rows):
        for h in range(2):
            for q in range(count):
                named = [k for k in keys[b, h, q].tolist() if k >= 0]
                assert len(set(named)) == len(named)
                assert all(k < count for k in named)
    near = (keys[..., None] == torch.arange(count)).any(-2)  # [B, H, query blocks, key blocks]
    near = near.repeat_interleave(size, 2).repeat_interleave(size, 3)[:, :, :n, :n]
    edge = torch.minimum(torch.arange(n)[:, None], torch.arange(n)) < listed.edge
    allowed = pattern.mask(context, 2)
    assert not (allowed & ~(near | edge)).any()
    if listed.whole is not None:
        whole = (keys[..., None] == torch.arange(count)) & listed.whole.expand_as(keys)[..., None]
        whole = whole.any(-2).repeat_interleave(size, 2).repeat_interleave(size, 3)[:, :, :n, :n]
        assert not ((whole | edge) & ~allowed).any()


def test_a_window_on_the_past_lists_the_past() -> None:
    listed = bound("window(4) & causal", call_of([16])).blocks(call_of([16]), 2)
    assert listed is not None
    assert listed.keys[0, 0, 5].tolist() == [3, 4, 5]


def test_blocks_are_for_whole_sequences() -> None:
    cached = AttentionContext(Layout(torch.tensor([[7]]), 8), Layout.of(8))
    for text in ("window(2)", "global(1)", "bigbird(2)"):
        assert bound(text, cached).blocks(cached, 2) is None


# --- mistakes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, wrong",
    [
        ("window(0)", r"window\(0\) is impossible: r must be a whole number of at least 1"),
        ("window(2.5)", r"window\(2.5\) is impossible"),
        ("blocks(0)", r"blocks\(0\) is impossible: size must be a whole number of at least 1"),
        ("global(0)", r"global\(0\) is impossible"),
        ("random(0)", "count must be a whole number of at least 1, not 0"),
        ("random(1, block=0)", "block must be"),
        ("bigbird(window=2)", "must be odd"),
        ("bigbird(global=-1)", "global must be a whole number of at least 0, not -1"),
        ("local_m(0)", r"local_m\(0\) is impossible"),
        ("local_p(-1)", r"local_p\(-1\) is impossible"),
    ],
)
def test_impossible_numbers(text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        parse_pattern(text, PATTERNS)


def test_more_blocks_than_there_are() -> None:
    parse_pattern("random(8) | bigbird(64)", PATTERNS).check(512)
    with pytest.raises(
        ValueError, match="8 random blocks cannot be drawn: the longest input of 440 tokens has 7 of 64"
    ):
        parse_pattern("window(3) | random(8)", PATTERNS).check(440)
    with pytest.raises(ValueError, match="3 random blocks"):
        parse_pattern("bigbird", PATTERNS).check(128)


@pytest.mark.parametrize(
    "text, place", [("window(2)", "cross"), ("blocks(2)", "cross"), ("bigbird", "cross"), ("local_m(2)", "decoder")]
)
def test_patterns_have_their_places(text: str, place: str) -> None:
    with pytest.raises(ValueError, match=f"not {place}"):
        AttentionConfig(pattern=text).check(place, 1000, 1)


# --- Luong's local attention -------------------------------------------------------------------------------------


def local(text: str, heads: int, size: int = 4) -> Attention:
    torch.manual_seed(3)
    return Attention(
        Sizes.of(heads * size, heads), AttentionConfig(pattern=text), Position(), Padding() & Document()
    ).double()


def local_loop(layer: Attention, q, k, v, lengths: list[int], d: int, predicted: bool) -> np.ndarray:
    """Luong 2015, 3.2, one query at a time: softmax within the window, then the Gaussian, σ = d/2."""
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    if predicted:
        inner, outer = (p.detach().numpy() for p in layer.learned[0].parameters())
    for b, h, t in np.ndindex(q.shape[:3]):
        source, x = lengths[b], q[b, h, t]
        centre = source / (1 + math.exp(-(outer @ np.tanh(inner @ x))[0])) if predicted else t
        seen = [j for j in range(source) if abs(j - centre) <= d]
        scores = np.array([x @ k[b, h, j] / math.sqrt(len(x)) for j in seen])
        for j, s in zip(seen, scores, strict=True):
            weight = math.exp(s) / np.exp(scores).sum()
            gain = math.exp(-((j - centre) ** 2) / (2 * (d / 2) ** 2)) if predicted else 1.0
            out[b, h, t] += weight * gain * v[b, h, j]
    return out


@pytest.mark.parametrize("kind", ["local_m", "local_p"])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("d", [1, 3])
def test_local_attention_is_luongs(kind: str, heads: int, d: int) -> None:
    layer, lengths = local(f"{kind}({d})", heads), [9, 4]
    q, k, v = (torch.randn(2, heads, n, 4, dtype=torch.float64) for n in (6, 9, 9))
    real = torch.arange(9) < torch.tensor(lengths)[:, None]
    out = layer.attend(q, k, v, AttentionContext(Layout.of(6), Layout.of(9, real)))
    expected = local_loop(layer, *(x.numpy() for x in (q, k, v)), lengths, d, kind == "local_p")
    np.testing.assert_allclose(out.detach(), expected, atol=1e-12)
    for t in range(6):  # as an RNN asks: one query at a time, at its place
        one = layer.attend(
            q[:, :, t : t + 1], k, v, AttentionContext(Layout(torch.full((2, 1), t), t + 1), Layout.of(9, real))
        )
        np.testing.assert_allclose(one[:, :, 0].detach(), expected[:, :, t], atol=1e-12)


def test_the_predicted_centre_learns() -> None:
    """Through the Gaussian alone, as the window has no gradient; by finite differences."""
    layer = local("local_p(40)", 2)
    q, k, v = (torch.randn(1, 2, n, 4, dtype=torch.float64, requires_grad=True) for n in (2, 6, 6))
    context = AttentionContext(Layout.of(2), Layout.of(6))
    assert torch.autograd.gradcheck(lambda *x: layer.attend(*x, context), (q, k, v))
    layer.attend(q, k, v, context).sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in layer.learned.parameters())


def test_a_target_past_the_source_sees_nothing() -> None:
    layer = local("local_m(1)", 1)
    q, k, v = (torch.randn(1, 1, n, 4, dtype=torch.float64, requires_grad=True) for n in (6, 2, 2))
    out = layer.attend(q, k, v, AttentionContext(Layout.of(6), Layout.of(2)))
    assert (out[0, 0, 3:] == 0).all()
    out.sum().backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v))


# --- in a Transformer --------------------------------------------------------------------------------------------

DECODERS = [
    {"decoder": {"pattern": "window(2)"}},
    {"decoder": {"pattern": "window(1) | global(2)"}},
    {"decoder": {"pattern": "window(1) | random(1, block=2)"}},
    {"decoder": {"pattern": ["bigbird(2, global=1, random=1)", "window(3)"]}},
    {"encoder": {"pattern": "bigbird(2, global=1, random=1)"}, "cross": {"pattern": "local_m(2)"}},
    {"cross": {"pattern": ["local_p(2)", "full"]}},
]


def build(attention: dict) -> Transformer:
    torch.manual_seed(0)
    small = {"init": "xavier", "layers": 2, "size": 16, "inner": 24, "heads": 4, "dropout": 0.0, "attention": attention}
    return config.parse_config(TransformerConfig, small).build(30, 30).double().eval()


def batch(lengths: list[tuple[int, int]], seed: int = 0) -> PairBatch:
    g = np.random.default_rng(seed)
    rows = [(g.integers(4, 30, s), g.integers(4, 30, t)) for s, t in lengths]
    return collate_pairs(RaggedRows.of([s for s, _ in rows]), RaggedRows.of([t for _, t in rows]), MARKS, MARKS)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(DECODERS),
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=3),
    st.integers(1, 4),
)
def test_step_by_step_is_the_parallel_pass(attention, lengths, prompt) -> None:
    model, b = build(attention), batch(lengths)
    with torch.no_grad():
        parallel = model(b)
        state = model.start(b, b.target.shape[1])
        prompt = min(prompt, b.target.shape[1])
        out, state = model.step(b.target[:, :prompt], state)
        outs = [out]
        for t in range(prompt, b.target.shape[1]):
            out, state = model.step(b.target[:, t : t + 1], state)
            outs.append(out)
    stepped = torch.cat(outs, 1).flatten(0, 1)[b.label_positions]
    torch.testing.assert_close(stepped, parallel, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("attention", DECODERS)
def test_rows_at_different_positions(attention) -> None:
    model = build(attention)
    a, b = batch([(7, 9), (7, 9)], seed=1), batch([(7, 9)], seed=2)
    with torch.no_grad():
        state = model.start(a, 12)
        _, state = model.step(a.target[:, :7], state)
        state.reorder(torch.tensor([1, 0, 1]))
        fresh = model.start(b, 12)
        _, fresh = model.step(b.target[:, :2], fresh)
        state.write(torch.tensor([1]), fresh)
        tokens = torch.stack([a.target[1, 7:9], b.target[0, 2:4], a.target[1, 7:9]])
        out, _ = model.step(tokens, state)
        whole_a, whole_b = model(a).split(10), model(b)
    torch.testing.assert_close(out[0], whole_a[1][7:9], atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(out[1], whole_b[2:4], atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(out[2], out[0])


@pytest.mark.parametrize("attention", DECODERS)
def test_a_sentence_alone_and_in_a_padded_batch(attention) -> None:
    model, lengths = build(attention), [(3, 2), (12, 11), (1, 1)]
    logits = model(batch(lengths, seed=3)).split([3, 12, 2])
    g = np.random.default_rng(3)
    rows = [(g.integers(4, 30, s), g.integers(4, 30, t)) for s, t in lengths]
    for (source, target), expected in zip(rows, logits, strict=True):
        alone = collate_pairs(RaggedRows.of([source]), RaggedRows.of([target]), MARKS, MARKS)
        torch.testing.assert_close(model(alone), expected, atol=1e-12, rtol=1e-12)
