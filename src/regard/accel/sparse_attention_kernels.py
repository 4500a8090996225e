# mypy: ignore-errors
"""Triton kernels of attention over listed tiles: forward, and the gradients of queries and of keys and values.

A program owns one tile and goes through those that it meets. Tiles that meet all others (the edge) are cut into splits
of STRIDE, each a program of its own, whose results are put together afterwards; else a few programs would be at work
long after all others. LSE is the logarithm, to the base 2, of the sum of exponentials; +∞ where nothing is visible.
Pointers are in capitals; q_b, q_h, q_n are the strides of rows, heads and positions.
"""

import triton
import triton.language as tl

kernel = triton.jit(
    do_not_specialize=["list_b", "list_h", "heads", "n", "tiles", "width", "splits"]
)  # any length alike


@triton.jit
def _owned(splits, EDGE: tl.constexpr):
    """Whether this program is of the edge, its tile, and which split of that; the edge, being slow, comes first."""
    pid = tl.program_id(0)
    edge = pid < EDGE * splits
    return edge, tl.where(edge, pid // splits, pid - EDGE * (splits - 1)), tl.where(edge, pid % splits, 0)


@triton.jit
def _padded(n, ROWS: tl.constexpr):
    """Queries in whole tiles: what is kept of each has room for so many, and can be read by several at once."""
    return tl.cdiv(n, ROWS) * ROWS


@triton.jit
def _vectors(BASE, position, stride, n, SIZE: tl.constexpr, EVEN: tl.constexpr):
    """[positions, SIZE] of one row and head; zeros past the end."""
    pointers = BASE + position[:, None] * stride + tl.arange(0, SIZE)[None, :]
    return tl.load(pointers) if EVEN else tl.load(pointers, mask=position[:, None] < n, other=0.0)


@triton.jit
def _put(BASE, position, stride, n, values, SIZE: tl.constexpr):
    pointers = BASE + position[:, None] * stride + tl.arange(0, SIZE)[None, :]
    tl.store(pointers, values.to(BASE.dtype.element_ty), mask=position[:, None] < n)


@triton.jit
def _seen(scores, ref, BITS, query, column, ROWS: tl.constexpr):
    """Scores; −∞ where the bits of a tile that is visible in part say so. A ref below zero: all is visible."""
    if ref >= 0:
        words = BITS + (ref.to(tl.int64) * ROWS + query) * 2
        word = tl.where(column < 32, tl.load(words), tl.load(words + 1))
        scores = tl.where(((word >> (column % 32)) & 1) != 0, scores, float("-inf"))
    return scores


@triton.jit
def _listed(
    edge, tile, split, lists, length, n, tiles, width, IDS, REFS, COUNTS, EVERY, TOP,
    ROWS: tl.constexpr, EDGE: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    """Where a program finds the tiles of keys that its queries meet, what is visible of each, and how many they are."""
    own = lists * tl.cdiv(n, ROWS) + tile
    ids, refs, count = IDS + own * width, REFS + own * width, tl.load(COUNTS + own)
    if edge:
        start = split * STRIDE
        ids, refs = EVERY + start, TOP + (lists * EDGE + tile) * tiles + start
        count = tl.minimum(tiles - start, STRIDE)
    return ids, refs, tl.where(tile * ROWS < length, count, 0)


@triton.jit
def _next(IDS, REFS, m, stop, step):
    """Which tile comes m-th, and its ref; asked for a round ahead, so that what it points to can be fetched early."""
    return tl.load(IDS + m, mask=m < stop, other=0), tl.load(REFS + m * step, mask=m < stop, other=0)


@kernel
def sparse_forward_kernel(
    Q, K, V, OUT, LSE, PART, MOST, SUM, IDS, REFS, COUNTS, EVERY, TOP, BITS, LENGTHS,
    q_b, q_h, q_n, k_b, k_h, k_n, v_b, v_h, v_n, o_b, o_h, o_n, list_b, list_h,
    heads, n, tiles, width, splits, scale,
    ROWS: tl.constexpr, COLS: tl.constexpr, D_K: tl.constexpr, D_V: tl.constexpr,
    EDGE: tl.constexpr, STRIDE: tl.constexpr, EVEN: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    edge, tile, split = _owned(splits, EDGE)
    both = tl.program_id(1).to(tl.int64)
    b, h = both // heads, both % heads
    query, column = tl.arange(0, ROWS), tl.arange(0, COLS)
    position = tile * ROWS + query
    length = tl.load(LENGTHS + b) if PADDED else n
    lists = b * list_b + h * list_h
    ids, refs, count = _listed(
        edge, tile, split, lists, length, n, tiles, width, IDS, REFS, COUNTS, EVERY, TOP, ROWS, EDGE, STRIDE
    )
    K += b * k_b + h * k_h
    V += b * v_b + h * v_h
    q = _vectors(Q + b * q_b + h * q_h, position, q_n, n, D_K, EVEN)
    most = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    out = tl.zeros([ROWS, D_V], tl.float32)
    other, ref = _next(ids, refs, 0, count, 1)
    for m in range(count):
        at = other * COLS + column
        k = _vectors(K, at, k_n, n, D_K, EVEN)
        scores = tl.dot(q, tl.trans(k)) * scale
        scores = _seen(scores, ref, BITS, query[:, None], column[None, :], ROWS)
        if PADDED:
            scores = tl.where(at[None, :] < length, scores, float("-inf"))
        highest = tl.maximum(most, tl.max(scores, 1))
        safe = tl.where(highest == float("-inf"), 0.0, highest)  # nothing seen so far
        weights = tl.exp2(scores - safe[:, None])
        fade = tl.exp2(most - safe)
        total = total * fade + tl.sum(weights, 1)
        v = _vectors(V, at, v_n, n, D_V, EVEN)
        out = tl.dot(weights.to(v.dtype), v, out * fade[:, None])
        most = highest
        other, ref = _next(ids, refs, m + 1, count, 1)
    if edge:
        part = (both * splits + split) * (EDGE * ROWS) + position
        tl.store(PART + part[:, None] * D_V + tl.arange(0, D_V)[None, :], out)
        tl.store(MOST + part, most)
        tl.store(SUM + part, total)
    else:
        out = out / tl.where(total == 0.0, 1.0, total)[:, None]
        lse = tl.where((total == 0.0) | (position >= length), float("inf"), most + tl.log2(total))
        _put(OUT + b * o_b + h * o_h, position, o_n, n, tl.where(position[:, None] < length, out, 0.0), D_V)
        tl.store(LSE + both * _padded(n, ROWS) + position, lse)


@kernel
def merge_splits_kernel(
    OUT, LSE, PART, MOST, SUM, LENGTHS, o_b, o_h, o_n, heads, n, splits,
    ROWS: tl.constexpr, D_V: tl.constexpr, EDGE: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    """The splits of the edge's queries, each weighed by its sum of exponentials."""
    both = tl.program_id(1).to(tl.int64)
    b, h = both // heads, both % heads
    position = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    length = tl.load(LENGTHS + b) if PADDED else n
    most = tl.full([ROWS], float("-inf"), tl.float32)
    for split in range(splits):
        most = tl.maximum(most, tl.load(MOST + (both * splits + split) * (EDGE * ROWS) + position))
    safe = tl.where(most == float("-inf"), 0.0, most)
    total = tl.zeros([ROWS], tl.float32)
    out = tl.zeros([ROWS, D_V], tl.float32)
    for split in range(splits):
        part = (both * splits + split) * (EDGE * ROWS) + position
        share = tl.exp2(tl.load(MOST + part) - safe)
        total += share * tl.load(SUM + part)
        out += share[:, None] * tl.load(PART + part[:, None] * D_V + tl.arange(0, D_V)[None, :])
    out = out / tl.where(total == 0.0, 1.0, total)[:, None]
    lse = tl.where((total == 0.0) | (position >= length), float("inf"), most + tl.log2(total))
    _put(OUT + b * o_b + h * o_h, position, o_n, n, tl.where(position[:, None] < length, out, 0.0), D_V)
    tl.store(LSE + both * _padded(n, ROWS) + position, lse)


@kernel
def d_queries_kernel(
    Q, K, V, OUT, D_OUT, LSE, DELTA, D_Q, PART, IDS, REFS, COUNTS, EVERY, TOP, BITS, LENGTHS,
    q_b, q_h, q_n, k_b, k_h, k_n, v_b, v_h, v_n, o_b, o_h, o_n, g_b, g_h, g_n, dq_b, dq_h, dq_n, list_b, list_h,
    heads, n, tiles, width, splits, scale, factor,
    ROWS: tl.constexpr, COLS: tl.constexpr, D_K: tl.constexpr, D_V: tl.constexpr,
    EDGE: tl.constexpr, STRIDE: tl.constexpr, EVEN: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    """The gradient of the queries, and a sum of each that the next kernel needs: DELTA = Σ out · d_out."""
    edge, tile, split = _owned(splits, EDGE)
    both = tl.program_id(1).to(tl.int64)
    b, h = both // heads, both % heads
    query, column = tl.arange(0, ROWS), tl.arange(0, COLS)
    position = tile * ROWS + query
    length = tl.load(LENGTHS + b) if PADDED else n
    lists = b * list_b + h * list_h
    ids, refs, count = _listed(
        edge, tile, split, lists, length, n, tiles, width, IDS, REFS, COUNTS, EVERY, TOP, ROWS, EDGE, STRIDE
    )
    K += b * k_b + h * k_h
    V += b * v_b + h * v_h
    q = _vectors(Q + b * q_b + h * q_h, position, q_n, n, D_K, EVEN)
    d_out = _vectors(D_OUT + b * g_b + h * g_h, position, g_n, n, D_V, EVEN)
    out = _vectors(OUT + b * o_b + h * o_h, position, o_n, n, D_V, EVEN)
    delta = tl.sum(out.to(tl.float32) * d_out.to(tl.float32), 1)
    tl.store(DELTA + both * _padded(n, ROWS) + position, delta)
    lse = tl.load(LSE + both * _padded(n, ROWS) + position)
    d_q = tl.zeros([ROWS, D_K], tl.float32)
    other, ref = _next(ids, refs, 0, count, 1)
    for m in range(count):
        at = other * COLS + column
        k = _vectors(K, at, k_n, n, D_K, EVEN)
        v = _vectors(V, at, v_n, n, D_V, EVEN)
        scores = tl.dot(q, tl.trans(k)) * scale
        scores = _seen(scores, ref, BITS, query[:, None], column[None, :], ROWS)
        if PADDED:
            scores = tl.where(at[None, :] < length, scores, float("-inf"))
        weights = tl.exp2(scores - lse[:, None])
        d_weights = tl.dot(d_out, tl.trans(v))
        d_scores = weights * (d_weights - delta[:, None])
        d_q = tl.dot(d_scores.to(k.dtype), k, d_q)
        other, ref = _next(ids, refs, m + 1, count, 1)
    d_q *= factor
    if edge:
        part = (both * splits + split) * (EDGE * ROWS) + position
        tl.store(PART + part[:, None] * D_K + tl.arange(0, D_K)[None, :], d_q)
    else:
        _put(D_Q + b * dq_b + h * dq_h, position, dq_n, n, d_q, D_K)


@kernel
def d_keys_values_kernel(
    Q, K, V, D_OUT, LSE, DELTA, TO_K, TO_V, PART_K, PART_V, REFS, STARTS, QUERY_IDS, QUERY_REFS, EVERY, BITS, LENGTHS,
    q_b, q_h, q_n, k_b, k_h, k_n, v_b, v_h, v_n, g_b, g_h, g_n, dk_b, dk_h, dk_n, dv_b, dv_h, dv_n, list_b, list_h,
    heads, n, tiles, width, splits, scale, factor,
    ROWS: tl.constexpr, SOME: tl.constexpr, COLS: tl.constexpr, D_K: tl.constexpr, D_V: tl.constexpr,
    EDGE: tl.constexpr, STRIDE: tl.constexpr,
    EVEN: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    """The gradients of keys and values, from the tiles of queries that meet them, SOME of a tile's at a time."""
    edge, tile, split = _owned(splits, EDGE)
    both = tl.program_id(1).to(tl.int64)
    b, h = both // heads, both % heads
    column = tl.arange(0, COLS)
    at = tile * COLS + column
    length = tl.load(LENGTHS + b) if PADDED else n
    lists = b * list_b + h * list_h
    first, last = tl.load(STARTS + lists * tiles + tile), tl.load(STARTS + lists * tiles + tile + 1)
    query_ids, refs, step = QUERY_IDS, QUERY_REFS, tl.where(edge, width, 1)
    if edge:  # all tiles of queries meet it, and list it in the same column
        first = split * STRIDE
        last = tl.minimum(first + STRIDE, tl.cdiv(n, ROWS))
        query_ids, refs = EVERY, REFS + lists * tl.cdiv(n, ROWS) * width + tile
    last = tl.where(tile * COLS < length, last, first)
    Q += b * q_b + h * q_h
    D_OUT += b * g_b + h * g_h
    LSE += both * _padded(n, ROWS)
    DELTA += both * _padded(n, ROWS)
    k = _vectors(K + b * k_b + h * k_h, at, k_n, n, D_K, EVEN)
    v = _vectors(V + b * v_b + h * v_h, at, v_n, n, D_V, EVEN)
    d_k = tl.zeros([COLS, D_K], tl.float32)
    d_v = tl.zeros([COLS, D_V], tl.float32)
    other, ref = _next(query_ids, refs, first, last, step)
    for each in range(first * (ROWS // SOME), last * (ROWS // SOME)):
        query = each % (ROWS // SOME) * SOME + tl.arange(0, SOME)
        position = other * ROWS + query
        q = _vectors(Q, position, q_n, n, D_K, EVEN)
        d_out = _vectors(D_OUT, position, g_n, n, D_V, EVEN)
        scores = tl.dot(k, tl.trans(q)) * scale  # [COLS, SOME]
        scores = _seen(scores, ref, BITS, query[None, :], column[:, None], ROWS)
        weights = tl.exp2(scores - tl.load(LSE + position)[None, :])
        d_v = tl.dot(weights.to(d_out.dtype), d_out, d_v)
        d_weights = tl.dot(v, tl.trans(d_out))
        d_scores = weights * (d_weights - tl.load(DELTA + position)[None, :])
        d_k = tl.dot(d_scores.to(q.dtype), q, d_k)
        other, ref = _next(query_ids, refs, (each + 1) // (ROWS // SOME), last, step)
    d_k = tl.where(at[:, None] < length, d_k * factor, 0.0)
    d_v = tl.where(at[:, None] < length, d_v, 0.0)
    if edge:
        part = (both * splits + split) * (EDGE * COLS) + at
        tl.store(PART_K + part[:, None] * D_K + tl.arange(0, D_K)[None, :], d_k)
        tl.store(PART_V + part[:, None] * D_V + tl.arange(0, D_V)[None, :], d_v)
    else:
        _put(TO_K + b * dk_b + h * dk_h, at, dk_n, n, d_k, D_K)
        _put(TO_V + b * dv_b + h * dv_h, at, dv_n, n, d_v, D_V)
