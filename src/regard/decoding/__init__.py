"""From a model with `start` and `step` to sequences: greedy, beam, sampling. Knows no kind of model and no text."""

from regard.decoding.beam import penalty
from regard.decoding.config import Beam, DecodingConfig, Greedy, Sample
from regard.decoding.contract import Generator, Hypothesis, Symbols
from regard.decoding.engine import Engine, Feed
from regard.decoding.ensemble import Ensemble
from regard.decoding.logits_processors import Drawn, likeliest
from regard.decoding.stream import Stream

__all__ = [
    "Beam",
    "DecodingConfig",
    "Drawn",
    "Engine",
    "Ensemble",
    "Feed",
    "Generator",
    "Greedy",
    "Hypothesis",
    "Sample",
    "Stream",
    "Symbols",
    "likeliest",
    "penalty",
]
