"""Attention masks by name, written as expressions such as `window(256) | global(2)`.

Adding one is its class and its line in PATTERNS.
"""

from regard.nn.pattern.expression import parse_pattern
from regard.nn.pattern.local import LocalM, LocalP
from regard.nn.pattern.masks import And, Blocks, Causal, DenseMask, Document, Full, Or, Padding, Pattern
from regard.nn.pattern.sparse import BigBird, Global, Random, SlidingWindow

PATTERNS: dict[str, type[Pattern]] = {
    "full": Full,
    "causal": Causal,
    "window": SlidingWindow,
    "global": Global,
    "random": Random,
    "bigbird": BigBird,
    "local_m": LocalM,
    "local_p": LocalP,
}

__all__ = [
    "PATTERNS",
    "And",
    "Blocks",
    "Causal",
    "DenseMask",
    "Document",
    "Full",
    "Or",
    "Padding",
    "Pattern",
    "parse_pattern",
]
