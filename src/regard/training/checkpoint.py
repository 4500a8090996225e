"""Checkpoints of a run: folders of safetensors and JSON that appear by one rename, so that all there are are whole."""

import json
import math
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import RegardError
from regard.io.tensors import (
    fill,
    flush,
    load_weights,
    read_tensors,
    read_whole,
    weights_of,
    write_parts,
    write_tensors,
)
from regard.training.distributed import World


@dataclass
class Progress:
    """Where a run stands, besides its tensors. Dropout needs no state: it is seeded anew by (seed, step)."""

    step: int = 0  # optimiser steps done
    epoch: int = 0  # where the loader goes on
    epoch_step: int = 0
    best_step: int = 0  # 0: none yet
    best_value: float | None = None
    since_best: int = 0  # validations since then
    tokens: int = 0  # target tokens learned from
    seconds: float = 0.0  # of training
    done: bool = False  # stopped early
    unmeasured: bool = False  # a validation was interrupted, and is owed when the run goes on
    processes: int = 1  # that trained it last; the examples of a step do not depend on them
    fingerprint: str = ""  # of the data
    metrics: dict[str, float] = field(default_factory=dict)  # the last validation


class Checkpoints:
    """`folder/step-N/`, and `last` beside `folder`, which always names a whole one.

    Where a run was stopped between two of its checkpoints it leaves `stop-N/`, which goes when the run goes on: what is
    kept and averaged must not depend on when someone stopped it.
    """

    def __init__(self, run: Path, world: World | None = None) -> None:
        self.folder, self.last, self.world = run / "checkpoints", run / "last", world or World()

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step}"

    def steps(self) -> list[int]:
        return sorted(int(p.name[5:]) for p in self.folder.glob("step-*") if p.name[5:].isdigit())

    def save(
        self,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        progress: Progress,
        carry: dict[str, Tensor] | None,
        keep: int,
        stop: bool = False,
        trained: dict[str, Tensor] | None = None,
    ) -> None:
        """All processes of a run write what they hold; the first makes the folder, and makes it visible.

        `trained` are the weights that learn, where the model has their mean.
        """
        world = self.world
        final = self.folder / f"{'stop' if stop else 'step'}-{progress.step}"
        temporary = self.folder / f".{final.name}"
        try:
            if world.main:
                self._clear(temporary)
            world.wait()
            write_parts(temporary, "model", weights_of(model), world.rank, world.size)
            write_parts(temporary, "optimiser", optimiser_tensors(model, optimiser), world.rank, world.size)
            if trained:
                write_parts(temporary, "trained", trained, world.rank, world.size)
            world.wait()
            if world.main:
                if carry:
                    write_tensors(temporary / "carry.safetensors", carry)
                self._publish(temporary, final, progress)
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise RegardError(
                f"{final}: the checkpoint cannot be written ({error.strerror or error}); "
                f"{self.kept()}; make room, then run the same command to resume"
            ) from None
        if world.main:
            self.prune(progress, keep)
            for other in self.folder.glob("stop-*"):
                if other != final:
                    shutil.rmtree(other, ignore_errors=True)
        world.wait()

    def _clear(self, temporary: Path) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for left in self.folder.glob(".*"):  # of a killed process
            shutil.rmtree(left, ignore_errors=True)
        temporary.mkdir()

    def _publish(self, temporary: Path, final: Path, progress: Progress) -> None:
        (temporary / "state.json").write_text(json.dumps(asdict(progress), indent=1), encoding="utf-8")
        flush(temporary / "state.json")
        flush(temporary)
        if final.exists():  # written before a kill, or before a validation that was owed
            os.rename(final, _aside(final))
        os.rename(temporary, final)
        flush(self.folder)
        self._point(final)

    def kept(self) -> str:
        if not self.exists():
            return "there is no earlier checkpoint"
        return f"the checkpoint of step {self.last.resolve().name.rpartition('-')[2]} is whole"

    def _point(self, target: Path) -> None:
        temporary = self.last.with_name(".last")
        temporary.unlink(missing_ok=True)
        os.symlink(os.path.join(self.folder.name, target.name), temporary)
        os.replace(temporary, self.last)

    def prune(self, progress: Progress, keep: int) -> None:
        for step in self.steps()[: -max(keep, 1)]:
            if step != progress.best_step and step != progress.step:
                shutil.rmtree(self.path(step), ignore_errors=True)

    def load(
        self, model: nn.Module, optimiser: torch.optim.Optimizer, trained: dict[str, Tensor] | None = None
    ) -> tuple[Progress, dict[str, Tensor] | None]:
        """What `last` names, into the model, the optimiser and `trained`."""
        folder = self.folder / self.world.first(self._newest)  # as one sees it: a shared file system may be slow
        progress = read_progress(folder)
        load_weights(model, read_whole(folder, "model"), folder / "model.safetensors")
        load_optimiser(model, optimiser, read_whole(folder, "optimiser"), folder / "optimiser.safetensors")
        if trained:
            for name, value in read_whole(folder, "trained").items():
                fill(trained[name], value)
        carried = folder / "carry.safetensors"
        return progress, read_tensors(carried) if carried.exists() else None

    def _newest(self) -> str:
        folder = self.last.resolve()
        if not folder.exists() and _aside(folder).exists():  # killed between two renames
            os.rename(_aside(folder), folder)
        return folder.name

    def exists(self) -> bool:
        return self.last.is_symlink() or self.last.exists()

    def last_weights(self, count: int) -> list[Path]:
        return [self.path(step) for step in self.steps()[-count:]]


def _aside(folder: Path) -> Path:
    return folder.with_name(f".old-{folder.name}")


def read_progress(folder: Path) -> Progress:
    try:
        return Progress(**json.loads((folder / "state.json").read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise RegardError(f"{folder}: not a checkpoint (state.json is missing)") from None
    except (ValueError, TypeError) as error:
        raise RegardError(f"{folder / 'state.json'}: damaged ({error})") from None


def optimiser_tensors(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """`slot.parameter` for everything the optimiser remembers."""
    return {
        f"{slot}.{name}": value
        for name, parameter in model.named_parameters()
        for slot, value in optimiser.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def load_optimiser(
    model: nn.Module, optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor], origin: Path
) -> None:
    known = dict(model.named_parameters())
    for key, value in tensors.items():
        slot, _, name = key.partition(".")
        if name not in known:
            raise RegardError(f"{origin}: {name} is unknown; the checkpoint is of another model")
        parameter = known[name]
        if value.shape == parameter.shape:
            kept = torch.zeros_like(parameter, requires_grad=False)
            fill(kept, value)
        else:
            kept = value.to(parameter.device if optimiser.defaults.get("fused") else "cpu")  # where steps are counted
        optimiser.state[parameter][slot] = kept


def json_safe(value: Any) -> Any:
    """NaN and infinity as text: JSON has no such numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {k: json_safe(v) for k, v in value.items()}
    return value
