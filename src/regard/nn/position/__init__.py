"""Position encodings: how does order enter? One file a choice; a new one is a file that is imported here.

One from its first line to its test: CONTRIBUTING.md, "Adding a choice".
"""

from regard.nn.position.alibi import AlibiConfig
from regard.nn.position.contract import Bias, Position, PositionConfig
from regard.nn.position.counting import CountingConfig, NormalisedCountingConfig
from regard.nn.position.learned import LearnedConfig, LearnedPerLayerConfig
from regard.nn.position.none import NoPositionConfig
from regard.nn.position.relative import RelativeConfig
from regard.nn.position.rotary import RotaryConfig
from regard.nn.position.sinusoidal import SinusoidalConfig, sinusoids
from regard.nn.position.structural import StructuralConfig
from regard.nn.position.t5 import T5Config
from regard.nn.position.transformer_xl import TransformerXLConfig

__all__ = [
    "AlibiConfig",
    "Bias",
    "CountingConfig",
    "LearnedConfig",
    "LearnedPerLayerConfig",
    "NoPositionConfig",
    "NormalisedCountingConfig",
    "Position",
    "PositionConfig",
    "RelativeConfig",
    "RotaryConfig",
    "SinusoidalConfig",
    "StructuralConfig",
    "T5Config",
    "TransformerXLConfig",
    "sinusoids",
]
