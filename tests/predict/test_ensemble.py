"""Models that translate together: one twice is itself; two score text by the mean of what they think."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import regard
from regard import recipe as recipes
from regard.cli import main as cli
from regard.decoding import Beam, Greedy, Sample
from regard.errors import RegardError
from regard.models.batch import RaggedRows, collate_pairs
from regard.predict.translation import Translator
from regard.run import train_recipe
from tests.tasks.toys import command
from tests.training import toy

LINES = ["w1 w2 w3", "", "w7", "w4 w4 w9 w2 w11"]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another model of the toy's vocabulary."""
    folder = tmp_path_factory.mktemp("other")
    toy.write_corpus(folder)
    train_recipe(recipes.load_recipe(toy.recipe(folder, steps=30) | {"seed": 5}), folder / "run", "cpu")
    return folder / "run"


@pytest.fixture
def both(toy_run: Path, other: Path) -> tuple[Translator, Translator]:
    made = regard.load(toy_run, "cpu"), regard.load(other, "cpu")
    for each in made:
        each.model.double()
    return made


@pytest.mark.parametrize("decoding", [Greedy(), Beam(size=3), Sample(seed=3)], ids=str)
def test_one_model_twice_is_that_model(both: tuple[Translator, Translator], decoding) -> None:
    alone, twice = (t.nbest(LINES, 1, decoding) for t in (both[0], both[0].ensemble([both[0]])))
    assert [[t.text for t in found] for found in twice] == [[t.text for t in found] for found in alone]
    assert twice[3][0].score == pytest.approx(alone[3][0].score, abs=1e-9)


@pytest.mark.parametrize("decoding", [Greedy(), Beam(size=3), Sample(seed=3)], ids=str)
def test_what_it_says_has_the_mean_log_probability(both: tuple[Translator, Translator], decoding) -> None:
    """Word by word the mean of two log-softmaxes, made to sum to one: here by hand, of the whole text at once."""
    together, v = both[0].ensemble([both[1]]), both[0].vocabulary
    said = [found[0] for found in together.nbest(LINES, 1, decoding) if found]
    source = v.source.encode_batch([line for line in LINES if line])
    batch = collate_pairs(RaggedRows.of(source), RaggedRows.of([t.tokens for t in said]), v.source, v.target)
    with torch.no_grad():
        mean = sum(t.model(batch).log_softmax(-1) for t in both) / 2
    logp = mean.log_softmax(-1).gather(-1, batch.labels[:, None])[:, 0].split([len(t.tokens) + 1 for t in said])
    assert [t.log_probability for t in said] == pytest.approx([float(part.sum()) for part in logp], abs=1e-6)
    alone = [found[0].log_probability for found in both[0].nbest(LINES, 1, decoding) if found]
    assert alone != pytest.approx([t.log_probability for t in said], abs=1e-3)


def test_scores_of_given_text_nbest_and_mode(both: tuple[Translator, Translator]) -> None:
    together = both[0].ensemble([both[1]])
    assert [len(found) for found in together.nbest(LINES, 2, Beam(size=3))] == [2, 0, 2, 2]
    best = together.nbest(["w1 w2"], 1, Beam(size=3))[0][0]
    if "<unk>" not in best.text:
        assert together.score([("w1 w2", best.text)])[0][0] == pytest.approx(best.log_probability, abs=1e-6)
    assert not any(module.training for t in both for module in t.model.modules())  # no dropout afterwards


def test_the_command_measures_them_together(toy_run: Path, other: Path, tmp_path: Path) -> None:
    """What the ensemble says is the reference: it is right there, and one model alone is not."""
    draw = random.Random(3)
    lines = [" ".join(draw.choices(toy.WORDS, k=6)) for _ in range(40)]
    first, second = (regard.load(run, "cpu") for run in (toy_run, other))
    together = first.ensemble([second]).translate(lines)
    assert together != first.translate(lines)
    (tmp_path / "source").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (tmp_path / "reference").write_text("".join(f"{line}\n" for line in together), encoding="utf-8")
    asked = ["evaluate", toy_run, "--source", tmp_path / "source", "--reference", tmp_path / "reference", "--json"]
    found = json.loads(command(*asked, "--with", other, "--device", "cpu"))
    assert found["metrics"]["exact_match"]["value"] == 100
    assert json.loads(command(*asked, "--device", "cpu"))["metrics"]["exact_match"]["value"] < 100


def test_alignments_are_refused(both: tuple[Translator, Translator]) -> None:
    with pytest.raises(RegardError, match="the attention of several models cannot be recorded at once"):
        both[0].ensemble([both[1]]).nbest(LINES, 1, attention=("cross",))


def test_vocabularies_that_differ_are_named(toy_run: Path, tmp_path: Path) -> None:
    toy.write_corpus(tmp_path)
    text = (tmp_path / "train.de").read_text(encoding="utf-8").replace("W7", "V7")
    (tmp_path / "train.de").write_text(text, encoding="utf-8")
    train_recipe(recipes.load_recipe(toy.recipe(tmp_path, steps=1)), tmp_path / "run", "cpu")
    first, second = regard.load(toy_run, "cpu"), regard.load(tmp_path / "run", "cpu")
    with pytest.raises(RegardError, match=rf"{toy_run} and {tmp_path / 'run'} have other \w+ vocabularies"):
        first.ensemble([second])


def test_the_shortest_line_that_all_know(both: tuple[Translator, Translator]) -> None:
    from dataclasses import replace

    recipe = both[1].recipe
    filters = replace(recipe.data.filters, max_length=5)
    both[1].recipe = replace(recipe, data=replace(recipe.data, filters=filters))
    with pytest.raises(RegardError, match="line 1 has 6 pieces; the model was trained on at most 5"):
        both[0].ensemble([both[1]]).translate(["w1 " * 6], long="refuse")


def test_the_command(toy_run: Path, other: Path, tmp_path: Path) -> None:
    text = "w1 w2\n\nw3 w4\n"
    given = ["translate", str(toy_run), "--device", "cpu", "--with", str(other), "--beam", "2"]
    found = CliRunner().invoke(cli.app, given, input=text, catch_exceptions=False)
    wanted = regard.load(toy_run, "cpu").ensemble([regard.load(other, "cpu")])
    assert found.stdout.splitlines() == wanted.translate(["w1 w2", "", "w3 w4"], Beam(size=2))
    with pytest.raises(RegardError, match="--alignments shows the attention of one model; leave out --with"):
        CliRunner().invoke(cli.app, [*given, "--alignments", str(tmp_path / "a")], input=text, catch_exceptions=False)
    assert Counter(p.name for p in tmp_path.iterdir()) == Counter()
