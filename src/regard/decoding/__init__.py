"""From a model with `start` and `step` to sequences: greedy, beam, sampling. Knows no kind of model and no text."""

from regard.decoding.beam import beam_search
from regard.decoding.config import Beam, DecodingConfig, Greedy, Sample
from regard.decoding.contract import Generator, Hypothesis, Symbols
from regard.decoding.shape import Drawn, likeliest
from regard.decoding.single import greedy_search, sample
from regard.decoding.stream import Stream

__all__ = [
    "Beam",
    "DecodingConfig",
    "Drawn",
    "Generator",
    "Greedy",
    "Hypothesis",
    "Sample",
    "Stream",
    "Symbols",
    "beam_search",
    "greedy_search",
    "likeliest",
    "sample",
]
