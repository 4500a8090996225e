"""`regard evaluate A --against B`: the figures of `evaluate`, and whether their difference is more than chance."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from regard.cli.evaluate import measured_alike
from regard.cli.main import app
from regard.errors import RegardError


def test_the_same_weights_differ_by_nothing(toy_run: Path, tmp_path: Path) -> None:
    shutil.copytree(toy_run, tmp_path / "other")
    run = CliRunner().invoke
    report = json.loads(run(app, ["evaluate", str(toy_run), "--against", str(tmp_path / "other"), "--json"]).stdout)
    alone = json.loads(run(app, ["evaluate", str(toy_run), "--json"]).stdout)
    bleu, chrf, _ = report["metrics"]
    assert bleu["first"] == pytest.approx(alone["metrics"]["bleu"]["value"], abs=1e-3)
    assert chrf["first"] == pytest.approx(alone["metrics"]["chrf"]["value"], abs=1e-3)
    assert [metric["p_value"] for metric in report["metrics"]] == [1.0, 1.0, 1.0]
    table = run(app, ["evaluate", str(toy_run), "--against", str(tmp_path / "other")]).stdout
    assert "BLEU: no more than chance may give (p = 1.0000)" in table


@pytest.mark.parametrize(
    "options, sentence",
    [
        (["--against", "RUN"], "is the model itself"),
        (["--against", "OTHER", "--with", "RUN"], "leave out --with"),
        (["--against", "OTHER", "--split", "dev"], "--split is 'dev'"),
        (["--against", "OTHER"], "no such folder"),
    ],
)
def test_what_cannot_be_compared(toy_run: Path, tmp_path: Path, options: list[str], sentence: str) -> None:
    words = [{"RUN": str(toy_run), "OTHER": str(tmp_path / "none")}.get(word, word) for word in options]
    error = CliRunner().invoke(app, ["evaluate", str(toy_run), *words]).exception
    assert isinstance(error, RegardError)
    assert sentence in str(error)


def test_models_that_prepare_text_unlike_are_measured_on_the_same_references() -> None:
    def model(lower: bool) -> Any:
        def normalise(text: str) -> str:
            return text.lower() if lower else text

        def measured_form(texts: list[str], pairs: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
            return texts, [normalise(target) for _, target in pairs]

        target = SimpleNamespace(detokenise=lambda text, language: text.replace(" .", "."))
        return SimpleNamespace(measured_form=measured_form, vocabulary=SimpleNamespace(target=target), languages="ed")

    pairs = [("a", "Ein Haus.")]
    alike = measured_alike([model(True), model(True)], [["ein haus ."], ["ein ."]], pairs)
    assert alike == (["ein haus ."], ["ein ."], ["ein haus."])
    unlike = measured_alike([model(True), model(False)], [["ein haus ."], ["Ein Haus ."]], pairs)
    assert unlike == (["ein haus."], ["Ein Haus."], ["Ein Haus."])
