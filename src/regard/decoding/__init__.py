"""From a model with `start` and `step` to sequences: greedy, beam, sampling. Knows no kind of model and no text."""

from regard.decoding.beam import beam_search
from regard.decoding.config import Beam, DecodingConfig, Greedy, Sample
from regard.decoding.contract import Generator, Hypothesis, Symbols
from regard.decoding.single import greedy_search, sample

__all__ = [
    "Beam",
    "DecodingConfig",
    "Generator",
    "Greedy",
    "Hypothesis",
    "Sample",
    "Symbols",
    "beam_search",
    "greedy_search",
    "sample",
]
