"""Callbacks by which long work reports progress and warnings to its caller."""

from collections.abc import Callable
from typing import Any

Progress = Callable[[str, int, int], None]  # (what is done, how much, of how much; 0: unknown)
Warn = Callable[[str], None]  # a sentence
Json = dict[str, Any]  # an object of JSON or YAML, such as a report
