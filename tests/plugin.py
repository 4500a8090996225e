"""A plugin as somebody else writes it: a position encoding and a schedule in a file of their own, for tests."""

import os
from pathlib import Path
from typing import Any

SOURCE = '''
import torch
import torch.nn.functional as F
from torch import nn

from regard.config import choice, option
from regard.nn.position import Bias, Position, PositionConfig
from regard.training.schedule import ScheduleConfig


class Near(Position):
    def __init__(self, heads, reach):
        super().__init__()
        self.numbers = nn.Parameter(torch.zeros(heads, 2 * reach + 1))

    def bias(self, q, context):
        return Bias.by_distance(F.pad(self.numbers, (1, 1))[None, :, None], context)


@choice("near", formula="b[h, j - i]")
class NearConfig(PositionConfig):
    """Neighbours have a learned bonus."""

    reach: int = option(1, "how far neighbours are")

    def __post_init__(self):
        if self.reach < 1:
            raise ValueError(f"reach must be at least 1, not {self.reach}")

    def build(self, sizes, role="encoder"):
        return Near(sizes.heads, self.reach)


@choice("steady")
class Steady(ScheduleConfig):
    """One rate."""

    peak: float = option(3e-3, "the rate")

    def rate(self, step, size, steps):
        return self.peak
'''


def write_plugin(folder: Path, name: str, source: str = SOURCE) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(source, encoding="utf-8")
    return folder


def with_plugin(recipe: dict[str, Any], name: str) -> dict[str, Any]:
    """A recipe that chooses what the plugin has."""
    recipe["plugins"] = [name]
    recipe["model"]["position"] = {"kind": "near", "reach": 2}
    recipe["training"]["schedule"] = {"kind": "steady"}
    return recipe


def on_path(folder: Path) -> dict[str, str]:
    """The environment of a process that finds modules of this folder."""
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
