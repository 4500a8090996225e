"""`regard try`: the page where there is a browser, else a tour; what is missing is one sentence."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.cli.interop import export_model
from regard.cli.shipped import try_models as module
from regard.cli.shipped.models import list_models
from regard.cli.shipped.try_models import models_to_try, try_models
from regard.errors import RegardError
from regard.interop.model_folder import Storage
from regard.io import models
from regard.serve import server
from regard.serve.settings import ServerSettings

RUNS = Path(__file__).parents[1] / "fixtures" / "runs"
ALL = {"en-de": "transformer-bpe", "story": "lm", "chat": "chat", "bert": "bert", "sst2": "classify-bert"}


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of every kind under the name that it will have, and nothing in the working folder."""
    for name, run in ALL.items():
        export_model("safetensors", RUNS / run / "run" / "last", tmp_path / "models" / name, "int8", Storage(8))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("REGARD_MODELS", str(tmp_path / "models"))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    return tmp_path / "models"


@pytest.mark.filterwarnings("ignore:.*unknown to", "ignore:the prompt has", "ignore:.*longer than")  # by toys
def test_without_a_browser_there_is_a_tour_of_every_model(shipped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try_models(None, None, "cpu")
    said = capsys.readouterr()
    assert "there is no browser here: this is the tour in the terminal; `regard try --page`" in said.err
    lines = said.out.splitlines()
    commands = [line for line in lines if line.startswith("$ ")]
    street = "The animal didn't cross the street because it was too tired."
    assert commands[0] == f'$ echo "{street}" | regard translate en-de'
    assert '$ regard generate story "As aliens entered our planet" --max-tokens 60 --echo' in commands
    assert "$ regard chat chat" in commands
    assert {command.split()[-2] for command in commands if "|" in command} == {"translate", "fill", "classify"}
    assert "> Hi how are you" in lines
    assert sum(line.count("%") for line in lines) >= 8  # of the words for gaps


@pytest.mark.filterwarnings("ignore:.*unknown to", "ignore:the prompt has", "ignore:.*longer than")  # by toys
def test_a_damaged_model_is_named_and_the_others_are_shown(
    shipped: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = sorted(path.name for path in shipped.iterdir())
    weights = shipped / names[0] / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    (shipped / names[1] / "config.yaml").write_text("task: [")
    list_models(as_json=False)
    listed = capsys.readouterr()
    assert f"regard: {names[1]}: left out; " in listed.err
    assert all(name in listed.out for name in names[2:])
    try_models(page=False, port=None, device="cpu")
    seen = capsys.readouterr()
    assert f"regard: {names[0]}: left out; " in seen.err
    assert "model.safetensors: damaged" in seen.err
    assert f"regard: {names[1]}: left out; " in seen.err
    assert names[2] in seen.out
    served = list[str]()

    async def run_server(settings: ServerSettings, log: object) -> None:
        served.extend(settings.runs)

    monkeypatch.setattr(server, "run_server", run_server)
    monkeypatch.setattr(module, "page_log", lambda: None)
    (shipped / names[2] / "model.safetensors").unlink()
    try_models(page=True, port=0, device="cpu")
    seen = capsys.readouterr()
    assert sorted(served) == names[3:]
    assert all(f"regard: {name}: left out; " in seen.err for name in names[:3])
    monkeypatch.setattr(module, "models_to_try", lambda: {names[0]: shipped / names[0]})
    for page in (False, True):
        with pytest.raises(RegardError, match="damaged"):
            try_models(page, port=None, device="cpu")


def test_a_card_says_what_is_shown(
    shipped: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (shipped / "sst2" / "README.md").write_text("---\nexamples: [the cat, a dog]\n---\n", encoding="utf-8")
    monkeypatch.setattr(module, "models_to_try", lambda: {"sst2": shipped / "sst2"})
    try_models(False, None, "cpu")
    assert '$ echo "a dog" | regard classify sst2' in capsys.readouterr().out


def test_without_models_the_quickstart_is_shown_or_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(models, "models_folders", list)
    with pytest.raises(RegardError, match="and there is no runs/quickstart either; `make quickstart`, or"):
        models_to_try()
    run = RUNS / "transformer-bpe" / "run" / "last"
    export_model("safetensors", run, tmp_path / "runs" / "quickstart", "int8")
    assert models_to_try() == {"runs/quickstart": Path("runs/quickstart")}
    assert "this is runs/quickstart, a small translator" in capsys.readouterr().err


@contextlib.contextmanager
def started(*options: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "regard", "try", "--page", "--device", "cpu", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


@pytest.mark.slow
def test_the_page_has_all_models_and_ends_with_ctrl_c(shipped: Path, tmp_path: Path) -> None:
    with started("--port", "0") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "Loading en-de, story, chat, bert, sst2 …\n"
        address = process.stdout.readline().split()[4]
        with urllib.request.urlopen(f"{address}v1/models") as response:
            assert response.read().count(b'"name"') == 5
        begun = time.monotonic()
    assert process.returncode == 0
    assert time.monotonic() - begun < 30


def test_a_port_that_is_taken_is_one_sentence(shipped: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "regard", "try", "--page", "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"regard: 127.0.0.1:{port}: cannot listen there (Address already in use)\n"
