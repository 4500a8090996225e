"""A run from beginning to end: lock and check its folder, train or resume, save the final weights and their results."""

import contextlib
import json
import os
import platform
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from regard import __version__, config
from regard.console import Console
from regard.device import check_bf16, device_name, pick_device
from regard.errors import RegardError
from regard.io.atomic import atomic_write
from regard.io.files import DamagedFile, json_safe, read_json
from regard.io.low_rank import read_weights
from regard.io.manifest import SETUP, find_damage, replacing, verified
from regard.io.run_folder import BASE, CONFIG, LOG, RESULTS, WEIGHTS
from regard.io.tensors import average_checkpoints, load_weights, read_sharded, sharded_files, write_tensors
from regard.language import localise
from regard.recipe import Recipe, dump_recipe
from regard.reporting import Json, Progress
from regard.run_checks import (
    artifacts_folder,
    check_memory,
    check_same_model,
    device_warnings,
    distribution_notes,
    lock_run,
    memory_advice,
)
from regard.tasks.contract import Task
from regard.training.callbacks import CallbackList
from regard.training.checkpoint import CheckpointManager, TrainingState
from regard.training.distributed import ProcessGroup, process_group
from regard.training.dry_run import estimate_training
from regard.training.initial_weights import fit_length
from regard.training.interrupt import Interrupt, Interrupted
from regard.training.log import PLAIN_INTERVAL, NullLog, TrainingLog
from regard.training.loop import Trainer


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
            group.on_main(lambda: claim.enter_context(lock_run(run, recipe, console)))
            with _numerics(recipe.training.deterministic):
                return _train(recipe, run, group.local_device(chosen), interrupt, console, group)
    except (torch.OutOfMemoryError, MemoryError):
        raise RegardError(f"{device_name(chosen)}: out of memory; {memory_advice(recipe)}") from None
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
        check_memory(task, chosen, 1)
        with _numerics(recipe.training.deterministic):
            return {"device": device_name(chosen), **estimate_training(task, recipe.training, recipe.seed, chosen)}
    except (torch.OutOfMemoryError, MemoryError):
        raise RegardError(f"{device_name(chosen)}: out of memory; {memory_advice(recipe)}") from None


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
    check_memory(task, device, group.size if recipe.training.parallel == "fsdp" else 1, state_bytes)
    torch.manual_seed(recipe.seed)
    model, fitted = task.build_model().to(device), []
    if recipe.training.init and not group.broadcast(CheckpointManager(run).exists()):
        fitted = _load_initial_weights(recipe, task, model)
    trainer = Trainer(task, model, recipe.training, recipe.seed, run, device, group)
    notices = [*trainer.resume(), *fitted]
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


def _load_initial_weights(recipe: Recipe, task: Task, model: nn.Module) -> list[str]:
    """Of the run that training.init names; sentences say what was changed to fit."""
    origin = Path(str(recipe.training.init))
    try:
        with verified(origin, (BASE, *(path.name for path in sharded_files(origin, "model")))):
            tensors, fitted = fit_length(model, read_weights(origin))
            load_weights(model, task.initial_weights(model, tensors, origin / WEIGHTS), origin / WEIGHTS)
            return fitted
    except DamagedFile:
        raise
    except RegardError:
        check_same_model(recipe)
        raise


def _prepare_task(recipe: Recipe, run: Path, interrupt: Interrupt, console: Console, group: ProcessGroup) -> Task:
    """The main process trains the tokenizer and sets up the run; then each machine prepares the data for itself."""
    prepared: list[Task] = []

    def begin() -> None:
        prepared.append(_prepare(recipe, artifacts_folder(recipe, run), console, interrupt.wrap))
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
        name = f"EMA of the weights at step {step}" if recipe.training.ema else f"step {step}"
        return name, read_sharded(folders[0], "model")


def _commit() -> str | None:
    """Of the checkout this package runs from, if it is one; with a + where files were changed since."""
    source = Path(__file__).resolve().parents[1]
    if source.name != "src":
        return None
    try:
        git = subprocess.run(
            ["git", "describe", "--always", "--exclude=*", "--dirty=+", "--abbrev=7"],
            cwd=source.parent,
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
