"""Optimisers: torch's own as choices of a recipe, and the groups of parameters that they get."""

from collections.abc import Callable, Set
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, cast

import torch
from torch import nn
from torch.optim import Optimizer

from regard.config import Choice, at_least, below_one, choice, option
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.training.config import TrainingConfig

Group = dict[str, Any]  # torch's own form of a parameter group


class LayeredModel(Protocol):
    """A model that `training.layerwise` can serve: `parts` lists its modules from the output down."""

    def parts(self) -> list[list[nn.Module]]: ...


class OptimiserConfig(Choice, slot="optimiser"):
    """`build` gives a torch optimiser; the loop sets `lr` of its groups in every step."""

    must_define = ("build",)
    capturable: ClassVar[bool] = False  # whether a CUDA graph can replay its step: `lr` is a tensor then
    sharded: ClassVar[bool] = False  # whether it serves a model of which each process has a part
    state_bytes: ClassVar[int] = 8  # of what it keeps for a parameter
    weight_decay: float = 0.0  # an option of those that have it

    def groups(self, model: nn.Module) -> list[Group]:
        """The trainable parameters; biases and norms have no weight decay."""
        return decay_groups(model, self.weight_decay)

    def build(self, groups: list[Group], device: torch.device, capturable: bool = False) -> Optimizer:
        raise NotImplementedError


@choice("adamw")
class AdamWConfig(OptimiserConfig):
    """Adam whose weight decay acts beside the gradient (Kingma 2015; Loshchilov 2019); the paper's numbers."""

    capturable: ClassVar[bool] = True
    sharded: ClassVar[bool] = True

    beta1: float = option(0.9, "decay rate of the mean gradient")
    beta2: float = option(0.98, "decay rate of the squared gradient")
    epsilon: float = option(1e-9, "added to the root of the squared gradient")
    weight_decay: float = option(0.0, "weight decay of matrices; biases and norms have none")

    def __post_init__(self) -> None:
        below_one(self, "beta1", "beta2")
        at_least(self, 0, "epsilon", "weight_decay")

    def build(self, groups: list[Group], device: torch.device, capturable: bool = False) -> Optimizer:
        optimiser: Callable[..., Optimizer] = torch.optim.Adam if isinstance(self, AdamConfig) else torch.optim.AdamW
        return optimiser(
            [{**group, "lr": torch.zeros((), device=device)} for group in groups] if capturable else groups,
            lr=torch.zeros((), device=device) if capturable else 0.0,
            betas=(self.beta1, self.beta2),
            eps=self.epsilon,
            fused=device.type in ("cpu", "cuda"),
            capturable=capturable,
        )


@choice("adam")
class AdamConfig(AdamWConfig):
    """Adam as it was first: weight decay is added to the gradient (Kingma 2015)."""


@choice("adafactor")
class AdafactorConfig(OptimiserConfig):
    """The squared gradient of a matrix as a row and a column: hardly any memory (Shazeer 2018).

    Steps are relative to the weights: min(rate, 1/√t) · max(epsilon, RMS of the matrix).
    """

    state_bytes: ClassVar[int] = 0

    decay: float = option(0.8, "the squared gradient's decay rate is 1 − t^−decay")
    epsilon: float = option(1e-3, "least size of a matrix that a step is relative to")
    threshold: float = option(1.0, "largest RMS of an update, before it is scaled")
    weight_decay: float = option(0.0, "weight decay of matrices; biases and norms have none")

    def __post_init__(self) -> None:
        at_least(self, 0, "decay", "epsilon", "weight_decay")
        if not self.threshold > 0:
            raise ValueError(f"threshold must be above 0, not {self.threshold}")

    def build(self, groups: list[Group], device: torch.device, capturable: bool = False) -> Optimizer:
        return torch.optim.Adafactor(
            groups, lr=0.0, beta2_decay=-self.decay, eps=(None, self.epsilon), d=self.threshold
        )


@choice("muon")
class MuonConfig(OptimiserConfig):
    """Momentum that is made orthogonal, for the matrices of linear layers; AdamW for all else (Jordan 2024)."""

    momentum: float = option(0.95, "decay rate of the mean gradient")
    nesterov: bool = option(True, "look ahead by one step of momentum")
    iterations: int = option(5, "of Newton and Schulz, which make it orthogonal")
    scale: Literal["match_rms_adamw", "original"] = option(
        "match_rms_adamw", "of the rate: so that AdamW's rates fit (Liu 2025), or √max(1, rows/columns)"
    )
    weight_decay: float = option(0.0, "weight decay of those matrices")
    rest: AdamWConfig = option(AdamWConfig, "the optimiser of embeddings, output, norms, biases and convolutions")

    def __post_init__(self) -> None:
        below_one(self, "momentum")
        at_least(self, 0, "weight_decay")
        if not 1 <= self.iterations < 100:
            raise ValueError(f"iterations must be from 1 to 99, not {self.iterations}")

    def groups(self, model: nn.Module) -> list[Group]:
        linear = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)}
        matrices = [p for p in model.parameters() if p.requires_grad and id(p) in linear]
        rest = decay_groups(model, self.rest.weight_decay, linear)
        return [{"params": matrices, "weight_decay": self.weight_decay, "orthogonal": True}, *rest]

    def build(self, groups: list[Group], device: torch.device, capturable: bool = False) -> Optimizer:
        matrices = [group for group in groups if group.get("orthogonal")]
        rest = self.rest.build([group for group in groups if not group.get("orthogonal")], device)
        if not any(group["params"] for group in matrices):
            return rest
        muon = torch.optim.Muon(
            matrices, lr=0.0, momentum=self.momentum, nesterov=self.nesterov, ns_steps=self.iterations,
            adjust_lr_fn=self.scale,
        )  # fmt: skip
        return JointOptimiser(muon, rest)


class JointOptimiser(Optimizer):
    """Several optimisers, each with its own groups, as one: their groups in a row, and one state."""

    def __init__(self, *members: Optimizer) -> None:
        self.members, self.state, self.defaults = members, members[0].state, members[-1].defaults
        self.param_groups = [group for member in members for group in member.param_groups]
        for member in members:
            member.state = self.state

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for member in self.members:
            member.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for member in self.members:
            member.zero_grad(set_to_none)


def decay_groups(model: nn.Module, weight_decay: float, left_out: Set[int] = frozenset()) -> list[Group]:
    """The trainable parameters but for those whose `id` is left out; biases and norms have no weight decay."""
    trainable = [p for p in model.parameters() if p.requires_grad and id(p) not in left_out]
    return [
        {"params": [p for p in trainable if p.dim() > 1], "weight_decay": weight_decay},
        {"params": [p for p in trainable if p.dim() <= 1], "weight_decay": 0.0},
    ]


def layerwise_groups(model: nn.Module, groups: list[Group]) -> list[Group]:
    """Every group split by depth: 0 is the model's first part; parameters of no part lie below all."""
    if not hasattr(model, "parts"):
        raise RegardError(
            f"training.layerwise: a model of the kind {cast(Any, model).config.kind} has no layers to tell apart"
        )
    parts = cast(LayeredModel, model).parts()
    depth = {p: n for n, part in enumerate(parts) for module in part for p in module.parameters()}
    by_depth: dict[tuple[int, int], list[nn.Parameter]] = {}
    for n, group in enumerate(groups):
        for p in group["params"]:
            by_depth.setdefault((n, depth.get(p, len(parts))), []).append(p)
    return [{**groups[n], "params": params, "depth": d} for (n, d), params in by_depth.items()]


def build_optimiser(
    model: nn.Module, settings: "TrainingConfig", device: torch.device, capturable: bool = False
) -> Optimizer:
    """`capturable`: a CUDA graph can replay its step, so the learning rates are tensors on the device."""
    groups = settings.optimiser.groups(model)
    if settings.layerwise:
        groups = layerwise_groups(model, groups)
    return settings.optimiser.build(groups, device, capturable)
