"""A training run before it is one: a few real steps in memory, and what the whole would take. Writes no run folder."""

import contextlib
import itertools
import time
from pathlib import Path
from typing import Any

import torch

from regard.data.loader import Loader
from regard.nn import dispatch
from regard.reporting import Json
from regard.tasks.contract import Task
from regard.training.config import TrainingConfig
from regard.training.cost import activation_bytes, parameters_by_part, state_bytes
from regard.training.loop import Trainer

WARM_UP, MEASURED = 2, 5  # steps


def estimate_training(task: Task, settings: TrainingConfig, seed: int, device: torch.device) -> Json:
    """Parameters by part, bytes of memory and seconds of all steps, from a few steps of the first epoch."""
    torch.manual_seed(seed)
    model = task.build_model().to(device)
    trainer = Trainer(task, model, settings, seed, Path("dry-run"), device)  # it writes only when it saves
    model.train()
    loader = Loader(trainer.epoch, accumulate=settings.accumulate)
    seconds, targets, kept = [], 0, 0
    with contextlib.closing(loader), trainer.stream(), dispatch.disabled(not settings.fast):
        for number, batches in enumerate(itertools.islice(loader, WARM_UP + MEASURED)):
            start = time.perf_counter()
            if number == 0 and device.type != "cuda":  # there the allocator knows
                steps: list[Any] = []
                kept = activation_bytes(model, lambda: steps.append(trainer.step(batches)))  # noqa: B023
            else:
                steps = [trainer.step(batches)]
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            trainer.state.step += 1
            if number >= WARM_UP or settings.steps <= WARM_UP:
                seconds.append(time.perf_counter() - start)
                targets += steps[0][1]
    state = state_bytes(model, settings)
    total = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else state + kept
    each = sum(seconds) / len(seconds)
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "parameters by part": parameters_by_part(model),
        "memory": {"weights, gradients and optimiser": state, "a batch": max(0, total - state), "total": total},
        "seconds a step": each,
        f"{task.target_unit} a second": round(targets / sum(seconds)),
        "steps": settings.steps,
        "seconds of all steps": each * settings.steps,
    }
