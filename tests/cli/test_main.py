"""The table of commands: old names of options, and what `--out` and `--output` mean everywhere."""

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from regard.cli.main import RENAMED, app


def parameters() -> dict[str, dict[str, Any]]:
    """By command its options, by their long names."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return {
        name: {option: parameter for parameter in command.params for option in parameter.opts}
        for name, command in commands.items()
    }


def test_old_names_are_taken_and_say_the_new_ones(toy_run: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    for options in (["--out", str(page)], [f"--out={page}"]):
        shown = CliRunner().invoke(app, ["look", str(toy_run), "w1 w2", *options])
        assert shown.exit_code == 0
        assert shown.stderr.startswith("regard: --out is now called --output\n")
        assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
        page.unlink()
    shown = CliRunner().invoke(app, ["look", str(toy_run), "--output", str(page), "--", "--out"])
    assert "is now called" not in shown.stderr  # a text, not an option


@pytest.mark.parametrize("old", RENAMED)
def test_old_names_stand_for_options_that_exist_and_are_not_shown(old: str) -> None:
    command, _, option = old.partition(" ")
    assert RENAMED[old] in parameters()[command]
    assert option not in parameters()[command]
    assert f"{option} " not in CliRunner().invoke(app, [command, "--help"]).stdout


def test_out_is_a_folder_and_output_a_file() -> None:
    with_out = {name for name, options in parameters().items() if "--out" in options}
    with_output = {name for name, options in parameters().items() if "--output" in options}
    assert with_out == {"quickstart", "train", "compare", "tune", "distil", "average", "figures"}
    assert with_output == {"translate", "fill", "embed", "classify", "tag", "answer", "choose", "look", "summarise"}
