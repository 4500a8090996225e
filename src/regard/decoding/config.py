"""Config of the searches."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from regard.config import Choice, at_least, below_one, choice, option

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class DecodingConfig(Choice, slot="decoding"):
    """The limits of an output's length, which every search has."""

    max_ratio: float = option(2.0, "an output has at most max_ratio · source length + max_extra tokens")
    max_extra: int = option(20, "see max_ratio")

    def __post_init__(self) -> None:
        if not 0 <= self.max_ratio < 1e6 or self.max_extra < 0:
            raise ValueError("max_ratio and max_extra must be 0 or more, and finite")

    def build_search(self, spec: Any, batch_size: int, longest: int, device: "torch.device") -> Any:
        """A `Search` of its own for what `spec` asks (`decoding/engine.py`); None for the searches that are ours."""
        return None

    def limit(self, source_length: int) -> int:
        return max(1, int(self.max_ratio * source_length) + self.max_extra)


@choice("greedy")
class Greedy(DecodingConfig):
    """The most likely token at each step."""


@choice("beam")
class Beam(DecodingConfig):
    """The `size` best hypotheses at each step; ends when `size` of them have ended."""

    size: int = option(5, "how many hypotheses are kept")
    length_penalty: float = option(1.0, "α; 0: none, larger favours longer output")
    penalty: Literal["power", "gnmt"] = option("power", "log p / nᵅ, or Wu 2016's log p / ((5+n)/6)ᵅ")

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "size")


@choice("sample")
class Sample(DecodingConfig):
    """Tokens sampled by their probability."""

    temperature: float = option(1.0, "below 1 sharpens, above 1 flattens")
    top_k: int = option(0, "draw from the k likeliest only; 0: from all")
    top_p: float = option(1.0, "draw from the likeliest that together have this probability")
    min_p: float = option(0.0, "draw from those with this share of the likeliest's probability")
    repetition_penalty: float = option(
        1.0, "above 1, words of the output so far, or of a language model's prompt, are less likely"
    )
    seed: int = option(1, "the same seed draws the same words, whatever else is in the batch")

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 0, "seed", "top_k")
        below_one(self, "min_p")
        if not 0 < self.temperature < 1e6:
            raise ValueError(
                f"temperature must be above 0, and less than a million, not {self.temperature}; "
                "the likeliest: kind: greedy"
            )
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], not {self.top_p}")
        if not 0 < self.repetition_penalty < 1e6:
            raise ValueError(
                f"repetition_penalty must be above 0, and less than a million, not {self.repetition_penalty}"
            )
