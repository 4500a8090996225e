"""Kernels that compute an attention faster than the plain function does, and which choices each can serve.

They give the plain function's numbers at every real place; what a padded query receives is nobody's business.
"""

from regard.nn.backend.blocks import blocks
from regard.nn.backend.choose import choose
from regard.nn.backend.sdpa import sdpa

__all__ = ["blocks", "choose", "sdpa"]
