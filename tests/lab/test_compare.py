"""Arms, their first weights, controls and verdicts; the whole command on the toy corpus."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from regard.cli.main import app
from regard.errors import RegardError
from regard.io.run_folder import WEIGHTS
from regard.io.tensors import read_tensors
from regard.lab import trainings
from regard.lab.arms import Arm, check_arms, check_metric, grid, read_arms
from regard.lab.compare import ArmResult, CompareOptions, Comparison, compare_arms, describe
from regard.lab.compare_report import difference_chart, markdown
from regard.lab.controls import controlled, count_parameters, prepare, quarter, rate_key, tune_rates
from regard.lab.initial import write_initial_weights
from regard.lab.sweep import draw_trials, rungs, sweep
from regard.lab.trainings import Outcome, Training, TrainingPool
from regard.recipe import Recipe, load_recipe
from tests.training import toy


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("toy")
    toy.write_corpus(folder)
    path = folder / "toy.yaml"
    path.write_text(yaml.safe_dump(toy.recipe(folder)), encoding="utf-8")
    return str(path)


# --- arms ----------------------------------------------------------------------------------------------------------


def test_a_grid_has_every_combination() -> None:
    arms = grid(["model.layers=[1, 2]", "model.position=[rotary, {kind: learned, length: 64}]"])
    assert len(arms) == 4
    assert arms[1].overrides == ("model.layers=1", "model.position={kind: learned, length: 64}")
    assert arms[1].name == "layers=1 position={kind: learned, length: 64}"
    assert [arm.name for arm in grid(["model.position=[rotary, none]"])] == ["rotary", "none"]


def test_a_file_of_arms(tmp_path: Path, base: str) -> None:
    file = tmp_path / "arms.yaml"
    file.write_text("plain:\nwide: {model.inner: 64}\nnested: {model: {heads: 4, position: {kind: rotary}}}\n")
    arms = read_arms(file)
    assert [arm.overrides for arm in arms] == [
        (), ("model.inner=64",), ("model.heads=4", "model.position={kind: rotary}"),
    ]  # fmt: skip
    assert check_arms(base, arms, [])[2].model.heads == 4  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "vary, sentence",
    [
        (["model.position=[rotary]"], "at least two values"),
        (["model.position"], "write key='\\[one, other\\]'"),
        (["model.layers=[1, 2]", "model.layers=[3, 4]"], "given twice"),
        (["model.laiers=[1, 2]"], "model.laiers is not a known key; did you mean layers"),
        (["model.position=[rotary, {kind: rotary}]"], "are the same recipe"),
        (["model.position=[rotary, rotery]"], "rotery"),
        (["seed=[1, 2]"], "which the comparison sets itself"),
    ],
)
def test_what_cannot_be_compared_is_refused(base: str, vary: list[str], sentence: str) -> None:
    with pytest.raises(RegardError, match=sentence):
        check_arms(base, grid(vary), [])


def test_metrics_that_do_not_compare(base: str) -> None:
    recipes = check_arms(base, grid(["model.layers=[1, 2]"]), [])
    assert check_metric(recipes, None) == ("loss", False)
    with pytest.raises(RegardError, match="the task translation has not that metric"):
        check_metric(recipes, "accuracy")
    with pytest.raises(RegardError, match="different vocabularies"):
        check_metric(check_arms(base, grid(["text.kind=[word, char]"]), []), "loss")


def test_options_that_give_no_verdict() -> None:
    with pytest.raises(RegardError, match="one seed gives no verdict"):
        CompareOptions(seeds=1).check()
    CompareOptions(seeds=1, screen=True).check()
    with pytest.raises(RegardError, match="--control is 'stepps'; did you mean steps"):
        CompareOptions(control="stepps").check()


# --- first weights, controls, rates --------------------------------------------------------------------------------


def test_arms_of_a_seed_begin_alike(base: str, tmp_path: Path) -> None:
    recipes = check_arms(base, grid(["model.layers=[1, 2]"]), [])
    folders = [[tmp_path / f"{n}-{seed}" for seed in (1, 2)] for n in range(2)]
    for recipe, own in zip(recipes, folders, strict=True):
        write_initial_weights(recipe, recipes[0], [1, 2], own)
    first, deeper = (read_tensors(own[0] / WEIGHTS) for own in folders)
    assert len(deeper) > len(first)
    assert all((deeper[name] == tensor).all() for name, tensor in first.items())
    other = read_tensors(folders[0][1] / WEIGHTS)
    assert any((other[name] != tensor).any() for name, tensor in first.items())


def test_equal_tokens_and_parameters(base: str) -> None:
    recipes = check_arms(base, grid(["training.tokens_per_batch=[200, 400]"]), [])
    assert [each.training.steps for each in controlled(recipes, "tokens", "cpu", print)] == [12, 6]
    slower = check_arms(base, grid(["model.layers=[1, 6]"]), [])
    first, second = controlled(slower, "time", "cpu", print)
    assert second.training.steps < first.training.steps == 12
    recipes = check_arms(base, grid(["model.layers=[1, 2]"]), ["model.inner=128"])
    equal = controlled(recipes, "parameters", "cpu", print)
    counts = [count_parameters(each, prepare(each)) for each in equal]
    assert counts[1] == pytest.approx(counts[0], rel=0.01)
    assert count_parameters(recipes[1], prepare(recipes[1])) > 1.3 * counts[0]


def test_a_rate_is_looked_for_beyond_the_ends(base: str, tmp_path: Path) -> None:
    """Where the loss is least at four times the rate, that is found, and what broke is passed by."""
    recipe = load_recipe(base)
    assert rate_key(recipe) == ("peak", 3e-3)
    assert (quarter(recipe).training.steps, quarter(recipe).seed) == (3, 0)

    class Fake(Outcome):
        def metric(self, name: str) -> float:
            rate = rate_key(self.training.recipe)[1]
            return abs(rate / 3e-3 - 4)

    def train(trainings: Sequence[Training]) -> list[Outcome]:
        return [Fake(each, "nan" if "rate-0.5" in each.run.name else "") for each in trainings]

    found = tune_rates(["arm"], [recipe], tmp_path, train, "loss", False, print)
    assert rate_key(found[0])[1] == pytest.approx(1.2e-2)


# --- verdicts ------------------------------------------------------------------------------------------------------


def comparison(differences: Sequence[float], higher: bool = False, margin: float = 0.0) -> Comparison:
    seeds = range(1, len(differences) + 1)
    first = ArmResult(Arm("base", ()), {seed: 2.0 + seed for seed in seeds}, seconds=[1.0])
    other = ArmResult(
        Arm("other", ()), {s: 2.0 + s + d for s, d in zip(seeds, differences, strict=True)}, seconds=[1.0]
    )
    return Comparison("toy", "loss", higher, CompareOptions(margin=margin), [first, other])


@pytest.mark.parametrize(
    "differences, higher, margin, verdict",
    [
        ([-0.5, -0.6, -0.55], False, 0.0, "better"),
        ([-0.5, -0.6, -0.55], True, 0.0, "worse"),
        ([-0.5, -0.6, -0.55], False, 1.0, "as good"),
        ([-0.5, 0.6, -0.55], False, 0.1, "undecided"),
    ],
)
def test_verdicts(differences: list[float], higher: bool, margin: float, verdict: str) -> None:
    found = comparison(differences, higher, margin)
    assert found.verdict(found.arms[1]) == verdict


def test_a_broken_arm_is_a_row() -> None:
    found = comparison([0.1, 0.2])
    found.arms.append(ArmResult(Arm("broken", ()), {}, {1: "the loss of step 3 is not a number", 2: "again"}))
    assert found.verdict(found.arms[2]) == "failed"
    assert "| broken | 0, 2 failed |" in markdown(found)
    assert any("the loss of step 3" in sentence for sentence in describe(found))
    assert "broken" not in difference_chart(found)
    json.dumps(found.json())


# --- the whole -----------------------------------------------------------------------------------------------------


class FakePool(TrainingPool):
    """Trains in no process: a result that depends on the seed and the layers; what is deep breaks."""

    trained: list[Path] = []  # noqa: RUF012

    def run(self, trainings: Sequence[Training], done: Callable[[Outcome], None]) -> list[Outcome]:
        outcomes = []
        for each in trainings:
            layers = vars(each.recipe.model)["layers"]
            if layers > 2:
                outcomes.append(Outcome(each, "out of memory", 1.0))
            elif not each.finished():
                self.trained.append(each.run)
                _write_results(each.recipe, each.run, each.recipe.seed - 0.5 * layers)
                outcomes.append(Outcome(each, "", 1.0))
            else:
                outcomes.append(Outcome(each))
            done(outcomes[-1])
        return outcomes


def _write_results(recipe: Recipe, run: Path, loss: float) -> None:
    run.mkdir(parents=True)
    metrics = {"loss": {"value": loss}, "bleu": {"value": 1.0}}
    results = {"valid": {"metrics": metrics}, "steps": recipe.training.steps, "parameters": 10, "seconds": 1.0}
    (run / "results.json").write_text(json.dumps(results))
    (run / "log.jsonl").write_text(json.dumps({"kind": "train", "step": 2, "loss": loss}) + "\n")


def test_a_comparison_goes_on_where_it_was_stopped(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.lab.compare.TrainingPool", FakePool)
    FakePool.trained = []
    arms, options = grid(["model.layers=[1, 2, 3]"]), CompareOptions(seeds=2)
    first = compare_arms(base, arms, tmp_path / "out", options)
    assert (first.verdict(first.arms[1]), first.verdict(first.arms[2])) == ("better", "failed")
    assert first.arms[1].difference(first.arms[0]).mean == pytest.approx(-0.5)  # type: ignore[union-attr]
    assert len(FakePool.trained) == 4
    shutil.rmtree(tmp_path / "out" / "2" / "seed-2")
    again = compare_arms(base, arms, tmp_path / "out", replace(options, metric="bleu"))
    assert [path.name for path in FakePool.trained[4:]] == ["seed-2"]
    assert again.arms[1].values == {1: 1.0, 2: 1.0}  # of the same runs
    assert again.arms[1].beside["loss"] == list(first.arms[1].values.values())
    with pytest.raises(RegardError, match=r"holds another comparison .*give another --out"):
        compare_arms(base, grid(["model.heads=[1, 2]"]), tmp_path / "out", options)
    report = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert report["arms"][2]["errors"]["1"] == "out of memory"


def test_seeds_are_added_while_it_is_undecided(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Noisy(FakePool):
        def run(self, trainings: Sequence[Training], done: Callable[[Outcome], None]) -> list[Outcome]:
            for each in trainings:
                noise = (-1) ** each.recipe.seed * vars(each.recipe.model)["layers"]
                if not each.run.exists():
                    _write_results(each.recipe, each.run, float(noise))
            return [Outcome(each) for each in trainings]

    monkeypatch.setattr("regard.lab.compare.TrainingPool", Noisy)
    arms = grid(["model.layers=[1, 2]"])
    found = compare_arms(base, arms, tmp_path / "out", CompareOptions(seeds=2, up_to=4))
    assert len(found.arms[1].values) == 4
    assert found.notes == ["undecided after 2 seeds: one more", "undecided after 3 seeds: one more"]


def test_a_folder_that_is_something_else(base: str, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(RegardError, match="not empty and holds no comparison"):
        compare_arms(base, grid(["model.layers=[1, 2]"]), tmp_path, CompareOptions())
    assert (tmp_path / "letter.txt").exists()


def test_finished_means_all_steps(base: str, tmp_path: Path) -> None:
    recipe = load_recipe(base)
    training = Training(recipe, tmp_path / "run")
    assert not training.finished()
    _write_results(recipe, tmp_path / "run", 1.0)
    assert training.finished()
    longer = replace(recipe, training=replace(recipe.training, steps=99))
    assert not Training(longer, tmp_path / "run").finished()


# --- sweep ---------------------------------------------------------------------------------------------------------


def test_draws_are_in_their_ranges_and_the_same_again() -> None:
    ranges = ["a.b=log(1e-4, 1e-2)", "c=int(1, 3)", "d=[x, y]", "e=uniform(0, 0.5)"]
    trials = draw_trials(ranges, 30, 1)
    assert len(trials) == 30
    assert all(1e-4 <= float(str(trial.keys["a.b"])) <= 1e-2 for trial in trials)
    assert {trial.keys["c"] for trial in trials} == {1, 2, 3}
    assert draw_trials(ranges, 10, 1) == trials[:10]
    assert len(draw_trials(["d=[x, y]"], 9, 1)) == 2  # there are no more


@pytest.mark.parametrize("text", ["peak=log(0, 1)", "peak=uniform(2, 1)", "peak=log(a, b)", "peak=[1]", "peak", "p=5"])
def test_ranges_that_are_none(text: str) -> None:
    with pytest.raises(RegardError, match="--sweep"):
        draw_trials([text], 4, 1)


def test_a_search_takes_no_options_of_a_verdict() -> None:
    arguments = ["compare", "quickstart", "--sweep", "model.heads=[1, 2]", "--seeds", "3", "--tune-rates"]
    error = CliRunner().invoke(app, arguments).exception
    assert isinstance(error, RegardError)
    assert "leave out --seeds and --tune-rates" in str(error)


def test_the_better_third_is_trained_longer(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rungs(9, 900, True) == [(9, 100), (3, 300), (1, 900)]
    assert rungs(9, 900, False) == [(9, 900)]

    class Widest(FakePool):
        def run(self, trainings: Sequence[Training], done: Callable[[Outcome], None]) -> list[Outcome]:
            for each in trainings:
                if not each.run.exists():
                    _write_results(each.recipe, each.run, 1 / vars(each.recipe.model)["inner"])
            return [Outcome(each) for each in trainings]

    monkeypatch.setattr("regard.lab.sweep.TrainingPool", Widest)
    arguments = (base, ["model.inner=int(4, 400)"], tmp_path / "s", 9, True, None, 1, "cpu", ["training.steps=900"])
    name, found = sweep(*arguments, print)
    assert name == "loss"
    assert found[0].keys["model.inner"] == max(int(str(trial.keys["model.inner"])) for trial in found)
    assert [trial.steps for trial in found] == [900, 300, 300, *[100] * 6]
    assert sweep(*arguments, print)[1] == found  # again, from what is there
    arms = read_arms(tmp_path / "s" / "arms.yaml")
    assert arms[0].name == "as it is"
    check_arms(base, arms, [])


# --- processes -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command(base: str, tmp_path: Path) -> None:
    """Two arms, two seeds, and an arm that breaks; then the same command again, which trains nothing."""
    arms = tmp_path / "arms.yaml"
    arms.write_text(
        "post: {}\npre: {model.residual: pre_norm}\nbroken: {training.schedule.peak: 1.0e+30}\n", encoding="utf-8"
    )
    command = ["compare", base, "--arms", str(arms), "--seeds", "2", "--out", str(tmp_path / "out"), "--jobs", "2"]
    result = CliRunner().invoke(app, [*command, "--device", "cpu", "--json"])
    report = json.loads(result.stdout)
    assert result.exit_code == 1
    post, pre, broken = report["arms"]
    assert "difference" in pre
    assert len(post["values"]) == len(pre["values"]) == 2
    assert all("not a number" in sentence for sentence in broken["errors"].values())
    for name in ("table.md", "compare.json", "curves.svg", "differences.svg"):
        assert (tmp_path / "out" / name).stat().st_size
    assert not (tmp_path / "out" / "initial").exists()


@pytest.mark.slow
def test_a_killed_comparison_goes_on(base: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "regard", "compare", base, "training.steps=3000", "--vary", "model.layers=[1, 2]"]
    command += ["--seeds", "2", "--out", str(out), "--jobs", "1", "--device", "cpu"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ})
    log = out / "1" / "seed-1" / "log.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (log.exists() and log.stat().st_size):
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert (out / "1" / "seed-1" / "last").exists()  # it saved before it ended
    assert not (out / "1" / "seed-1" / "results.json").exists()


def test_a_training_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """Its standard input ends when that one does, however it was killed."""
    code = f"import {trainings.__name__} as t; t.runpy.run_module = lambda *a, **k: t.time.sleep(60); "
    child = subprocess.Popen([sys.executable, "-c", code + "t.train_beside_parent()"], stdin=subprocess.PIPE)
    assert child.poll() is None
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(60) == -signal.SIGTERM
