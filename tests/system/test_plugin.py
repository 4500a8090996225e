"""A position encoding in somebody else's file, from its recipe to a worker of the server, by the commands."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file

from regard.run import train_recipe
from tests.plugin import on_path, with_plugin, write_plugin
from tests.serve.live import Server
from tests.training import toy

NAME = "near_parts"


@pytest.mark.slow
def test_every_command_serves_a_choice_of_somebody_else(tmp_path: Path) -> None:
    toy.write_corpus(tmp_path)
    environment = on_path(write_plugin(tmp_path / "parts", NAME))
    recipe = tmp_path / "mine.yaml"
    keys = with_plugin(toy.recipe(tmp_path, steps=40, checkpoints={"every": 1, "keep": 2}), NAME)
    recipe.write_text(yaml.safe_dump(keys), encoding="utf-8")

    def regard(*arguments: Any, code: int = 0, **options: Any) -> subprocess.CompletedProcess[str]:
        done = toy.regard(*arguments, env=environment, **options)
        assert done.returncode == code, done.stderr
        return done

    whole, run = tmp_path / "whole", tmp_path / "run"
    regard("train", recipe, "--out", whole, "--device", "cpu")
    _kill_after_a_checkpoint(recipe, run, environment)
    refused = regard("train", run / "config.yaml", "--out", run, code=2)
    assert f"add --plugin {NAME}" in refused.stderr
    regard("train", run / "config.yaml", "--out", run, "--device", "cpu", "--plugin", NAME)
    ours, theirs = load_file(run / "model.safetensors"), load_file(whole / "model.safetensors")
    assert all(ours[name].equal(theirs[name]) for name in theirs)
    assert "encoder_position.0.numbers" in theirs

    with_it = ("--plugin", NAME)
    for command in (["evaluate", run], ["translate", run], ["look", run, "w1 w2"]):
        refused = regard(*command, code=2, stdin="w1\n", cwd=tmp_path)
        assert refused.stderr.count("\n") == 1
        assert f"needs the plugin {NAME}" in refused.stderr
    assert json.loads(regard("evaluate", run, *with_it, "--json").stdout)["metrics"]["bleu"]["value"] >= 0
    assert regard("translate", run, *with_it, stdin="w1 w2\n\n").stdout.count("\n") == 2
    regard("look", run, "w1 w2", *with_it, "--output", tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 10_000
    assert "Neighbours have a learned bonus." in regard("info", "--mechanisms", *with_it).stdout
    assert "position.encoder(near).reach" in regard("train", *with_it, "--help").stdout
    assert f"needs the plugin {NAME}" in regard("serve", run, "--port", "0", code=2).stderr


def _kill_after_a_checkpoint(recipe: Path, run: Path, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "regard", "train", str(recipe), "--out", str(run), "--device", "cpu"]
    process = subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not (run / "last").exists() and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (run / "last").exists()
    assert not (run / "model.safetensors").exists()


def test_a_worker_loads_what_the_server_was_given(
    tmp_path: Path, own_choices: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy.write_corpus(tmp_path)
    for name, value in on_path(write_plugin(tmp_path / "parts", NAME)).items():
        monkeypatch.setenv(name, value)
    sys.path.append(str(tmp_path / "parts"))
    from regard import recipe as recipes

    made = recipes.load_recipe(with_plugin(toy.recipe(tmp_path, steps=2), NAME))
    train_recipe(made, tmp_path / "run", "cpu")
    with Server(tmp_path / "run", "--plugin", NAME) as server:
        assert len(server.ask("translate", text="w1 w2").json()["results"]) == 1
