"""Callbacks by which long work reports progress and warnings to its caller; and what no caller asks for, on stderr."""

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from regard.language import localise

Progress = Callable[[str, int, int], None]  # (what is done, how much, of how much; 0: unknown)
Warn = Callable[[str], None]  # a sentence
Json = dict[str, Any]  # an object of JSON or YAML, such as a report


@cache
def say_once(sentence: str) -> None:
    """On stderr, once in a process."""
    print(f"regard: {localise(sentence)}", file=sys.stderr)
