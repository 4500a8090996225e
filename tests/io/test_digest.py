"""The digest of a model folder: of the names and contents of what loading reads, and of nothing else."""

from pathlib import Path

import pytest

from regard.io.manifest import file_stamps, model_digest

FILES = ("config.yaml", "model.safetensors", "tokenizer/source.json", "tokenizer/target.json", "labels.json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tokenizer").mkdir()
    for name in (*FILES, "log.jsonl", "results.json"):
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_every_file_that_is_loaded_counts(folder: Path, name: str) -> None:
    before, stamps = model_digest(folder), file_stamps(folder)
    (folder / name).write_text("other")
    assert model_digest(folder) != before
    assert file_stamps(folder) != stamps
    (folder / name).write_text(name)
    assert model_digest(folder) == before
    (folder / name).unlink()
    assert model_digest(folder) != before


def test_what_training_goes_on_writing_does_not(folder: Path) -> None:
    before = model_digest(folder)
    for name in ("log.jsonl", "results.json", "notes.txt"):
        (folder / name).write_text("more")
    assert model_digest(folder) == before


def test_contents_that_change_places_are_another_model(folder: Path) -> None:
    before = model_digest(folder)
    (folder / "tokenizer" / "source.json").write_text("tokenizer/target.json")
    (folder / "tokenizer" / "target.json").write_text("tokenizer/source.json")
    assert model_digest(folder) != before


def test_a_checkpoint_counts_its_own_weights_and_the_files_of_its_run(folder: Path) -> None:
    checkpoint = folder / "checkpoints" / "step-1"
    checkpoint.mkdir(parents=True)
    for name in ("state.json", "model-00001-of-00001.safetensors", "optimiser.safetensors"):
        (checkpoint / name).write_text(name)
    counted = {name for name, *_ in file_stamps(checkpoint)}
    assert counted == {*FILES, "model-00001-of-00001.safetensors"} - {"model.safetensors"}
    before = model_digest(checkpoint)
    (folder / "config.yaml").write_text("other")
    assert model_digest(checkpoint) != before
