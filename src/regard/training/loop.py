"""The training loop, one for every task: steps, losses, checkpoints and time. Knows no text and no kind of model."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard import accel
from regard.accel import launch
from regard.accel.training_graph import Recorded, Replay
from regard.data.loader import Loader, Step
from regard.errors import RegardError
from regard.io.tensors import is_part, weights_of
from regard.nn import dispatch
from regard.tasks.contract import Task, View
from regard.training.checkpoint import Checkpoints, Progress
from regard.training.config import Training
from regard.training.distributed import World, quietly, spread, whole
from regard.training.ema import RunningMean
from regard.training.interrupt import Interrupt
from regard.training.log import Log

accel.register()


class Epoch:
    """A view with its batches planned: what the loader draws from."""

    def __init__(self, view: View, budget: int, seed: int, epoch: int, pinned: bool = False) -> None:
        """Where `pinned`, the thread that makes batches puts them where a GPU copies from without stopping the host."""
        self.batches, self.targets = view.plan(budget, seed, epoch), view.targets
        self.collate = (lambda indices: view.collate(indices).pin()) if pinned else view.collate


class Trainer:
    def __init__(
        self,
        task: Task,
        model: nn.Module,
        settings: Training,
        seed: int,
        run: Path,
        device: torch.device,
        world: World | None = None,
    ) -> None:
        self.task, self.model, self.settings, self.seed, self.device = task, model, settings, seed, device
        self.world = world or World()
        self.spread = spread(model, self.world, settings.parallel)  # the same weights, as all processes train them
        self.size = int(getattr(getattr(model, "config", None), "size", 512))  # the paper's schedule asks for it
        self.checkpoints = Checkpoints(run, self.world)
        self.progress = Progress(fingerprint=task.fingerprint)
        self.carry: dict[str, Tensor] | None = None
        self.bad = torch.full((), -1, dtype=torch.long, device=device)  # first step whose loss was not finite
        self.recent: dict[int, Step] = {}  # the steps since `bad` was last read
        self.share = torch.zeros((), device=device)  # what a loss is multiplied with before its gradient is taken
        self.replay = self._replay()
        self.optimiser = make_optimiser(model, settings, device, recorded=self.replay is not None)
        self.mean = RunningMean(model, settings.ema) if settings.ema else None
        self.update: Callable[[], Tensor] = self._update
        if self.replay:
            self.update = Recorded(self._update, self.replay.stream)

    def _replay(self) -> Replay | None:
        """Recorded launches, for one process on a GPU; what they compute is the same, to rounding."""
        s = self.settings
        if self.device.type != "cuda" or self.world.size > 1 or not s.fast or s.deterministic:
            return None
        return Replay(lambda batch: self._gradients(batch, self.share), torch.cuda.Stream(self.device))

    def resume(self) -> None:
        """Go on from the last checkpoint, if there is one."""
        if not self.world.told(self.checkpoints.exists()):
            return
        self.progress, carry = self.checkpoints.load(
            self.model, self.optimiser, self.mean.values if self.mean else None
        )
        if self.mean:
            self.mean.swap()  # a checkpoint's model is the mean
        self.carry = {name: value.to(self.device) for name, value in carry.items()} if carry else None
        if self.progress.fingerprint != self.task.fingerprint:
            raise RegardError(
                f"{self.checkpoints.last}: the training data has changed since this run began; start a new one"
            )

    def run(self, log: Log, interrupt: Interrupt) -> Progress:
        """Train until the last step, an early stop or an interruption."""
        s, p = self.settings, self.progress
        p.processes = self.world.size
        loader = Loader(
            self._epoch, group=s.accumulate, start=(p.epoch, p.epoch_step), rank=self.world.rank, world=self.world.size
        )
        self.model.train()
        first = p.step + 1
        clock = Clock(self.device)
        with contextlib.closing(loader), self.stream(), dispatch.plain(not s.fast):
            if p.unmeasured:
                self._validate(log, clock, interrupt)
                if p.unmeasured:  # interrupted again: still owed
                    return p
            while p.step < s.steps and not p.done:
                with clock.waiting():
                    step = next(loader)
                loss, targets, rate = self.step(step)
                clock.add(loss, targets)
                p.step, p.tokens, (p.epoch, p.epoch_step) = p.step + 1, p.tokens + targets, step.after
                log.advance(p.step)
                if p.step == first:
                    for sentence in self.task.notes(self.model):
                        log.say(sentence)
                if p.step % s.log_every == 0 or p.step == s.steps:
                    self._log(log, clock, rate)
                stopping = self.world.agree(interrupt.wanted)
                if p.step % s.validation.every == 0 or p.step == s.steps:
                    self._validate(log, clock, interrupt)
                elif p.step % s.checkpoints.every == 0 or stopping:
                    self._save(clock, stop=p.step % s.checkpoints.every != 0)
                if stopping or p.unmeasured:
                    break
        return p

    def step(self, step: Step) -> tuple[Tensor, int, float]:
        """One optimiser step: gradients of all its micro-batches, divided by the targets they have together."""
        number, targets, carry = self.progress.step + 1, max(1, step.targets), self.carry
        try:
            total = self._total(step, number, targets)
        except torch.OutOfMemoryError:
            if self.world.size > 1:  # the others would wait
                raise
            total = None
        if total is None:  # once more: not inside `except`, which would hold what was computed
            self._make_room(carry)
            total = self._total(step, number, targets)
        rate = self.settings.schedule.rate(number, self.size, self.settings.steps)
        self._set_rates(rate, number)
        norm = self.update()
        if self.mean:
            self.mean.update(number)
        healthy = torch.isfinite(total) & torch.isfinite(norm)
        self.bad = torch.where((self.bad < 0) & ~healthy, number, self.bad)
        self.recent[number] = step
        return total, targets, rate

    def _total(self, step: Step, number: int, targets: int) -> Tensor:
        """The loss of a step; its gradients are the parameters'."""
        # Dropout is a function of (seed, rank, step): resuming needs no state.
        torch.manual_seed((self.seed << 32) + (self.world.rank << 24) + number)
        total, last = torch.zeros((), device=self.device), len(step.batches) - 1
        for n, batch in enumerate(step.batches):
            counts = n <= last - step.idle
            share = self.world.size / targets * counts  # gradients of all processes are averaged, not added
            with quietly(self.spread, n < last):
                total = total + self._learn(batch, share) * counts
        return self.world.sum(total) / targets

    def _make_room(self, carry: dict[str, Tensor] | None) -> None:
        """Forget half a step, recorded launches and what torch keeps for later."""
        self.carry = carry
        self.optimiser.zero_grad(set_to_none=self.replay is None)
        if self.replay:
            self.replay.recorded.clear()
            self.replay.full = True
        torch.cuda.empty_cache()

    def _set_rates(self, rate: float, number: int) -> None:
        """A function of the step alone, frozen layers too: resuming needs no state."""
        layers = self.settings.layerwise
        for group in self.optimiser.param_groups:
            own = rate * layers.share(group["depth"], number) if layers else rate
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(own)
            else:
                group["lr"] = own

    def _update(self) -> Tensor:
        """Clip, change the weights, forget the gradients; what their norm was."""
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        norm = whole(nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))
        if self.settings.clip:
            nn.utils.clip_grads_with_norm_(parameters, self.settings.clip, norm)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=self.replay is None)  # a recording adds gradients where they were
        return norm

    def _learn(self, batch: Any, share: float) -> Tensor:
        """The loss of a micro-batch; its gradients are added to the parameters'."""
        fixed = self.task.static_batch(self.model, batch) if self.replay else None
        if self.replay and fixed is not None:
            self.share.fill_(share)
            launch.seed(self.share).fill_(int(torch.randint(2**31 - 1, ())))
            return self.replay(fixed)
        return self._gradients(batch.to(self.device), share)

    def _gradients(self, batch: Any, share: float | Tensor) -> Tensor:
        with self.autocast():
            loss, self.carry = self.task.loss(self.spread, batch, self.carry)
        if self.carry and self.world.size > 1:  # rows that follow each other would meet in other processes
            raise RegardError("what passes from batch to batch cannot be shared out; train this in one process")
        (loss * share).backward()
        return loss.detach()

    def _epoch(self, number: int) -> Epoch:
        view, budget = self.task.view(self.seed, number), self.settings.tokens_per_batch
        return Epoch(view, budget, self.seed, number, pinned=self.device.type == "cuda")

    @contextlib.contextmanager
    def stream(self) -> Iterator[None]:
        """All work of a run on the stream that is recorded from."""
        if self.replay is None:
            yield
            return
        for parameter in self.model.parameters():
            if parameter.requires_grad and parameter.grad is None:  # what is frozen stays without, or it would decay
                parameter.grad = torch.zeros_like(parameter)
        around, own = torch.cuda.current_stream(self.device), self.replay.stream
        own.wait_stream(around)
        with torch.cuda.stream(own):
            yield
        around.wait_stream(own)

    def autocast(self) -> Any:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.precision == "bf16")

    def check(self) -> None:
        """Read, now and then, whether any loss or gradient since was not a number; nothing of it is ever saved."""
        number = int(self.bad)
        if number >= 0:
            step = self.recent[number]
            raise RegardError(
                f"the loss of step {number} (epoch {step.epoch}), or its gradient, is not a number; its batch: "
                f"{'; '.join(self.task.describe(batch) for batch in step.batches)}. {self.checkpoints.kept()}. "
                "Lower training.schedule's rate, set training.clip, or look at those lines"
            )
        self.recent.clear()

    def _log(self, log: Log, clock: "Clock", rate: float) -> None:
        self.check()
        (loss, speed, waited), counted = clock.read(), self.task.target_unit
        log.train(self.progress.step, self.settings.steps, loss, rate, f"{speed:,.0f} {counted}/s")
        log.write(
            "train",
            self.progress.step,
            epoch=self.progress.epoch,
            loss=round(loss, 5),
            rate=rate,
            waiting=round(waited, 4),
            **{f"{counted}_per_second": round(speed), counted: self.progress.tokens},
        )

    def _validate(self, log: Log, clock: "Clock", interrupt: Interrupt) -> None:
        self.check()
        p = self.progress
        clock.stop()
        try:
            with self._shown(), self.autocast():
                model = self._whole()
                metrics = self.world.first(
                    lambda: self.task.validate(model, self.device, interrupt.wrap(log.note))
                )  # the others wait
        except Interrupt.Now:
            p.unmeasured = True
            self._save(clock)
            return
        p.metrics, p.unmeasured = metrics, False
        if metrics:
            better = self._judge(metrics)
            log.write("valid", p.step, **{k: round(v, 5) for k, v in metrics.items()}, best=better)
            shown = "  ".join(f"{name} {value:.2f}" for name, value in metrics.items())
            log.say(f"step {p.step:,}: {shown}{'  (best so far)' if better else ''}")
            patience = self.settings.validation.patience
            if patience and p.since_best >= patience:
                p.done = True
                log.say(f"no better {self.task.goal} in {patience} validations: stopping early")
        self._save(clock)
        clock.start()

    def _shown(self) -> contextlib.AbstractContextManager[None]:
        """The model as it is measured and kept, within."""
        return self.mean.shown() if self.mean else contextlib.nullcontext()

    def _whole(self) -> nn.Module:
        """The model in one piece, for the main process to measure; all processes help to put it together."""
        if not any(map(is_part, self.model.parameters())):
            return self.model
        model = self.task.build_model().to(self.device) if self.world.main else None
        kept = weights_of(model) if model is not None else {}
        for name, value in weights_of(self.model).items():
            together = whole(value)  # one at a time: only the main process keeps it
            if name in kept:
                kept[name].copy_(together)
        return model if model is not None else self.model

    def _judge(self, metrics: dict[str, float]) -> bool:
        """Whether these weights are the best so far; a value that is not a number never is."""
        p, value = self.progress, metrics.get(self.task.goal)
        if value is None:
            known = ", ".join(metrics)
            raise RegardError(f"training.goal is {self.task.goal}, which validation does not measure (it has {known})")
        sign = 1 if self.task.higher_is_better else -1
        better = math.isfinite(value) and (p.best_value is None or sign * value > sign * p.best_value)
        if better:
            p.best_step, p.best_value, p.since_best = p.step, value, 0
        else:
            p.since_best += 1
        return better

    def _save(self, clock: "Clock", stop: bool = False) -> None:
        self.check()
        self.progress.seconds += clock.lap()
        keep, trained = self.settings.checkpoints.keep, self.mean.values if self.mean else None
        with self._shown():
            self.checkpoints.save(self.model, self.optimiser, self.progress, self.carry, keep, stop, trained)


class Clock:
    """Tokens and loss since the last reading, without stopping the device; validation does not count as training."""

    def __init__(self, device: torch.device, now: Callable[[], float] = time.monotonic) -> None:
        self.device, self.now = device, now
        self._losses: list[Tensor] = []
        self._tokens, self._spent, self._lap, self._waited = 0, 0.0, 0.0, 0.0
        self._since: float | None = now()

    def add(self, loss: Tensor, tokens: int) -> None:
        self._losses.append(loss)
        self._tokens += tokens

    def stop(self) -> None:
        if self._since is not None:
            passed = self.now() - self._since
            self._spent, self._lap, self._since = self._spent + passed, self._lap + passed, None

    def start(self) -> None:
        self._since = self.now()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Time in which there is nothing to learn from."""
        began = self.now()
        yield
        self._waited += self.now() - began

    def read(self) -> tuple[float, float, float]:
        """Since the last reading: mean loss, tokens a second, and the share of time that was spent waiting for data."""
        loss = float(torch.stack(self._losses).mean())
        self.stop()
        spent = max(self._spent, 1e-9)
        speed, waited = self._tokens / spent, self._waited / spent
        self._losses, self._tokens, self._spent, self._waited = [], 0, 0.0, 0.0
        self.start()
        return loss, speed, waited

    def lap(self) -> float:
        """Seconds of training since the last lap."""
        running = self._since is not None
        self.stop()
        passed, self._lap = self._lap, 0.0
        if running:
            self.start()
        return passed


def by_decay(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """What is learned; biases and norms are not pulled towards zero."""
    learned = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in learned if p.dim() > 1], "weight_decay": weight_decay},
        {"params": [p for p in learned if p.dim() <= 1], "weight_decay": 0.0},
    ]


def by_depth(model: nn.Module, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every group by how deep its parameters lie: 0 is the model's first part; what is in none lies below all."""
    if not hasattr(model, "parts"):
        raise RegardError(
            f"training.layerwise: a model of the kind {cast(Any, model).config.kind} has no layers to tell apart"
        )
    parts: list[list[nn.Module]] = model.parts()  # type: ignore[operator]
    depth = {p: n for n, part in enumerate(parts) for module in part for p in module.parameters()}
    found: dict[tuple[int, int], list[nn.Parameter]] = {}
    for n, group in enumerate(groups):
        for p in group["params"]:
            found.setdefault((n, depth.get(p, len(parts))), []).append(p)
    return [{**groups[n], "params": own, "depth": d} for (n, d), own in found.items()]


def make_optimiser(
    model: nn.Module, settings: Training, device: torch.device, recorded: bool = False
) -> torch.optim.Optimizer:
    o = settings.optimiser
    groups = by_decay(model, o.weight_decay)
    if settings.layerwise:
        groups = by_depth(model, groups)
    return (torch.optim.AdamW if o.decoupled else torch.optim.Adam)(
        [{**group, "lr": torch.zeros((), device=device)} for group in groups] if recorded else groups,
        lr=torch.zeros((), device=device) if recorded else 0.0,  # where a recording reads it
        betas=(o.beta1, o.beta2),
        eps=o.epsilon,
        fused=device.type in ("cpu", "cuda"),
        capturable=recorded,
    )
