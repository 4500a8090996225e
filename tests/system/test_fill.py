"""`regard fill` and `regard embed` as a user runs them, on a small pretrained BERT."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import regard
from regard import recipe as recipes
from regard.cli.main import main
from regard.run import train_recipe
from tests.tasks import bert_toy
from tests.training import toy

LINES = "sea [MASK] cat [MASK]\n\nno gap\n[MASK] .\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fill")
    bert_toy.write_text(folder)
    train_recipe(recipes.load_recipe(bert_toy.recipe(folder, steps=10)), folder / "run", "cpu")
    return folder / "run"


@pytest.fixture
def regard_(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., SimpleNamespace]:
    """The command line without a process of its own, which would load torch again each time."""

    def call(*arguments: object, stdin: str = "") -> SimpleNamespace:
        monkeypatch.setattr(sys, "argv", ["regard", *map(str, arguments), "--device", "cpu"])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return SimpleNamespace(returncode=ended.value.code or 0, stdout=out, stderr=err)

    return call


Call = Callable[..., SimpleNamespace]


def test_fill_gives_a_line_for_a_line(run: Path, tmp_path: Path, regard_: Call) -> None:
    found = toy.regard("fill", run, "--top", "3", "--device", "cpu", stdin=LINES)  # as a process, once
    assert found.returncode == 0
    lines = found.stdout.split("\n")
    assert [len(line.split("\t")) if line else 0 for line in lines] == [2, 0, 0, 1, 0]
    assert found.stderr == "regard: line 3 has no [MASK]: there is nothing to fill\n"
    expected = regard.load(run, device="cpu").fill(LINES.splitlines(), top=3)
    words = lines[0].split("\t")[1].split(" ")
    assert words[::2] == [guess.word for guess in expected[0][1]]
    assert [float(p) for p in words[1::2]] == pytest.approx([g.probability for g in expected[0][1]], abs=1e-4)
    (tmp_path / "in.txt").write_text(LINES, encoding="utf-8")
    rows = regard_("fill", run, "--json", "-i", tmp_path / "in.txt", "-o", tmp_path / "out")
    assert (rows.returncode, rows.stdout) == (0, "")
    read = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert [len(row["gaps"]) for row in read] == [2, 0, 0, 1]
    assert read[0]["gaps"][1][0].keys() == {"word", "probability"}
    assert (read[2]["line"], read[2]["text"]) == (3, "no gap")


def test_embed_writes_text_json_and_arrays_alike(run: Path, tmp_path: Path, regard_: Call) -> None:
    lines = "cat mat .\n\nking\n"
    plain = regard_("embed", run, "--pooling", "max", "--normalise", stdin=lines)
    assert (plain.returncode, plain.stderr) == (0, "")
    rows = [[float(v) for v in line.split("\t")] if line else [] for line in plain.stdout.split("\n")[:-1]]
    assert [len(row) for row in rows] == [16, 0, 16]
    assert np.linalg.norm(rows[0]) == pytest.approx(1, abs=1e-5)
    asked = ("embed", run, "--pooling", "max", "--normalise")
    read = [json.loads(line) for line in regard_(*asked, "--json", stdin=lines).stdout.splitlines()]
    assert [row["line"] for row in read] == [1, 2, 3]
    assert [row["vector"] for row in read] == rows
    made = regard_(*asked, "-o", tmp_path / "v.npy", stdin=lines)
    assert (made.returncode, made.stdout) == (0, "")
    array = np.load(tmp_path / "v.npy")
    np.testing.assert_allclose(array, [rows[0], [0.0] * 16, rows[2]], atol=1e-7)
    assert array.dtype == np.float32
    first = regard_("embed", run, "--layer", "-2", stdin="cat\n")
    np.testing.assert_allclose(
        [float(v) for v in first.stdout.split("\t")],
        regard.load(run, device="cpu").embed(["cat"], layer=0)[0],
        atol=1e-6,
    )


def test_embed_joins_layers(run: Path, tmp_path: Path, regard_: Call) -> None:
    asked = ("embed", run, "--layers", "-2..-1", "--join")
    whole = [float(v) for v in regard_(*asked, "concat", stdin="cat\n").stdout.split("\t")]
    added = [float(v) for v in regard_(*asked, "sum", stdin="cat\n").stdout.split("\t")]
    np.testing.assert_allclose(added, np.reshape(whole, (2, 16)).sum(0), atol=1e-6)
    assert regard_("embed", run, "--layers", "0..1", "-o", tmp_path / "none.npy", stdin="").returncode == 0
    assert np.load(tmp_path / "none.npy").shape == (0, 32)


def test_mistakes_are_sentences(run: Path, toy_run: Path, tmp_path: Path, regard_: Call) -> None:
    for arguments, said in (
        (["fill", toy_run], "a model of the task translation, which `regard fill` is not for"),
        (["embed", toy_run], "a model of the task translation, which `regard embed` is not for"),
        (["embed", run, "--pooling", "sum"], "pooling is 'sum'; known: mean, cls, max, pooler"),
        (["embed", run, "--layer", "9"], "there is no layer 9; write 0 to 1"),
        (["embed", run, "--json", "-o", tmp_path / "x.npy"], "--json writes lines"),
        (["evaluate", run, "--beam", "2"], "--beam means nothing to a model of the task pretraining"),
    ):
        found = regard_(*arguments, stdin="cat [MASK]\n")
        assert found.returncode == 2, arguments
        assert said in found.stderr
        assert "Traceback" not in found.stderr


def test_evaluate_and_info_know_the_task(run: Path, tmp_path: Path, regard_: Call) -> None:
    report = json.loads(regard_("evaluate", run, "--json").stdout)
    assert report["metrics"] == json.loads((run / "results.json").read_text())["valid"]["metrics"]
    assert report["documents"] == 24
    own = tmp_path / "own"
    own.mkdir()
    (own / "a.txt").write_text("Cat mat . Mat purrs .\n", encoding="utf-8")
    (own / "b.txt").write_text("King rules . King throne .\n", encoding="utf-8")
    assert json.loads(regard_("evaluate", run, "--text", own, "--json").stdout)["documents"] == 2
    one = regard_("evaluate", run, "--text", own / "a.txt")
    assert one.returncode == 2
    assert "a.txt: the text is one document" in one.stderr
    assert json.loads(toy.regard("info", run, "--json").stdout)["task"] == "pretraining en"
