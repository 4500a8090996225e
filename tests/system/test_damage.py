"""Kills, flipped bits and bad files, some of each; benchmarks/damage.py has the long ones. And files of strangers."""

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from benchmarks import damage
from regard.errors import RegardError
from regard.interop.checkpoint import Checkpoint
from regard.interop.families import import_checkpoint
from tests.training import toy


def test_flipped_bits_are_named(tmp_path: Path) -> None:
    toy.write_corpus(tmp_path)
    found = damage.flips(tmp_path, 6, random.Random(5))
    assert found.total() == 6
    assert not [outcome for outcome in found if outcome.startswith("silent")]


def test_bad_files_are_sentences(tmp_path: Path) -> None:
    toy.write_corpus(tmp_path)
    problems: list[str] = []
    found = damage.bad_files(tmp_path, 60, random.Random(6), show=problems.append)
    assert found["one sentence"] + found["read as it is"] == 60, problems


@pytest.mark.slow
def test_many_bad_files_flips_and_kills(tmp_path: Path) -> None:
    for part, count in ((damage.bad_files, 600), (damage.flips, 40), (damage.kills, 20)):
        folder = tmp_path / part.__name__
        toy.write_corpus(folder)
        found = part(folder, count, random.Random(7))
        bad = [what for what in found if what.startswith(("silent", "traceback", "long", "lost", "runs that"))]
        assert not any(found[what] for what in bad), found


# --- what was seen to fail -----------------------------------------------------------------------------------------


@pytest.fixture
def unverified(toy_run: Path, tmp_path: Path) -> Path:
    """A trained model as a stranger might send it: without a manifest, so that only its readers stand guard."""
    for name in ("config.yaml", "model.safetensors", "tokenizer"):
        source, place = toy_run / name, tmp_path / "model" / name
        place.parent.mkdir(exist_ok=True)
        shutil.copytree(source, place) if source.is_dir() else shutil.copy(source, place)
    return tmp_path / "model"


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize(
    "old, new, said",
    [
        ("layers: 1", "layers: 1000000000", "it can be at most 2000"),
        ("layers: 1", "layers: 1900", "describes a larger model than its weights"),
        ("size: 16", "size: 1e9", "describes a larger model than its weights"),
        ("inner: 32", "inner: 3000000000", "describes a larger model than its weights"),
        ("size: 16", "size: 1e300", "must be a whole number"),
        ("dropout: 0.1", "dropout: .nan", "must be a finite number"),
        ("seed: 1", "seed: &a [*a, *a]", "an alias, which is not read"),
        ("seed: 1", "seed: " + "[" * 5000, "nested too deeply"),
        ("seed: 1", "seed: !!timestamp no", "must be a whole number"),
    ],
)
def test_configs_that_ask_for_too_much(unverified: Path, old: str, new: str, said: str) -> None:
    change(unverified / "config.yaml", old, new)
    with damage.bounded(), pytest.raises(RegardError, match=said):
        regard.load(unverified, "cpu")


def test_weights_that_are_not_numbers(unverified: Path) -> None:
    path = unverified / "model.safetensors"
    tensors = {name: value.clone() for name, value in load_file(path).items()}
    name = sorted(tensors)[0]
    save_file(tensors | {name: torch.full_like(tensors[name], torch.nan)}, path)
    with pytest.raises(RegardError, match=f"{name} holds numbers that are not finite"):
        regard.load(unverified, "cpu")


def test_tokenizers_that_would_grow_text(unverified: Path) -> None:
    path = unverified / "tokenizer" / "tokenizer.json"
    whole = json.loads(path.read_text("utf-8"))
    doubling = {"type": "Replace", "pattern": {"String": "w"}, "content": "ww"}
    for part, value in (
        ("normalizer", {"type": "Sequence", "normalizers": [doubling] * 40}),
        ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "(w+)+$"}, "behavior": "Isolated", "invert": False}),
        ("decoder", doubling),
    ):
        path.write_text(json.dumps(whole | {"tokenizer": whole["tokenizer"] | {part: value}}))
        damage.resummed(path)
        with pytest.raises(RegardError, match=r"tokenizer.json: damaged: not a tokenizer that can be used"):
            regard.load(unverified, "cpu")
    path.write_text("[" * 200_000)
    with pytest.raises(RegardError, match=r"tokenizer.json: nested too deeply"):
        regard.load(unverified, "cpu")


@pytest.mark.parametrize(
    "key, value", [("sampling", "\ud800"), ("sample", {"size_requested": "x"}), ("special", {"pad": True})]
)
def test_headers_of_tokenizers(unverified: Path, key: str, value: object) -> None:
    path = unverified / "tokenizer" / "tokenizer.json"
    whole = json.loads(path.read_text("utf-8"))
    value = whole["regard"][key] | value if isinstance(value, dict) else value
    path.write_text(json.dumps(whole | {"regard": whole["regard"] | {key: value}}))
    damage.resummed(path)
    with pytest.raises(RegardError, match=r"tokenizer.json: damaged: not a tokenizer that can be used"):
        regard.load(unverified, "cpu")


def test_no_message_repeats_a_file(tmp_path: Path, unverified: Path) -> None:
    secret = "hunter2-and-some-more"
    for content in (f"{secret}\n{secret}", f"- {secret}", f'"{secret}', f'{{"a": "{secret}"'):
        for path in (unverified / "config.yaml", unverified / "tokenizer" / "tokenizer.json"):
            kept = path.read_text("utf-8")
            path.write_text(content)
            with pytest.raises(RegardError) as error:
                regard.load(unverified, "cpu")
            assert secret not in str(error.value)
            path.write_text(kept)


@pytest.mark.parametrize(
    "name, content, said",
    [
        ("config.json", "[" * 100_000, "nested too deeply"),
        ("model.safetensors.index.json", '{"weight_map": []}', "it has no weight_map"),
        ("model.safetensors.index.json", '{"weight_map": {"a": ["b"]}}', "it has no weight_map"),
        ("model.safetensors.index.json", '{"weight_map": {"a": "../b"}}', "is not a file of this folder"),
    ],
)
def test_checkpoints_of_strangers(tmp_path: Path, name: str, content: str, said: str) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / name).write_text(content)

    def read() -> None:
        checkpoint = Checkpoint.find(str(folder))
        assert checkpoint.config == {}
        checkpoint.tensors()

    with pytest.raises(RegardError, match=said):
        read()


def test_links_are_followed_in_the_hubs_cache_alone(tmp_path: Path) -> None:
    cache, plain = tmp_path / "models--a--b", tmp_path / "plain"
    (cache / "blobs").mkdir(parents=True)
    (cache / "blobs" / "1").write_text('{"model_type": "unheard-of"}')
    for folder in (cache / "snapshots" / "main", plain):
        folder.mkdir(parents=True)
        (folder / "config.json").symlink_to(cache / "blobs" / "1")
    with pytest.raises(RegardError, match="a model of the family unheard-of"):
        import_checkpoint(cache / "snapshots" / "main", tmp_path / "out")
    with pytest.raises(RegardError, match="a link that leads out of the folder"):
        import_checkpoint(plain, tmp_path / "out")


def test_a_line_of_more_than_a_mebibyte_is_refused(toy_run: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "regard", "translate", str(toy_run), "--device", "cpu"]
    long = tmp_path / "long.txt"
    long.write_text("w1\n" + "w2 " * 400_000 + "\nw3\n")
    for arguments, name, given in (([], "standard input", long.read_bytes()), (["-i", str(long)], str(long), b"")):
        ended = subprocess.run([*command, *arguments], input=given, capture_output=True, timeout=120, check=False)
        assert ended.returncode == 2
        assert f"{name}, line 2: a line of 1,048,576 bytes or more" in ended.stderr.decode()
        assert b"Traceback" not in ended.stderr
