"""Callbacks by which long work reports progress and warnings to its caller."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # (what is done, how much, of how much; 0: unknown)
Warn = Callable[[str], None]  # a sentence
