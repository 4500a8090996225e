"""`make wheels`: both wheels, installed into an environment of their own, find a model by its name."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from regard.cli.interop import export_model
from regard.interop.model_folder import Storage

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, **options: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload, no-any-return]


@pytest.mark.slow
def test_both_wheels_install_and_a_name_is_found(toy_run: Path, tmp_path: Path) -> None:
    source, dist = tmp_path / "source", tmp_path / "dist"
    for name in ("src", "recipes", "models"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    export_model("safetensors", toy_run, source / "models" / "toy", "int8", Storage(8))
    (source / "models" / "toy" / "README.md").write_text("---\ntitle: A toy\n---\nA card.\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    built = run(*pip, "wheel", "-q", "--no-deps", "-w", dist, source, source / "models")
    if built.returncode and "hatchling" in built.stderr:
        pytest.skip("hatchling cannot be had here")
    assert built.returncode == 0, built.stderr
    wheels = {path.name.split("-")[0]: path for path in dist.glob("*.whl")}
    assert set(wheels) == {"regard", "regard_models"}
    inside = set(zipfile.ZipFile(wheels["regard_models"]).namelist())
    assert {f"regard_models/toy/{name}" for name in ("config.yaml", "model.safetensors", "README.md")} <= inside

    place = tmp_path / "venv"
    venv.create(place)
    python = place / "bin" / "python"
    done = run(*pip, "--python", python, "install", "-q", "--no-deps", "--no-index", *wheels.values())
    assert done.returncode == 0, done.stderr
    libraries = {"PYTHONPATH": sysconfig.get_path("purelib"), "REGARD_MODELS": ""}  # torch and the others are borrowed
    environment = {**os.environ, **libraries}
    listed = run(place / "bin" / "regard", "models", "list", "--json", cwd=tmp_path, env=environment)
    assert '"name": "toy"' in listed.stdout, listed.stderr
    said = run(place / "bin" / "regard", "translate", "toy", cwd=tmp_path, env=environment, input="w1 w2\n")
    assert said.returncode == 0, said.stderr
    assert said.stdout.endswith("\n")
