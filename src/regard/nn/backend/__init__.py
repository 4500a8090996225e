"""Backends that compute an attention faster than the plain function does, and which choices each can serve.

They give the plain function's numbers at every real position; the output at padded queries is undefined.
"""

from regard.nn.backend.blocks import BLOCKS
from regard.nn.backend.contract import AttentionInputs, Backend
from regard.nn.backend.sdpa import SDPA

__all__ = ["BLOCKS", "SDPA", "AttentionInputs", "Backend"]
