"""The loop: what a step computes, what is kept and chosen, and that going on is the same as never stopping."""

import json
import math
import os
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from regard import config
from regard import recipe as recipes
from regard.api import load
from regard.data.loader import StepBatches
from regard.errors import RegardError
from regard.io.tensors import unique_state_dict
from regard.nn.loss import vocabulary_loss
from regard.run import train_recipe
from regard.tasks.translation import TranslationTask
from regard.training.checkpoint import CheckpointManager
from regard.training.config import TrainingConfig
from regard.training.loop import Trainer
from regard.training.optimiser import AdamWConfig, build_optimiser
from tests.training import toy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    toy.write_corpus(tmp_path)
    return tmp_path


def run(folder: Path, name: str = "run", minutes: float | None = None, **keys):
    return train_recipe(recipes.load_recipe(toy.recipe(folder, **keys)), folder / name, "cpu", minutes)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def lines(run: Path, kind: str) -> list[dict]:
    found = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [entry for entry in found if entry["kind"] == kind]


def test_a_run_folder_is_complete_and_loads(folder: Path) -> None:
    outcome = run(folder)
    assert outcome.finished
    assert outcome.state.step == 12
    names = {p.name for p in (folder / "run").iterdir()}
    assert {
        "config.yaml",
        "model.safetensors",
        "tokenizer",
        "results.json",
        "log.jsonl",
        "checkpoints",
        "last",
    } <= names
    assert (folder / "run" / "last").resolve().name == "step-12"
    results = json.loads((folder / "run" / "results.json").read_text())
    assert "version:" in results["valid"]["metrics"]["bleu"]["signature"]
    head = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    commit = subprocess.run(head, capture_output=True, text=True, check=False).stdout.strip()
    said = (results["commit"] or "").rstrip("+")
    assert commit.startswith(said)
    assert bool(commit) == bool(said)  # neither where this is no checkout
    saved = recipes.load_recipe(folder / "run" / "config.yaml")
    assert config.to_plain(saved) == config.to_plain(recipes.load_recipe(toy.recipe(folder)))
    assert len(load(folder / "run").translate(["w1 w2", ""])) == 2
    assert not list((folder / "run").rglob("*.pt")) + list((folder / "run").rglob("*.pkl"))


def test_fast_or_not_is_the_same_on_a_cpu(folder: Path) -> None:
    """The key is for a GPU; recipes that have it train anywhere, to the same bits."""
    for name, fast in (("fast", True), ("plain", False)):
        assert run(folder, name, steps=2, fast=fast).finished
    assert same(weights(folder / "fast"), weights(folder / "plain"))


def test_keep_last_and_best(folder: Path) -> None:
    outcome = run(folder, steps=20)
    kept = CheckpointManager(folder / "run").steps()
    assert set(kept) == {16, 18, 20} | {outcome.state.best_step}
    best = max(lines(folder / "run", "valid"), key=lambda e: e["bleu"])
    assert outcome.state.best_value == pytest.approx(best["bleu"], abs=1e-4)
    assert same(weights(folder / "run"), weights(folder / "run" / "checkpoints" / f"step-{outcome.state.best_step}"))


def test_average_of_the_last(folder: Path) -> None:
    run(folder, checkpoints={"every": 2, "keep": 3, "average": 3})
    parts = [weights(folder / "run" / "checkpoints" / f"step-{n}") for n in (8, 10, 12)]
    for name, value in weights(folder / "run").items():
        torch.testing.assert_close(value, torch.stack([p[name] for p in parts]).mean(0))


def test_the_running_mean_by_hand(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is trained is the same as without; what is kept and measured is its mean."""
    every = {"every": 1, "keep": 6}
    run(folder, "plain", steps=6, checkpoints=every)
    measured, real = [], TranslationTask.validate

    def watched(self, model, *given):
        measured.append({name: value.clone() for name, value in unique_state_dict(model).items()})
        return real(self, model, *given)

    monkeypatch.setattr(TranslationTask, "validate", watched)
    outcome = run(folder, "mean", steps=6, checkpoints=every, ema=0.5)
    for n, given in zip((4, 6), measured, strict=True):
        assert same(given, weights(folder / "mean/checkpoints" / f"step-{n}"))
    assert same(weights(folder / "plain/last"), load_file(folder / "mean/last/trained.safetensors"))
    mean = weights(folder / "mean/checkpoints/step-1")
    for n in range(2, 7):
        raw = weights(folder / "plain/checkpoints" / f"step-{n}")
        mean = {name: value + (1 - min(0.5, n / (n + 9))) * (raw[name] - value) for name, value in mean.items()}
        for name, value in weights(folder / "mean/checkpoints" / f"step-{n}").items():
            torch.testing.assert_close(value, mean[name])
    assert not same(weights(folder / "mean/last"), raw)
    best = weights(folder / "mean/checkpoints" / f"step-{outcome.state.best_step}")
    said = json.loads((folder / "mean/results.json").read_text())["weights"]
    assert said == f"EMA of the weights at step {outcome.state.best_step}"
    assert same(weights(folder / "mean"), best)


@pytest.mark.parametrize("ema", [0.0, 0.8])
def test_stopped_and_resumed_is_the_same_bits(folder: Path, ema: float) -> None:
    whole = run(folder, "whole", steps=14, ema=ema)
    run(folder, "parts", minutes=0.0, steps=14, ema=ema)  # one step, then out of time
    stops = 1
    while not run(folder, "parts", minutes=0.0, steps=14, ema=ema).finished:
        stops += 1
    assert stops > 5
    files = sorted(path.name for path in (folder / "whole/last").glob("*.safetensors"))
    assert files == ["model.safetensors", "optimiser.safetensors", *(["trained.safetensors"] if ema else [])]
    for name in files:
        assert same(load_file(folder / "whole/last" / name), load_file(folder / "parts/last" / name))
    assert same(weights(folder / "whole"), weights(folder / "parts"))
    losses = [[(e["step"], e["bleu"], e["loss"]) for e in lines(folder / n, "valid")] for n in ("whole", "parts")]
    assert losses[0] == losses[1]
    assert whole.state.tokens == json.loads((folder / "parts/last/state.json").read_text())["tokens"]


def test_finished_run_is_left_alone_and_another_recipe_refused(folder: Path) -> None:
    run(folder)
    before = weights(folder / "run")
    assert run(folder).finished
    assert same(before, weights(folder / "run"))
    with pytest.raises(RegardError, match=r"another recipe \(training.steps: 12 → 11\)"):
        run(folder, steps=11)


def test_a_finished_run_may_be_given_more_steps(folder: Path, capsys: pytest.CaptureFixture) -> None:
    """Where the schedule does not look at how many there are, it is the run that was begun with so many."""
    noam = {"kind": "noam", "warmup": 4, "peak": 1e-3}
    run(folder, "whole", steps=12, schedule=noam)
    assert run(folder, "more", steps=8, schedule=noam).finished
    assert run(folder, "more", steps=12, schedule=noam).finished
    assert "training.steps: 8 → 12; from now on rates are those of a run of 12 steps" in capsys.readouterr().err
    assert same(weights(folder / "whole" / "last"), weights(folder / "more" / "last"))
    assert json.loads((folder / "more" / "results.json").read_text())["steps"] == 12
    with pytest.raises(RegardError, match=r"another recipe \(training\.steps: 12 → 8\)"):
        run(folder, "more", steps=8, schedule=noam)


def test_changed_data_is_refused_on_resume(folder: Path) -> None:
    run(folder, minutes=0.0)
    with open(folder / "train.en", "a") as a, open(folder / "train.de", "a") as b:
        a.write("w1 w1 w1\n")
        b.write("W1 W1 W1\n")
    with pytest.raises(RegardError, match="training data has changed"):
        run(folder)


def trainer(folder: Path, **keys) -> Trainer:
    recipe = recipes.load_recipe(toy.recipe(folder, **keys))
    task = recipe.task.prepare(recipe, None, lambda what, n, of: None)
    torch.manual_seed(0)
    return Trainer(task, task.build_model(), recipe.training, 1, folder / "run", torch.device("cpu"))


def one_step(batches: list) -> StepBatches:
    return StepBatches(0, 0, batches, (0, 1), sum(len(batch.labels) for batch in batches))


def batches(t: Trainer, count: int) -> list:
    view = t.task.view(1, 0)
    return [view.collate(np.arange(n * 7, n * 7 + 7 + n)) for n in range(count)]


def test_accumulated_micro_batches_are_one_large_batch(folder: Path) -> None:
    """The loss is divided by the targets of the whole step, not averaged over micro-batches of different sizes."""
    a, b = trainer(folder), trainer(folder)
    for t in (a, b):
        t.model.eval()  # no dropout
    view = a.task.view(1, 0)
    split = [view.collate(np.arange(0, 5)), view.collate(np.arange(5, 20))]
    loss, targets, _ = a.step(one_step(split))
    assert targets == view.targets(np.arange(20))
    assert float(loss) == pytest.approx(float(b.step(one_step([view.collate(np.arange(20))]))[0]), rel=1e-5)
    assert 3 < float(loss) < 6  # of one target: about the logarithm of the vocabulary
    grads = [[t.optimiser.state[p]["exp_avg"] for p in t.model.parameters()] for t in (a, b)]
    for x, y in zip(*grads, strict=True):
        torch.testing.assert_close(x, y, atol=1e-6, rtol=1e-4)


def test_label_smoothing_by_hand(folder: Path) -> None:
    t = trainer(folder, label_smoothing=0.2)
    t.model.eval()
    (batch,) = batches(t, 1)
    logp = t.model(batch).log_softmax(-1)
    entries = logp.shape[-1]
    smooth = torch.full_like(logp, 0.2 / entries).scatter_add(1, batch.labels[:, None], torch.full((len(logp), 1), 0.8))
    loss, _ = t.task.loss(t.model, batch, None)
    torch.testing.assert_close(loss, -(smooth * logp).sum())


def test_clipping_limits_the_gradient(folder: Path) -> None:
    clipped, free = trainer(folder, clip=0.01), trainer(folder)
    for t in (clipped, free):
        t.model.eval()
        t.step(one_step(batches(t, 1)))
    norms = [
        math.sqrt(sum(float(t.optimiser.state[p]["exp_avg"].pow(2).sum()) for p in t.model.parameters())) / 0.1
        for t in (clipped, free)
    ]
    assert norms[0] == pytest.approx(0.01, rel=1e-3)
    assert norms[1] > 0.05


def test_adam_first_step_by_hand(folder: Path) -> None:
    """Bias-corrected Adam moves every weight by the rate at step 1, in the direction of the gradient's sign."""
    t = trainer(folder)
    t.model.eval()
    before = {n: p.detach().clone() for n, p in t.model.named_parameters()}
    _, _, rate = t.step(one_step(batches(t, 1)))
    assert rate == pytest.approx(3e-3 / 10)
    name, p = "encoder.0.feed_forward.expand.weight", t.model.encoder[0].feed_forward.expand.weight
    moved = (p.detach() - before[name])[t.optimiser.state[p]["exp_avg"].abs() > 1e-5]
    torch.testing.assert_close(moved.abs(), torch.full_like(moved, rate), rtol=1e-3, atol=1e-7)


def test_nan_is_named_and_never_saved(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = vocabulary_loss
    calls = {"n": 0}

    def poisoned(*args, **kwargs):
        calls["n"] += 1
        return real(*args, **kwargs) * (float("nan") if calls["n"] == 7 else 1)

    monkeypatch.setattr("regard.nn.embedding.vocabulary_loss", poisoned)
    with pytest.raises(
        RegardError,
        match=r"the loss of step 7 \(epoch \d\), or its gradient, is not a number.*line \d+ of .*step 6 is whole",
    ):
        run(folder)
    for path in (folder / "run").rglob("model.safetensors"):
        assert all(torch.isfinite(t).all() for t in load_file(path).values())
    assert not (folder / "run" / "model.safetensors").exists()
    monkeypatch.undo()
    assert run(folder).finished  # and the run goes on from there


def test_nan_metric_is_never_best(folder: Path) -> None:
    t = trainer(folder)
    t.task.goal, t.task.higher_is_better = "loss", False
    t.state.step = 4
    assert t._update_best({"loss": 2.0})
    t.state.step = 8
    assert not t._update_best({"loss": float("nan")})
    assert t.state.best_step == 4


def test_early_stopping(folder: Path) -> None:
    outcome = run(
        folder,
        steps=400,
        schedule={"kind": "constant", "peak": 0.0},
        validation={"every": 2, "patience": 3, "lines": 5},
    )
    assert outcome.finished
    assert outcome.state.step == 8  # the first is the best, then three without a better one


def test_goal_that_is_not_measured(folder: Path) -> None:
    with pytest.raises(RegardError, match=r"training\.goal is 'blue'; did you mean bleu"):
        run(folder, goal="blue")


def test_init_continues_on_new_data(folder: Path) -> None:
    run(folder)
    toy.write_corpus(folder / "new", train=100)
    keys = toy.recipe(folder / "new", steps=2, init=str(folder / "run"), schedule={"kind": "constant", "peak": 0.0})
    train_recipe(recipes.load_recipe(keys), folder / "next", "cpu")
    assert same(weights(folder / "run"), weights(folder / "next"))
    assert (folder / "next/tokenizer/tokenizer.json").read_bytes() == (
        folder / "run/tokenizer/tokenizer.json"
    ).read_bytes()
    keys["model"]["size"] = 32
    with pytest.raises(RegardError, match=r"has another model: model\.size is 16 there and 32 here"):
        train_recipe(recipes.load_recipe(keys), folder / "other", "cpu")


def test_bf16_trains(folder: Path) -> None:
    run(folder, steps=30, precision="bf16", schedule={"kind": "constant", "peak": 3e-3})
    losses = [e["loss"] for e in lines(folder / "run", "train")]
    assert losses[-1] < losses[0] - 0.3
    assert all(t.dtype == torch.float32 for t in weights(folder / "run").values())


def test_a_processor_without_bf16_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for has in (True, False):
        monkeypatch.setattr("regard.run_checks.has_bf16", lambda device, has=has: has)
        run(folder, f"has-{has}", steps=1, precision="bf16")
        said = "".join(capsys.readouterr())
        assert ("bf16, for which" in said) != has, said


@pytest.mark.parametrize("ema", [0.0, 0.8])
def test_interrupted_validations_are_owed_and_change_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, ema: float
) -> None:
    """A signal inside a validation, and again inside the one that is owed for it: the end has the same bits."""
    run(folder, "whole", ema=ema)
    real = TranslationTask.validate
    signals = iter([False, True, True, True, False, True])  # the second validation is interrupted three times

    def interrupted(self, model, device, progress=None):
        if next(signals, False):
            os.kill(os.getpid(), signal.SIGINT)
            progress("Translating", 1, 2)
        return real(self, model, device, progress)

    monkeypatch.setattr(TranslationTask, "validate", interrupted)
    stops = [run(folder, "parts", ema=ema) for _ in range(4)]
    assert [(s.state.step, s.state.unmeasured) for s in stops[:3]] == [(8, True)] * 3
    assert stops[3].state.step == 12
    assert run(folder, "parts", ema=ema).finished
    assert [e["step"] for e in lines(folder / "parts", "valid")] == [4, 8, 12]
    assert same(weights(folder / "whole"), weights(folder / "parts"))
    assert same(weights(folder / "whole/last"), weights(folder / "parts/last"))


def test_a_gradient_that_is_not_a_number_never_reaches_a_checkpoint(folder: Path, monkeypatch) -> None:
    real = vocabulary_loss
    calls = {"n": 0}

    def poisoned(*args, **kwargs):
        loss = real(*args, **kwargs)
        calls["n"] += 1
        if calls["n"] == 4:  # a checkpoint step; the loss is finite, its gradient is not
            loss.register_hook(lambda gradient: gradient * float("nan"))
        return loss

    monkeypatch.setattr("regard.nn.embedding.vocabulary_loss", poisoned)
    with pytest.raises(RegardError, match=r"the loss of step 4 .*or its gradient, is not a number.*step 2 is whole"):
        run(folder)
    monkeypatch.undo()
    assert run(folder).finished


def test_a_run_with_init_goes_on_when_its_origin_is_gone(folder: Path) -> None:
    run(folder)
    keys = toy.recipe(folder, steps=6, init=str(folder / "run"))
    assert not train_recipe(recipes.load_recipe(keys), folder / "next", "cpu", minutes=0.0).finished
    shutil.rmtree(folder / "run")
    assert train_recipe(recipes.load_recipe(keys), folder / "next", "cpu").finished


def test_init_refuses_another_vocabulary(folder: Path) -> None:
    run(folder)
    keys = toy.recipe(folder, init=str(folder / "run"))
    keys["text"]["lower"] = True
    with pytest.raises(RegardError, match=r"another vocabulary: text\.lower is False there and True here"):
        train_recipe(recipes.load_recipe(keys), folder / "next", "cpu")


def test_init_gives_the_sections_that_the_recipe_leaves_out(folder: Path) -> None:
    run(folder)
    keys = toy.recipe(folder, steps=6, init=str(folder / "run"))
    before = recipes.load_recipe(toy.recipe(folder))
    del keys["model"], keys["text"]
    made = recipes.load_recipe(keys)
    assert (made.model, made.text) == (before.model, before.text)
    made = recipes.load_recipe(keys, ["model.dropout=0.4"])  # one key of a section leaves the others open
    assert made.model == replace(before.model, dropout=0.4)
    assert (
        recipes.load_recipe(keys, ["model.kind=transformer"]).model.layers == 6
    )  # a section that names its kind is whole
    assert not train_recipe(recipes.load_recipe(keys), folder / "next", "cpu", minutes=0.0).finished
    shutil.rmtree(folder / "run")
    assert train_recipe(recipes.load_recipe(keys, run=folder / "next"), folder / "next", "cpu").finished


def test_a_run_from_before_formats_goes_on(folder: Path) -> None:
    assert not train_recipe(recipes.load_recipe(toy.recipe(folder)), folder / "run", "cpu", minutes=0.0).finished
    path = folder / "run" / "config.yaml"
    text = path.read_text(encoding="utf-8")
    assert text.startswith("format: 1\n")
    path.write_text(text.removeprefix("format: 1\n"), encoding="utf-8")
    (folder / "run" / "manifest.json").unlink()
    assert train_recipe(recipes.load_recipe(path), folder / "run", "cpu").finished


def test_a_start_that_failed_does_not_keep_its_folder(folder: Path) -> None:
    run(folder)
    keys = toy.recipe(folder, init=str(folder / "run"))
    keys["model"]["inner"] = 24
    with pytest.raises(RegardError, match=r"has another model: model\.inner is 32 there and 24 here"):
        train_recipe(recipes.load_recipe(keys), folder / "next", "cpu")
    assert (folder / "next" / "config.yaml").exists()
    (folder / "next" / ".config.yaml.99").write_text("half of i")  # of one that was killed
    assert run(folder, "next").finished
    assert not (folder / "next" / ".config.yaml.99").exists()


def test_a_recipe_of_ones_own_is_not_written_over(folder: Path) -> None:
    (folder / "run").mkdir()
    own = "# my notes\n" + yaml.safe_dump(toy.recipe(folder, clip=0.5))
    (folder / "run" / "config.yaml").write_text(own)
    with pytest.raises(RegardError, match="holds a run of another recipe"):
        run(folder)
    assert (folder / "run" / "config.yaml").read_text() == own


def test_a_model_without_its_log_is_not_written_over(folder: Path) -> None:
    run(folder, "whole")
    (folder / "run").mkdir()
    for name in ("config.yaml", "model.safetensors"):
        shutil.copy(folder / "whole" / name, folder / "run")
    shutil.copytree(folder / "whole" / "tokenizer", folder / "run" / "tokenizer")
    with pytest.raises(RegardError, match=r"another recipe \(training.steps: 12 → 11\)"):
        run(folder, steps=11)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_long_rows_are_cut_in_training_too(folder: Path, dropout: float) -> None:
    with open(folder / "train.en", "a") as a, open(folder / "train.de", "a") as b:
        a.write("w1 w2 w3 " * 40 + "\n")
        b.write("W3 W2 W1 " * 40 + "\n")
    keys = toy.recipe(folder)
    keys["text"] = {"kind": "bpe", "size": 60, "dropout": dropout}
    keys["data"]["filters"] = {"max_length": 12, "long": "truncate"}
    recipe = recipes.load_recipe(keys)
    view = recipe.task.prepare(recipe, None, lambda what, n, of: None).view(1, 0)
    assert view.source_lengths.max() == view.target_lengths.max() == 13  # with the end


def test_two_processes_cannot_share_a_run(folder: Path) -> None:
    import fcntl

    (folder / "run").mkdir()
    with open(folder / "run" / ".lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(RegardError, match="another process is training here"):
            run(folder)


@pytest.mark.parametrize("name", ["quickstart", "wikitext2-lm", "bert-cpu"])
def test_biases_and_norms_are_not_decayed(name: str) -> None:
    build = recipes.load_recipe(name, ["model.layers=1"]).model.build
    model = build(20, 20) if name == "quickstart" else build(20)
    names = {id(p): name for name, p in model.named_parameters()}
    made = build_optimiser(model, TrainingConfig(optimiser=AdamWConfig(weight_decay=0.1)), torch.device("cpu"))
    spared = {
        name: group["weight_decay"] == 0
        for group in made.param_groups
        for name in map(names.get, map(id, group["params"]))
    }
    assert len(spared) == len(names)
    assert {name for name in names.values() if "norm" in name or name.endswith("bias")} == {
        name for name in spared if spared[name]
    }
