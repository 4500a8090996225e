# mypy: ignore-errors
"""A Triton kernel that sums the columns of a gradient while it goes through max(0, …) backwards."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["n"])
def columns_kernel(CHANGE, OUT, KEPT, PARTS, n, width, ROWS: tl.constexpr, WIDE: tl.constexpr, RECTIFIED: tl.constexpr):
    """Programs share the rows by turns; each leaves its sum of 64 columns in PARTS."""
    column = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    total = tl.zeros([ROWS, WIDE], tl.float32)
    for start in range(tl.program_id(1) * ROWS, n, tl.num_programs(1) * ROWS):
        row = start + tl.arange(0, ROWS)
        at = row.to(tl.int64)[:, None] * width + column[None, :]
        inside = (row < n)[:, None] & (column < width)[None, :]
        change = tl.load(CHANGE + at, mask=inside, other=0.0)
        if RECTIFIED:
            change = tl.where(tl.load(OUT + at, mask=inside, other=0.0) > 0, change, 0.0).to(change.dtype)
            tl.store(KEPT + at, change, mask=inside)
        total += change.to(tl.float32)
    tl.store(PARTS + tl.program_id(1) * width + column, tl.sum(total, 0), mask=column < width)
