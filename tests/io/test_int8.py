"""Weights stored in 8 bits: errors of at most half a step, every kind of model, a sentence for what is wrong."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from regard import recipe as recipes
from regard.cli.info import info
from regard.cli.interop import export_model
from regard.errors import RegardError
from regard.interop.model_folder import Storage
from regard.io.int8 import SCALE, from_int8, to_int8
from regard.io.tensors import read_tensors, unique_state_dict
from regard.run import train_recipe

RUNS = Path(__file__).parent.parent / "fixtures" / "runs"
KINDS = sorted(path.parent.name for path in RUNS.glob("*/run"))


def test_rows_keep_their_own_scale() -> None:
    table = torch.randn(5, 64) * torch.tensor([1e-6, 1.0, 1e3, 0.0, 1.0])[:, None]
    weights = {"w": table, "norm.scale": torch.ones(7),
               "kernel": torch.randn(4, 3, 2), "count": torch.ones(2, 3).int(), "empty": torch.zeros(0, 3)}  # fmt: skip
    stored = to_int8(weights)
    assert stored["w"].dtype == stored["kernel"].dtype == torch.int8
    assert set(stored) == {*weights, "w" + SCALE, "kernel" + SCALE}
    restored = from_int8(stored, "here")
    half = weights["w"].abs().amax(1) / 127 / 2
    assert ((restored["w"] - weights["w"]).abs().amax(1) <= half * 1.001).all()
    assert torch.allclose(restored["w"].abs().amax(1), weights["w"].abs().amax(1), rtol=1e-6, atol=0)  # it is exact
    assert all(torch.equal(restored[name], weights[name]) for name in ("norm.scale", "count", "empty"))
    assert to_int8(restored)["w"].equal(stored["w"])  # stored again, nothing is lost


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_is_a_quarter_of_the_size_and_nearly_the_same(kind: str, tmp_path: Path) -> None:
    run = RUNS / kind / "run" / "last"
    export_model("safetensors", run, tmp_path / "plain", "int8")
    export_model("safetensors", run, tmp_path / "small", "int8", Storage(8))
    plain, small = (regard.load(tmp_path / name, "cpu") for name in ("plain", "small"))
    stored = load_file(tmp_path / "small" / "model.safetensors")
    for name, weight in unique_state_dict(plain.model).items():
        assert stored[name].dtype == (torch.int8 if weight.dim() > 1 else weight.dtype), name
        assert torch.allclose(unique_state_dict(small.model)[name], weight, atol=float(weight.abs().max()) / 250)
    files = [load_file(tmp_path / name / "model.safetensors") for name in ("plain", "small")]
    sizes = [sum(tensor.nbytes for tensor in file.values()) for file in files]
    assert sizes[1] < 0.55 * sizes[0]  # toys: rows of 8 or 16 numbers, each with a scale of 4 bytes


@pytest.fixture
def small(toy_run: Path, tmp_path: Path) -> Path:
    export_model("safetensors", toy_run, tmp_path / "small", "int8", Storage(8))
    return tmp_path / "small"


def test_info_says_8_bits(small: Path, toy_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    info(small, as_json=False)
    assert "8 bits" in capsys.readouterr().out
    info(toy_run, as_json=False)
    assert "8 bits" not in capsys.readouterr().out


def test_info_is_chinese(toy_run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_LANG", "zh")
    info(toy_run, as_json=False)
    said = capsys.readouterr().out
    assert "翻译 en→de" in said
    assert "40 / 40" in said
    info(toy_run, as_json=True)
    assert '"translation en→de"' in capsys.readouterr().out


def test_training_begins_with_it_and_does_not_go_on_in_it(small: Path, toy_run: Path, tmp_path: Path) -> None:
    written = (toy_run / "config.yaml").read_text(encoding="utf-8")
    (tmp_path / "recipe.yaml").write_text(written.replace("format:", "#", 1), encoding="utf-8")
    recipe = recipes.load_recipe(tmp_path / "recipe.yaml", ["training.steps=2"])
    with pytest.raises(RegardError, match=r"stored in 8 bits, which cannot be trained further; .* training.init="):
        train_recipe(recipe, small, "cpu")
    recipe = recipes.load_recipe(tmp_path / "recipe.yaml", [f"training.init={small}", "training.steps=1"])
    assert train_recipe(recipe, tmp_path / "further", "cpu").finished


def test_a_scale_that_does_not_fit_is_named(small: Path) -> None:
    path = small / "model.safetensors"
    stored = load_file(path)
    name = next(name for name in stored if name + SCALE in stored)
    save_file(stored | {name + SCALE: torch.ones(3)}, path)
    with pytest.raises(RegardError, match=f"safetensors: {name} is not stored in 8 bits with a scale for each row"):
        read_tensors(path)


def test_bits_are_eight_and_for_safetensors(toy_run: Path, tmp_path: Path) -> None:
    with pytest.raises(RegardError, match="--bits is 4; write 8"):
        export_model("safetensors", toy_run, tmp_path / "out", "int8", Storage(4))
    with pytest.raises(RegardError, match="ct2 takes --precision int8"):
        export_model("ct2", toy_run, tmp_path / "out", "int8", Storage(8))
