# mypy: ignore-errors
"""Triton kernels of norm(x + dropout(y)): each reads its inputs once and writes its outputs once."""

import triton
import triton.language as tl

from regard.nn.noise import kept

kernel = triton.jit(do_not_specialize=["salt", "n", "span"])


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
def forward_kernel(
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
def backward_kernel(
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
