"""From a teacher to a student that is stored and measured: presets, recipes, a real kill, and what is refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import regard
from regard import recipe as recipes
from regard.cli.train import distil
from regard.distil import measure
from regard.distil.student import PRESETS, student_recipe
from regard.errors import RegardError
from tests.training.toy import regard as command

FEW = ["training.steps=4", "training.validation.every=4", "training.checkpoints.every=4", "training.log_every=4"]
ANY = {"max_ratio": 0.0, "chunk": 150, "lines": 8, "device": "cpu"}  # of a teacher that has hardly learned


def run(teacher: Path, out: Path, student: str = "ssru", data: list[str] | None = None, **options: Any) -> None:
    assert distil(teacher, student, data or [], FEW, out, True, **{**ANY, **options}) == 0


def test_a_student_is_taught_stored_and_measured(toy_run: Path, tmp_path: Path, capsys: Any) -> None:
    run(toy_run, tmp_path / "out")
    told = json.loads(capsys.readouterr().out)
    assert {"teacher", "student", "student, 8 bits"} <= {row["model"] for row in told["models"]}
    assert told["translations"]["kept"] > 300
    for row in told["models"]:
        assert row["sentences_per_second"] > 0
        assert row["bleu"] is not None
    student = regard.load(tmp_path / "out" / "student", "cpu")
    config = student.recipe.model
    assert (config.layers, config.decoder_layers, config.decoder_self.kind) == (1, 1, "ssru")
    for path in (toy_run / "tokenizer").iterdir():
        assert (tmp_path / "out" / "student" / "tokenizer" / path.name).read_bytes() == path.read_bytes()
    assert regard.load(tmp_path / "out" / "student-int8", "cpu").translate(["w1 w2"])
    assert any("CTranslate2" in note for note in told["notes"])  # which does not know it, or is not installed
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.safetensors")}
    run(toy_run, tmp_path / "out")
    assert json.loads(capsys.readouterr().out)["models"] == told["models"]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.safetensors")} == before
    learned = (tmp_path / "out" / "distilled.tsv").read_bytes()
    with pytest.raises(RegardError, match=r"translations of another plan \(nbest, beam changed\)"):
        run(toy_run, tmp_path / "out", nbest=2, beam=2)
    with pytest.raises(RegardError, match=r"translations of another plan \(worst changed\)"):
        run(toy_run, tmp_path / "out", worst=0.5)
    assert (tmp_path / "out" / "distilled.tsv").read_bytes() == learned  # what the student learned from


def test_filters_may_change_until_a_student_learns(toy_run: Path, tmp_path: Path, capsys: Any) -> None:
    """And all else until something is translated; what a killed export left is removed."""
    with pytest.raises(RegardError, match="greedy search gives one output, not 2"):
        run(toy_run, tmp_path / "out", nbest=2, beam=1)
    run(toy_run, tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "student")
    (tmp_path / "out" / ".student-int8.123").mkdir()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "translations").iterdir()}
    kept = json.loads(capsys.readouterr().out)["translations"]["kept"]
    run(toy_run, tmp_path / "out", "deep-shallow", worst=0.5)
    told = json.loads(capsys.readouterr().out)
    assert told["translations"]["kept"] < kept
    rows = {row["model"]: row for row in told["models"]}
    assert rows["teacher, draft student"]["bleu"] == pytest.approx(rows["teacher"]["bleu"])  # which is greedy
    assert rows["teacher, draft student"]["megabytes"] > rows["teacher"]["megabytes"]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "translations").iterdir()} == before
    assert not list((tmp_path / "out").glob(".student-int8*"))


def test_what_is_measured_where(toy_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """int8 on a CPU that has it; elsewhere, on a GPU too, a note stands in its place, and nothing fails."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(measure, "int8_unsupported_reason", lambda: None)
    notes: list[str] = []
    assert [form.name for form in measure.forms_of("it", toy_run, "cpu", notes)] == ["it", "it, int8"]
    assert len(notes) == 1
    monkeypatch.setattr(measure, "int8_unsupported_reason", lambda: "this processor is a test")
    assert [form.name for form in measure.forms_of("it", toy_run, "cpu", notes)] == ["it"]
    assert notes[1] == "int8 was not measured: this processor is a test"
    monkeypatch.setattr(measure, "pick_device", torch.device)
    assert [form.name for form in measure.forms_of("it", toy_run, "cuda", notes)] == ["it"]
    assert notes[3].startswith("int8 is for CPUs, and was not measured")


def test_a_recipe_of_ones_own_and_true_text_with_a_weight(toy_run: Path, tmp_path: Path, capsys: Any) -> None:
    """Its vocabulary is its own where it says so; what it leaves out is the teacher's."""
    own = {
        "text": {"kind": "word", "size": 20},
        "model": {"layers": 1, "size": 8, "inner": 8, "heads": 2},
        "training": {"tokens_per_batch": 100, "schedule": {"kind": "constant", "peak": 1e-3}},
    }
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(own), encoding="utf-8")
    run(toy_run, tmp_path / "out", str(tmp_path / "own.yaml"), truth=0.5)
    recipe = recipes.read_recipe(tmp_path / "out" / "student")
    assert [(Path(each.name).name, each.weight) for each in recipe.data.train] == [
        ("train.de", 0.5),
        ("distilled.tsv", 1),
    ]
    assert recipe.data.valid == recipes.read_recipe(toy_run).data.valid
    assert len((tmp_path / "out" / "student" / "tokenizer" / "tokenizer.json").read_text()) < len(
        (toy_run / "tokenizer" / "tokenizer.json").read_text()
    )
    assert "has a vocabulary of its own: it cannot be a draft for its teacher" in capsys.readouterr().err.replace(
        "\n", " "
    )


def test_presets_are_as_wide_as_the_teacher(toy_run: Path, tmp_path: Path) -> None:
    teacher = recipes.load_recipe(
        {
            "data": {"train": "embedded:train"},
            "model": {"layers": 6, "size": 32, "heads": 2, "position": "rotary", "attention": {"score": "cosine"}},
        }
    )
    for name, own in PRESETS.items():
        model = student_recipe(name, [], teacher, toy_run, teacher.data.train, tmp_path).model
        assert (model.layers, model.decoder_layers, model.size, model.decoder_self) == (11, 1, 32, own)
        assert model.position.encoder.kind == "rotary"
        assert model.attention.encoder.score.kind == "cosine"
        attends = name == "deep-shallow"
        assert model.position.decoder.kind == ("rotary" if attends else "sinusoidal")
        assert model.attention.decoder.score.kind == ("cosine" if attends else "scaled_dot")


@pytest.mark.slow
def test_killed_it_goes_on_where_it_stopped(toy_run: Path, tmp_path: Path) -> None:
    """Really killed, in the middle of the translations: none of those that were there is made again."""
    out = tmp_path / "out"
    words = [sys.executable, "-m", "regard", "distil", toy_run, *FEW, "--student", "ssru", "--out", out, "--chunk", "8"]
    words += ["--max-ratio", "0", "--lines", "8", "--device", "cpu", "--json"]
    process = subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while len(list(out.glob("translations/0*.tsv"))) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    kept = {path: path.stat().st_mtime_ns for path in out.glob("translations/0*.tsv")}
    assert 2 <= len(kept) < 45
    assert not (out / "student").exists()
    done = command(*words[3:], timeout=240)
    assert done.returncode == 0, done.stderr
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert json.loads(done.stdout)["finished"]


def refuse(toy_run: Path, out: Path, why: str, student: str = "ssru", data: list[str] | None = None) -> None:
    with pytest.raises(RegardError, match=why):
        run(toy_run, out, student, data)


def test_what_cannot_be_is_a_sentence(toy_run: Path, tmp_path: Path) -> None:
    """Before anything is translated, and nothing is left behind."""
    out = tmp_path / "out"
    (tmp_path / "empty.txt").write_text("", encoding="utf-8")
    (tmp_path / "lm.yaml").write_text("task: lm\n", encoding="utf-8")
    (tmp_path / "fr.yaml").write_text("task: {source: fr, target: de}\n", encoding="utf-8")
    refuse(toy_run, out, r"empty\.txt: the file is empty", data=[str(tmp_path / "empty.txt")])
    refuse(toy_run, out, "nothing.txt: there is no such file", data=["nothing.txt"])
    refuse(toy_run, out, "tatoeba-en-zh has no text in de; it has en, zh", data=["tatoeba-en-zh:train"])
    refuse(toy_run, out, "--data .*: not YAML", data=["[a, b"])
    refuse(toy_run, out, "a recipe of the task lm; a student translates", str(tmp_path / "lm.yaml"))
    refuse(toy_run, out, "a student of fr→de cannot learn from a teacher of en→de", str(tmp_path / "fr.yaml"))
    refuse(toy_run, out, "--student is 'deep', which is no preset and no recipe; write deep-shallow, ssru", "deep")
    assert not out.exists()
    out.mkdir()
    (out / "mine").write_text("", encoding="utf-8")
    refuse(toy_run, out, "is not empty, and no distillation was begun there")


def test_options_that_make_no_sense(toy_run: Path, tmp_path: Path) -> None:
    for options, why in (({"worst": 2.0}, "--worst must be"), ({"truth": -1.0}, "--truth must be 0 or more")):
        with pytest.raises(RegardError, match=why):
            run(toy_run, tmp_path / "out", **options)


def test_a_teacher_that_does_not_translate(tmp_path: Path) -> None:
    folder = Path(__file__).parents[1] / "fixtures" / "runs" / "lm" / "run" / "last"
    refuse(folder, tmp_path / "out", "a model of the task lm, which `regard distil` is not for")


def test_the_presets_of_another_kind_of_model(toy_run: Path, tmp_path: Path) -> None:
    teacher = recipes.load_recipe({"data": {"train": "embedded:train"}, "model": {"kind": "rnn", "size": 16}})
    with pytest.raises(
        RegardError, match=r"takes its sizes from a Transformer, and .* is of the kind rnn; give a recipe"
    ):
        student_recipe("ssru", [], teacher, toy_run, teacher.data.train, tmp_path)
