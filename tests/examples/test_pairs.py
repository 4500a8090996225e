"""Dependency trees from files to batches, through training, translating, measuring and scoring; mistakes by line."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import regard
from regard import recipe as recipes
from regard import text
from regard.cli.main import app
from regard.data.annotations import tree_positions
from regard.errors import RegardError
from regard.examples.pairs import check_trees, piece_trees
from regard.predict.translation import Translator
from regard.tasks.translation import evaluate_translation
from regard.text.config import Bpe
from tests.training import toy


def heads_of(line: str) -> list[int]:
    """Some tree of the line's words, another for another line."""
    draw, words = random.Random(line), len(line.split())
    order = draw.sample(range(1, words + 1), words)
    heads = [0] * words
    for n, word in enumerate(order[1:], 1):
        heads[word - 1] = order[draw.randrange(n)]
    return heads


def parse(source: Path) -> Path:
    """A CoNLL-U file of the lines of a text that are not empty."""
    path = source.with_suffix(".conllu")
    with open(path, "w", encoding="utf-8") as file:
        for line in filter(str.strip, source.read_text(encoding="utf-8").splitlines()):
            for n, (word, head) in enumerate(zip(line.split(), heads_of(line), strict=True), 1):
                file.write(f"{n}\t{word}\t_\t_\t_\t_\t{head}\t_\t_\t_\n")
            file.write("\n")
    return path


def recipe(folder: Path, **keys: Any) -> dict[str, Any]:
    made = toy.recipe(folder, **keys)
    for split in ("train", "valid"):
        source, target = made["data"][split]
        made["data"][split] = [{"source": source, "target": target, "heads": str(parse(Path(source)))}]
    made["model"]["position"] = {"encoder": "structural", "decoder": "sinusoidal"}
    return made


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trees")
    toy.write_corpus(folder)
    for split in ("train", "valid"):  # rows that are filtered, or measured as empty
        for side, more in (("en", "\nw1 w2\nw1 w2\n"), ("de", "W1\nW2 W1\nW2 W1\n")):
            path = folder / f"{split}.{side}"
            path.write_text(more + path.read_text(encoding="utf-8"), encoding="utf-8")
    made = recipe(folder, steps=30)
    made["data"]["test"] = made["data"]["valid"]
    regard.train(made, folder / "run", device="cpu")
    return folder / "run"


@pytest.fixture(scope="module")
def translator(run: Path) -> Translator:
    loaded = regard.load(run, device="cpu")
    loaded.model.double()
    return loaded


LINES = ["w3 w1 w4 w1 w5", "", "w2", "w2 w7 w1"]


# --- batches -----------------------------------------------------------------------------------------------------


def test_pieces_take_the_place_of_their_word() -> None:
    tokenizer = text.train_tokenizer(Bpe(size=16), ["low lower lowest new newer newest"] * 9, "en")
    rows = [tokenizer.encode(line) for line in ("lowest new", "newest")]
    made = piece_trees([[2, 0], [0]], rows, tokenizer)
    for row, heads in enumerate(([2, 0], [0])):
        words = tokenizer.words(rows[row])
        assert len(words) > len(heads)  # or the test says nothing
        for part, expected in zip((made.depth, made.enter, made.leave), tree_positions(heads), strict=True):
            assert part[row, : len(words) + 1].tolist() == [*(int(expected[w]) for w in words), int(expected[-1])]


def test_batches_of_training_have_the_trees_of_their_rows(run: Path) -> None:
    """Whatever was filtered, by the words of the line that each row came from; a drawn segmentation too."""
    made = json.loads(json.dumps(recipe(run.parent)))
    made["text"] = {"kind": "bpe", "size": 30, "dropout": 0.5}
    loaded = recipes.load_recipe(made)
    task = loaded.task.prepare(loaded, None, lambda *_: None)
    lines = (run.parent / "train.en").read_text(encoding="utf-8").splitlines()
    view = task.view(1, 0)
    batch = view.collate(np.arange(40))
    assert batch.tree is not None
    for row, example in enumerate(batch.rows):
        heads = heads_of(lines[task.prepared.number[example] - 1])
        pieces = batch.source[row].tolist()
        pieces = pieces[: pieces.index(task.vocabulary.source.eos)]
        words = task.vocabulary.source.words(pieces)
        assert max(words) + 1 == len(heads)
        expected = tree_positions(heads)[:, [*words, -1]]
        assert batch.tree.depth[row, : len(words) + 1].tolist() == expected[0].tolist()
        assert batch.tree.enter[row, : len(words) + 1].tolist() == expected[1].tolist()
    assert len(set(map(len, (heads_of(line) for line in lines)))) > 3


# --- a trained model ---------------------------------------------------------------------------------------------


def test_it_is_measured_with_its_trees(run: Path, translator: Translator) -> None:
    """Validation while training, and `evaluate` of both splits, an empty line included."""
    results = json.loads((run / "results.json").read_text(encoding="utf-8"))
    measured = evaluate_translation(regard.load(run, device="cpu"), translator.recipe.data.test)
    assert measured["lines"] == 33
    assert measured["metrics"]["loss"]["value"] == pytest.approx(results["valid"]["metrics"]["loss"]["value"], abs=1e-6)
    lines = (run.parent / "valid.en").read_text(encoding="utf-8").splitlines()
    said = (run.parent / "valid.de").read_text(encoding="utf-8").splitlines()
    scored = translator.score(list(zip(lines, said, strict=True))[1:], trees=[heads_of(line) for line in lines[1:]])
    by_hand = -sum(score for score, _ in scored) / sum(count for _, count in scored)
    assert measured["metrics"]["loss"]["value"] == pytest.approx(by_hand, abs=1e-5)


def test_together_as_alone(translator: Translator) -> None:
    heads = [heads_of(line) for line in LINES]
    together = translator.nbest(LINES, 1, trees=heads)
    assert together[1] == []
    for line, given, found in zip(LINES, heads, together, strict=True):
        alone = translator.nbest([line], 1, trees=[given])[0]
        assert [t.text for t in alone] == [t.text for t in found]
        assert [t.log_probability for t in alone] == pytest.approx([t.log_probability for t in found], abs=1e-9)


def test_another_tree_is_another_input(translator: Translator) -> None:
    pairs = [("w3 w1 w4", "W4 W1 W3")]
    one, other = (translator.score(pairs, trees=[heads])[0][0] for heads in ([0, 1, 2], [2, 0, 2]))
    assert abs(one - other) > 1e-6


def test_commands_take_heads(run: Path, translator: Translator, tmp_path: Path) -> None:
    source, target = tmp_path / "in.en", tmp_path / "in.de"
    source.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    target.write_text("\n".join(line.upper() for line in LINES) + "\n", encoding="utf-8")
    heads = parse(source)
    found = toy.regard("translate", run, "-i", source, "--trees", heads, "--device", "cpu")
    assert found.returncode == 0, found.stderr
    expected = regard.load(run, device="cpu")
    given = [heads_of(line) for line in LINES]
    assert found.stdout.split("\n") == [*expected.translate(LINES, trees=given), ""]
    piped = toy.regard("translate", run, "--trees", heads, "--device", "cpu", stdin=source.read_text())
    assert piped.stdout == found.stdout
    scored = command("score", run, "--source", source, "--target", target, "--trees", heads)
    pairs = [(line, line.upper()) for line in LINES]
    assert [float(n) for n in scored.split()] == pytest.approx(
        [n for n, _ in expected.score(pairs, trees=given)], abs=1e-4
    )
    measured = command("evaluate", run, "--source", source, "--reference", target, "--trees", heads, "--json")
    assert json.loads(measured)["lines"] == 4


# --- mistakes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "parsed", "says"),
    [
        (["w1", "", "w1 w2"], ["w1", "w1 w2 w3"], "line 3: 2 words in the text, but heads for 3"),
        (["w1", "w2"], ["w1"], "heads.conllu: the file ends before line 2 of"),
        (["w1", ""], ["w1", "w2"], "heads.conllu, line 3: a sentence too many"),
    ],
)
def test_translating_with_the_wrong_file(
    run: Path, tmp_path: Path, lines: list[str], parsed: list[str], says: str
) -> None:
    (tmp_path / "in.en").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (tmp_path / "heads.en").write_text("".join(f"{line}\n" for line in parsed), encoding="utf-8")
    heads = parse(tmp_path / "heads.en")
    with pytest.raises(RegardError, match=says):
        command("translate", run, "-i", tmp_path / "in.en", "-o", tmp_path / "out", "--trees", heads)
    assert not (tmp_path / "out").exists()


def command(*arguments: Any) -> str:
    """What a command prints, run in this process."""
    return CliRunner().invoke(app, [*map(str, arguments), "--device", "cpu"], catch_exceptions=False).stdout


def test_without_heads(run: Path, tmp_path: Path) -> None:
    (tmp_path / "in.en").write_text("w1 w2\n", encoding="utf-8")
    for given in (["translate", run, "-i"], ["score", run, "--target", tmp_path / "in.en", "--source"]):
        with pytest.raises(RegardError, match="structural positions need a dependency tree for every sentence: give h"):
            command(*given, tmp_path / "in.en")
    with pytest.raises(RegardError, match="--trees belongs to --source"):
        command("evaluate", run, "--heads", tmp_path / "in.conllu")


def test_alignments_are_checked_without_heads(translator: Translator) -> None:
    translator.check_alignment(1, [1, 2])
    with pytest.raises(RegardError, match="there is no head 3"):
        translator.check_alignment(1, [3])


def test_heads_that_are_given_by_hand(translator: Translator) -> None:
    tokenizer = translator.vocabulary.source
    rows = [tokenizer.encode(line) for line in LINES]
    check_trees([heads_of(line) for line in LINES], rows, tokenizer)
    for heads, says in (
        ([[0]], "4 lines, but heads for 1"),
        ([[0, 1, 2, 3, 4], [0], [0], [0, 1, 1]], "line 12: 0 words in the text, but heads for 1"),
        ([[0, 1, 2, 3, 4], [], [], [0, 1, 1]], "line 13: 1 word in the text, but heads for 0"),
        ([[0, 1, 2, 3, 4], [], [0], [0, 3, 2]], "line 14: the heads above word 2 go round"),
        ([[0, 1, 2, 3, 7], [], [0], [0, 1, 1]], "line 11: the head 7 is outside"),
    ):
        with pytest.raises(RegardError, match=says):
            check_trees(heads, rows, tokenizer, before=10)


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_a_wrong_sentence_is_found_before_training(tmp_path: Path, split: str) -> None:
    toy.write_corpus(tmp_path, train=50, valid=10)
    made = recipe(tmp_path)
    if split == "test":
        made["data"]["test"], made["data"]["valid"] = made["data"]["valid"], []
    corpus = made["data"][split][0]
    first, rest = Path(corpus["heads"]).read_text(encoding="utf-8").split("\n\n", 1)
    Path(corpus["heads"]).write_text(longer(first) + "\n\n" + rest)
    with pytest.raises(RegardError, match=r"\.en \+ .*\.de, line 1: \d words? in the text, but heads for \d"):
        regard.train(made, tmp_path / "run", device="cpu")
    assert not (tmp_path / "run" / "checkpoints").exists()


def longer(block: str) -> str:
    words = len(block.splitlines())
    return f"{block}\n{words + 1}\tmore\t_\t_\t_\t_\t1\t_\t_\t_"


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_data_without_heads_are_refused(tmp_path: Path, split: str) -> None:
    toy.write_corpus(tmp_path, train=5, valid=5)
    made = recipe(tmp_path)
    made["data"][split] = [{"source": "a.en", "target": "a.de"}]
    with pytest.raises(RegardError, match=r"structural needs the dependency tree of every sentence, and a.en \+ a.de"):
        recipes.load_recipe(made)
    made["model"]["position"] = "sinusoidal"
    recipes.load_recipe(made)


def test_heads_without_need_change_nothing(tmp_path: Path) -> None:
    """A model that does not ask for trees is given them and learns the same."""
    toy.write_corpus(tmp_path, train=60, valid=5)
    parsed = recipe(tmp_path, steps=3)
    parsed["model"].pop("position")
    weights = []
    for n, made in enumerate((parsed, toy.recipe(tmp_path, steps=3))):
        regard.train(made, tmp_path / f"run{n}", device="cpu")
        weights.append(regard.load(tmp_path / f"run{n}", device="cpu").model.state_dict())
    for name, value in weights[0].items():
        torch.testing.assert_close(value, weights[1][name], rtol=0, atol=0)
