"""The plan of the GPU kernels, walked on a CPU as they walk it: exactly what the pattern allows, and balanced."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.accel.sparse_attention import _cached_plan, plan_of
from regard.accel.sparse_plan import KEYS, SparsePlan
from regard.nn.backend.contract import AttentionInputs
from regard.nn.layout import AttentionContext, Layout
from regard.nn.pattern import PATTERNS, Causal, Document, Padding, Pattern, parse_pattern

EXPRESSIONS = [
    "window(20)",
    "window(150)",
    "window(70) & causal",
    "blocks(128) & causal",
    "blocks(256)",
    "window(20) | global(2)",
    "(window(33) | global(70)) & causal",
    "bigbird(64, random=1)",
    "bigbird(128, global=1, random=1)",
    "bigbird(64, random=2, global=1) & causal",
    "window(5) | random(2, block=64, seed=4)",
    "(global(2) & window(90)) | window(3)",
]


def planned(expression: str, context: AttentionContext) -> tuple[SparsePlan, Pattern]:
    """The plan, and the pattern it is of, bound to two heads."""
    q = torch.zeros(context.rows, 2, context.keys.length, 1)
    pattern = (parse_pattern(expression, PATTERNS) & (Padding() & Document())).bind(q, context, layer=1)
    plan = plan_of(AttentionInputs(None, q, q, q, context, pattern, None))  # type: ignore[arg-type]
    assert plan is not None
    return plan, pattern


def paint(plan: SparsePlan, seen: torch.Tensor, t: int, u: int, ref: int) -> None:
    """What tile t of queries sees of tile u of keys; no pair may be met twice."""
    bits = torch.full((plan.rows, 2), -1, dtype=torch.int32) if ref < 0 else plan.bits[ref]
    tile = (bits[:, :, None] >> torch.arange(32)) & 1  # [rows, 2, 32]
    place = seen[t * plan.rows : (t + 1) * plan.rows, u * KEYS : (u + 1) * KEYS]
    tile = tile.flatten(1)[: place.shape[0], : place.shape[1]]
    assert not (place & tile.bool()).any()
    place |= tile.bool()


def by_queries(plan: SparsePlan, g: int, n: int) -> torch.Tensor:
    seen = torch.zeros(n, n, dtype=torch.bool)
    for t in range(plan.query_tiles):
        if t < plan.tops:
            for u in range(plan.key_tiles):
                paint(plan, seen, t, u, int(plan.top[g, t, u]))
        else:
            for m in range(int(plan.counts[g, t])):
                paint(plan, seen, t, int(plan.ids[g, t, m]), int(plan.refs[g, t, m]))
    return seen


def by_keys(plan: SparsePlan, g: int, n: int) -> torch.Tensor:
    seen = torch.zeros(n, n, dtype=torch.bool)
    for u in range(plan.key_tiles):
        if u < plan.edge:
            for t in range(plan.query_tiles):
                assert int(plan.ids[g, t, u]) == u
                paint(plan, seen, t, u, int(plan.refs[g, t, u]))
        else:
            for m in range(*plan.starts[g * plan.key_tiles + u :][:2].tolist()):
                paint(plan, seen, int(plan.query_ids[m]), u, int(plan.query_refs[m]))
    return seen


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(EXPRESSIONS), st.lists(st.integers(1, 400), min_size=1, max_size=2), st.booleans())
def test_a_plan_is_what_the_pattern_allows(expression, lengths, packed) -> None:
    n = max(lengths)
    real = torch.arange(n) < torch.tensor(lengths)[:, None]
    document = torch.stack([torch.arange(n) // (90 + row) for row in range(len(lengths))]) if packed else None
    layout = Layout(torch.arange(n)[None], n, None if real.all() else real, document, right_padded=True)
    context = AttentionContext(layout, layout)
    plan, pattern = planned(expression, context)
    mask = pattern.mask(context, 2).expand(context.rows, 2, n, n)
    for b in range(context.rows):
        for h in range(2):
            g = b * plan.of_row + h * plan.of_head
            for seen in (by_queries(plan, g, n), by_keys(plan, g, n)):
                assert torch.equal(seen & real[b % len(real)], mask[b, h])


def test_interior_tiles_need_no_bits() -> None:
    """Of a window of 513 keys, 6 tiles in 10 are wholly visible; of BigBird's tiles all are."""
    context = AttentionContext(Layout.of(4096), Layout.of(4096))
    window, _ = planned("window(256)", context)
    assert (window.rows, window.width) == (128, 10)
    assert (window.refs[0, 16] < 0).sum() == 6
    bird, _ = planned("bigbird(64)", context)
    assert (bird.rows, bird.width, bird.edge, bird.tops, len(bird.bits)) == (64, 8, 2, 2, 1)
    assert (bird.refs[:, 2:][bird.ids[:, 2:] < bird.key_tiles] < 0).all()


@pytest.mark.parametrize("expression, most", [("window(256)", 10), ("blocks(256)", 6), ("bigbird(64)", 20)])
def test_no_tile_of_keys_waits_for_long(expression: str, most: int) -> None:
    """Beyond the edge, whose tiles are split, tiles of keys are met by few of queries: the work is balanced."""
    plan, _ = planned(expression, AttentionContext(Layout.of(8192), Layout.of(8192)))
    assert int(plan.starts.diff().max()) <= most


def test_plans_are_kept_from_call_to_call() -> None:
    first, _ = planned("bigbird(64)", AttentionContext(Layout.of(1000), Layout.of(1000)))
    again, _ = planned("bigbird(64)", AttentionContext(Layout.of(1000), Layout.of(1000)))
    assert first is again
    shorter = Layout.of(1000, torch.arange(1000)[None] < 900)  # drawn from fewer blocks
    assert planned("bigbird(64)", AttentionContext(shorter, shorter))[0] is not first
    assert (
        planned("window(99)", AttentionContext(shorter, shorter))[0]
        is planned("window(99)", AttentionContext(shorter, shorter))[0]
    )


def test_rows_of_several_lengths_are_planned_once() -> None:
    """Their plans are put together of those of single rows, of which equally many blocks draw alike."""
    _cached_plan.cache_clear()
    for lengths in ([700, 1000, 300], [1000, 320, 690, 699], [1000, 1000]):
        real = torch.arange(1000) < torch.tensor(lengths)[:, None]
        layout = Layout.of(1000, real)
        plan, pattern = planned("bigbird(64, random=2, global=1)", AttentionContext(layout, layout))
        mask = pattern.mask(AttentionContext(layout, layout), 2)
        for b in range(len(lengths)):
            for seen in (by_queries(plan, b * plan.of_row + 1, 1000), by_keys(plan, b * plan.of_row + 1, 1000)):
                assert torch.equal(seen & real[b], mask[b, 1])
    assert _cached_plan.cache_info().misses == 3  # of 16, 11 and 5 blocks


def test_what_has_no_plan() -> None:
    q = torch.zeros(1, 2, 256, 1)
    context, cached = (
        AttentionContext(Layout.of(256), Layout.of(256)),
        AttentionContext(Layout(torch.tensor([[255]]), 256), Layout.of(256)),
    )
    for expression, where in (
        ("full", context),
        ("causal", context),
        ("random(2, block=48)", context),
        ("window(9)", cached),
    ):
        pattern = (parse_pattern(expression, PATTERNS) & Causal()).bind(q, where, 0)
        assert plan_of(AttentionInputs(None, q, q, q, where, pattern, None)) is None  # type: ignore[arg-type]
