"""`regard info RUN` says what a model costs; `regard train --dry-run` says it before anything is spent."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli.main import app

FIXTURES = Path(__file__).parent.parent / "fixtures" / "runs"


def run(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("kind", ["transformer-bpe", "rnn", "lm", "lstm_lm", "bert", "classify-bert"])
def test_info_says_what_a_run_costs(kind: str) -> None:
    folder = next(path.parent for path in (FIXTURES / kind).rglob("config.yaml"))
    facts = json.loads(run("info", str(folder), "--json", "--tokens", "1000", "--length", "8"))
    assert sum(facts["parameters by part"].values()) > 0
    assert all(count > 0 for count in facts["FLOPs a token"].values())
    memory = facts["training memory"]
    assert memory["weights, gradients and optimiser"] >= 16 * sum(facts["parameters by part"].values()) * 0.99
    if kind not in ("classify-bert", "lstm_lm"):  # these have no tokens to learn, or a state that goes on
        assert memory["total"] == memory["weights, gradients and optimiser"] + memory["a batch of 1000 tokens"]


def test_a_dry_run_measures_and_writes_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    for name, end in (("source", "x"), ("target", "y")):
        Path(f"{name}.txt").write_text("".join(f"{n} {n + 1} {end}\n" for n in range(200)), encoding="utf-8")
    recipe = Path("recipe.yaml")
    recipe.write_text(
        "data: {train: [source.txt, target.txt], valid: [source.txt, target.txt]}\n"
        "text: {kind: word}\nmodel: {kind: transformer, preset: tiny}\n"
        "training: {steps: 1000, tokens_per_batch: 200}\n",
        encoding="utf-8",
    )
    facts = json.loads(run("train", str(recipe), "--dry-run", "--json", "--device", "cpu"))
    assert facts["steps"] == 1000
    assert facts["seconds of all steps"] == pytest.approx(1000 * facts["seconds a step"])
    assert facts["memory"]["a batch"] > 0
    assert facts["memory"]["total"] >= 16 * facts["parameters"]
    assert not Path("runs").exists()
    assert not Path("dry-run").exists()
    assert "a dry run" in run("train", str(recipe), "--dry-run", "--device", "cpu")
