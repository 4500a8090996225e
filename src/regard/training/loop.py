"""The training loop, one for every task: `Trainer.run` is the loop, `Trainer.step` one optimiser step.

Knows no text and no kind of model.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from regard import accel
from regard.accel import launch
from regard.accel.training_graph import CapturedMicroBatch, CapturedUpdate
from regard.data.loader import Loader, StepBatches
from regard.errors import RegardError
from regard.io.tensors import is_sharded, unique_state_dict
from regard.models.batch import Batch
from regard.nn import dispatch
from regard.tasks.contract import Task, View
from regard.training.callbacks import CallbackList
from regard.training.checkpoint import CheckpointManager, TrainingState
from regard.training.config import TrainingConfig
from regard.training.distributed import ProcessGroup, full_tensor, no_sync, parallelize
from regard.training.ema import EMA
from regard.training.interrupt import Interrupt, Interrupted
from regard.training.log import ThroughputMeter, TrainingLog
from regard.training.optimiser import build_optimiser

accel.register()


class PlannedEpoch:
    """A view with its micro-batches planned, which the loader iterates over."""

    def __init__(self, view: View, budget: int, seed: int, epoch: int, pinned: bool = False) -> None:
        """`pinned`: the loader's thread pins batches in memory, from which a GPU copies without stopping the host."""
        self.batches, self.targets = view.plan(budget, seed, epoch), view.targets
        self.collate = (lambda indices: view.collate(indices).pin()) if pinned else view.collate


class Trainer:
    def __init__(
        self,
        task: Task,
        model: nn.Module,
        settings: TrainingConfig,
        seed: int,
        run: Path,
        device: torch.device,
        group: ProcessGroup | None = None,
        callbacks: CallbackList | None = None,
    ) -> None:
        self.callbacks = callbacks or CallbackList((), run, {})
        self.task, self.model, self.settings, self.seed, self.device = task, model, settings, seed, device
        self.group = group or ProcessGroup()
        self.parallel_model = parallelize(model, self.group, settings.parallel)  # the same weights, as all train them
        self.model_size = int(getattr(getattr(model, "config", None), "size", 512))  # for the paper's schedule
        self.checkpoints = CheckpointManager(run, self.group)
        self.state = TrainingState(fingerprint=task.fingerprint)
        self.carry: dict[str, Tensor] | None = None  # of a recurrent memory, from batch to batch
        self.bad_step = torch.full((), -1, dtype=torch.long, device=device)  # first whose loss was not finite
        self.recent: dict[int, StepBatches] = {}  # the steps since `bad_step` was last read
        self.loss_factor = torch.zeros((), device=device)  # what a loss is multiplied with before its backward pass
        self.replay = self._replay()  # None: micro-batches are computed as they come
        capture_update = self.replay is not None and settings.optimiser.capturable
        self.optimiser = build_optimiser(model, settings, device, capture_update)
        self.ema = EMA(model, settings.ema) if settings.ema else None
        self.apply_gradients: Callable[[], Tensor] = self._apply_gradients
        if self.replay and capture_update:
            self.apply_gradients = CapturedUpdate(self._apply_gradients, self.replay.stream)

    def _replay(self) -> CapturedMicroBatch | None:
        """CUDA graphs of micro-batches, for one process on a GPU; what they compute is the same, to rounding."""
        s = self.settings
        if self.device.type != "cuda" or self.group.size > 1 or not s.fast or s.deterministic:
            return None
        step = lambda batch: self._loss_and_backward(batch, self.loss_factor)  # noqa: E731
        return CapturedMicroBatch(step, torch.cuda.Stream(self.device))

    def resume(self) -> list[str]:
        """Load the last checkpoint, if there is one; sentences about those that are damaged.

        It goes on with the same numbers: batches are a function of (seed, epoch) (`Task.view`, `data/batches.py`), the
        loader starts at (state.epoch, state.epoch_step), the step seeds dropout (`_accumulate`) and gives the rates.
        """
        if not self.group.broadcast(self.checkpoints.exists()):
            return []
        trained = self.ema.swapped_out if self.ema else None
        self.state, carry = self.checkpoints.load(self.model, self.optimiser, trained)
        if self.ema:
            self.ema.swap()  # a checkpoint's model is the average
        self.carry = {name: value.to(self.device) for name, value in carry.items()} if carry else None
        if self.state.fingerprint != self.task.fingerprint:
            raise RegardError(
                f"{self.checkpoints.last}: the training data has changed since this run began; start a new one"
            )
        return self.checkpoints.notices

    def run(self, log: TrainingLog, interrupt: Interrupt) -> TrainingState:
        """Train until the last step, an early stop or an interruption."""
        s, state = self.settings, self.state
        state.processes = self.group.size
        loader = Loader(
            self.epoch,
            accumulate=s.accumulate,
            start=(state.epoch, state.epoch_step),
            rank=self.group.rank,
            world_size=self.group.size,
        )
        self.model.train()
        first = state.step + 1
        meter = ThroughputMeter()
        with contextlib.closing(loader), self.stream(), dispatch.disabled(not s.fast):
            if state.unmeasured:
                self._validate(log, meter, interrupt)
                if state.unmeasured:  # interrupted again
                    return state
            while state.step < s.steps and not state.done:
                with meter.waiting():
                    batches = next(loader)
                loss, targets, rate = self.step(batches)
                meter.add(loss, targets)
                state.step, state.tokens = state.step + 1, state.tokens + targets
                state.epoch, state.epoch_step = batches.resume_at
                log.show_step(state.step)
                self.callbacks.call("on_step", state.step)
                if state.step == first:
                    for sentence in self.task.notes(self.model):
                        log.info(sentence)
                if state.step % s.log_every == 0 or state.step == s.steps:
                    self._log(log, meter, rate)
                stopping = self.group.any_rank(interrupt.requested)
                if state.step % s.validation.every == 0 or state.step == s.steps:
                    self._validate(log, meter, interrupt)
                elif state.step % s.checkpoints.every == 0 or stopping:
                    self._save(meter, stop=state.step % s.checkpoints.every != 0)
                if stopping or state.unmeasured:
                    break
        self.callbacks.call("on_end", state.step, state.done or state.step >= s.steps)
        return state

    def step(self, batches: StepBatches) -> tuple[Tensor, int, float]:
        """One optimiser step: gradients of all its micro-batches, divided by the targets they have together.

        The step's number gives the rates; `apply_gradients` clips, steps and zeroes, on a GPU as a CUDA graph.
        """
        number, targets, carry = self.state.step + 1, max(1, batches.targets), self.carry
        if self.task.begin_step(number, self.settings.steps) and self.replay:
            self.replay.clear()
        try:
            loss = self._accumulate(batches, number, targets)
        except torch.OutOfMemoryError:
            if self.group.size > 1:  # the others would wait
                raise
            loss = None
        if loss is None:  # once more: not inside `except`, which would hold what was computed
            self._free_memory(carry)
            loss = self._accumulate(batches, number, targets)
        rate = self.settings.schedule.rate(number, self.model_size, self.settings.steps)
        self._set_rates(rate, number)
        norm = self.apply_gradients()
        if self.ema:
            self.ema.update(number)
        finite = torch.isfinite(loss) & torch.isfinite(norm)
        self.bad_step = torch.where((self.bad_step < 0) & ~finite, number, self.bad_step)
        self.recent[number] = batches
        return loss, targets, rate

    def _accumulate(self, batches: StepBatches, number: int, targets: int) -> Tensor:
        """The loss of step `number`; its gradients are accumulated in the parameters."""
        # Dropout is a function of (seed, rank, step): resuming needs no state.
        torch.manual_seed((self.seed << 32) + (self.group.rank << 24) + number)
        total, last = torch.zeros((), device=self.device), len(batches.batches) - 1
        for n, batch in enumerate(batches.batches):
            is_real = n <= last - batches.dummies
            factor = self.group.size / targets * is_real  # gradients of all processes are averaged, not added
            with no_sync(self.parallel_model, n < last):
                total = total + self._forward_backward(batch, factor) * is_real
        return self.group.all_reduce_sum(total) / targets

    def _free_memory(self, carry: dict[str, Tensor] | None) -> None:
        """Drop the gradients of half a step, recorded graphs and what torch keeps for later."""
        self.carry = carry
        self.optimiser.zero_grad(set_to_none=self.replay is None)
        if self.replay:
            self.replay.graphs.clear()
            self.replay.full = True
        torch.cuda.empty_cache()

    def _set_rates(self, rate: float, number: int) -> None:
        """A function of the step alone, frozen layers too: resuming needs no state."""
        layerwise = self.settings.layerwise
        for group in self.optimiser.param_groups:
            group_rate = rate * layerwise.rate_factor(group["depth"], number) if layerwise else rate
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(group_rate)
            else:
                group["lr"] = group_rate

    def _apply_gradients(self) -> Tensor:
        """Clip the gradients, update the weights, zero the gradients; the gradients' norm."""
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        norm = full_tensor(nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))
        if self.settings.clip:
            nn.utils.clip_grads_with_norm_(parameters, self.settings.clip, norm)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=self.replay is None)  # a CUDA graph adds gradients where they were
        return norm

    def _forward_backward(self, batch: Batch, factor: float) -> Tensor:
        """The loss of a micro-batch; its gradients are added to the parameters'."""
        fixed = self.task.static_batch(self.model, batch) if self.replay else None
        if self.replay and fixed is not None:
            self.loss_factor.fill_(factor)
            launch.step_seed(self.loss_factor).fill_(int(torch.randint(2**31 - 1, ())))
            return self.replay(fixed)
        return self._loss_and_backward(batch.to(self.device), factor)

    def _loss_and_backward(self, batch: Batch, factor: float | Tensor) -> Tensor:
        with self.autocast():
            loss, self.carry = self.task.loss(self.parallel_model, batch, self.carry)
        if self.carry and self.group.size > 1:  # rows that follow each other would meet in other processes
            raise RegardError("what passes from batch to batch cannot be shared out; train this in one process")
        (loss * factor).backward()
        return loss.detach()

    def epoch(self, number: int) -> PlannedEpoch:
        view, budget = self.task.view(self.seed, number), self.settings.tokens_per_batch
        return PlannedEpoch(view, budget, self.seed, number, pinned=self.device.type == "cuda")

    @contextlib.contextmanager
    def stream(self) -> Iterator[None]:
        """All work of a run on the CUDA stream that is captured."""
        if self.replay is None:
            yield
            return
        for parameter in self.model.parameters():
            if parameter.requires_grad and parameter.grad is None:  # what is frozen stays without, or it would decay
                parameter.grad = torch.zeros_like(parameter)
        outer, own = torch.cuda.current_stream(self.device), self.replay.stream
        own.wait_stream(outer)
        with torch.cuda.stream(own):
            yield
        outer.wait_stream(own)

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.precision == "bf16")

    def check_finite(self) -> None:
        """Raise RegardError if any loss or gradient since the last call was not finite; called before every save."""
        number = int(self.bad_step)
        if number >= 0:
            step = self.recent[number]
            raise RegardError(
                f"the loss of step {number} (epoch {step.epoch}), or its gradient, is not a number; its batch: "
                f"{'; '.join(self.task.describe(batch) for batch in step.batches)}. "
                f"{self.checkpoints.describe_last()}. "
                "Lower training.schedule's rate, set training.clip, or look at those lines"
            )
        self.recent.clear()

    def _log(self, log: TrainingLog, meter: ThroughputMeter, rate: float) -> None:
        self.check_finite()
        (loss, speed, waited), counted = meter.read(), self.task.target_unit
        log.log_step(self.state.step, self.settings.steps, loss, rate, f"{speed:,.0f} {counted}/s")
        values = {"epoch": self.state.epoch, "loss": round(loss, 5), "rate": rate, "waiting": round(waited, 4)}
        values |= {f"{counted}_per_second": round(speed), counted: self.state.tokens}
        log.write("train", self.state.step, **values)
        self.callbacks.call("on_log", self.state.step, values)

    def _validate(self, log: TrainingLog, meter: ThroughputMeter, interrupt: Interrupt) -> None:
        self.check_finite()
        state = self.state
        meter.stop()
        try:
            with self._averaged_weights(), self.autocast():
                model = self._full_model()
                metrics = self.group.on_main(
                    lambda: self.task.validate(model, self.device, interrupt.wrap(log.show_progress))
                )  # the others wait
        except Interrupted:
            state.unmeasured = True
            self._save(meter)
            return
        state.metrics, state.unmeasured = metrics, False
        if metrics:
            better = self._update_best(metrics)
            log.write("valid", state.step, **{k: round(v, 5) for k, v in metrics.items()}, best=better)
            values = "  ".join(f"{name} {value:.2f}" for name, value in metrics.items())
            log.info(f"step {state.step:,}: {values}{'  (best so far)' if better else ''}")
            self.callbacks.call("on_validation", state.step, metrics, better)
            patience = self.settings.validation.patience
            if patience and state.since_best >= patience:
                state.done = True
                log.info(f"no better {self.task.goal} in {patience} validations: stopping early")
        self._save(meter)
        meter.start()

    def _averaged_weights(self) -> contextlib.AbstractContextManager[None]:
        """Inside, the model has the weights that are measured and saved: their EMA, if there is one."""
        return self.ema.applied() if self.ema else contextlib.nullcontext()

    def _full_model(self) -> nn.Module:
        """The model unsharded, for the main process to measure; a collective call."""
        if not any(map(is_sharded, self.model.parameters())):
            return self.model
        model = self.task.build_model().to(self.device) if self.group.is_main else None
        weights = unique_state_dict(model) if model is not None else {}
        for name, value in unique_state_dict(self.model).items():
            full = full_tensor(value)  # one at a time: only the main process keeps it
            if name in weights:
                weights[name].copy_(full)
        return model if model is not None else self.model

    def _update_best(self, metrics: dict[str, float]) -> bool:
        """Whether these weights are the best so far; a value that is not finite never is."""
        state, value = self.state, metrics.get(self.task.goal)
        if value is None:
            known = ", ".join(metrics)
            raise RegardError(f"training.goal is {self.task.goal}, which validation does not measure (it has {known})")
        sign = 1 if self.task.higher_is_better else -1
        better = math.isfinite(value) and (state.best_value is None or sign * value > sign * state.best_value)
        if better:
            state.best_step, state.best_value, state.since_best = state.step, value, 0
        else:
            state.since_best += 1
        return better

    def _save(self, meter: ThroughputMeter, stop: bool = False) -> None:
        self.check_finite()
        self.state.seconds += meter.lap()
        keep = self.settings.checkpoints.keep
        with self._averaged_weights():
            trained = self.ema.swapped_out if self.ema else None  # the weights that go on learning
            folder = self.checkpoints.save(self.model, self.optimiser, self.state, self.carry, keep, stop, trained)
        self.callbacks.call("on_checkpoint", self.state.step, folder)
