"""Runs interrupted in the past (tools/write_old_runs.py) load, and resume to the bits of an uninterrupted one.

Where the machine is not the one that wrote them, its first steps may differ in the last bits from those in the
checkpoint, so weights are then compared with a tolerance.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import regard
from tools.toy_runs import STEPS, losses, machine

FIXTURES = Path(__file__).parent.parent / "fixtures" / "runs"
NAMES = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())
TOLERANCE = 1e-5
ROUNDED_ANEW = {"decoder_only"}  # compressed keys under a causal mask are computed without the mask since
SAME = machine() == json.loads((FIXTURES / "machine.json").read_text(encoding="utf-8"))
Weights = dict[str, torch.Tensor]


@pytest.fixture(params=NAMES)
def old(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a fixture, which is the working folder; what its runs call their data are whole paths."""
    folder = tmp_path / request.param
    shutil.copytree(FIXTURES / request.param, folder, symlinks=True)
    for config in folder.glob("*/config.yaml"):
        config.write_text(config.read_text("utf-8").replace("$FOLDER", str(folder)), encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


def load(folder: Path) -> Any:
    """The model that `regard.load` gives, which has exactly the weights of the folder."""
    loaded = regard.load(folder, device="cpu")
    kept, stored = loaded.model.state_dict(), load_file(folder / "model.safetensors")
    assert all(torch.equal(kept[name], value) for name, value in stored.items()), folder
    return loaded


def differences(a: Weights, b: Weights, exact: bool) -> list[str]:
    """Names that only one has, and those whose values differ, with how much."""
    alone = [f"{name}: only in one" for name in sorted(a.keys() ^ b.keys())]
    both = [name for name in a if name in b]
    if shapes := [f"{name}: another shape" for name in both if a[name].shape != b[name].shape]:
        return alone + shapes
    far = {name: (a[name].double() - b[name].double()).abs().max().item() for name in both if a[name].numel()}
    return alone + [f"{name}: {much:.1e}" for name, much in far.items() if not much <= (0 if exact else TOLERANCE)]


def test_an_old_run_loads_and_resumes_to_the_same_bits(old: Path) -> None:
    for folder in (old / "run" / "last", *(path.parent for path in old.glob("*/model.safetensors"))):
        load(folder)
    before = losses(old / "run")
    resumed, whole = (regard.train("recipe.yaml", out=out, device="cpu") for out in ("run", "whole"))
    assert resumed.finished
    assert resumed.state.step == whole.state.step
    assert losses(old / "run")[: len(before)] == before  # it went on, and did not begin again

    exact = SAME and old.name not in ROUNDED_ANEW
    for name in ("last/optimiser.safetensors", "last/model.safetensors", "model.safetensors"):
        found = differences(load_file(old / "run" / name), load_file(old / "whole" / name), exact=exact)
        assert not found, f"resumed and uninterrupted differ in {name}: {'; '.join(found[:4])}"
    found = differences(load_file("final.safetensors"), load_file("whole/model.safetensors"), exact=False)
    assert not found, (
        "resumed and uninterrupted are alike, but both differ from the weights that this recipe gave when the fixture "
        f"was written: {'; '.join(found[:4])}"
    )
    if SAME:
        assert losses(old / "run") == losses(old / "whole")
    load(old / "run")


def test_the_fixtures_are_interrupted_runs_of_every_kind() -> None:
    """A fixture that git did not take, or one that had ended, would test nothing."""
    models = set()
    for name in NAMES:
        run = FIXTURES / name / "run"
        assert (run / "last").is_symlink(), name
        state = json.loads((run / "last" / "state.json").read_text(encoding="utf-8"))
        assert 0 < state["step"] < STEPS, name
        assert not (run / "model.safetensors").exists(), name
        models.add(name.partition("-")[0])
    expected = {"transformer", "decoder_only", "rnn", "conv", "bytenet", "lm", "lstm_lm", "chat", "bert", "classify"}
    expected |= {"tag"}
    assert models == expected
