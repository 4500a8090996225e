"""Bad input and faults, one by one: each ends in one sentence and exit code 2, never in a traceback."""

import io
import json
import os
import resource
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
from rich.console import Console
from safetensors.torch import load_file, save_file

from regard import recipe as recipes
from regard.cli import main as cli
from regard.errors import RegardError
from regard.run import train_recipe
from tests.training import toy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    toy.write_corpus(tmp_path)
    return tmp_path


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """`regard ...` in this process: (exit code, stdout, stderr)."""

    def run(*arguments: Any) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["regard", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        code = ended.value.code
        return (code if isinstance(code, int) else 0, *capfd.readouterr())

    return run


@pytest.fixture
def refused(command: Any) -> Any:
    """The one line a user's mistake is answered with."""

    def run(*arguments: Any) -> str:
        code, out, err = command(*arguments)
        return one_sentence(code, out, err)

    return run


def one_sentence(code: int, out: str, err: str) -> str:
    assert code == 2, err
    assert out == ""
    assert err.startswith("regard: "), err
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    return err


def write(path: Path, keys: dict[str, Any], name: str = "recipe.yaml") -> Path:
    (path / name).write_text(yaml.safe_dump(keys), encoding="utf-8")
    return path / name


def report(folder: Path, keys: dict[str, Any] | None = None) -> tuple[dict[str, Any], str]:
    """Train a step or two in this process: what became of the rows, and what was said of it."""
    said = io.StringIO()
    outcome = train_recipe(
        recipes.load_recipe(keys or toy.recipe(folder, steps=2)),
        folder / "run",
        "cpu",
        console=Console(file=said, width=500),
    )
    assert outcome.finished
    (path,) = (folder / "cache").glob("*/report.json")
    return json.loads(path.read_text()), said.getvalue()


def edit(path: Path, line: int, content: bytes) -> None:
    lines = path.read_bytes().split(b"\n")
    lines[line - 1] = content
    path.write_bytes(b"\n".join(lines))


# --- the training text ---------------------------------------------------------------------------------------------


def test_different_line_counts(folder: Path, refused: Any) -> None:
    lines = (folder / "train.de").read_text().splitlines(keepends=True)
    (folder / "train.de").write_text("".join(lines[:149] + lines[150:]))  # line 150 is lost
    said = refused("train", toy.write_recipe(folder), "--out", folder / "run", "--device", "cpu")
    assert f"{folder / 'train.en'} has 400 lines and {folder / 'train.de'} has 399" in said
    suspicious = int(said.partition("near line ")[2])
    assert 150 <= suspicious <= 160


def test_invalid_utf8(folder: Path, refused: Any) -> None:
    edit(folder / "train.de", 7, b"W1 f\xfcr W2")
    said = refused("train", toy.write_recipe(folder), "--out", folder / "run", "--device", "cpu")
    assert f"{folder / 'train.de'}, line 7: not valid UTF-8 (byte 0xfc at column 5)" in said


def test_bom_crlf_and_nul(folder: Path) -> None:
    """The same text with all three trains to the same weights, and the NULs are counted."""
    plain = train_recipe(recipes.load_recipe(toy.recipe(folder, steps=2)), folder / "plain", "cpu")
    odd = folder / "odd"
    shutil.copytree(folder, odd, ignore=shutil.ignore_patterns("plain", "cache"))
    for name in ("train.en", "train.de"):
        content = (odd / name).read_bytes().replace(b"\n", b"\r\n")
        (odd / name).write_bytes(b"\xef\xbb\xbf" + content)
    first = (odd / "train.en").read_bytes().split(b"\r\n")[4]
    edit(odd / "train.en", 5, first + b"\0\r")
    found, said = report(odd)
    assert found["corpora"][0]["nul"] == 1
    assert "1 lines with NUL characters, which became spaces" in said
    assert plain.finished
    a, b = (load_file(run / "model.safetensors") for run in (folder / "plain", odd / "run"))
    assert all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
def test_an_empty_file(folder: Path, refused: Any, content: bytes) -> None:
    (folder / "train.en").write_bytes(content)
    said = refused("train", toy.write_recipe(folder), "--out", folder / "run", "--device", "cpu")
    assert f"{folder / 'train.en'}: the file is empty" in said


def test_a_missing_file(folder: Path, refused: Any) -> None:
    (folder / "valid.de").unlink()
    said = refused("train", toy.write_recipe(folder), "--out", folder / "run", "--device", "cpu")
    assert f"{folder / 'valid.de'}: there is no such file" in said


def test_empty_lines_are_dropped_and_counted_in_training(folder: Path) -> None:
    edit(folder / "train.en", 3, b"")
    edit(folder / "train.de", 9, b"   ")
    edit(folder / "train.en", 20, b"\t")
    edit(folder / "train.de", 20, b"")
    edit(folder / "valid.en", 2, b"")  # and in validation they are no trouble
    found, said = report(folder)
    assert found["corpora"][0]["dropped"]["empty"] == 3
    assert found["read"] == 400
    assert found["kept"] == 400 - sum(found["corpora"][0]["dropped"].values())
    assert "dropped 3 empty" in said


def test_nothing_but_empty_lines(folder: Path, refused: Any) -> None:
    (folder / "train.en").write_text("\n" * 400)
    (folder / "train.de").write_text("\n" * 400)
    said = refused("train", toy.write_recipe(folder), "--out", folder / "run", "--device", "cpu")
    assert "every line is empty" in said


def test_empty_lines_are_kept_in_place_when_translating(toy_run: Path, command: Any, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("\nw1 w2\n\n   \nw3\n\n")
    code, _, _ = command("translate", toy_run, "-i", tmp_path / "in", "-o", tmp_path / "out", "--device", "cpu")
    assert code == 0
    found = (tmp_path / "out").read_text().split("\n")
    assert [bool(line) for line in found] == [False, True, False, False, True, False, False]
    assert len(found) == 7  # six lines, each with its end


def test_a_line_of_100_000_characters_in_training(folder: Path) -> None:
    edit(folder / "train.en", 4, b"w1 " * 33_334)
    edit(folder / "train.de", 8, b"W" * 100_000)
    keys = toy.recipe(folder, steps=2)
    keys["text"] = {"kind": "bpe", "size": 64}
    found, said = report(folder, keys)
    assert found["corpora"][0]["dropped"]["long"] == 2
    assert "2 long" in said


@pytest.mark.parametrize("line", ["w1 " * 33_334, "w" * 100_000], ids=["words", "one word"])
def test_a_line_of_100_000_characters_when_translating(toy_run: Path, command: Any, tmp_path: Path, line: str) -> None:
    (tmp_path / "in").write_text(f"w1\n{line}\nw2\n")
    code, out, err = command("translate", toy_run, "-i", tmp_path / "in", "--device", "cpu")
    assert code == 0
    assert out.count("\n") == 3
    assert all(out.splitlines())
    if " " in line:
        said = "regard: 1 line(s) longer than 256 pieces were cut, first line 2; 33,078 of 33,334 pieces were dropped\n"
        assert err == said


def test_over_long_sentences_in_training_are_dropped_or_cut_as_asked(folder: Path) -> None:
    for policy, kept in (("drop", 0), ("truncate", 5)):
        keys = toy.recipe(folder, steps=2)
        for line in range(1, 6):
            edit(folder / "train.en", line, b" ".join([b"w%d" % line] * 9))
        keys["data"] |= {"filters": {"max_length": 8, "long": policy}, "cache": str(folder / policy)}
        train_recipe(recipes.load_recipe(keys), folder / f"run-{policy}", "cpu")
        (path,) = (folder / policy).glob("*/report.json")
        entry = json.loads(path.read_text())["corpora"][0]
        assert (entry["dropped"]["long"], entry["truncated"]) == (5 - kept, kept)


@pytest.mark.parametrize("policy", ["truncate", "extract", "refuse", "translate", "segment"])
def test_over_long_sentences_when_translating_by_policy(
    toy_run: Path, command: Any, tmp_path: Path, policy: str
) -> None:
    (tmp_path / "in").write_text("w1\n" + "w2 " * 300 + "\n")
    code, out, err = command("translate", toy_run, "-i", tmp_path / "in", "--long", policy, "--device", "cpu")
    if policy == "refuse":
        assert "line 2 has 300 pieces; the model was trained on at most 256" in one_sentence(code, out, err)
        return
    assert code == 0
    assert out.count("\n") == 2
    said = "regard: 1 line(s) longer than 256 pieces {}, first line 2; {} of 300 pieces were dropped\n"
    done = {
        "truncate": ("were cut", 44),
        "segment": ("were translated in segments", 0),
        "extract": ("were read in whole passages", 44),
    }
    assert err == (said.format(*done[policy]) if policy in done else "")


def test_over_long_sentences_are_counted_when_measuring(toy_run: Path, command: Any, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("w1\n" + "w2 " * 300 + "\n")
    (tmp_path / "ref").write_text("W1\nW2\n")
    code, out, err = command(
        "evaluate", toy_run, "--source", tmp_path / "in", "--reference", tmp_path / "ref", "--json", "--device", "cpu"
    )
    assert code == 0
    assert json.loads(out)["notes"] == [
        "1 line(s) longer than 256 pieces were cut, first line 2; 44 of 300 pieces were dropped"
    ]
    assert "were cut" in err


def test_an_unknown_policy(toy_run: Path, refused: Any) -> None:
    said = refused("translate", toy_run, "--long", "cut")
    assert "--long is 'cut'; known: truncate, extract, segments, refuse, none" in said


# --- the recipe ----------------------------------------------------------------------------------------------------


def test_mistyped_and_unknown_keys(folder: Path, refused: Any) -> None:
    path = folder / "recipe.yaml"
    path.write_text("data:\n  train: [a.en, a.de]\nmodel:\n  layers: 2\n  haeds: 4\n")
    assert f"{path}, line 5: model.haeds is not a known key; did you mean heads?" in refused("train", path)
    path.write_text("data:\n  train: [a.en, a.de]\nmodel: {}\nxyzzy: 1\n")
    assert f"{path}, line 4: xyzzy is not a known key; known: data, task, text" in refused("train", path)
    path.write_text("data:\n  train: [a.en, a.de]\nmodel:\n  heads: four\n")
    assert f"{path}, line 4: model.heads must be a whole number, not 'four'" in refused("train", path)
    path.write_text("data:\n  train: [a.en, a.de]\n")
    assert "command line, model.haeds=3: model.haeds is not" in refused("train", path, "model.haeds=3")
    assert "nowhere.yaml: there is no such file" in refused("train", folder / "nowhere.yaml")


@pytest.mark.parametrize(
    "override, problem",
    [
        ("training.steps=0", "steps must be at least 1"),
        ("training.validation.every=0", "every must be at least 1"),
        ("training.checkpoints.every=0", "every must be at least 1"),
        ("training.checkpoints.average=9", "average is 9 but only"),
        ("training.schedule.warmup=0", "warmup must be at least 1"),
        ("training.optimiser.beta2=1", "beta2 must be in [0, 1)"),
        ("training.label_smoothing=1", "label_smoothing must be in [0, 1)"),
        ("model.dropout=1", "dropout must be in [0, 1)"),
        ("model.heads=3", "3 heads do not divide the size 16"),
        ("seed=-1", "seed must be from 0"),
        ("text.shared=false", "needs text.shared: true"),
        ("data.filters.max_length=0", "max_length must be at least 1"),
    ],
)
def test_impossible_values(folder: Path, override: str, problem: str) -> None:
    with pytest.raises(RegardError) as found:
        recipes.load_recipe(toy.recipe(folder), [override])
    assert problem in str(found.value)
    assert "impossible" in str(found.value)


def test_a_vocabulary_larger_than_the_text_allows(folder: Path, refused: Any) -> None:
    path = toy.write_recipe(folder)
    said = refused("train", path, "text={kind: unigram, size: 9000}", "--out", folder / "run", "--device", "cpu")
    assert "the text allows at most " in said
    allowed = int(said.partition("write text.size=")[2].split()[0])
    train_recipe(
        recipes.load_recipe(toy.recipe(folder, steps=1), [f"text={{kind: unigram, size: {allowed}}}"]),
        folder / "run",
        "cpu",
    )


def test_a_device_that_is_not_there(folder: Path, refused: Any) -> None:
    path = toy.write_recipe(folder)
    if not torch.cuda.is_available():
        assert "torch sees no GPU" in refused("train", path, "--out", folder / "run", "--device", "cuda")
    assert "device is 'warp'; write auto, cpu" in refused("train", path, "--out", folder / "run", "--device", "warp")


# --- model folders and checkpoints -----------------------------------------------------------------------------------


@pytest.fixture
def model(toy_run: Path, tmp_path: Path) -> Path:
    """A trained model to spoil, without the manifest that would name all of that."""
    folder = Path(shutil.copytree(toy_run, tmp_path / "model", symlinks=True))
    (folder / "manifest.json").unlink()
    return folder


def test_a_truncated_checkpoint(model: Path, refused: Any) -> None:
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    said = refused("translate", model, "--device", "cpu")
    assert f"{weights}: truncated, or not a safetensors file" in said


def test_a_foreign_checkpoint(model: Path, refused: Any) -> None:
    save_file({"model.shared.weight": torch.zeros(3, 4)}, model / "model.safetensors")
    said = refused("translate", model, "--device", "cpu")
    assert f"{model / 'model.safetensors'}: the weights are of another model (" in said
    assert "1 unknown, such as model.shared.weight" in said


def test_a_pickled_checkpoint(model: Path, refused: Any) -> None:
    torch.save({"a": torch.zeros(2)}, model / "model.safetensors")
    said = refused("translate", model, "--device", "cpu")
    assert "model.safetensors: a pickled checkpoint, which can run code when it is loaded" in said


def test_a_damaged_model_folder(model: Path, refused: Any) -> None:
    results = model / "results.json"
    results.write_text('{"valid": ')
    assert f"{results}: damaged" in refused("info", model)
    (model / "tokenizer" / "tokenizer.json").write_text("{}")
    assert "tokenizer.json: not a tokenizer" in refused("translate", model, "--device", "cpu")
    (model / "tokenizer" / "tokenizer.json").unlink()
    assert "there is no tokenizer.json" in refused("translate", model, "--device", "cpu")
    (model / "config.yaml").unlink()
    assert f"{model}: not a trained model (config.yaml is missing)" in refused("translate", model, "--device", "cpu")
    assert "there is no such folder" in refused("info", model / "none")
    assert "there is no such folder" in refused("average", model / "none", "--last", 2, "--out", model / "mean")


def test_a_damaged_checkpoint_is_named_when_a_run_goes_on(folder: Path) -> None:
    keys = toy.recipe(folder, steps=4)
    train_recipe(recipes.load_recipe(keys), folder / "run", "cpu", minutes=0.0)
    path = (folder / "run" / "last").resolve() / "optimiser.safetensors"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(RegardError, match=r"optimiser.safetensors: damaged: 50 bytes.*no checkpoint is whole"):
        train_recipe(recipes.load_recipe(keys), folder / "run", "cpu")


def test_a_model_that_has_not_finished(folder: Path) -> None:
    from regard.api import load

    train_recipe(recipes.load_recipe(toy.recipe(folder)), folder / "run", "cpu", minutes=0.0)
    with pytest.raises(RegardError, match=r"training has not finished; resume it, or give .*last, its last checkpoint"):
        load(folder / "run", "cpu")
    assert len(load(folder / "run" / "last", "cpu").translate(["w1"])) == 1


def test_a_folder_of_something_else_is_not_trained_in(folder: Path, refused: Any) -> None:
    said = refused("train", toy.write_recipe(folder), "--out", folder, "--device", "cpu")
    assert "is not empty and is not a run" in said


def test_a_run_that_was_killed_before_its_config_was_written(folder: Path) -> None:
    (folder / "run" / "tokenizer").mkdir(parents=True)
    (folder / "run" / "tokenizer" / "tokenizer.json.partial").write_text("{")
    (folder / "run" / ".config.yaml.17").write_text("data")
    assert train_recipe(recipes.load_recipe(toy.recipe(folder, steps=1)), folder / "run", "cpu").finished


# --- disks -----------------------------------------------------------------------------------------------------------


def test_a_full_disk(folder: Path) -> None:
    """A real error of the system: no file may grow past half a checkpoint. Then there is room, and the run goes on."""
    keys = toy.recipe(folder, steps=6)
    keys["model"]["size"] = 64
    path = write(folder, keys)
    whole = train_recipe(recipes.load_recipe(keys), folder / "whole", "cpu")
    train_recipe(recipes.load_recipe(keys), folder / "run", "cpu", minutes=0.0)  # the first step
    limit = (folder / "run" / "last" / "model.safetensors").stat().st_size // 2
    before = {p: p.read_bytes() for p in (folder / "run" / "last").resolve().iterdir()}

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    found = toy.regard("train", path, "--out", folder / "run", "--device", "cpu", preexec_fn=full)
    assert found.returncode == 2, found.stderr
    last = found.stderr.splitlines()[-1]
    assert last.startswith(f"regard: {folder / 'run' / 'checkpoints' / 'step-2'}: the checkpoint cannot be written (")
    assert "File too large" in last
    assert "the checkpoint of step 1 is whole; make room, then run the same command to resume" in last
    assert "Traceback" not in found.stderr
    assert {p: p.read_bytes() for p in before} == before
    assert not list((folder / "run" / "checkpoints").glob(".*"))

    again = train_recipe(recipes.load_recipe(keys), folder / "run", "cpu")
    assert again.finished
    assert again.state.tokens == whole.state.tokens
    assert_same_weights(folder / "whole", folder / "run")


def assert_same_weights(whole: Path, other: Path) -> None:
    for name in ("model.safetensors", "last/model.safetensors", "last/optimiser.safetensors"):
        a, b = load_file(whole / name), load_file(other / name)
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a), name


@pytest.mark.parametrize("full", ["log.jsonl", "config.yaml"])
def test_a_full_disk_elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch, full: str) -> None:
    """/dev/full takes no byte."""
    (folder / "run").mkdir()
    if full == "log.jsonl":
        monkeypatch.setattr(
            "regard.training.log.TrainingLog._truncate_after", lambda self, step: self.path.symlink_to("/dev/full")
        )
    else:
        half = folder / "run" / f".config.yaml.{os.getpid()}"
        monkeypatch.setattr("regard.tasks.translation.TranslationTask.save", lambda *_: half.symlink_to("/dev/full"))
    with pytest.raises(RegardError, match=r"run.*: cannot be written \(No space left on device\)"):
        train_recipe(recipes.load_recipe(toy.recipe(folder, steps=2)), folder / "run", "cpu")


def test_a_folder_that_cannot_be_written(folder: Path, toy_run: Path, refused: Any) -> None:
    """The one who runs this may be root, whom permissions do not stop: /proc and a file in the way do."""
    path = toy.write_recipe(folder)
    (folder / "file").write_text("")
    for out in (Path("/proc/run"), folder / "file" / "run", folder / "file"):
        assert f"{out}" in (said := refused("train", path, "--out", out, "--device", "cpu"))
        assert "cannot be written (" in said
    said = refused("train", path, "data.cache=/proc/cache", "--out", folder / "run", "--device", "cpu")
    assert "/proc/cache" in said
    assert "cannot be written (" in said
    said = refused("average", toy_run, "--last", 2, "--out", "/proc/mean")
    assert "/proc/mean: cannot be written (" in said
    (folder / "in").write_text("w1\n")
    said = refused("translate", toy_run, "-i", folder / "in", "-o", "/proc/out", "--device", "cpu")
    assert "/proc/out: cannot be written (" in said


# --- signals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number, code, why", [(signal.SIGINT, 130, "SIGINT"), (signal.SIGTERM, 143, "SIGTERM")])
def test_a_signal_saves_and_says_how_to_resume(folder: Path, number: int, code: int, why: str) -> None:
    keys = toy.recipe(folder, steps=160, validation={"every": 50, "lines": 5}, checkpoints={"every": 50})
    path, run = write(folder, keys), folder / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "regard", "train", str(path), "--out", str(run), "--device", "cpu"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (run / "log.jsonl").exists() or not (run / "log.jsonl").read_text():  # until it trains
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert out == ""
    assert "Traceback" not in err
    last = err.splitlines()[-1]
    step = json.loads((run / "last" / "state.json").read_text())["step"]
    assert 2 <= step < 160
    assert last == f"{why} at step {step}; saved. To go on: regard train {run}/config.yaml --out {run}"
    assert train_recipe(recipes.load_recipe(run / "config.yaml"), run, "cpu").finished  # as the sentence says
    assert train_recipe(recipes.load_recipe(keys), folder / "whole", "cpu").finished
    assert_same_weights(folder / "whole", run)


def test_a_signal_while_the_data_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost, since nothing was begun: the run ends at once, and the same command begins again."""
    from regard.data import prepared

    real = prepared._filter_lengths
    monkeypatch.setattr(prepared, "_filter_lengths", lambda *a: (os.kill(os.getpid(), signal.SIGINT), real(*a))[1])
    outcome = train_recipe(recipes.load_recipe(toy.recipe(folder, steps=2)), folder / "run", "cpu")
    assert (outcome.finished, outcome.exit_code) == (False, 130)
    assert not list((folder / "cache").glob(".making*"))
    monkeypatch.undo()
    assert train_recipe(recipes.load_recipe(toy.recipe(folder, steps=2)), folder / "run", "cpu").finished


def test_a_signal_during_the_last_measure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.tasks.translation import TranslationTask

    real = TranslationTask.evaluate
    monkeypatch.setattr(TranslationTask, "evaluate", lambda *a: (os.kill(os.getpid(), signal.SIGINT), real(*a))[1])
    outcome = train_recipe(recipes.load_recipe(toy.recipe(folder, steps=2)), folder / "run", "cpu")
    assert (outcome.finished, outcome.exit_code, outcome.state.step) == (False, 130, 2)
    monkeypatch.undo()
    outcome = train_recipe(recipes.load_recipe(toy.recipe(folder, steps=2)), folder / "run", "cpu")
    assert outcome.finished
    assert outcome.results["valid"]["lines"] == 30
