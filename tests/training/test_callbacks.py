"""Callbacks: what they are told and when, what a failing one does, and that they are no part of a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import regard
from regard import recipe as recipes
from regard.config import choice, option
from regard.errors import RegardError
from regard.run import train_recipe
from regard.training.callbacks import Callback, CallbackConfig
from tests.training import toy

pytestmark = pytest.mark.usefixtures("own_choices")
HEARD: list[tuple[Any, ...]] = []


class Listener(Callback):
    def __init__(self, fails: str) -> None:
        self.fails = fails

    def _hear(self, event: str, *told: Any) -> None:
        HEARD.append((event, *told))
        if event == self.fails:
            raise ConnectionError("the tracker is gone")

    def on_step(self, step: int) -> None:
        self._hear("step", step)

    def on_log(self, step: int, values: Mapping[str, float]) -> None:
        self._hear("log", step, dict(values))

    def on_validation(self, step: int, metrics: Mapping[str, float], best: bool) -> None:
        self._hear("validation", step, dict(metrics), best)

    def on_checkpoint(self, step: int, folder: Path) -> None:
        assert (folder / "state.json").exists()
        self._hear("checkpoint", step, folder.name)

    def on_end(self, step: int, finished: bool) -> None:
        self._hear("end", step, finished)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    @choice("listener")
    class ListenerConfig(CallbackConfig):
        """Hears everything."""

        fails: str = option("", "where it raises")

        def build(self, run: Path, recipe: Mapping[str, Any]) -> Callback:
            HEARD.append(("begin", run.name, recipe["model"]["size"]))
            if self.fails == "begin":
                raise ConnectionError("the tracker is gone")
            return Listener(self.fails)

    HEARD.clear()
    toy.write_corpus(tmp_path)
    return tmp_path


def train(folder: Path, name: str, steps: int = 6, **training: Any) -> Any:
    return train_recipe(recipes.load_recipe(toy.recipe(folder, steps, **training)), folder / name, "cpu")


def test_each_event_is_told_in_its_order(folder: Path) -> None:
    train(folder, "run", callbacks=[{"kind": "listener"}])
    assert HEARD[0] == ("begin", "run", 16)
    assert HEARD[-1] == ("end", 6, True)
    events = [(event[0], event[1]) for event in HEARD[1:-1]]
    assert events == [
        ("step", 1), ("step", 2), ("log", 2), ("checkpoint", 2), ("step", 3),
        ("step", 4), ("log", 4), ("validation", 4), ("checkpoint", 4), ("step", 5),
        ("step", 6), ("log", 6), ("validation", 6), ("checkpoint", 6),
    ]  # fmt: skip
    (logged,) = [event[2] for event in HEARD if event[:2] == ("log", 4)]
    assert {"loss", "rate", "epoch", "tokens", "tokens_per_second"} <= logged.keys()
    (metrics, best) = next(event[2:] for event in HEARD if event[0] == "validation")
    assert {"bleu", "loss"} <= metrics.keys()
    assert best is True


def test_they_are_no_part_of_the_run(folder: Path) -> None:
    """The same bits with and without; resuming with others is allowed; a trained model needs none of them."""
    train(folder, "plain")
    train(folder, "heard", 3)
    HEARD.clear()
    train(folder, "heard", callbacks="listener")
    assert HEARD[1] == ("step", 4)
    one, two = (load_file(folder / name / "last" / "model.safetensors") for name in ("plain", "heard"))
    assert all(one[key].equal(two[key]) for key in one)
    config = folder / "heard" / "config.yaml"
    assert "- kind: listener" in config.read_text()
    config.write_text(config.read_text().replace("kind: listener", "kind: unknown"))
    (folder / "heard" / "manifest.json").unlink()  # the change is ours
    regard.load(folder / "heard")


@pytest.mark.parametrize("fails", ["begin", "step", "validation"])
def test_one_that_fails_ends_the_run_with_a_sentence(folder: Path, fails: str) -> None:
    where = "cannot begin" if fails == "begin" else f"failed in on_{fails} of step {1 if fails == 'step' else 4}"
    with pytest.raises(RegardError, match=rf"^training\.callbacks: listener {where} \(ConnectionError: the tracker is"):
        train(folder, "run", callbacks=[{"kind": "listener", "fails": fails}])
    HEARD.clear()
    assert train(folder, "run").finished  # from its last checkpoint


def test_an_unknown_one_is_explained(folder: Path) -> None:
    with pytest.raises(RegardError, match=r"training\.callbacks\.0\.kind is 'listner'; did you mean listener\?"):
        recipes.load_recipe(toy.recipe(folder, callbacks=[{"kind": "listner"}]))
