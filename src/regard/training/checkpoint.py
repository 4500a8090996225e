"""Checkpoints of a run: folders of safetensors and JSON, each published by one rename, so that a kill harms none.

After kill -9 the same command goes on from the checkpoint that `last` names, or else the newest whole one: the steps
since then are computed again, with the same numbers (`Trainer.resume`). `stop-N` is one that an interruption saved.
"""

import json
import math
import os
import shutil
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.errors import RegardError
from regard.io.atomic import fsync
from regard.io.files import DamagedFile, read_json
from regard.io.manifest import file_records, verified, write_manifest
from regard.io.tensors import (
    copy_into,
    load_weights,
    read_sharded,
    read_tensors,
    unique_state_dict,
    write_sharded,
    write_tensors,
)
from regard.training.distributed import ProcessGroup


@dataclass
class TrainingState:
    """What state.json holds: where a run stands, besides its tensors.

    Dropout needs no state: it is seeded anew by (seed, rank, step).
    """

    step: int = 0  # optimiser steps done
    epoch: int = 0  # where the loader goes on
    epoch_step: int = 0
    best_step: int = 0  # 0: none yet
    best_value: float | None = None
    since_best: int = 0  # validations since then
    tokens: int = 0  # target tokens trained on
    seconds: float = 0.0  # of training
    done: bool = False  # stopped early
    unmeasured: bool = False  # a validation was interrupted, and is run when the run resumes
    processes: int = 1  # that trained it last; the examples of a step do not depend on them
    fingerprint: str = ""  # of the data
    metrics: dict[str, float] = field(default_factory=dict)  # the last validation


class CheckpointManager:
    """`folder/step-N/`, and the link `last` beside `folder`, which always names a whole checkpoint.

    A run that is stopped between two of its checkpoints leaves `stop-N/`, which is removed when the run goes on: what
    is kept and averaged must not depend on when someone stopped it.
    """

    def __init__(self, run: Path, group: ProcessGroup | None = None) -> None:
        self.folder, self.last, self.group = run / "checkpoints", run / "last", group or ProcessGroup()
        self.notices: list[str] = []  # of the last `load`

    def step_folder(self, step: int) -> Path:
        return self.folder / f"step-{step}"

    def steps(self) -> list[int]:
        return sorted(int(p.name[5:]) for p in self.folder.glob("step-*") if p.name[5:].isdigit())

    def last_folders(self, count: int) -> list[Path]:
        return [self.step_folder(step) for step in self.steps()[-count:]]

    def exists(self) -> bool:
        """Whether there is anything of a checkpoint, be it damaged: such a run must not begin anew in silence."""
        return os.path.lexists(self.last) or bool(self.all_folders())

    def describe_last(self) -> str:
        if not self.exists():
            return "there is no earlier checkpoint"
        return f"the checkpoint of step {self.last.resolve().name.rpartition('-')[2]} is whole"

    def all_folders(self) -> list[Path]:
        """What a run may resume from: the folder that `last` names, then the others, the newest first."""
        last = self.folder / self.last.resolve().name
        if _backup(last).exists() and not last.exists():  # killed between two renames
            os.rename(_backup(last), last)
        found = {path: int(path.name[5:]) for path in self.folder.glob("st[eo]p-*") if path.name[5:].isdigit()}
        return sorted(found, key=lambda path: (path == last and self.last.is_symlink(), found[path]), reverse=True)

    # --- saving ---

    def save(
        self,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        state: TrainingState,
        carry: dict[str, Tensor] | None,
        keep: int,
        stop: bool = False,
        trained: dict[str, Tensor] | None = None,
    ) -> Path:
        """All processes write their shards; the main one makes the folder, and publishes it.

        `trained` are the trained weights, where the model has their average.
        """
        group = self.group
        final = self.folder / f"{'stop' if stop else 'step'}-{state.step}"
        temporary = self.folder / f".{final.name}"
        try:
            if group.is_main:
                self._make_temporary(temporary)
            group.barrier()
            parts = {"model": unique_state_dict(model), "optimiser": optimiser_state_dict(model, optimiser)}
            parts |= {"trained": trained} if trained else {}
            written = [write_sharded(temporary, kind, part, group.rank, group.size) for kind, part in parts.items()]
            records = group.all_gather(file_records(temporary, chain.from_iterable(written)))  # by who wrote them
            if group.is_main:
                if carry:
                    write_tensors(temporary / "carry.safetensors", carry)
                (temporary / "state.json").write_text(json.dumps(asdict(state), indent=1), encoding="utf-8")
                fsync(temporary / "state.json")
                own = file_records(temporary, ("carry.safetensors", "state.json"))
                write_manifest(temporary, {name: r for part in (*records, own) for name, r in part.items()})
                self._publish(temporary, final)
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise RegardError(
                f"{final}: the checkpoint cannot be written ({error.strerror or error}); "
                f"{self.describe_last()}; make room, then run the same command to resume"
            ) from None
        if group.is_main:
            self._prune(state, keep)
            for other in self.folder.glob("stop-*"):
                if other != final:
                    shutil.rmtree(other, ignore_errors=True)
        group.barrier()
        return final

    def _make_temporary(self, temporary: Path) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for stale in self.folder.glob(".*"):  # of a killed process
            shutil.rmtree(stale, ignore_errors=True)
        temporary.mkdir()

    def _publish(self, temporary: Path, final: Path) -> None:
        if final.exists():  # written before a kill, or before a validation that was interrupted
            os.rename(final, _backup(final))
        os.rename(temporary, final)
        fsync(self.folder)
        link = self.last.with_name(".last")
        link.unlink(missing_ok=True)
        os.symlink(os.path.join(self.folder.name, final.name), link)
        os.replace(link, self.last)

    def _prune(self, state: TrainingState, keep: int) -> None:
        for step in self.steps()[: -max(keep, 1)]:
            if step != state.best_step and step != state.step:
                shutil.rmtree(self.step_folder(step), ignore_errors=True)

    # --- loading ---

    def load(
        self, model: nn.Module, optimiser: torch.optim.Optimizer, trained: dict[str, Tensor] | None = None
    ) -> tuple[TrainingState, dict[str, Tensor] | None]:
        """The checkpoint that `last` names, or else the newest whole one, into the model, the optimiser and `trained`.

        Returns its state and carry; `notices` has sentences about what is damaged.
        """
        # As one process sees it: a shared file system may be slow.
        names = self.group.on_main(lambda: [path.name for path in self.all_folders()])
        notices = self.notices = self.group.on_main(lambda: self.describe_missing(names[:1]))
        for name in names:
            damage = None
            try:
                with verified(self.folder / name):
                    loaded = self._read(self.folder / name, model, optimiser, trained)
            except DamagedFile as error:
                damage = str(error)
            if not self.group.any_rank(damage is not None):
                notices += [f"going on from {self.folder / name}"] * bool(notices)
                return loaded
            notices.append(damage or f"{self.folder / name}: another process finds it damaged")
        raise RegardError(
            f"{'; '.join(notices)}; no checkpoint is whole: restore one, or give another --out to begin again"
        )

    def describe_missing(self, first: list[str]) -> list[str]:
        """Sentences about a link `last` that does not name the first of these checkpoints."""
        if self.last.is_symlink() and [self.last.resolve().name] == first:
            return []
        why = "names no checkpoint that is there" if self.last.is_symlink() else "is missing"
        return [f"{self.last} {why}: it is the link to the last checkpoint"]

    def _read(
        self, folder: Path, model: nn.Module, optimiser: torch.optim.Optimizer, trained: dict[str, Tensor] | None
    ) -> tuple[TrainingState, dict[str, Tensor] | None]:
        state = read_state(folder)
        load_weights(model, read_sharded(folder, "model"), folder / "model.safetensors")
        load_optimiser(model, optimiser, read_sharded(folder, "optimiser"), folder / "optimiser.safetensors")
        if trained:
            for name, value in read_sharded(folder, "trained").items():
                copy_into(trained[name], value)
        carry = folder / "carry.safetensors"
        return state, read_tensors(carry) if carry.exists() else None


def _backup(folder: Path) -> Path:
    return folder.with_name(f".old-{folder.name}")


def read_state(folder: Path) -> TrainingState:
    path = folder / "state.json"
    if not path.exists():
        raise DamagedFile(f"{folder}: not a checkpoint (state.json is missing)")
    content = read_json(path)
    known = asdict(TrainingState())
    if any(key not in known or not _is_like(value, known[key]) for key, value in content.items()):
        raise DamagedFile(f"{path}: damaged: not the state of a run")
    return TrainingState(**content)


def _is_like(value: object, default: object) -> bool:
    """Whether a value of state.json has the type of its default; numbers count from 0."""
    if isinstance(default, bool | str | dict):
        return type(value) is type(default)
    if isinstance(default, int):
        return type(value) is int and 0 <= value < 1 << 62
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value))


def optimiser_state_dict(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """`slot.parameter` for every tensor of the optimiser's state."""
    return {
        f"{slot}.{name}": value
        for name, parameter in model.named_parameters()
        for slot, value in optimiser.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def load_optimiser(
    model: nn.Module, optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor], origin: Path
) -> None:
    parameters = dict(model.named_parameters())
    for key, value in tensors.items():
        slot, _, name = key.partition(".")
        if name not in parameters:
            raise RegardError(f"{origin}: {name} is unknown; the checkpoint is of another model")
        parameter = parameters[name]
        if value.shape == parameter.shape:
            own = torch.zeros_like(parameter, requires_grad=False)
            copy_into(own, value)
        else:
            counts = value.dim() == 0 and not optimiser.defaults.get("fused")  # steps, which are counted on the host
            own = value.clone().to("cpu" if counts else parameter.device)  # a view would keep all of the file in memory
        optimiser.state[parameter][slot] = own
