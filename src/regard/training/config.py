"""The section `training` of a recipe: one option a key, with its help; its slots have files of their own."""

from dataclasses import dataclass
from typing import Literal

from regard.config import at_least, below_one, option
from regard.decoding.config import DecodingConfig, Greedy
from regard.training.callbacks import CallbackConfig
from regard.training.optimiser import AdamWConfig, OptimiserConfig
from regard.training.schedule import NoamSchedule, ScheduleConfig


@dataclass(frozen=True)
class ValidationConfig:
    every: int = option(1000, "steps between validations")
    decode: bool = option(True, "also translate, so that BLEU is known while training; else loss alone")
    decoding: DecodingConfig = option(Greedy, "how, while training; the final measure uses decoding")
    lines: int = option(0, "how many of the validation lines; 0: all")
    patience: int = option(0, "stop after so many validations without a better goal; 0: never")

    def __post_init__(self) -> None:
        at_least(self, 1, "every")
        at_least(self, 0, "lines", "patience")


@dataclass(frozen=True)
class CheckpointConfig:
    every: int = option(1000, "steps between checkpoints; every validation writes one too")
    keep: int = option(5, "how many of the last to keep, besides the best")
    average: int = option(0, "the model is the average of the last so many checkpoints; 0: the best by goal")

    def __post_init__(self) -> None:
        at_least(self, 1, "every", "keep")
        at_least(self, 0, "average")


@dataclass(frozen=True)
class LayerwiseConfig:
    """Learning rates by depth: the head's is the schedule's; every layer below has a smaller one, or is frozen."""

    divide: float = option(2.6, "by how much the rate of a layer is smaller than that of the one above")
    unfreeze: int = option(0, "steps after which the next layer down begins to learn; 0: all learn from the first on")

    def __post_init__(self) -> None:
        if not 1 <= self.divide < float("inf"):
            raise ValueError(f"divide must be at least 1, and finite, not {self.divide}")
        at_least(self, 0, "unfreeze")

    def rate_factor(self, depth: int, step: int) -> float:
        """The factor on the schedule's rate, at a step counted from 1; 0 where layers are frozen."""
        return 0.0 if self.unfreeze and step <= depth * self.unfreeze else self.divide**-depth


@dataclass(frozen=True)
class TrainingConfig:
    steps: int = option(100_000, "optimiser steps")
    tokens_per_batch: int = option(4096, "padded target tokens of a micro-batch")
    accumulate: int = option(1, "micro-batches an optimiser step takes")
    optimiser: OptimiserConfig = option(AdamWConfig, "the optimiser")
    schedule: ScheduleConfig = option(NoamSchedule, "the learning rate over the steps")
    layerwise: LayerwiseConfig | None = option(None, "smaller rates for lower layers, and when they are unfrozen")
    label_smoothing: float = option(0.1, "ε: the right word is given the probability 1 − ε + ε/V, others ε/V")
    ema: float = option(0.0, "decay of the weights' moving average (EMA), which is measured and the result; 0: none")
    clip: float = option(0.0, "largest norm of the gradient; 0: no clipping")
    precision: Literal["float32", "bf16"] = option("float32", "of matrix products; weights stay float32")
    goal: str = option("bleu", "validation metric that decides what is best; other tasks have others by default")
    validation: ValidationConfig = option(ValidationConfig, "measuring while training")
    checkpoints: CheckpointConfig = option(CheckpointConfig, "what is kept of the run")
    callbacks: list[CallbackConfig] = option([], "what happens beside it, such as sending its numbers to a tracker")
    log_every: int = option(50, "steps between lines of the log")
    parallel: Literal["ddp", "fsdp"] = option(
        "ddp", "under torchrun: a copy of the model in each process, or each a part of it"
    )
    init: str | None = option(None, "a trained run to continue from, on new data")
    fast: bool = option(True, "on a GPU: no padding, fused kernels, CUDA graphs; false: torch's own operations")
    deterministic: bool = option(False, "bit-exact on a GPU too, slower; a CPU always is")

    def __post_init__(self) -> None:
        at_least(self, 1, "steps", "tokens_per_batch", "accumulate", "log_every")
        if not 0 <= self.clip < float("inf"):
            raise ValueError(f"clip must be 0 or more, and finite, not {self.clip}")
        below_one(self, "label_smoothing", "ema")
        if self.parallel == "fsdp" and not self.optimiser.sharded:
            raise ValueError(f"parallel is fsdp, and {self.optimiser.kind} needs whole matrices; choose ddp, or adamw")
        if self.checkpoints.average > self.checkpoints.keep:
            raise ValueError(
                f"checkpoints.average is {self.checkpoints.average} but only {self.checkpoints.keep} are kept"
            )

    @classmethod
    def expand(cls, mapping: dict[str, object]) -> dict[str, object]:
        """`decoupled` told AdamW from Adam before each had a kind: runs and recipes of then mean the same."""
        optimiser = mapping.get("optimiser")
        if not isinstance(optimiser, dict) or optimiser.get("kind", "adam") not in ("adam", "adamw"):
            return mapping
        if not isinstance(decoupled := optimiser.get("decoupled"), bool):
            return mapping
        rest = {key: value for key, value in optimiser.items() if key not in ("kind", "decoupled")}
        return {**mapping, "optimiser": {"kind": "adamw" if decoupled else "adam", **rest}}
