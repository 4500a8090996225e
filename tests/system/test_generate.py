"""`regard generate` and its neighbours as a user runs them, on a small language model."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from regard import load
from regard import recipe as recipes
from regard.run import train_recipe
from tests.tasks import lm_toy
from tests.training import toy


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generate")
    lm_toy.write_text(folder)
    train_recipe(recipes.load_recipe(lm_toy.recipe(folder, steps=40, documents="file")), folder / "run", "cpu")
    return folder / "run"


def generate(run: Path, *arguments: str, **options: str) -> subprocess.CompletedProcess:
    return toy.regard("generate", run, *arguments, "--device", "cpu", "--max-tokens", "30", **options)


def test_a_prompt_from_the_command_line_or_stdin(run: Path) -> None:
    given, piped = generate(run, "the cat"), generate(run, stdin="the cat\n")
    assert given.returncode == 0
    assert given.stdout == piped.stdout
    assert given.stderr == ""
    assert generate(run, "the cat", "--echo").stdout == "the cat" + given.stdout
    assert generate(run, "the cat", "--seed", "9").stdout != given.stdout


def test_a_temperature_of_0_is_greedy(run: Path) -> None:
    assert generate(run, "the cat", "--temperature", "0").stdout == generate(run, "the cat", "--greedy").stdout


def test_several_samples_and_json_are_the_same_texts(run: Path) -> None:
    asked = ("the", "--samples", "3", "--top-k", "5", "--seed", "2")
    plain = generate(run, *asked).stdout
    rows = [json.loads(line) for line in generate(run, *asked, "--json").stdout.splitlines()]
    assert [row["sample"] for row in rows] == [1, 2, 3]
    assert plain == "".join(f"--- {n}\n{row['text']}\n" for n, row in enumerate(rows, 1))
    assert {row["ended"] for row in rows} <= {"end", "limit"}


def test_text_is_shown_as_it_is_written(run: Path) -> None:
    """The first piece comes long before the last: `| head` gets its bytes while the command still writes."""
    command = [sys.executable, "-m", "regard", "generate", str(run), "the", "--device", "cpu"]
    with subprocess.Popen(
        [*command, "--max-tokens", "100000", "--min-p", "0.1", "--samples", "4"], stdout=subprocess.PIPE, env=os.environ
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(12).startswith(b"--- 1\n")
        assert process.poll() is None  # still at it
        process.stdout.close()
        assert process.wait(60) == 141  # it ends when its reader has seen enough


def test_mistakes_are_sentences(run: Path, toy_run: Path) -> None:
    long = generate(run, "the cat sat on a mat and ran", "--strict")
    assert (long.returncode, long.stdout) == (2, "")
    assert "more than the context of 16; shorten it" in long.stderr
    kept = generate(run, "the cat sat on a mat and ran")
    assert kept.returncode == 0
    assert kept.stderr.count("its last ones are kept") == 1
    for arguments, said in (
        ([toy_run, "x"], "a model of the task translation, which `regard generate` is not for"),
        ([run, "x", "--greedy", "--top-k", "3"], "--top-k is about drawing words, not about searching"),
        ([run, "x", "--temperature", "-1"], "temperature must be 0 or more, and less than a million, not -1.0"),
        ([run, "x", "--temperature", "nan"], "temperature must be 0 or more, and less than a million, not nan"),
        ([run, "x", "--samples", "2", "--greedy"], "greedy search writes one text, not 2"),
    ):
        found = toy.regard("generate", *arguments, "--device", "cpu")
        assert found.returncode == 2
        assert said in found.stderr
        assert "Traceback" not in found.stderr


def test_evaluate_and_info_know_the_task(run: Path, tmp_path: Path) -> None:
    report = json.loads(toy.regard("evaluate", run, "--stride", "8", "--json", "--device", "cpu").stdout)
    assert (report["context"], report["stride"]) == (16, 8)
    (tmp_path / "own.txt").write_text("the cat sat\n", encoding="utf-8")
    own = json.loads(toy.regard("evaluate", run, "--text", tmp_path / "own.txt", "--json", "--device", "cpu").stdout)
    assert (own["words"], own["characters"], own["documents"]) == (4, 12, 1)
    wrong = toy.regard("evaluate", run, "--beam", "2", "--device", "cpu")
    assert wrong.returncode == 2
    assert "--beam means nothing to a model of the task lm; it takes --split, --text" in wrong.stderr
    assert json.loads(toy.regard("info", run, "--json").stdout)["task"] == "lm en"


def test_score_reads_texts(run: Path, toy_run: Path) -> None:
    found = toy.regard("score", run, "--device", "cpu", stdin="the cat\nmat mat\n")
    expected = load(run, device="cpu").score(["the cat", "mat mat"])
    assert [float(line) for line in found.stdout.splitlines()] == pytest.approx([s for s, _ in expected], abs=1e-4)
    wrong = toy.regard("score", run, "--source", "a", "--target", "b", "--device", "cpu")
    assert wrong.returncode == 2
    assert "a language model scores texts, one a line" in wrong.stderr
