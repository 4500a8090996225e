"""Experiments on text: numbers of a seed, what is judged, what is pretrained; and one from end to end, made small."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from regard.cli.main import app
from regard.errors import RegardError
from regard.lab.arms import Arm, check_arms
from regard.lab.claim import Claim, Measurement, PredictedRange, Setup, TextExperiment
from regard.lab.compare import ArmResult
from regard.lab.registry import find_claim
from regard.lab.report import html_page
from regard.lab.text import TextRun, TextSetup, measured_text_results, run_text_claims, seed_numbers
from regard.recipe import load_recipe
from tests.tasks import bert_toy

EXPERIMENT = TextExperiment(
    "quickstart",
    {"four": (), "one": ("model.heads=1",)},
    (PredictedRange("one less four", "loss, one head less four: at least 0.1", 0.1),),
    sums={"mean": {"four": 0.5, "one": 0.5}},
)


def claim() -> Claim:
    return Claim("", "heads help", "", (), lambda seed, setup: Measurement({}), 1, "", on_text=EXPERIMENT, id="X9")


def arms(*losses: tuple[float, float]) -> list[ArmResult]:
    four, one = ArmResult(Arm("four", ())), ArmResult(Arm("one", ("model.heads=1",)))
    for seed, (a, b) in enumerate(losses, 1):
        four.values[seed], one.values[seed] = a, b
    return [four, one]


def test_numbers_of_a_seed() -> None:
    numbers = seed_numbers(EXPERIMENT, {"four": 1.0, "one": 1.5})
    assert numbers == {"four": 1.0, "one": 1.5, "four less one": -0.5, "one less four": 0.5, "mean": 1.25}


@pytest.mark.parametrize(
    "losses, verdict",
    [([(1, 1.5), (2, 2.51), (3, 3.5)], "confirmed"), ([(1, 1), (2, 2.01), (3, 3)], "refuted"),
     ([(1, 1), (2, 2.5), (3, 2.9)], "undecided")],
)  # fmt: skip
def test_pairs_are_judged_and_not_the_spread_of_seeds(losses: list[tuple[float, float]], verdict: str) -> None:
    result = TextRun(claim(), Path(), TextSetup()).judged(arms(*losses))
    assert result.verdict == verdict
    assert result.outcome == f"on text: {verdict}"


def test_a_seed_counts_that_all_arms_have() -> None:
    rows = arms((1, 1.5), (2, 2.5), (3, 3.5))
    del rows[1].values[2]
    rows[1].errors[2] = "out of memory"
    run = TextRun(claim(), Path(), TextSetup())
    assert len(run.judged(rows).measurements) == 2
    del rows[1].values[3]
    assert run.judged(rows).error == "out of memory"


def test_arms_begin_with_what_was_pretrained_on_their_seed(tmp_path: Path) -> None:
    run = TextRun(find_claim("C18"), tmp_path, TextSetup())
    assert run.arms()[0].overrides == (f"training.init={run.folder / 'pretrained' / 'mixed-{seed}'}",)
    with pytest.raises(RegardError, match="which the comparison sets itself"):
        check_arms("quickstart", [Arm("a", ()), Arm("b", ("training.init=runs/a",))], [])


def test_what_is_finished_is_in_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = TextRun(find_claim("C8"), tmp_path, TextSetup()).folder / "arms"
    folder.mkdir(parents=True)
    rows = [
        {"arm": name, "overrides": [], "values": {"1": loss, "2": loss, "3": loss + 0.001}, "seconds": [60.0],
         "curves": {str(seed): [[1, 2.0], [2, loss]] for seed in (1, 2, 3)}}
        for name, loss in (("sinusoidal", 1.0), ("learned", 1.005))
    ]  # fmt: skip
    (folder / "compare.json").write_text(json.dumps({"arms": rows}))
    (result,) = measured_text_results([find_claim("C7"), find_claim("C8")], tmp_path)
    assert result.outcome == "on text: confirmed"
    page = html_page([result])
    assert "id='C8-text'" in page
    assert "regard lab run C8 --budget full" in page


SMALL = [
    "data={train: embedded:train, valid: embedded:valid}", "text={kind: bpe, size: 300}", "model.layers=1",
    "model.size=16", "model.inner=16", "model.heads=2", "training.steps=2", "training.tokens_per_batch=256",
    "training.schedule.warmup=1",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_one_from_end_to_end_in_parts(tmp_path: Path) -> None:
    """Its time is over at once, it goes on, and what is there is not trained again; it is a trial, and no verdict."""
    out = tmp_path / "lab"
    command = ["lab", "run", "C8", "--budget", "full", "--device", "cpu", "--jobs", "1", "--seeds", "2"]
    command += ["--out", str(out), *(part for text in SMALL for part in ("--set", text))]
    first = CliRunner().invoke(app, [*command, "--minutes", "0.01"])
    assert first.exit_code == 3, first.output
    done = CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)["claims"][0]
    assert data["kind"] == "text"
    assert data["seeds"] == 2
    (trial,) = out.glob("trial-*")
    results = sorted(trial.glob("C8/arms/*/seed-*/results.json"))
    assert len(results) == 4
    times = [path.stat().st_mtime_ns for path in results]
    assert CliRunner().invoke(app, [*command, "--json"]).exit_code == 0
    assert [path.stat().st_mtime_ns for path in results] == times
    assert measured_text_results([find_claim("C8")], out) == []
    assert Setup().device == "cpu"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_is_pretrained_first_is_where_arms_begin(tmp_path: Path) -> None:
    """Two pretrainings and a fine-tuning of each, on two seeds; a killed one goes on."""
    bert_toy.write_text(tmp_path / "text")
    (tmp_path / "pretraining.yaml").write_text(yaml.safe_dump(bert_toy.recipe(tmp_path / "text", steps=2)))
    rows = ["sentence\tlabel", *(("cat purrs\tyes", "king rules\tno")[n % 2] for n in range(20))]
    (tmp_path / "train.tsv").write_text("\n".join(rows) + "\n")
    keys = bert_toy.recipe(tmp_path / "text", steps=2)
    keys["task"] = {"kind": "classify", "length": 16, "batch": 4}
    keys["data"] = {name: str(tmp_path / "train.tsv") for name in ("train", "valid")} | {
        "cache": str(tmp_path / "cache")
    }
    del keys["training"]["tokens_per_batch"]
    (tmp_path / "labels.yaml").write_text(yaml.safe_dump(keys))
    pretraining = str(tmp_path / "pretraining.yaml")
    experiment = TextExperiment(
        str(tmp_path / "labels.yaml"),
        {"mixed": ("training.init=@mixed",), "masked": ("training.init=@masked",), "scratch": ("training.init=null",)},
        (PredictedRange("mixed less masked", "accuracy", -100, 100),),
        pretrained={"mixed": (pretraining,), "masked": (pretraining, "task.masking={masked: 1.0, random: 0.0}")},
        metric="accuracy",
        seeds=(2, 2),
    )
    own = replace(claim(), on_text=experiment)
    (result,), done = run_text_claims([own], tmp_path / "lab", TextSetup("cpu", 2), print)
    assert done
    assert result.verdict == "confirmed", result.error
    folder = tmp_path / "lab" / "full" / "X9"
    assert len(list(folder.glob("pretrained/*/results.json"))) == 4
    for seed in (1, 2):
        recipe = load_recipe(folder / "arms" / "masked" / f"seed-{seed}" / "config.yaml")
        assert recipe.training.init == str(folder / "pretrained" / f"masked-{seed}")
    assert TextRun(own, tmp_path / "lab", TextSetup()).planned() == (10, 10, 0)
    assert measured_text_results([own], tmp_path / "lab")[0].outcome == "on text: confirmed"
