"""Manifests: every changed, cut or missing file is named, and what is measured later breaks nothing."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch

import regard
from regard.cli.info import info
from regard.errors import RegardError
from regard.io import building as api_building
from regard.io import manifest
from regard.io.files import DamagedFile
from regard.io.manifest import find_damage, model_digest, read_manifest, replacing, verified, write_manifest
from regard.io.run_folder import WEIGHTS
from regard.io.tensors import DTYPES, read_tensors, write_tensors


@pytest.fixture
def model(toy_run: Path, tmp_path: Path) -> Path:
    """A copy of a trained model that a test may change."""
    return Path(shutil.copytree(toy_run, tmp_path / "model", symlinks=True))


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8 % len(content)] ^= 1 << bit % 8
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["config.yaml", "model.safetensors", "tokenizer/tokenizer.json", "manifest.json"])
def test_a_flipped_bit_is_named(model: Path, name: str) -> None:
    name = name if (model / name).exists() else "tokenizer/source.json"
    for bit in (3, 801, 4004):
        flip(model / name, bit)
        with pytest.raises(DamagedFile, match=f"{name}: damaged"):
            regard.load(model, "cpu")
        flip(model / name, bit)
    regard.load(model, "cpu")


def test_missing_and_cut_files_are_named(model: Path) -> None:
    weights = model / "model.safetensors"
    os.truncate(weights, weights.stat().st_size - 1)
    (model / "config.yaml").unlink()
    assert find_damage(model) == [
        f"{model / 'config.yaml'}: missing; manifest.json lists it",
        f"{weights}: damaged: {weights.stat().st_size:,} bytes, where {weights.stat().st_size + 1:,} were written; "
        "if the change is yours, delete manifest.json, and the folder is read unverified",
    ]


def test_a_folder_without_a_manifest_is_read_unverified(model: Path) -> None:
    (model / "manifest.json").unlink()
    (model / "config.yaml").write_text((model / "config.yaml").read_text() + "# mine\n")
    regard.load(model, "cpu")


def test_the_digest_is_of_what_makes_the_model(model: Path) -> None:
    before = model_digest(model)
    (model / "results.json").write_text("{}")
    (model / "log.jsonl").write_text("")
    regard.load(model, "cpu")
    assert model_digest(model) == before
    (model / "manifest.json").unlink()
    assert model_digest(model) == before  # hashed instead of read
    flip(model / "model.safetensors", 5000)
    assert model_digest(model) != before
    assert model_digest(model / "last") != before


def test_what_is_being_replaced_has_no_record(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("a")
    (tmp_path / "model.safetensors").write_text("b")
    write_manifest(tmp_path)
    killed = replacing(tmp_path, ["config.yaml"])
    killed.__enter__()
    (tmp_path / "config.yaml").write_text("c")
    assert list(read_manifest(tmp_path) or {}) == ["model.safetensors"]
    assert find_damage(tmp_path) == []
    with replacing(tmp_path, ["config.yaml"]):
        pass
    assert list(read_manifest(tmp_path) or {}) == ["config.yaml", "model.safetensors"]


def test_links_out_of_a_folder_and_special_files_are_refused(model: Path, tmp_path: Path) -> None:
    config = model / "config.yaml"
    text = config.read_text()
    config.unlink()
    (tmp_path / "elsewhere.yaml").write_text(text)
    config.symlink_to(tmp_path / "elsewhere.yaml")
    with pytest.raises(RegardError, match=r"config.yaml: a link that leads out of the folder"):
        regard.load(model, "cpu")
    config.unlink()
    os.mkfifo(config)
    with pytest.raises(RegardError, match=r"config.yaml: not a regular file"):
        regard.load(model, "cpu")
    config.unlink()
    config.symlink_to("/dev/zero")
    with pytest.raises(RegardError, match=r"config.yaml: a link that leads out of the folder"):
        regard.load(model, "cpu")


def test_damage_takes_the_place_of_the_errors_it_causes(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("a")
    write_manifest(tmp_path)
    (tmp_path / "config.yaml").write_text("b")
    with pytest.raises(DamagedFile, match=r"config.yaml: damaged"), verified(tmp_path):
        raise KeyError("what the damaged file led to")


def test_info_verifies_a_run(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    info(model, as_json=True, verify=True)
    found = json.loads(capsys.readouterr().out)
    assert found.pop("digest") == model_digest(model)
    assert found.pop("files") == "4 files whole"
    assert len(found) == len(list(model.glob("checkpoints/step-*"))) > 1
    assert set(found.values()) == {"3 files whole"}
    (model / "last").rename(model / "elsewhere")
    with pytest.raises(DamagedFile, match=r"last is missing: it is the link to the last checkpoint$"):
        info(model, as_json=True, verify=True)
    (model / "elsewhere").rename(model / "last")
    (model / "results.json").write_text((model / "results.json").read_text() + " ")
    flip(model / "last" / "optimiser.safetensors", 4000)
    with pytest.raises(DamagedFile, match=r"results.json: damaged.*; .*optimiser.safetensors: damaged"):
        info(model, as_json=True, verify=True)
    for path in model.rglob("manifest.json"):
        path.unlink()
    info(model, as_json=True, verify=True)
    assert "whole" not in capsys.readouterr().out
    info(model, as_json=True)
    assert json.loads(capsys.readouterr().out)["files"] == "unverified (no manifest.json)"


def test_what_is_hashed_is_what_is_loaded(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that another process changes once it was read, and back again: neither the first model nor the second."""
    weights = model / "model.safetensors"
    whole = regard.load(model, "cpu").model.state_dict()
    building = api_building.building_for

    def change_while_it_is_built(*arguments: Path) -> object:
        flip(weights, 8 * weights.stat().st_size - 40)
        return building(*arguments)

    monkeypatch.setattr(api_building, "building_for", change_while_it_is_built)
    for _ in range(2):
        try:
            loaded = regard.load(model, "cpu").model.state_dict()
        except DamagedFile as error:
            assert "model.safetensors: damaged" in str(error)  # noqa: PT017
        else:
            assert all(whole[name].equal(value) for name, value in loaded.items())


def test_weights_are_not_mapped(model: Path) -> None:
    """A model that was checked does not change with its file."""
    loaded = regard.load(model, "cpu").model
    before = {name: value.clone() for name, value in loaded.state_dict().items()}
    with (model / "model.safetensors").open("r+b") as file:
        file.seek(-1000, os.SEEK_END)
        file.write(b"\0" * 1000)
    assert all(before[name].equal(value) for name, value in loaded.state_dict().items())


def test_tensors_are_those_of_the_library(tmp_path: Path) -> None:
    """Of sizes that leave gaps, of all types, scalars and empty ones too; a checked file and one that is mapped."""
    tensors = {f"{n}": torch.randn(n).sum() if n == 4 else torch.randn(n, 3) for n in (0, 1, 4, 5, 16, 33)}
    tensors |= {str(dtype): torch.arange(7).to(dtype) for dtype in DTYPES.values()}
    write_tensors(tmp_path / "model.safetensors", tensors, {"format": "pt"})
    write_manifest(tmp_path)
    with verified(tmp_path) as check:
        found = read_tensors(tmp_path / "model.safetensors")
        assert check.holds(tmp_path / "model.safetensors")
    mapped = read_tensors(tmp_path / "model.safetensors")
    assert found.keys() == mapped.keys() == tensors.keys()
    for name, tensor in mapped.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].equal(tensor)
        assert found[name].data_ptr() % 64 == 0 or not tensor.numel()


def test_a_large_file_that_changes_while_it_is_mapped_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "PRIVATE", 10)
    path = tmp_path / "model.safetensors"
    write_tensors(path, {"a": torch.randn(50)})
    write_manifest(tmp_path)
    with verified(tmp_path) as check:
        assert read_tensors(path)["a"].shape == (50,)
        assert not check.holds(path)
    with pytest.raises(DamagedFile, match="changed while it was read"), verified(tmp_path):  # noqa: PT012
        read_tensors(path)
        os.utime(path, ns=(1, 1))


def test_no_values_are_drawn_for_weights_that_are_loaded(model: Path) -> None:
    before = torch.get_rng_state()
    regard.load(model, "cpu")
    assert torch.get_rng_state().equal(before)


def test_weights_are_nobody_elses(tmp_path: Path) -> None:
    """A forked process that learns leaves its parent's weights as they are."""
    write_tensors(tmp_path / WEIGHTS, {"w": torch.ones(8)})
    write_manifest(tmp_path)
    with verified(tmp_path, (WEIGHTS,)):
        tensor = read_tensors(tmp_path / WEIGHTS)["w"]
    child = os.fork()
    if not child:
        tensor.mul_(7)
        os._exit(0)
    os.waitpid(child, 0)
    assert tensor.tolist() == [1.0] * 8
