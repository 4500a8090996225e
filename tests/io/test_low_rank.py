"""Weights stored as a change of another model's: exact at its rank, nearest at a lower one, never of another base."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from regard.cli.interop import export_model
from regard.errors import RegardError
from regard.interop.model_folder import Storage
from regard.io.low_rank import from_low_rank, to_low_rank
from regard.io.tensors import unique_state_dict

FIXTURE = Path(__file__).parent.parent / "fixtures" / "runs" / "classify-bert"
TEXTS = ["the cat sat", "a dog ran on"]


def test_a_change_of_low_rank_comes_back() -> None:
    words, tall = "body.embedding.weight", "body.expand.weight"
    base = {"w": torch.randn(12, 20), "b": torch.randn(12), "same": torch.randn(3, 4), words: torch.randn(90, 8)}
    base[tall] = torch.randn(40, 4)
    change = torch.randn(12, 2) @ torch.randn(2, 20)
    weights = base | {"w": base["w"] + change, "b": base["b"] + 1, words: base[words] + 1}
    weights[tall] = base[tall] + torch.randn(40, 1) @ torch.randn(1, 4)
    weights["head"] = torch.randn(2, 12)
    stored = to_low_rank(weights, base, 2)
    assert {name: list(t.shape) for name, t in stored.items()} == {
        "w.left": [2, 12], "w.right": [2, 20], "b": [12], "head": [2, 12],
        f"{tall}.left": [2, 40], f"{tall}.right": [2, 4],
    }  # fmt: skip
    restored = from_low_rank(stored, base, "here")
    assert torch.allclose(restored["w"], weights["w"], atol=1e-5)
    assert torch.allclose(restored[tall], weights[tall], atol=1e-5)
    assert torch.equal(restored[words], base[words])  # of a table of words the base's is kept
    assert all(torch.equal(restored[name], weights[name]) for name in ("b", "head", "same"))
    error = (from_low_rank(to_low_rank(weights, base, 1), base, "here")["w"] - weights["w"]).norm()
    assert error == pytest.approx(float(torch.linalg.svdvals(change)[1]), rel=1e-3)  # the best of rank 1
    with pytest.raises(RegardError, match="here: w is no change of its base's"):
        from_low_rank({"w.left": stored["w.left"]}, base, "here")


@pytest.fixture
def change(tmp_path: Path) -> Path:
    """A fine-tuned model over the one that it began with, both in 8 bits or as they were."""
    shutil.copytree(FIXTURE / "origin", tmp_path / "bert")
    export_model("safetensors", FIXTURE / "run" / "last", tmp_path / "sst2", "int8", Storage(8, tmp_path / "bert", 8))
    return tmp_path / "sst2"


def test_a_fine_tuned_model_is_loaded_over_its_base(change: Path) -> None:
    whole = regard.load(FIXTURE / "run" / "last", "cpu")
    loaded = regard.load(change, "cpu")
    names = {name for name in load_file(change / "model.safetensors") if ".left" not in name and ".right" not in name}
    assert "body.embedding.weight" not in names
    theirs, ours = unique_state_dict(whole.model), unique_state_dict(loaded.model)
    assert set(theirs) == set(ours)
    both = [model.classify(TEXTS) for model in (whole, loaded)]
    for one, other in zip(*both, strict=True):
        assert one.probabilities == pytest.approx(other.probabilities, abs=0.05)


def test_another_base_or_none_is_a_sentence(change: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bert" / "model.safetensors"
    tensors = load_file(path)
    save_file({name: tensor + 1 for name, tensor in tensors.items()}, path)
    with pytest.raises(RegardError, match=r"sst2: a change of another bert than .*, by its sha256 in base.json"):
        regard.load(change, "cpu")
    shutil.rmtree(tmp_path / "bert")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RegardError, match="a change of the model bert, which is not beside it and not installed"):
        regard.load(change, "cpu")
    (change / "base.json").write_text(json.dumps({"model": "other"}), encoding="utf-8")
    monkeypatch.setenv("REGARD_MODELS", "")
    with pytest.raises(RegardError, match=r"base.json: damaged"):
        regard.load(change, "cpu")
