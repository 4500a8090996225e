"""Adam and AdamW over parameter groups: by weight decay, and by depth where rates are layerwise."""

from typing import Any, Protocol, cast

import torch
from torch import nn

from regard.errors import RegardError
from regard.training.config import TrainingConfig

Group = dict[str, Any]  # torch's own form of a parameter group


class LayeredModel(Protocol):
    """A model that `training.layerwise` can serve: `parts` lists its modules from the output down."""

    def parts(self) -> list[list[nn.Module]]: ...


def decay_groups(model: nn.Module, weight_decay: float) -> list[Group]:
    """The trainable parameters; biases and norms have no weight decay."""
    trainable = [p for p in model.parameters() if p.requires_grad]
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
    model: nn.Module, settings: TrainingConfig, device: torch.device, capturable: bool = False
) -> torch.optim.Optimizer:
    """`capturable`: a CUDA graph can replay its step, so the learning rates are tensors on the device."""
    adam = settings.optimiser
    groups = decay_groups(model, adam.weight_decay)
    if settings.layerwise:
        groups = layerwise_groups(model, groups)
    return (torch.optim.AdamW if adam.decoupled else torch.optim.Adam)(
        [{**group, "lr": torch.zeros((), device=device)} for group in groups] if capturable else groups,
        lr=torch.zeros((), device=device) if capturable else 0.0,
        betas=(adam.beta1, adam.beta2),
        eps=adam.epsilon,
        fused=device.type in ("cpu", "cuda"),
        capturable=capturable,
    )
