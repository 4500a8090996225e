"""Checkpoints and weight files: what is written is read back, appears by one rename, and what is foreign is named."""

import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard import config
from regard import recipe as recipes
from regard.errors import RegardError
from regard.io import tensors as weights
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
