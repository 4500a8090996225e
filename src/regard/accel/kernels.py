# mypy: ignore-errors
"""Triton kernels of what stands between the products: each reads its inputs once and writes its outputs once.

Dropout inside a kernel: whether an element is kept follows from seeds and its index, so nothing is stored. Of the two
seeds `salt` tells calls apart and is a number of the launch; SEED tells steps apart and lies on the device, so that a
captured launch can be replayed with other random numbers.
"""

import triton
import triton.language as tl

HALF_ROOT = tl.constexpr(0.7071067811865476)  # √½
DENSITY = tl.constexpr(0.3989422804014327)  # 1/√(2π)
STRETCH = tl.constexpr(0.7978845608028654)  # √(2/π)
CUBIC = tl.constexpr(0.044715)
LOG2E = tl.constexpr(1.4426950408889634)
kernel = triton.jit(do_not_specialize=["salt", "n", "span"])


# --- dropout ---------------------------------------------------------------------------------------------------------


@triton.jit
def kept(SEED, salt, index, dropout):
    """False with probability `dropout`. A 32-bit mixing function of index and seeds, its top 24 bits as a fraction."""
    seed = (tl.load(SEED) ^ salt).to(tl.uint32)
    x = index.to(tl.uint32) + seed * 0x9E3779B9
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    x = x ^ (x >> 16)
    return (x >> 8).to(tl.float32) * (1.0 / (1 << 24)) >= dropout


@triton.jit(do_not_specialize=["n", "blocks", "salt"])
def drop_kernel(
    X, Y, OUT, n, blocks, SEED, dropout, salt,
    D: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr, ADDS: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    """Rows have n places, and a program takes some features of some places of one; where SHARED, they draw once."""
    row, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    within, column = block * ROWS + tl.arange(0, ROWS), tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    place = row * n + within
    at = place.to(tl.int64)[:, None] * D + column[None, :]
    inside = (within < n)[:, None] & (column < D)[None, :]
    draw = (row * D + column)[None, :] if SHARED else place[:, None] * D + column[None, :]
    factor = tl.where(kept(SEED, salt, draw, dropout), 1 / (1 - dropout), 0.0)
    out = tl.load(Y + at, mask=inside, other=0.0).to(tl.float32) * factor
    if ADDS:
        out += tl.load(X + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(OUT + at, out.to(OUT.dtype.element_ty), mask=inside)


# --- norm(x + dropout(y)) --------------------------------------------------------------------------------------------


@triton.jit
def _sum(X, Y, row, real, column, SEED, dropout, salt, span, D: tl.constexpr, ADDS: tl.constexpr, DROPS: tl.constexpr):
    """x + dropout(y) of some rows, and what y was multiplied with; where there is no y, x alone."""
    at = row.to(tl.int64)[:, None] * D + column[None, :]
    inside = real[:, None] & (column < D)[None, :]
    x = tl.load(X + at, mask=inside, other=0.0).to(tl.float32)
    factor = 1.0
    if ADDS:
        if DROPS:
            draw = (row // span)[:, None] * D + column[None, :]
            factor = tl.where(kept(SEED, salt, draw, dropout), 1 / (1 - dropout), 0.0)
        x += tl.load(Y + at, mask=inside, other=0.0).to(tl.float32) * factor
    return x, factor, at, inside


@kernel
def norm_forward_kernel(
    X, Y, WEIGHT, BIAS, OUT, MEAN, SCALE, n, epsilon, SEED, dropout, salt, span,
    D: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, ADDS: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDE)
    x, _, at, inside = _sum(X, Y, row, row < n, column, SEED, dropout, salt, span, D, ADDS, DROPS)
    mean = tl.sum(x, 1) / D
    centred = tl.where(inside, x - mean[:, None], 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 1) / D + epsilon)
    weight = tl.load(WEIGHT + column, mask=column < D, other=0.0).to(tl.float32)
    bias = tl.load(BIAS + column, mask=column < D, other=0.0).to(tl.float32)
    out = centred * scale[:, None] * weight[None, :] + bias[None, :]
    tl.store(OUT + at, out.to(OUT.dtype.element_ty), mask=inside)
    tl.store(MEAN + row, mean, mask=row < n)
    tl.store(SCALE + row, scale, mask=row < n)


@kernel
def norm_backward_kernel(
    X, Y, WEIGHT, MEAN, SCALE, D_OUT, D_PASSED, D_X, D_Y, PARTS, n, SEED, dropout, salt, span,
    D: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr,
    ADDS: tl.constexpr, DROPS: tl.constexpr, APART: tl.constexpr, PASSES: tl.constexpr,
):  # fmt: skip
    """Rows by turns, so that each program sums its own part of the weight's and the bias's gradients."""
    column = tl.arange(0, WIDE)
    weight = tl.load(WEIGHT + column, mask=column < D, other=0.0).to(tl.float32)
    d_weight, d_bias = tl.zeros([WIDE], tl.float32), tl.zeros([WIDE], tl.float32)
    for start in range(tl.program_id(0) * ROWS, n, tl.num_programs(0) * ROWS):
        row = start + tl.arange(0, ROWS)
        x, factor, at, inside = _sum(X, Y, row, row < n, column, SEED, dropout, salt, span, D, ADDS, DROPS)
        mean = tl.load(MEAN + row, mask=row < n, other=0.0)
        scale = tl.load(SCALE + row, mask=row < n, other=0.0)
        normal = tl.where(inside, (x - mean[:, None]) * scale[:, None], 0.0)
        d_out = tl.load(D_OUT + at, mask=inside, other=0.0).to(tl.float32)
        d_weight += tl.sum(d_out * normal, 0)
        d_bias += tl.sum(d_out, 0)
        d_normal = d_out * weight[None, :]
        along, level = tl.sum(d_normal * normal, 1) / D, tl.sum(d_normal, 1) / D
        d_x = (d_normal - normal * along[:, None] - level[:, None]) * scale[:, None]
        if PASSES:  # x went on beside the norm, too
            d_x += tl.load(D_PASSED + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(D_X + at, d_x.to(D_X.dtype.element_ty), mask=inside)
        if APART:
            tl.store(D_Y + at, (d_x * factor).to(D_Y.dtype.element_ty), mask=inside)
    parts = PARTS + tl.program_id(0) * 2 * D + column
    tl.store(parts, d_weight, mask=column < D)
    tl.store(parts + D, d_bias, mask=column < D)


# --- the gradient of f(x Wᵀ + b) -------------------------------------------------------------------------------------


@triton.jit
def _slope(x, KIND: tl.constexpr):
    """f'(x); of max(0, x), x may also be its result."""
    if KIND == "relu":
        slope = tl.where(x > 0, 1.0, 0.0)
    elif KIND == "gelu":  # x Φ(x)
        slope = 0.5 * (1 + tl.erf(x * HALF_ROOT)) + x * DENSITY * tl.exp(-0.5 * x * x)
    else:  # ½ x (1 + tanh(√(2/π) (x + 0.044715 x³)))
        inner = STRETCH * (x + CUBIC * x * x * x)
        bent = 1 - 2 / (1 + tl.exp(2 * inner))
        slope = 0.5 * (1 + bent) + 0.5 * x * (1 - bent * bent) * STRETCH * (1 + 3 * CUBIC * x * x)
    return slope


@triton.jit(do_not_specialize=["n"])
def columns_kernel(CHANGE, KEPT, OUT, PARTS, n, width, ROWS: tl.constexpr, WIDE: tl.constexpr, KIND: tl.constexpr):
    """Programs share the rows by turns; each leaves its sum of some columns in PARTS."""
    column = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    total = tl.zeros([ROWS, WIDE], tl.float32)
    for start in range(tl.program_id(1) * ROWS, n, tl.num_programs(1) * ROWS):
        row = start + tl.arange(0, ROWS)
        at = row.to(tl.int64)[:, None] * width + column[None, :]
        inside = (row < n)[:, None] & (column < width)[None, :]
        change = tl.load(CHANGE + at, mask=inside, other=0.0).to(tl.float32)
        if KIND != "none":
            change *= _slope(tl.load(KEPT + at, mask=inside, other=0.0).to(tl.float32), KIND)
            tl.store(OUT + at, change.to(OUT.dtype.element_ty), mask=inside)
        total += change
    tl.store(PARTS + tl.program_id(1) * width + column, tl.sum(total, 0), mask=column < width)


# --- cross-entropy: three passes over a row, of which two find it in the cache ---------------------------------------


@triton.jit
def _block(ROW, start, entries, column):
    return tl.load(ROW + start + column, mask=start + column < entries, other=float("-inf")).to(tl.float32)


@triton.jit
def compare_kernel(SCORES, LABELS, LOSS, width, entries, smoothing, BLOCK: tl.constexpr):
    """Loss of one row; its scores become p_v − (1 − ε)[v = label] − ε/V. A label below zero counts for nothing.

    Rows have room for `width` scores, of which those past the entries are nobody's: their gradient is zero.
    """
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    ROW = SCORES + row * width
    label = tl.load(LABELS + row)
    if label < 0:
        for start in range(0, width, BLOCK):
            tl.store(ROW + start + column, tl.zeros([BLOCK], ROW.dtype.element_ty), mask=start + column < width)
        tl.store(LOSS + row, 0.0)
    else:
        picked = tl.load(ROW + label).to(tl.float32)
        most = tl.full([BLOCK], float("-inf"), tl.float32)
        level = tl.zeros([BLOCK], tl.float32)
        for start in range(0, entries, BLOCK):
            scores = _block(ROW, start, entries, column)
            most = tl.maximum(most, scores)
            level += tl.where(start + column < entries, scores, 0.0)
        top = tl.max(most)
        total = tl.zeros([BLOCK], tl.float32)
        for start in range(0, entries, BLOCK):
            total += tl.exp2((_block(ROW, start, entries, column) - top) * LOG2E)
        whole = top + tl.log(tl.sum(total))
        tl.store(LOSS + row, whole - (1 - smoothing) * picked - smoothing * tl.sum(level) / entries)
        for start in range(0, width, BLOCK):
            change = tl.exp2((_block(ROW, start, entries, column) - whole) * LOG2E) - smoothing / entries
            change = tl.where(start + column < entries, change, 0.0)
            tl.store(ROW + start + column, change.to(ROW.dtype.element_ty), mask=start + column < width)
        tl.debug_barrier()  # the label's own comes last
        own = tl.exp2((picked - whole) * LOG2E) - smoothing / entries - (1 - smoothing)
        tl.store(ROW + label, own.to(ROW.dtype.element_ty))


# --- rotary positions ------------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["n"])
def rotate_kernel(
    X, WAVES, OUT, n, of_row, of_head, of_place, of_wave,
    HEADS: tl.constexpr, HALF: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr,
    NEXT: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """Some places of one row, all heads. X may be any view; OUT lies as [B, N, H, d]. BACK turns the other way.

    The two of a pair stand NEXT apart; in WAVES, the sines of a place come first, then its cosines.
    """
    row, place = tl.program_id(0).to(tl.int64), tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    pair = tl.arange(0, WIDE)
    head, n_th = pair // HALF, pair % HALF
    first = n_th * 2 if NEXT == 1 else n_th
    inside = (place < n)[:, None] & (pair < HEADS * HALF)[None, :]
    wave = WAVES + row * of_wave + place[:, None] * (2 * HALF) + n_th[None, :]
    sin = tl.load(wave, mask=inside, other=0.0)
    cos = tl.load(wave + HALF, mask=inside, other=0.0)
    if BACK:
        sin = -sin
    given = X + row * of_row + place[:, None] * of_place + (head * of_head + first)[None, :]
    a = tl.load(given, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(given + NEXT, mask=inside, other=0.0).to(tl.float32)
    out = OUT + (row * n + place[:, None]) * (2 * HEADS * HALF) + (head * 2 * HALF + first)[None, :]
    tl.store(out, (a * cos - b * sin).to(OUT.dtype.element_ty), mask=inside)
    tl.store(out + NEXT, (a * sin + b * cos).to(OUT.dtype.element_ty), mask=inside)
