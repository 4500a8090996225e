"""A run folder from beginning to end: set up or resume, train, choose the final weights, measure, write them down."""

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
from typing import Any

import torch
from torch import nn

from regard import __version__, accel, config
from regard.console import Console
from regard.data.loader import cuts
from regard.device import check_bf16, device_name, has_bf16, memory, pick_device
from regard.errors import RegardError, whole
from regard.io.run_folder import CONFIG, LOG, PARTS, RESULTS, WEIGHTS
from regard.io.tensors import average, load_weights, read_tensors, read_whole, write_tensors
from regard.recipe import Recipe, dump, read_recipe
from regard.reporting import Progress as Note
from regard.tasks.contract import Task
from regard.training.checkpoint import Progress, json_safe
from regard.training.config import Training
from regard.training.distributed import World, launched
from regard.training.interrupt import Interrupt
from regard.training.log import QUIET, Log, Silence
from regard.training.loop import Trainer

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


WRITTEN = "|".join(map(re.escape, (CONFIG, LOG, RESULTS, WEIGHTS)))
LEFT = re.compile(rf"\.({WRITTEN})\.\d+")  # half a file, of a killed process


@dataclass(frozen=True)
class Outcome:
    folder: Path
    progress: Progress
    results: dict[str, Any]
    finished: bool
    signal: int | None = None
    main: bool = True  # of several processes one speaks

    @property
    def exit_code(self) -> int:
        return 128 + self.signal if self.signal else 0


def train(
    recipe: Recipe, out: str | Path, device: str = "auto", minutes: float | None = None, console: Console | None = None
) -> Outcome:
    """Train in the folder `out`, or go on there if the same recipe was begun before; another recipe is refused.

    Under `torchrun` every process calls this; the first of them writes and speaks for all.
    """
    run, recipe = Path(out), replace(recipe, data=recipe.data.absolute())
    chosen = pick_device(device)
    if recipe.training.precision == "bf16":
        check_bf16(chosen, "training.precision")
    try:
        with launched(chosen) as world, contextlib.ExitStack() as claim, Interrupt(minutes) as interrupt:
            console = console or Console(stderr=True, quiet=not world.main)
            world.first(lambda: claim.enter_context(_claim(run, recipe, console)))
            with _numerics(recipe.training.deterministic):
                return _train(recipe, run, world.device(chosen), interrupt, console, world)
    except (torch.OutOfMemoryError, MemoryError):
        raise RegardError(f"{device_name(chosen)}: out of memory; {_less(recipe)}") from None
    except OSError as error:
        raise RegardError(f"{error.filename or run}: cannot be written ({error.strerror or error})") from None


def _less(recipe: Recipe) -> str:
    """How a step takes less memory, and learns the same."""
    batch = getattr(recipe.task, "batch", None)
    key, value = ("task.batch", batch) if batch else ("training.tokens_per_batch", recipe.training.tokens_per_batch)
    return f"lower {key} (it is {value}) and raise training.accumulate as much, or choose a smaller model"


def _fits(task: Task, device: torch.device, parts: int) -> None:
    """Raise RegardError where the device cannot hold the weights, their gradients and Adam's two means of each."""
    try:
        with torch.device("meta"):  # shapes without memory
            count = sum(p.numel() for p in task.build_model().parameters())
    except (RuntimeError, OverflowError, TypeError) as error:
        if "overflow" not in str(error).lower():  # a model that looks at its numbers while it is built
            return
        raise RegardError("the model has more parameters than can be counted; lower model.size") from None
    have, need = memory(device), 16 * count // parts
    if have is not None and need > have:
        raise RegardError(
            f"the model has {count:,} parameters, which take {need / 2**30:,.0f} GiB to learn, and {device} has "
            f"{have / 2**30:,.0f} GiB; lower model.size or model.layers"
        )


@contextlib.contextmanager
def _numerics(deterministic: bool) -> Iterator[None]:
    """Fast float32 products on a GPU while training, repeatable if asked for; the caller's settings come back."""
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
def _claim(run: Path, recipe: Recipe, console: Console) -> Iterator[None]:
    """One run a folder; the system gives the lock back however the process ends."""
    run.mkdir(parents=True, exist_ok=True)
    lock = run / ".lock"
    try:
        with open(lock, "w") as file:
            if fcntl is not None:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise RegardError(f"{run}: another process is training here") from None
                except OSError:  # a file system without locks
                    pass
            _same_recipe(run, recipe, console)
            for left in filter(lambda path: LEFT.fullmatch(path.name), list(run.iterdir())):
                left.unlink()
            yield
    finally:
        if [p.name for p in run.iterdir()] == [".lock"]:  # nothing came of it: leave nothing behind
            lock.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                run.rmdir()


def _same_recipe(run: Path, recipe: Recipe, console: Console) -> None:
    """An existing run goes on under its own recipe only; it may be given more steps."""
    begun = (".lock", *PARTS, CONFIG)  # all there is before the first step
    others = [p.name for p in run.iterdir() if p.name not in begun and not LEFT.fullmatch(p.name)]
    if (run / CONFIG).exists():
        old = read_recipe(run)
        before, steps = old.training.steps, recipe.training.steps
        free = replace(
            recipe, training=replace(recipe.training, parallel=old.training.parallel, steps=min(steps, before))
        )  # neither changes the examples
        changed = list(config.differences(config.to_plain(old), config.to_plain(free)))
        if steps > before and not changed:
            told = f"training.steps: {before:,} → {steps:,}; from now on rates are those of a run of {steps:,} steps"
            console.print(told, highlight=False, soft_wrap=True)
        if changed and not others and any((run / part).exists() for part in PARTS):
            _forget(run)  # a start that failed before the first step; a recipe alone would be somebody's own
        elif changed:
            shown = "; ".join(changed[:4]) + (f"; and {len(changed) - 4} more" if len(changed) > 4 else "")
            raise RegardError(
                f"{run} holds a run of another recipe ({shown}); give another --out, or the same recipe to resume"
            )
        return
    if others:
        raise RegardError(f"{run} is not empty and is not a run ({others[0]} is there); give another --out")


def _forget(run: Path) -> None:
    (run / CONFIG).unlink()
    for part in (run / name for name in PARTS):
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink(missing_ok=True)


def _train(
    recipe: Recipe, run: Path, device: torch.device, interrupt: Interrupt, console: Console, world: World
) -> Outcome:
    try:
        task = _task(recipe, run, interrupt, console, world)
    except Interrupt.Now:
        console.print("stopped while reading the data; the same command begins again", highlight=False)
        return Outcome(run, Progress(), {}, False, world.most(interrupt.signal or 0) or None, world.main)
    _fits(task, device, world.size if recipe.training.parallel == "fsdp" else 1)
    torch.manual_seed(recipe.seed)
    model = task.build_model().to(device)
    if recipe.training.init and not world.told((run / "last").exists()):
        origin = Path(recipe.training.init) / WEIGHTS
        tensors = read_tensors(origin)
        try:
            load_weights(model, task.initial_weights(model, tensors, origin), origin)
        except RegardError:
            _same_model(recipe)
            raise
    trainer = Trainer(task, model, recipe.training, recipe.seed, run, device, world)
    trainer.resume()
    begun, done = trainer.progress.step, world.told(_results(run, trainer.progress, recipe))
    if done is not None:
        console.print(f"{run} is trained already, to step {begun:,}", highlight=False, markup=False, emoji=False)
        return Outcome(run, trainer.progress, done, True, None, world.main)
    log = Log(run, begun, recipe.training.steps, console) if world.main else Silence()
    try:
        _greet(log, task, model, device, begun)
        for sentence in slower(recipe.training, device):
            log.say(sentence)
        for sentence in shared_out(recipe.training, model, world, trainer.progress.processes if begun else world.size):
            log.say(sentence)
        progress = trainer.run(log, interrupt)
        finished = progress.done or progress.step >= recipe.training.steps
        if finished and not progress.unmeasured:
            with contextlib.suppress(Interrupt.Now):
                results = world.first(lambda: _finish(recipe, run, task, trainer, log, interrupt))
                return Outcome(run, progress, results, True, None, world.main)
        number = world.most(interrupt.signal or 0) or None  # it may have come to one process only
        why = signal.Signals(number).name if number else "out of time"
        log.say(f"{why} at step {progress.step:,}; saved. To go on: {_again(run, world)}")
        return Outcome(run, progress, {}, False, number, world.main)
    finally:
        log.close()


def _task(recipe: Recipe, run: Path, interrupt: Interrupt, console: Console, world: World) -> Task:
    """The main process learns the vocabulary and begins the run; then each machine prepares the data for itself."""
    made: list[Task] = []

    def begin() -> None:
        made.append(_prepare(recipe, _home(recipe, run), console, interrupt.wrap))
        made[0].save(run)
        with whole(run / CONFIG) as file:  # last: with it the folder is a run
            file.write(dump(recipe))

    world.first(begin)
    if not (run / CONFIG).exists():
        raise RegardError(
            f"{_who(world)} does not see {run.absolute() / CONFIG}, which the first has written; "
            "give an --out that all machines share"
        )
    with world.in_turn():
        task = made[0] if made else _prepare(recipe, run, console)
    if world.told(task.fingerprint) != task.fingerprint:
        raise RegardError(f"{_who(world)} has other training data than the first; copy them with their times (cp -p)")
    return task


def _who(world: World) -> str:
    return f"process {world.rank} of {world.size}, on {platform.node()},"


def _prepare(
    recipe: Recipe, home: Path | None, console: Console, wrap: Callable[[Note], Note] = lambda note: note
) -> Task:
    with console.status("Reading") as status:
        said = time.monotonic()

        def note(what: str, done: int, of: int) -> None:
            nonlocal said
            status.update(f"{what}: {done:,}")
            if not console.is_terminal and time.monotonic() - said > QUIET:
                said = time.monotonic()
                console.print(f"{what}: {done:,}", highlight=False)

        return recipe.task.prepare(recipe, home, wrap(note))


def slower(settings: Training, device: torch.device) -> list[str]:
    """What this device does without, in sentences."""
    sentences = []
    if settings.precision == "bf16" and not has_bf16(device):
        sentences.append(f"training.precision is bf16, for which {device_name(device)} may be slow: try float32 too")
    if device.type == "cuda" and settings.fast and not accel.TRITON:
        sentences.append(
            "Triton is not installed: torch's own operations are used instead of our kernels, which are faster"
        )
    elif device.type == "cuda" and settings.fast and torch.cuda.get_device_capability(device) < (8, 0):
        sentences.append(f"{device_name(device)} is older than our kernels: torch's own operations are used")
    return sentences


def shared_out(settings: Training, model: nn.Module, world: World, before: int) -> list[str]:
    """How a step's micro-batches are dealt out to several processes, or to other ones than before, in sentences."""
    if world.size == before == 1:
        return []
    parts, count = cuts(settings.accumulate, world.size), settings.accumulate
    said = f"{world.size} processes ({settings.parallel})" if world.size > 1 else "1 process"
    said += f", {before} before," if before != world.size else ""
    said += f" for the {count} micro-batches of a step" if count > 1 else " for the micro-batch of a step"
    said += f", {'each ' if count > 1 else ''}cut into {parts} parts" if parts > 1 else ""
    sentences = [f"{said}: it learns from the same examples with any number of processes"]
    if world.size > 1 and any(isinstance(module, nn.BatchNorm1d) for module in model.modules()):
        sentences.append("batch normalisation averages over each process's part: other numbers than with one process")
    return sentences


def _home(recipe: Recipe, run: Path) -> Path | None:
    """Where the vocabulary and the like are found already: in the run, or in the run it continues from."""
    if (run / CONFIG).exists():
        return run
    if not recipe.training.init:
        return None
    origin = Path(recipe.training.init)
    if not origin.is_dir():
        raise RegardError(f"training.init is {origin}, and there is no such folder; it is the model to begin with")
    if changed := _apart(read_recipe(origin).text, recipe.text, "text"):
        raise RegardError(
            f"training.init: {origin} has another vocabulary: {changed}; write what it has, or leave that out"
        )
    return origin


HARMLESS = ("dropout", "dropped", "init", "preset", "epsilon")  # ends of keys that change no tensor


def _same_model(recipe: Recipe) -> None:
    """Raise RegardError where the run that training.init names has a model of another shape: by keys, not tensors."""
    origin = Path(str(recipe.training.init))
    theirs, ours, path = read_recipe(origin).model, recipe.model, "model"
    if theirs.kind != ours.kind and getattr(ours, "features", None) is not None:  # the part that is taken from there
        ours, path = getattr(ours, "features"), "model.features"  # noqa: B009
    if changed := _apart(theirs, ours, path, HARMLESS):
        raise RegardError(
            f"training.init: {origin} has another model: {changed}; write what it has, or leave that out of the recipe"
        )


def _apart(there: Any, here: Any, path: str, harmless: tuple[str, ...] = ()) -> str:
    """Where two sections differ, in words; nothing where they do not."""
    found = list(config.changes(config.to_plain(there), config.to_plain(here), path))
    kinds = [change for change in found if change[0] == f"{path}.kind"]  # another kind has other keys
    told = [f"{key} is {old} there and {new} here" for key, old, new in kinds or found if not key.endswith(harmless)]
    return ", ".join(told[:4]) + (f", and {len(told) - 4} more" if len(told) > 4 else "")


def _results(run: Path, progress: Progress, recipe: Recipe) -> dict[str, Any] | None:
    """What a finished run measured; None if it is not finished, or was killed before it had written all."""
    if not (progress.done or progress.step >= recipe.training.steps) or not (run / WEIGHTS).exists():
        return None
    try:
        return json.loads((run / RESULTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _greet(log: Log, task: Task, model: nn.Module, device: torch.device, begun: int) -> None:
    for line in task.report():
        log.say(line)
    parameters = sum(p.numel() for p in model.parameters())
    log.say(
        f"{parameters / 1e6:.2f} million parameters on {device}" + (f"; going on from step {begun:,}" if begun else "")
    )


def _finish(recipe: Recipe, run: Path, task: Task, trainer: Trainer, log: Log, interrupt: Interrupt) -> dict[str, Any]:
    """The final weights into the folder, measured as the recipe says, with what is needed to repeat the result."""
    checkpoints, progress = trainer.checkpoints, trainer.progress
    model = task.build_model().to(trainer.device)  # a whole one: what was trained may be in parts
    count = recipe.training.checkpoints.average
    if count:
        files = checkpoints.last_weights(count)
        chosen, tensors = f"average of the last {len(files)} checkpoints", average(files)
    else:
        step = progress.best_step or progress.step
        mean = "running mean of the weights at " if recipe.training.ema else ""
        chosen, tensors = f"{mean}step {step}", read_whole(checkpoints.path(step), "model")
    load_weights(model, tensors, run / WEIGHTS)
    write_tensors(run / WEIGHTS, tensors)
    torch.set_float32_matmul_precision("highest")  # as `regard evaluate` will measure it again
    metrics = task.evaluate(model, interrupt.wrap(log.note))
    results = {
        "valid": metrics,
        "weights": chosen,
        "steps": progress.step,
        "epochs": progress.epoch,
        task.target_unit: progress.tokens,
        "seconds": round(progress.seconds, 1),
        f"{task.target_unit}_per_second": round(progress.tokens / max(progress.seconds, 1e-9)),
        "parameters": sum(p.numel() for p in model.parameters()),
        "seed": recipe.seed,
        "data": task.fingerprint,
        "regard": __version__,
        "torch": torch.__version__,
        "device": device_name(trainer.device),
        "processes": trainer.world.size,
        "commit": _commit(),
    }
    with whole(run / RESULTS) as file:
        file.write(json.dumps(json_safe(results), indent=1, ensure_ascii=False) + "\n")
    log.write("done", progress.step, **{k: v for k, v in results.items() if not isinstance(v, dict)})
    log.say(f"done: {chosen} is in {run / WEIGHTS}")
    return results


def _commit() -> str | None:
    """Of the checkout this package runs from, if it is one."""
    here = Path(__file__).resolve()
    if here.parents[2].name != "src":
        return None
    try:
        asked = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=here.parents[3],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout.strip() or None


def _again(run: Path, world: World) -> str:
    if world.size > 1:
        return "the same command, with any number of processes"
    return f"regard train {shlex.quote(str(run / CONFIG))} --out {shlex.quote(str(run))}"
