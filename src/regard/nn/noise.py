# mypy: ignore-errors
"""Dropout inside a kernel: whether an element is kept follows from seeds and its index, so nothing is stored.

There are two seeds: `salt` tells calls apart and is a number of the launch; SEED tells steps apart and lies on the
device, so that a launch that was recorded can be repeated with other noise.
"""

import triton
import triton.language as tl


@triton.jit
def kept(SEED, salt, index, dropout):
    """False with probability `dropout`. A 32-bit mixing function of index and seeds, its top 24 bits as a fraction."""
    seed = (tl.load(SEED) ^ salt).to(tl.uint32)
    x = index.to(tl.uint32) + seed * 0x9E3779B9
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    x = x ^ (x >> 16)
    return (x >> 8).to(tl.float32) * (1.0 / (1 << 24)) >= dropout
