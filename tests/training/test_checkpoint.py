"""Checkpoints and weight files: what is written is read back, appears by one rename, and what is foreign is named."""

import io
import json
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard import config
from regard import recipe as recipes
from regard.console import Console
from regard.errors import RegardError
from regard.io import tensors as weights
from regard.io.lock import lock_folder
from regard.io.manifest import find_damage
from regard.io.tensors import average_checkpoints, load_weights, read_tensors, unique_state_dict, write_tensors
from regard.models.transformer import Transformer, TransformerConfig
from regard.run import train_recipe
from regard.training import checkpoint
from regard.training.checkpoint import CheckpointManager, TrainingState
from tests.training import toy


def build(seed: int = 0, **keys: object) -> Transformer:
    torch.manual_seed(seed)
    return config.parse_config(TransformerConfig, {"layers": 1, "size": 8, "inner": 16, "heads": 2, **keys}).build(
        12, 12
    )


def learned(model: Transformer, steps: int = 2) -> torch.optim.Optimizer:
    """An optimiser with something to remember."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        optimiser.zero_grad()
        sum(p.square().sum() for p in model.parameters()).backward()
        optimiser.step()
    return optimiser


def same(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize("share, matrices", [("all", 1), ("target", 2), ("none", 3)])
def test_tied_matrices_are_written_once_and_stay_tied(tmp_path: Path, share: str, matrices: int) -> None:
    model, other = build(0, share=share), build(1, share=share)
    write_tensors(tmp_path / "w.safetensors", unique_state_dict(model))
    tensors = load_file(tmp_path / "w.safetensors")
    assert sum(t.shape == (12, 8) for t in tensors.values()) == matrices
    load_weights(other, read_tensors(tmp_path / "w.safetensors"), tmp_path / "w.safetensors")
    assert same(unique_state_dict(model), unique_state_dict(other))
    tied = other.output.weight is other.target_embedding.weight
    assert tied == (share != "none")
    assert (other.source_embedding is other.target_embedding) == (share == "all")


def test_a_checkpoint_is_read_back_with_its_optimiser(tmp_path: Path) -> None:
    model, other = build(0), build(1)
    optimiser, fresh = learned(model), torch.optim.AdamW(other.parameters(), lr=1e-3)
    carry = {"memory": torch.arange(6.0).view(2, 3)}
    written = TrainingState(
        step=2, epoch=1, epoch_step=3, best_step=2, best_value=12.5, tokens=99, metrics={"bleu": 12.5}
    )
    CheckpointManager(tmp_path).save(model, optimiser, written, carry, keep=3)
    progress, carried = CheckpointManager(tmp_path).load(other, fresh)
    assert progress == written
    assert carried is not None
    assert torch.equal(carried["memory"], carry["memory"])
    assert same(unique_state_dict(model), unique_state_dict(other))
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        assert optimiser.state[p].keys() == fresh.state[q].keys()
        assert all(torch.equal(optimiser.state[p][k], fresh.state[q][k]) for k in optimiser.state[p])


def test_average_by_hand(tmp_path: Path) -> None:
    files = [tmp_path / f"{n}.safetensors" for n in range(3)]
    for path, value in zip(files, (1.0, 2.0, 6.0), strict=True):
        save_file({"a": torch.tensor([value, 10 * value]), "b": torch.tensor([[value]], dtype=torch.bfloat16)}, path)
    mean = average_checkpoints(files)
    assert mean["a"].tolist() == [3.0, 30.0]
    assert mean["b"].dtype == torch.bfloat16
    save_file({"a": torch.zeros(3), "b": torch.zeros(1, 1)}, files[1])
    with pytest.raises(RegardError, match=r"1.safetensors: a has another shape than in .*0.safetensors"):
        average_checkpoints(files)
    save_file({"a": torch.zeros(2)}, files[1])
    with pytest.raises(RegardError, match="its weights have other names"):
        average_checkpoints(files)


@pytest.mark.parametrize("broken", ["model.safetensors", "optimiser.safetensors", "state.json"])
def test_an_exception_while_saving_leaves_last_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    model = build()
    optimiser = learned(model)
    checkpoints = CheckpointManager(tmp_path)
    checkpoints.save(model, optimiser, TrainingState(step=1), None, keep=1)
    before = load_file(tmp_path / "last" / "model.safetensors")
    real = checkpoint.fsync

    def full(path: Path) -> None:
        if broken in path.name:
            raise OSError(28, "No space left on device")
        real(path)

    monkeypatch.setattr(checkpoint, "fsync", full)
    monkeypatch.setattr(weights, "fsync", full)
    learned(model)
    with pytest.raises(
        RegardError, match=r"step-2: .*cannot be written \(No space left.*of step 1 is whole.*to resume"
    ):
        checkpoints.save(model, optimiser, TrainingState(step=2), None, keep=1)
    monkeypatch.undo()
    assert same(before, load_file(tmp_path / "last" / "model.safetensors"))
    assert checkpoints.load(build(1), learned(build(1)))[0].step == 1
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-1"]


@pytest.mark.parametrize("moment", [1, 2, 3])
def test_killed_while_the_same_step_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """A validation that is owed saves its step a second time: `last` must be good at every moment of it."""
    model = build()
    optimiser = learned(model)
    checkpoints = CheckpointManager(tmp_path)
    checkpoints.save(model, optimiser, TrainingState(step=4, unmeasured=True), None, keep=1)
    calls = {"rename": 0}
    real = checkpoint.os.rename

    class Killed(BaseException):
        pass

    def rename(*names: Path) -> None:
        calls["rename"] += 1
        if calls["rename"] == moment:
            raise Killed
        real(*names)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.os, "rename", rename)
        if moment < 3:
            with pytest.raises(Killed):
                checkpoints.save(model, optimiser, TrainingState(step=4), None, keep=1)
        else:
            checkpoints.save(model, optimiser, TrainingState(step=4), None, keep=1)
    other = build(1)
    progress, _ = CheckpointManager(tmp_path).load(other, learned(other))
    assert (progress.step, progress.unmeasured) == (4, moment < 3)
    assert same(unique_state_dict(model), unique_state_dict(other))
    checkpoints.save(model, optimiser, TrainingState(step=5), None, keep=1)
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-5"]


def test_where_a_run_was_stopped_does_not_change_what_is_averaged(tmp_path: Path) -> None:
    toy.write_corpus(tmp_path)
    keys = toy.recipe(tmp_path, steps=9, validation={"every": 100}, checkpoints={"every": 3, "keep": 3, "average": 3})
    train_recipe(recipes.load_recipe(keys), tmp_path / "whole", "cpu")
    while not train_recipe(recipes.load_recipe(keys), tmp_path / "parts", "cpu", minutes=0.0).finished:
        assert (tmp_path / "parts" / "last").resolve().name[:5] in ("stop-", "step-")
    assert CheckpointManager(tmp_path / "parts").steps() == [3, 6, 9]
    assert not list((tmp_path / "parts" / "checkpoints").glob("stop-*"))
    assert same(load_file(tmp_path / "whole/model.safetensors"), load_file(tmp_path / "parts/model.safetensors"))


def test_foreign_weights_are_named(tmp_path: Path) -> None:
    model = build()
    tensors = {**unique_state_dict(model), "blip": torch.zeros(1)}
    del tensors["encoder.0.attention.query.weight"]
    named = r"another model \(1 missing, such as encoder.0.attention.query.weight; 1 unknown, such as blip\)"
    with pytest.raises(RegardError, match=named):
        load_weights(model, tensors, tmp_path / "w.safetensors")
    named = r"w.safetensors: source_embedding.weight is \[12, 8\] in the file, \[12, 16\] in the model"
    with pytest.raises(RegardError, match=named):
        load_weights(build(size=16), unique_state_dict(model), tmp_path / "w.safetensors")


def of_header_length(path: Path, length: int) -> None:
    """A safetensors file whose header is stretched by a long name until it has this many bytes."""
    save_file({"x": torch.ones(2)}, path)
    save_file({"x" * (1 + length - int.from_bytes(path.read_bytes()[:8], "little")): torch.ones(2)}, path)
    assert int.from_bytes(path.read_bytes()[:8], "little") == length


def test_a_safetensors_file_that_begins_like_a_pickle_is_read(tmp_path: Path) -> None:
    """The first bytes are the length of the header, and may be 0x80 (a pickle's first) or PK (a zip's)."""
    path = tmp_path / "w.safetensors"
    of_header_length(path, 0x180)
    assert path.read_bytes()[:1] == pickle.dumps(0)[:1] == b"\x80"
    assert [t.tolist() for t in read_tensors(path).values()] == [[1.0, 1.0]]
    of_header_length(path, int.from_bytes(b"PK", "little"))
    assert path.read_bytes()[:2] == b"PK"
    assert [t.tolist() for t in read_tensors(path).values()] == [[1.0, 1.0]]


@pytest.mark.parametrize("legacy", [False, True])
def test_pickles_are_refused_by_name_and_never_opened(tmp_path: Path, legacy: bool) -> None:
    class Trap:
        def __reduce__(self) -> tuple:
            return Path.touch, (tmp_path / "sprung",)

    path = tmp_path / "model.safetensors"
    torch.save({"a": Trap()}, path, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(RegardError, match=r"model\.safetensors: a pickled checkpoint, which can run code"):
        read_tensors(path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 100, b"{" * 100])
def test_what_is_no_safetensors_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(RegardError, match=r"model\.safetensors: truncated, or not a safetensors file"):
        read_tensors(path)


def test_damaged_state_is_named(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=r"not a checkpoint \(state.json is missing\)"):
        checkpoint.read_state(tmp_path)
    for content in ("{", "[]", json.dumps({"stop": 3})):
        (tmp_path / "state.json").write_text(content)
        with pytest.raises(RegardError, match=r"state.json: damaged"):
            checkpoint.read_state(tmp_path)


# --- damage --------------------------------------------------------------------------------------------------------


def saved_at(run: Path, steps: tuple[int, ...]) -> dict[int, dict[str, torch.Tensor]]:
    """Checkpoints of these steps, and the weights in each."""
    model = build()
    optimiser = learned(model)
    weights_of = {}
    for step in steps:
        CheckpointManager(run).save(model, optimiser, TrainingState(step=step), None, keep=9)
        weights_of[step] = {name: value.clone() for name, value in unique_state_dict(model).items()}
        with torch.no_grad():
            next(model.parameters()).add_(1)
    return weights_of


def resumed(run: Path) -> tuple[int, dict[str, torch.Tensor], list[str]]:
    model, checkpoints = build(1), CheckpointManager(run)
    state, _ = checkpoints.load(model, learned(model))
    return state.step, unique_state_dict(model), checkpoints.notices


@pytest.mark.parametrize("name", ["model.safetensors", "optimiser.safetensors", "state.json", "manifest.json"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_taken(tmp_path: Path, name: str) -> None:
    weights_of = saved_at(tmp_path, (2, 4, 6))
    assert resumed(tmp_path)[2] == []
    for step, before in ((6, 4), (4, 2)):
        path = tmp_path / "checkpoints" / f"step-{step}" / name
        content = path.read_bytes()
        path.write_bytes(content[:-9] + bytes([content[-9] ^ 4]) + content[-8:])
        found, tensors, notices = resumed(tmp_path)
        assert found == before
        assert same(tensors, weights_of[before])
        assert any(f"{path}: damaged" in sentence for sentence in notices)
        assert notices[-1] == f"going on from {tmp_path / 'checkpoints' / f'step-{before}'}"
    shutil.rmtree(tmp_path / "checkpoints" / "step-2")
    with pytest.raises(RegardError, match=r"step-6/.*step-4/.*no checkpoint is whole: restore one"):
        resumed(tmp_path)


def test_without_last_the_newest_checkpoint_is_taken(tmp_path: Path) -> None:
    saved_at(tmp_path, (2, 10))
    (tmp_path / "last").unlink()
    step, _, notices = resumed(tmp_path)
    assert (step, notices) == (
        10,
        [
            f"{tmp_path / 'last'} is missing: it is the link to the last checkpoint",
            f"going on from {tmp_path / 'checkpoints' / 'step-10'}",
        ],
    )
    (tmp_path / "last").symlink_to("checkpoints/step-11")
    assert resumed(tmp_path)[0] == 10
    shutil.rmtree(tmp_path / "checkpoints")
    assert CheckpointManager(tmp_path).exists()
    with pytest.raises(RegardError, match=r"last names no checkpoint that is there: .*; no checkpoint is whole"):
        resumed(tmp_path)


def test_a_checkpoint_without_a_manifest_is_read_unverified(tmp_path: Path) -> None:
    saved_at(tmp_path, (2, 4))
    for path in tmp_path.glob("checkpoints/*/manifest.json"):
        path.unlink()
    assert resumed(tmp_path)[::2] == (4, [])
    (tmp_path / "last" / "optimiser.safetensors").write_bytes(b"cut")
    step, _, notices = resumed(tmp_path)
    assert step == 2
    assert "optimiser.safetensors: truncated, or not a safetensors file" in notices[0]


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    tensors = unique_state_dict(build())
    name = next(iter(tensors))
    tensors[name] = tensors[name].clone().fill_(torch.nan)
    with pytest.raises(RegardError, match=f"w.safetensors: {name} holds numbers that are not finite"):
        load_weights(build(), tensors, tmp_path / "w.safetensors")
    half = {n: torch.full_like(t, 60000, dtype=torch.float16) for n, t in unique_state_dict(build()).items()}
    load_weights(build(), half, tmp_path / "w.safetensors")  # whose sum overflows


def finish(keys: dict, run: Path) -> tuple[dict, str]:
    said = io.StringIO()
    outcome = train_recipe(recipes.load_recipe(keys), run, "cpu", console=Console(file=said, width=500))
    assert outcome.finished
    weights = load_file(run / "model.safetensors")  # mapped: what a test writes into the file would change it
    return {name: value.clone() for name, value in weights.items()}, said.getvalue()


def test_a_run_resumed_past_damage_ends_with_the_same_bits(tmp_path: Path) -> None:
    toy.write_corpus(tmp_path)
    keys = toy.recipe(tmp_path, steps=12, validation={"every": 100}, checkpoints={"every": 2, "keep": 5})
    whole, _ = finish(keys, tmp_path / "whole")
    while not train_recipe(recipes.load_recipe(keys), tmp_path / "run", "cpu", minutes=0.0).finished:
        if not (tmp_path / "run" / "last" / "state.json").exists():
            continue
        path = (tmp_path / "run" / "last").resolve() / "optimiser.safetensors"
        if path.parent.name == "step-8":
            break
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    resumed_weights, said = finish(keys, tmp_path / "run")
    assert f"{path}: damaged" in said
    assert f"going on from {path.parent.with_name('step-6')}" in said
    assert same(whole, resumed_weights)
    assert find_damage(path.parent) == []  # it was written again


def test_damaged_weights_of_a_finished_run_are_made_anew(tmp_path: Path) -> None:
    toy.write_corpus(tmp_path)
    keys = toy.recipe(tmp_path, steps=4)
    before, _ = finish(keys, tmp_path / "run")
    for name in ("model.safetensors", "results.json"):
        content = bytearray((tmp_path / "run" / name).read_bytes())
        content[len(content) // 2] ^= 1
        (tmp_path / "run" / name).write_bytes(content)
        after, said = finish(keys, tmp_path / "run")
        assert f"{name}: damaged" in said
        assert same(before, after)
        assert find_damage(tmp_path / "run") == []
    (tmp_path / "run" / "last").unlink()
    after, said = finish(keys, tmp_path / "run")
    assert f"{tmp_path / 'run' / 'last'} is missing: it is the link to the last checkpoint" in said
    assert "is trained already, to step 4" in said
    assert same(before, after)


def test_removing_the_lock_lets_no_second_trainer_in(tmp_path: Path) -> None:
    toy.write_corpus(tmp_path)
    recipe, run = recipes.load_recipe(toy.recipe(tmp_path, steps=2)), tmp_path / "run"
    run.mkdir()
    with lock_folder(run, run / ".lock") as free:
        assert free
        (run / ".lock").unlink()
        with pytest.raises(RegardError, match="another process is training here"):
            train_recipe(recipe, run, "cpu")
    assert train_recipe(recipe, run, "cpu").finished
