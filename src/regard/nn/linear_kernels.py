# mypy: ignore-errors
"""A Triton kernel that sums the columns of a gradient while it takes it backwards through an activation."""

import triton
import triton.language as tl

HALF_ROOT = tl.constexpr(0.7071067811865476)  # √½
DENSITY = tl.constexpr(0.3989422804014327)  # 1/√(2π)
STRETCH = tl.constexpr(0.7978845608028654)  # √(2/π)
CUBIC = tl.constexpr(0.044715)


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
