"""Parts are kept and used again; what broke is a row; the commands and the page."""

import errno
import json
import os
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from regard.cli.main import app
from regard.errors import RegardError
from regard.lab import runner
from regard.lab.charts import Chart, Row, Series, curves, intervals, standalone
from regard.lab.claim import Claim, Setup
from regard.lab.registry import MODULES, find_claim
from regard.lab.report import html_page, markdown_report
from regard.lab.runner import measured_results, run_claims


def claim(name: str) -> Claim:
    return find_claim(name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("lab")
    run_claims([claim("C7")], out, Setup(), 1, print)
    return out


def test_what_was_measured_is_not_measured_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def refuse(*parts: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(runner.ProcessPoolExecutor, "submit", refuse)
    result = run_claims([claim("C7")], folder, Setup(), 1, said.append)[0]
    assert result.verdict == "confirmed"
    assert said[0].startswith("C7 confirmed (3 seeds")


def test_a_part_of_other_source_or_cut_short_counts_for_nothing(folder: Path) -> None:
    part = folder / "parts" / "C7-cpu-seed-1.json"
    kept = part.read_text()
    try:
        part.write_text(kept.replace('"digest": "', '"digest": "0'))
        assert len(measured_results([claim("C7")], folder)[0].measurements) == 2
        part.write_text(kept[: len(kept) // 2])
        assert len(measured_results([claim("C7")], folder)[0].measurements) == 2
    finally:
        part.write_text(kept)


def test_a_fault_that_is_not_there(folder: Path) -> None:
    with pytest.raises(RegardError, match="C7 has no fault 'gremlins'; it has a learned table"):
        run_claims([claim("C7")], folder, Setup(fault="gremlins"), 1, print)


def test_the_page_asks_for_nothing(folder: Path) -> None:
    results = measured_results([claim("C7")], folder)
    page = html_page(results)
    assert "<script" not in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    assert "regard lab run C7" in page
    assert page.count("<svg") == 2
    assert "Not run here" in page
    text = markdown_report(results)
    assert "| C7 | PE(p + k) is a linear function" in text


def test_commands(folder: Path, tmp_path: Path) -> None:
    run = CliRunner().invoke
    listed = json.loads(run(app, ["lab", "list", "--json"]).stdout)
    assert [row["id"] for row in listed] == [f"C{n}" for n in range(1, 30)]
    plan = json.loads(run(app, ["lab", "plan", "C7", "C3", "--out", str(folder), "--json"]).stdout)
    assert [row["measured"] for row in plan["claims"]] == [3, 0]
    assert run(app, ["lab", "report", "--from", str(folder), "-o", str(tmp_path / "page.html")]).exit_code == 0
    assert (tmp_path / "page.md").exists()
    for arguments, sentence in (
        (["lab", "run", "C7", "--seeds", "1"], "one seed gives no verdict"),
        (["lab", "run", "C7", "--budget", "ample"], "--budget is 'ample'"),
        (["lab", "run", "C7", "--budget", "full"], "C7 has no experiment on text: its verdict is computed"),
        (["lab", "run", "C24", "--budget", "full"], "C24 has no experiment on text: no text tells"),
        (["lab", "run", "C8", "--budget", "full", "--set", "model.wings=2"], "wings"),
        (["lab", "run", "C8", "--budget", "full", "--minutes", "0"], "--minutes is 0"),
        (["lab", "run", "C8", "--budget", "full", "--device", "warp"], "device is 'warp'"),
        (["lab", "run", "C8", "--minutes", "9"], "--set and --minutes belong to --budget full"),
        (["lab", "report", "--from", str(tmp_path)], "nothing was measured there"),
    ):
        error = run(app, arguments).exception
        assert isinstance(error, RegardError), arguments
        assert sentence in str(error)


def test_a_device_of_ones_choice_is_kept_under_its_own_name(tmp_path: Path) -> None:
    """`auto` is no device of torch's, and what it measured is found again as that device's."""
    auto = "cuda" if torch.cuda.is_available() else "cpu"
    words = ["C15", "--device", "auto", "--out", str(tmp_path), "--json"]
    (row,) = json.loads(CliRunner().invoke(app, ["lab", "run", *words, "--seeds", "2"]).stdout)["claims"]
    assert (row["error"], row["device"], row["seeds"]) == ("", auto, 2)
    (row,) = json.loads(CliRunner().invoke(app, ["lab", "plan", *words]).stdout)["claims"]
    assert row["measured"] == 2


def test_json_is_json_for_everybody(folder: Path) -> None:
    """A range without an end is text: JSON has no infinity."""
    printed = CliRunner().invoke(app, ["lab", "report", "--from", str(folder), "--json"]).stdout
    claims = json.loads(printed, parse_constant=lambda name: pytest.fail(name))["claims"]
    assert [row["low"] for row in claims[0]["predictions"]] == ["-inf", 0.1]
    assert claims[0]["predictions"][1]["control"]
    assert "torch" in claims[0]["hardware"]


def test_each_setup_has_a_result_of_its_own(folder: Path, tmp_path: Path) -> None:
    """What another device measured stands beside; what a fault made of it is left out."""
    (tmp_path / "parts").mkdir()
    for seed in (1, 2):
        part = json.loads((folder / "parts" / f"C7-cpu-seed-{seed}.json").read_text())
        for name, setup in (("cpu", {}), ("cuda", {"device": "cuda"}), ("cpu-a-learned-table", {"fault": "a"})):
            own = {**part, "setup": {**part["setup"], **setup}}
            (tmp_path / "parts" / f"C7-{name}-seed-{seed}.json").write_text(json.dumps(own))
    assert [result.name for result in measured_results([claim("C7")], tmp_path)] == ["C7", "C7-cuda"]


def test_a_process_that_was_killed_breaks_nothing_later(tmp_path: Path) -> None:
    with runner._workers(1) as workers:
        with pytest.raises(BrokenProcessPool):
            workers.submit(os._exit, 1).result()
        assert workers.submit(dict).result() == {}


@pytest.mark.parametrize(
    "number, setup, said",
    [
        ("C7", Setup(trees="x.conllu"), "C7 reads no trees; --trees is for C26"),
        ("C26", Setup(trees="nowhere.conllu"), "nowhere.conllu: there is no such file"),
        ("C7", Setup("cuda"), "C7 is measured on the CPU; --device is for those that measure time: C1 C2 C15 C21"),
    ],
)
def test_setups_that_a_claim_has_not(tmp_path: Path, number: str, setup: Setup, said: str) -> None:
    with pytest.raises(RegardError, match=said):
        run_claims([claim(number)], tmp_path, setup, 1, print)


def test_what_measures_time_is_what_the_sentence_says() -> None:
    assert [name for name in MODULES if claim(name).timed] == ["C1", "C2", "C15", "C21"]


def test_charts_escape_and_bound_what_they_are_given() -> None:
    chart = Chart("a < b & c", "x", "y", [Series("one", [1, 10], [1e-9, float("nan")])], True, True)
    assert "a &lt; b &amp; c" in curves(chart)
    assert "nan" not in curves(chart)
    infinite = intervals([Row("r", 1.0, float("-inf"), float("inf"), "", (0, float("inf")))], "t")
    assert "nan" not in infinite
    assert "inf" not in infinite
    assert standalone(infinite).startswith("<?xml")


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> object:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(runner, "atomic_write", full)
    with pytest.raises(RegardError, match=r"C7-cpu-seed-\d.json: cannot be written \(No space left on device\)"):
        run_claims([claim("C7")], tmp_path, Setup(), 1, print)
