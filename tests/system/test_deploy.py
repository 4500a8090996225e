"""The files of deploy/: what they copy is there, and how they start a server is a command that exists."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import typer

from regard.cli.main import app

ROOT = Path(__file__).parents[2]
CONTAINERFILE = (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8")


def instructions(name: str) -> list[str]:
    """The arguments of all instructions of this name."""
    joined = CONTAINERFILE.replace("\\\n", " ")
    return [line.removeprefix(name).strip() for line in joined.splitlines() if line.startswith(f"{name} ")]


def options_of_serve(words: list[str]) -> dict[str, Any]:
    command: Any = typer.main.get_command(app)
    return command.commands["serve"].make_context("serve", words).params  # raises if it cannot be typed so


def test_the_container_has_all_that_it_copies() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert "*" in ignored
    copied = [word for line in instructions("COPY") if "--from" not in line for word in line.split()[:-1]]
    assert set(copied) == kept  # nothing else reaches the build: no runs, no keys, no history
    assert all((ROOT / name).exists() for name in copied)


def test_the_container_runs_as_a_number_and_its_server_starts() -> None:
    assert len(instructions("FROM")) == 2
    assert all(line.startswith("${BASE}") for line in instructions("FROM"))
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", instructions("USER")[-1])
    assert "--start-period=" in instructions("HEALTHCHECK")[0]
    regard, serve, *words = json.loads(instructions("ENTRYPOINT")[0])
    assert (regard, serve) == ("regard", "serve")
    given = options_of_serve([*words, "/models/x"])
    assert (given["host"], given["open_to_all"]) == ("0.0.0.0", False)


def test_the_service_waits_for_the_whole_drain() -> None:
    unit = (ROOT / "deploy" / "regard.service").read_text(encoding="utf-8")
    words = shlex.split(re.findall(r"^ExecStart=\S+ serve (.*)$", unit, re.MULTILINE)[0])
    given = options_of_serve(words)
    (limit,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert int(limit) > given["drain_delay"] + given["drain"] + 5
    assert "ExecReload=/bin/kill -HUP $MAINPID" in unit
