"""From a model with `start` and `step` to sequences: greedy, beam, sampling. Knows no kind of model and no text."""

from regard.decoding.beam import length_penalty
from regard.decoding.config import Beam, DecodingConfig, Greedy, Sample
from regard.decoding.contract import Generator, Hypothesis, Symbols
from regard.decoding.engine import Engine, RequestQueue
from regard.decoding.ensemble import Ensemble
from regard.decoding.sampling import TokenSampler, greedy_token
from regard.decoding.token_stream import TokenStream

__all__ = [
    "Beam",
    "DecodingConfig",
    "Engine",
    "Ensemble",
    "Generator",
    "Greedy",
    "Hypothesis",
    "RequestQueue",
    "Sample",
    "Symbols",
    "TokenSampler",
    "TokenStream",
    "greedy_token",
    "length_penalty",
]
