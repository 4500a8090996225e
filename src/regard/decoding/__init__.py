"""From a model with `start` and `step` to sequences: greedy, beam, sampling. Knows no kind of model and no text."""

from regard.decoding.beam import length_penalty
from regard.decoding.config import Beam, Blockwise, DecodingConfig, Greedy, Sample, Speculative
from regard.decoding.contract import GenerationRequest, Generator, Hypothesis, StreamedToken, Symbols
from regard.decoding.engine import ContinuousBatch, Engine
from regard.decoding.ensemble import Ensemble
from regard.decoding.parallel import Acceptance
from regard.decoding.requests import RequestQueue, SearchSpec

__all__ = [
    "Acceptance",
    "Beam",
    "Blockwise",
    "ContinuousBatch",
    "DecodingConfig",
    "Engine",
    "Ensemble",
    "GenerationRequest",
    "Generator",
    "Greedy",
    "Hypothesis",
    "RequestQueue",
    "Sample",
    "SearchSpec",
    "Speculative",
    "StreamedToken",
    "Symbols",
    "length_penalty",
]
