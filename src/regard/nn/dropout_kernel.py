# mypy: ignore-errors
"""A Triton kernel of x + dropout(y): what is dropped is drawn again for the gradient, not kept."""

import triton
import triton.language as tl

from regard.nn.noise import kept


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
