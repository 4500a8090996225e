"""How does order enter? One file a choice; adding one is its file and its line here."""

from regard.nn.position.contract import Bias, Position
from regard.nn.position.none import NoPositionConfig
from regard.nn.position.sinusoidal import SinusoidalConfig, sinusoids

PositionConfig = NoPositionConfig | SinusoidalConfig

__all__ = ["Bias", "NoPositionConfig", "Position", "PositionConfig", "SinusoidalConfig", "sinusoids"]
