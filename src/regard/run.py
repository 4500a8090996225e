"""A run from beginning to end: lock and check its folder, train or resume, save the final weights and their results."""

import contextlib
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from regard import __version__, accel, config
from regard.console import Console
from regard.data.loader import parts_per_batch
from regard.device import check_bf16, device_name, has_bf16, pick_device, total_memory
from regard.errors import RegardError
from regard.io.atomic import atomic_write
from regard.io.files import DamagedFile, json_safe, read_json
from regard.io.int8 import is_int8
from regard.io.lock import lock_folder
from regard.io.low_rank import read_weights
from regard.io.manifest import SETUP, find_damage, replacing, verified
from regard.io.run_folder import CONFIG, LOG, MANIFEST, RESULTS, TASK_FILES, WEIGHTS
from regard.io.tensors import average_checkpoints, load_weights, read_sharded, tensor_shapes, write_tensors
from regard.language import localise
from regard.recipe import Recipe, dump_recipe, read_recipe
from regard.reporting import Json, Progress
from regard.tasks.contract import Task
from regard.training.callbacks import CallbackList
from regard.training.checkpoint import CheckpointManager, TrainingState
from regard.training.config import TrainingConfig
from regard.training.distributed import ProcessGroup, process_group
from regard.training.dry_run import estimate_training
from regard.training.interrupt import Interrupt, Interrupted
from regard.training.log import PLAIN_INTERVAL, NullLog, TrainingLog
from regard.training.loop import Trainer

WRITTEN_FILES = "|".join(map(re.escape, (CONFIG, LOG, MANIFEST, RESULTS, WEIGHTS)))
STALE = re.compile(rf"\.({WRITTEN_FILES})\.\d+")  # temporary files of a killed process


@dataclass(frozen=True)
class TrainingResult:
    folder: Path
    state: TrainingState
    results: Json
    finished: bool
    signal: int | None = None
    is_main: bool = True  # of several processes one reports

    @property
    def exit_code(self) -> int:
        return 128 + self.signal if self.signal else 0


def train_recipe(
    recipe: Recipe, out: str | Path, device: str = "auto", minutes: float | None = None, console: Console | None = None
) -> TrainingResult:
    """Train in the run folder `out`, or resume the run of the same recipe there; another recipe is refused.

    Under `torchrun` every process calls this; the main one writes and prints.
    """
    run, recipe = Path(out), replace(recipe, data=recipe.data.absolute())
    chosen = pick_device(device)
    if recipe.training.precision == "bf16":
        check_bf16(chosen, "training.precision")
    try:
        with process_group(chosen) as group, contextlib.ExitStack() as claim, Interrupt(minutes) as interrupt:
            console = console or Console(stderr=True, quiet=not group.is_main)
            group.on_main(lambda: claim.enter_context(_lock_run(run, recipe, console)))
            with _numerics(recipe.training.deterministic):
                return _train(recipe, run, group.local_device(chosen), interrupt, console, group)
    except (torch.OutOfMemoryError, MemoryError):
        raise RegardError(f"{device_name(chosen)}: out of memory; {_memory_advice(recipe)}") from None
    except OSError as error:
        raise RegardError(f"{error.filename or run}: cannot be written ({error.strerror or error})") from None


def dry_run(recipe: Recipe, device: str = "auto", console: Console | None = None) -> Json:
    """What training would take, measured by a few steps; no run folder is written, data is prepared as for training."""
    chosen, recipe = pick_device(device), replace(recipe, data=recipe.data.absolute())
    if recipe.training.precision == "bf16":
        check_bf16(chosen, "training.precision")
    try:
        task = _prepare(
            recipe, Path(recipe.training.init) if recipe.training.init else None, console or Console(stderr=True)
        )
        _check_memory(task, chosen, 1)
        with _numerics(recipe.training.deterministic):
            return {"device": device_name(chosen), **estimate_training(task, recipe.training, recipe.seed, chosen)}
    except (torch.OutOfMemoryError, MemoryError):
        raise RegardError(f"{device_name(chosen)}: out of memory; {_memory_advice(recipe)}") from None


def _memory_advice(recipe: Recipe) -> str:
    """What to change so that a step takes less memory, and computes the same."""
    batch = getattr(recipe.task, "batch", None)
    key, value = ("task.batch", batch) if batch else ("training.tokens_per_batch", recipe.training.tokens_per_batch)
    return f"lower {key} (it is {value}) and raise training.accumulate as much, or choose a smaller model"


def _check_memory(task: Task, device: torch.device, parts: int, state_bytes: int = 8) -> None:
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
def _numerics(deterministic: bool) -> Iterator[None]:
    """TF32 products on a GPU while training, deterministic where that is set; the caller's settings come back."""
    precision, repeatable = torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_float32_matmul_precision("high")
    torch.use_deterministic_algorithms(deterministic or repeatable)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.use_deterministic_algorithms(repeatable)


@contextlib.contextmanager
def _lock_run(run: Path, recipe: Recipe, console: Console) -> Iterator[None]:
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


def _train(
    recipe: Recipe, run: Path, device: torch.device, interrupt: Interrupt, console: Console, group: ProcessGroup
) -> TrainingResult:
    try:
        task = _prepare_task(recipe, run, interrupt, console, group)
    except Interrupted:
        console.print("stopped while reading the data; the same command begins again", highlight=False)
        return TrainingResult(
            run, TrainingState(), {}, False, group.all_reduce_max(interrupt.signal or 0) or None, group.is_main
        )
    state_bytes = recipe.training.optimiser.state_bytes
    _check_memory(task, device, group.size if recipe.training.parallel == "fsdp" else 1, state_bytes)
    torch.manual_seed(recipe.seed)
    model = task.build_model().to(device)
    if recipe.training.init and not group.broadcast(CheckpointManager(run).exists()):
        _load_initial_weights(recipe, task, model)
    trainer = Trainer(task, model, recipe.training, recipe.seed, run, device, group)
    notices = trainer.resume()
    if not trainer.state.step and (run / LOG).exists():
        notices = ["no checkpoint is left of what log.jsonl tells: training begins at step 0"]
    first_step, done = trainer.state.step, group.on_main(lambda: _read_results(run, trainer.state, recipe, notices))
    if done is not None:
        for sentence in (*notices, f"{run} is trained already, to step {first_step:,}"):
            console.print(sentence, highlight=False, markup=False, emoji=False, soft_wrap=True)
        return TrainingResult(run, trainer.state, done, True, None, group.is_main)
    log = TrainingLog(run, first_step, recipe.training.steps, console) if group.is_main else NullLog()
    try:
        if group.is_main:
            trainer.callbacks = CallbackList(recipe.training.callbacks, run, config.to_plain(recipe))
        for sentence in notices:
            log.info(sentence)
        _log_start(log, task, model, device, first_step)
        for sentence in device_warnings(recipe.training, device):
            log.info(sentence)
        for sentence in distribution_notes(
            recipe.training, model, group, trainer.state.processes if first_step else group.size
        ):
            log.info(sentence)
        state = trainer.run(log, interrupt)
        finished = state.done or state.step >= recipe.training.steps
        if finished and not state.unmeasured:
            with contextlib.suppress(Interrupted):
                results = group.on_main(lambda: _finish(recipe, run, task, trainer, log, interrupt))
                return TrainingResult(run, state, results, True, None, group.is_main)
        number = group.all_reduce_max(interrupt.signal or 0) or None  # it may have come to one process only
        why = signal.Signals(number).name if number else "out of time"
        log.info(f"{why} at step {state.step:,}; saved. To go on: {_resume_command(recipe, run, group)}")
        return TrainingResult(run, state, {}, False, number, group.is_main)
    finally:
        log.close()


def _load_initial_weights(recipe: Recipe, task: Task, model: nn.Module) -> None:
    origin = Path(str(recipe.training.init))
    try:
        with verified(origin, (WEIGHTS,)):
            tensors = read_weights(origin)
            load_weights(model, task.initial_weights(model, tensors, origin / WEIGHTS), origin / WEIGHTS)
    except DamagedFile:
        raise
    except RegardError:
        _check_same_model(recipe)
        raise


def _prepare_task(recipe: Recipe, run: Path, interrupt: Interrupt, console: Console, group: ProcessGroup) -> Task:
    """The main process trains the tokenizer and sets up the run; then each machine prepares the data for itself."""
    prepared: list[Task] = []

    def begin() -> None:
        prepared.append(_prepare(recipe, _artifacts_folder(recipe, run), console, interrupt.wrap))
        with replacing(run, SETUP):
            prepared[0].save(run)
            with atomic_write(run / CONFIG) as file:  # last: with it the folder is a run
                file.write(dump_recipe(recipe))

    group.on_main(begin)
    if not (run / CONFIG).exists():
        raise RegardError(
            f"{_process_name(group)} does not see {run.absolute() / CONFIG}, which the first has written; "
            "give an --out that all machines share"
        )
    with group.local_main_first():
        task = prepared[0] if prepared else _prepare(recipe, run, console)
    if group.broadcast(task.fingerprint) != task.fingerprint:
        raise RegardError(
            f"{_process_name(group)} has other training data than the first; copy them with their times (cp -p)"
        )
    return task


def _process_name(group: ProcessGroup) -> str:
    return f"process {group.rank} of {group.size}, on {platform.node()},"


def _prepare(
    recipe: Recipe,
    home: Path | None,
    console: Console,
    wrap: Callable[[Progress], Progress] = lambda progress: progress,
) -> Task:
    with console.status(localise("Reading")) as status:
        printed = time.monotonic()

        def show(what: str, done: int, total: int) -> None:
            nonlocal printed
            status.update(f"{localise(what)}: {done:,}")
            if not console.is_terminal and time.monotonic() - printed > PLAIN_INTERVAL:
                printed = time.monotonic()
                console.print(f"{localise(what)}: {done:,}", highlight=False)

        return recipe.task.prepare(recipe, home, wrap(show))


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


def _artifacts_folder(recipe: Recipe, run: Path) -> Path | None:
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


def _check_same_model(recipe: Recipe) -> None:
    """Raise RegardError where the run that training.init names has a model of another shape: by keys, not tensors."""
    origin = Path(str(recipe.training.init))
    theirs, ours, path = read_recipe(origin).model, recipe.model, "model"
    features = getattr(ours, "features", None)
    if theirs.kind != ours.kind and features is not None:  # the part that is taken from there
        ours, path = features, "model.features"
    if changed := _describe_differences(theirs, ours, path, SHAPELESS_KEYS):
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


def _read_results(run: Path, state: TrainingState, recipe: Recipe, notices: list[str]) -> Json | None:
    """The results of a finished run; None if it is not finished, or was killed or damaged since: they are made anew."""
    if not (state.done or state.step >= recipe.training.steps) or not (run / WEIGHTS).exists():
        return None
    damage = find_damage(run, (WEIGHTS, RESULTS))
    notices += damage + ["the weights and results are written anew, from the checkpoints"] * bool(damage)
    if damage or not (run / RESULTS).exists():
        return None
    try:
        results = read_json(run / RESULTS)
    except DamagedFile:
        return None
    return results if results.get("steps") == state.step else None  # else of a shorter run, which went on


def _log_start(log: TrainingLog, task: Task, model: nn.Module, device: torch.device, first_step: int) -> None:
    for line in task.report():
        log.info(line)
    parameters = sum(p.numel() for p in model.parameters())
    log.info(
        f"{parameters / 1e6:.2f} million parameters on {device}"
        + (f"; going on from step {first_step:,}" if first_step else "")
    )


def _finish(recipe: Recipe, run: Path, task: Task, trainer: Trainer, log: TrainingLog, interrupt: Interrupt) -> Json:
    """Write the final weights and results.json: their metrics, and what is needed to reproduce them."""
    state = trainer.state
    model = task.build_model().to(trainer.device)  # unsharded, unlike what was trained
    chosen, tensors = _final_weights(recipe, trainer)
    load_weights(model, tensors, run / WEIGHTS)
    torch.set_float32_matmul_precision("highest")  # as `regard evaluate` will measure it again
    metrics = task.evaluate(model, interrupt.wrap(log.show_progress))
    results = {
        "valid": metrics,
        "weights": chosen,
        "steps": state.step,
        "epochs": state.epoch,
        task.target_unit: state.tokens,
        "seconds": round(state.seconds, 1),
        f"{task.target_unit}_per_second": round(state.tokens / max(state.seconds, 1e-9)),
        "parameters": sum(p.numel() for p in model.parameters()),
        "seed": recipe.seed,
        "data": task.fingerprint,
        "regard": __version__,
        "torch": torch.__version__,
        "device": device_name(trainer.device),
        "processes": trainer.group.size,
        "commit": _commit(),
    }
    with replacing(run, (WEIGHTS, RESULTS)):
        write_tensors(run / WEIGHTS, tensors)
        with atomic_write(run / RESULTS) as file:
            file.write(json.dumps(json_safe(results), indent=1, ensure_ascii=False) + "\n")
    log.write("done", state.step, **{k: v for k, v in results.items() if not isinstance(v, dict)})
    log.info(f"done: {chosen} is in {run / WEIGHTS}")
    return results


def _final_weights(recipe: Recipe, trainer: Trainer) -> tuple[str, dict[str, torch.Tensor]]:
    """What a run ends with, in words and as tensors: of its best checkpoint, or the average of its last ones."""
    checkpoints, state, count = trainer.checkpoints, trainer.state, recipe.training.checkpoints.average
    step = state.best_step or state.step
    folders = checkpoints.last_folders(count) if count else [checkpoints.step_folder(step)]
    with contextlib.ExitStack() as stack:
        for folder in folders:
            stack.enter_context(verified(folder))
        if count:
            return f"average of the last {len(folders)} checkpoints", average_checkpoints(folders)
        name = f"running mean of the weights at step {step}" if recipe.training.ema else f"step {step}"
        return name, read_sharded(folders[0], "model")


def _commit() -> str | None:
    """Of the checkout this package runs from, if it is one."""
    here = Path(__file__).resolve()
    if here.parents[2].name != "src":
        return None
    try:
        git = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=here.parents[3],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return git.stdout.strip() or None


def _resume_command(recipe: Recipe, run: Path, group: ProcessGroup) -> str:
    if group.size > 1:
        return "the same command, with any number of processes"
    plugins = "".join(f" --plugin {name}" for name in recipe.plugins)
    return f"regard train {shlex.quote(str(run / CONFIG))} --out {shlex.quote(str(run))}{plugins}"
