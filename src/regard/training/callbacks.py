"""Callbacks: what happens beside a run, such as sending its numbers to a tracker. They change nothing of it.

A recipe lists them under `training.callbacks`; the main process calls them, in their order.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from regard.config import Choice
from regard.errors import RegardError


class Callback:
    """Every method is one event, and does nothing unless it is overridden."""

    def on_step(self, step: int) -> None:
        """An optimiser step is done; the device may still be computing it."""

    def on_log(self, step: int, values: Mapping[str, float]) -> None:
        """Every `training.log_every` steps: `loss`, `rate`, tokens so far and a second."""

    def on_validation(self, step: int, metrics: Mapping[str, float], best: bool) -> None:
        """The validation metrics, and whether they are the best so far."""

    def on_checkpoint(self, step: int, folder: Path) -> None:
        """A checkpoint is whole on disk."""

    def on_end(self, step: int, finished: bool) -> None:
        """Training ends here, or was interrupted and goes on later."""


class CallbackConfig(Choice, slot="callback"):
    must_define = ("build",)

    def build(self, run: Path, recipe: Mapping[str, object]) -> Callback:
        """The callback of a run in this folder; `recipe` is complete, as plain dicts and lists."""
        raise NotImplementedError


class CallbackList:
    """The callbacks of a run; an exception of one ends the run with a sentence that names it."""

    def __init__(self, configs: Sequence[CallbackConfig], run: Path, recipe: Mapping[str, object]) -> None:
        self.members: list[tuple[str, Callback]] = []
        for config in configs:
            try:
                self.members.append((config.kind, config.build(run, recipe)))
            except Exception as error:
                raise self._failure(config.kind, "cannot begin", error) from error

    def call(self, event: str, *arguments: object) -> None:
        """`event` is a method of `Callback`."""
        for kind, callback in self.members:
            try:
                getattr(callback, event)(*arguments)
            except Exception as error:
                raise self._failure(kind, f"failed in {event} of step {arguments[0]}", error) from error

    def _failure(self, kind: str, what: str, error: Exception) -> RegardError:
        return RegardError(
            f"training.callbacks: {kind} {what} ({type(error).__name__}: {error}); "
            "mend it or leave it out, and run the same command to go on from the last checkpoint"
        )
