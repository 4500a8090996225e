"""Attention masks by name, written as expressions such as `window(256) | global(2)`.

A new one is a class under `@choice`, in a file that is imported here.
"""

from regard.config import choices
from regard.nn.pattern.expression import parse_pattern
from regard.nn.pattern.local import LocalM, LocalP
from regard.nn.pattern.masks import And, Blocks, Causal, DenseMask, Document, Full, Or, Padding, Pattern, Retention
from regard.nn.pattern.sparse import BigBird, Global, LocalBlocks, Random, SlidingWindow

PATTERNS: dict[str, type[Pattern]] = choices(Pattern)

__all__ = [
    "PATTERNS",
    "And",
    "BigBird",
    "Blocks",
    "Causal",
    "DenseMask",
    "Document",
    "Full",
    "Global",
    "LocalBlocks",
    "LocalM",
    "LocalP",
    "Or",
    "Padding",
    "Pattern",
    "Random",
    "Retention",
    "SlidingWindow",
    "parse_pattern",
]
