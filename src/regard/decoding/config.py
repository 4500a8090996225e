"""Config of the searches."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regard.config import Choice, at_least, below_one, choice, nearest, option

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class DecodingConfig(Choice, slot="decoding"):
    """The limits of an output's length, which every search has."""

    max_ratio: float = option(2.0, "an output has at most max_ratio · source length + max_extra tokens")
    max_extra: int = option(20, "see max_ratio")

    parallel: ClassVar[bool] = False  # whether a step may give several tokens

    def __post_init__(self) -> None:
        if not 0 <= self.max_ratio < 1e6 or self.max_extra < 0:
            raise ValueError("max_ratio and max_extra must be 0 or more, and finite")

    @property
    def samples(self) -> bool:
        """Whether tokens are drawn at random."""
        return False

    def check_model(self, model: Any) -> None:
        """Raise ValueError where a model of this config cannot be searched so."""

    def token_by_token(self) -> "DecodingConfig":
        """The search that gives the same, a token at each step."""
        return self

    def build_search(self, spec: Any, batch_size: int, longest: int, device: "torch.device") -> Any:
        """A `Search` of its own for what `spec` asks (`decoding/requests.py`); None for the searches that are ours."""
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
        if not 0 < self.temperature < 1e6 and not (self.parallel and self.temperature == 0):
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

    @property
    def samples(self) -> bool:
        return self.temperature > 0


# --- several tokens at a step --------------------------------------------------------------------------------------

LARGEST = 64  # guesses at a step
NO_SHAPE: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}  # change nothing


@choice("speculative", paper="Leviathan 2023; Chen 2023")
class Speculative(Sample):
    """What another search gives, in fewer steps: a draft guesses tokens, and the model checks them all at once.

    At a temperature of 0 the words are those of greedy search; else they are drawn as by `sample`, from the same
    distribution.
    """

    parallel: ClassVar[bool] = True

    temperature: float = option(0.0, "0: the likeliest token; else as in sampling")
    draft: str = option(
        "ngrams", "what guesses: ngrams of input and output, layers(n) of the model, or the folder of another run"
    )
    tokens: int = option(4, "how many tokens are guessed at a step")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.tokens <= LARGEST:
            raise ValueError(f"tokens must be from 1 to {LARGEST}, not {self.tokens}")
        if not self.draft.strip():
            raise ValueError("draft is empty; write ngrams, layers(2) or the folder of another run")
        if self.draft_layers is not None and self.draft_layers < 1:
            raise ValueError(f"draft must have at least one layer, not {self.draft}")
        for name, none in NO_SHAPE.items():
            if not self.samples and vars(self)[name] != none:
                raise ValueError(
                    f"{name} is about drawing tokens, and at a temperature of 0 the likeliest is taken; give a "
                    f"temperature, or leave out {name}"
                )

    @property
    def guesser(self) -> tuple[object, ...]:
        """What guesses, apart from how tokens are then chosen."""
        return self.kind, self.draft, self.tokens

    @property
    def draft_run(self) -> bool:
        """Whether the draft is another run."""
        return self.draft != "ngrams" and self.draft_layers is None

    @property
    def draft_layers(self) -> int | None:
        """How many of the model's own layers are the draft; None: something else is."""
        match = re.fullmatch(r"layers\((-?\d+)\)", self.draft.replace(" ", ""))
        return int(match[1]) if match else None

    def check_model(self, model: Any) -> None:
        _check_rolls_back(self, model)
        depth = vars(model).get("decoder_layers") or vars(model).get("layers")
        if self.draft_layers is not None and depth is not None and self.draft_layers >= depth:
            raise ValueError(f"draft is {self.draft}, and the model has {depth} layers; take fewer")

    def token_by_token(self) -> DecodingConfig:
        if not self.samples:
            return Greedy(max_ratio=self.max_ratio, max_extra=self.max_extra)
        return Sample(
            temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, min_p=self.min_p, seed=self.seed,
            repetition_penalty=self.repetition_penalty, max_ratio=self.max_ratio, max_extra=self.max_extra,
        )  # fmt: skip


@choice("blockwise", paper="Stern 2018")
class Blockwise(DecodingConfig):
    """The model's proposal heads guess the tokens after the next one, and the model checks them all at once."""

    parallel: ClassVar[bool] = True

    accept: str = option(
        "exact", "which guesses are kept: exact, the likeliest token; top_k(n), one of the n likeliest; distance(d), "
        "an id no farther than d from the likeliest, where ids are numbers, as of pixels"
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        name, number = self.acceptance
        if name not in ACCEPT:
            raise ValueError(f"accept is {self.accept!r}; {nearest(name, ACCEPT)}")
        if (number is None) != (name == "exact") or (number is not None and number < 1):
            raise ValueError(
                f"accept is {self.accept!r}; write exact, top_k(2) or distance(2), with a number from 1 on"
            )

    @property
    def guesser(self) -> tuple[object, ...]:
        return self.kind, self.accept

    @property
    def acceptance(self) -> tuple[str, int | None]:
        """The rule, and its number."""
        match = re.fullmatch(r"(\w+)\((-?\d+)\)", self.accept.replace(" ", ""))
        return (match[1], int(match[2])) if match else (self.accept, None)

    def check_model(self, model: Any) -> None:
        _check_rolls_back(self, model)
        if model.proposals is None:
            raise ValueError(
                "kind is blockwise, and the model has no proposal heads; add them (model.proposals: 4), to a trained "
                "model by regard tune RUN --proposals 4 --out RUN2"
            )

    def token_by_token(self) -> DecodingConfig:
        return Greedy(max_ratio=self.max_ratio, max_extra=self.max_extra)


ACCEPT = ("exact", "top_k", "distance")


def _check_rolls_back(config: DecodingConfig, model: Any) -> None:
    if not model.rolls_back:
        raise ValueError(
            f"kind is {config.kind}, which takes back what was read, and a model of the kind {model.kind} cannot; "
            "write kind: greedy or sample"
        )
