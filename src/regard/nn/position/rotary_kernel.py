# mypy: ignore-errors
"""A Triton kernel that turns pairs of features: queries or keys are read once and written once."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["n"])
def turn_kernel(
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
