"""How long work tells its caller where it stands and what it noticed: two kinds of functions that are passed down."""

from collections.abc import Callable
from typing import Any

Progress = Callable[[str, int, int], None]  # (what is done, how much, of how much; 0: nobody knows)
Warn = Callable[[str], None]  # a sentence
Json = dict[str, Any]  # an object of JSON or YAML, such as a report
