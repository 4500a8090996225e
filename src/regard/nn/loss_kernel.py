# mypy: ignore-errors
"""A Triton kernel of cross-entropy with label smoothing: a program reads a row of scores and leaves its gradient.

It goes through the row three times, for the largest score, for the sum of exponentials and to write: after the first
time the row lies in the cache, and few operations a score count for more than the reads.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


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
