"""Checks of a run before it begins: its folder, its recipe so far, the model to begin with, memory and the device."""

import contextlib
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from regard import accel, config
from regard.console import Console
from regard.data.loader import parts_per_batch
from regard.device import device_name, has_bf16, total_memory
from regard.errors import RegardError
from regard.io.int8 import is_int8
from regard.io.lock import lock_folder
from regard.io.manifest import SETUP, verified
from regard.io.run_folder import CONFIG, LOG, MANIFEST, RESULTS, TASK_FILES, WEIGHTS
from regard.io.tensors import tensor_shapes
from regard.recipe import Recipe, read_recipe
from regard.tasks.contract import Task
from regard.training.config import TrainingConfig
from regard.training.distributed import ProcessGroup

WRITTEN_FILES = "|".join(map(re.escape, (CONFIG, LOG, MANIFEST, RESULTS, WEIGHTS)))
STALE = re.compile(rf"\.({WRITTEN_FILES})\.\d+")  # temporary files of a killed process


def memory_advice(recipe: Recipe) -> str:
    """What to change so that a step takes less memory, and computes the same."""
    batch = getattr(recipe.task, "batch", None)
    key, value = ("task.batch", batch) if batch else ("training.tokens_per_batch", recipe.training.tokens_per_batch)
    return f"lower {key} (it is {value}) and raise training.accumulate as much, or choose a smaller model"


def check_memory(task: Task, device: torch.device, parts: int, state_bytes: int = 8) -> None:
    """Raise RegardError where the device cannot hold the weights, their gradients and the optimiser's state of each."""
    try:
        with torch.device("meta"):  # shapes without memory
            count = sum(p.numel() for p in task.build_model().parameters())
    except (RuntimeError, OverflowError, TypeError) as error:
        if "overflow" not in str(error).lower():  # a model that looks at its numbers while it is built
            return
        raise RegardError("the model has more parameters than can be counted; lower model.size") from None
    have, need = total_memory(device), (8 + state_bytes) * count // parts
    if have is not None and need > have:
        raise RegardError(
            f"the model has {count:,} parameters, which take {need / 2**30:,.0f} GiB to learn, and {device} has "
            f"{have / 2**30:,.0f} GiB; lower model.size or model.layers"
        )


@contextlib.contextmanager
def lock_run(run: Path, recipe: Recipe, console: Console) -> Iterator[None]:
    """A lock on the run folder; the system releases it however the process ends."""
    run.mkdir(parents=True, exist_ok=True)
    lock = run / ".lock"
    try:
        with lock_folder(run, lock) as free:
            if not free:
                raise RegardError(f"{run}: another process is training here")
            _check_same_recipe(run, recipe, console)
            for left in filter(lambda path: STALE.fullmatch(path.name), list(run.iterdir())):
                left.unlink()
            yield
    finally:
        if [p.name for p in run.iterdir()] == [".lock"]:  # nothing came of it: leave nothing behind
            lock.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                run.rmdir()


def _check_same_recipe(run: Path, recipe: Recipe, console: Console) -> None:
    """An existing run resumes under its own recipe only, except for more steps."""
    setup = (".lock", MANIFEST, *SETUP)  # all there is before the first step
    others = [p.name for p in run.iterdir() if p.name not in setup and not STALE.fullmatch(p.name)]
    if (run / CONFIG).exists():
        if (run / WEIGHTS).is_file() and is_int8(tensor_shapes(run / WEIGHTS)):
            raise RegardError(
                f"{run}: a model stored in 8 bits, which cannot be trained further; give another --out, and "
                f"training.init={run} to begin with its weights"
            )
        with verified(run, SETUP):
            old = read_recipe(run)
        before, steps = old.training.steps, recipe.training.steps
        training = replace(
            recipe.training, parallel=old.training.parallel, callbacks=old.training.callbacks, steps=min(steps, before)
        )  # none of them changes the examples
        free = replace(recipe, training=training, plugins=old.plugins)
        changed = list(config.describe_changes(config.to_plain(old), config.to_plain(free)))
        if steps > before and not changed:
            notice = f"training.steps: {before:,} → {steps:,}; from now on rates are those of a run of {steps:,} steps"
            console.print(notice, highlight=False, soft_wrap=True)
        if changed and not others and any((run / part).exists() for part in TASK_FILES):
            _remove_setup(run)  # a start that failed before the first step; a recipe alone would be somebody's own
        elif changed:
            shown = "; ".join(changed[:4]) + (f"; and {len(changed) - 4} more" if len(changed) > 4 else "")
            raise RegardError(
                f"{run} holds a run of another recipe ({shown}); give another --out, or the same recipe to resume"
            )
        return
    if others:
        raise RegardError(f"{run} is not empty and is not a run ({others[0]} is there); give another --out")


def _remove_setup(run: Path) -> None:
    for part in (run / name for name in (MANIFEST, *SETUP)):
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink(missing_ok=True)


def device_warnings(settings: TrainingConfig, device: torch.device) -> list[str]:
    """Sentences about what is slower on this device."""
    sentences = []
    if settings.precision == "bf16" and not has_bf16(device):
        sentences.append(f"training.precision is bf16, for which {device_name(device)} may be slow: try float32 too")
    if device.type == "cuda" and settings.fast and not accel.TRITON:
        sentences.append(
            "Triton is not installed: torch's own operations are used instead of our kernels, which are faster"
        )
    if device.type == "cuda" and settings.fast and not settings.optimiser.capturable:
        sentences.append(
            f"training.optimiser: torch's {settings.optimiser.kind} cannot be part of a CUDA graph: its updates "
            "are launched one by one; forward and backward passes are captured"
        )
    if device.type == "cuda" and settings.fast and accel.TRITON and torch.cuda.get_device_capability(device) < (8, 0):
        sentences.append(f"{device_name(device)} is older than our kernels: torch's own operations are used")
    return sentences


def distribution_notes(settings: TrainingConfig, model: nn.Module, group: ProcessGroup, before: int) -> list[str]:
    """Sentences about how a step's micro-batches are divided among processes, if there are several or were others."""
    if group.size == before == 1:
        return []
    parts, count = parts_per_batch(settings.accumulate, group.size), settings.accumulate
    processes = f"{group.size} processes ({settings.parallel})" if group.size > 1 else "1 process"
    processes += f", {before} before," if before != group.size else ""
    batches = f"the {count} micro-batches of a step" if count > 1 else "the micro-batch of a step"
    if parts > 1:
        batches += f", each cut into {parts} parts" if count > 1 else f", cut into {parts} parts"
    sentences = [f"{processes} for {batches}: it learns from the same examples with any number of processes"]
    if group.size > 1 and any(isinstance(module, nn.BatchNorm1d) for module in model.modules()):
        sentences.append("batch normalisation averages over each process's part: other numbers than with one process")
    return sentences


def artifacts_folder(recipe: Recipe, run: Path) -> Path | None:
    """The folder with a vocabulary and labels to reuse: the run itself, or the run that training.init names."""
    if (run / CONFIG).exists():
        return run
    if not recipe.training.init:
        return None
    origin = Path(recipe.training.init)
    if not origin.is_dir():
        raise RegardError(f"training.init is {origin}, and there is no such folder; it is the model to begin with")
    if changed := _describe_differences(read_recipe(origin).text, recipe.text, "text"):
        raise RegardError(
            f"training.init: {origin} has another vocabulary: {changed}; write what it has, or leave that out"
        )
    return origin


SHAPELESS_KEYS = ("dropout", "dropped", "init", "preset", "epsilon")  # ends of keys that change no tensor


def check_same_model(recipe: Recipe) -> None:
    """Raise RegardError where the run that training.init names has a model of another shape: by keys, not tensors."""
    origin = Path(str(recipe.training.init))
    theirs, ours, path = read_recipe(origin).model, recipe.model, "model"
    features = getattr(ours, "features", None)
    if theirs.kind != ours.kind and features is not None:  # the part that is taken from there
        ours, path = features, "model.features"
    longer = (*SHAPELESS_KEYS, "position.length")  # which alone would be no hindrance (`fit_length`)
    if changed := _describe_differences(theirs, ours, path, longer) or _describe_differences(
        theirs, ours, path, SHAPELESS_KEYS
    ):
        raise RegardError(
            f"training.init: {origin} has another model: {changed}; write what it has, or leave that out of the recipe"
        )


def _describe_differences(there: object, here: object, path: str, ignored: tuple[str, ...] = ()) -> str:
    """How two sections of a recipe differ, in words; empty where they do not."""
    changes = list(config.changed_keys(config.to_plain(there), config.to_plain(here), path))
    kinds = [change for change in changes if change[0] == f"{path}.kind"]  # another kind has other keys
    sentences = [
        f"{key} is {old} there and {new} here" for key, old, new in kinds or changes if not key.endswith(ignored)
    ]
    return ", ".join(sentences[:4]) + (f", and {len(sentences) - 4} more" if len(sentences) > 4 else "")
