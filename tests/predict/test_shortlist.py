"""A lexical shortlist: with all words it changes nothing, with few no other word is said; its command and its file."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import regard
from regard.cli.main import app
from regard.decoding import Beam, Greedy, Sample
from regard.decoding.shortlist import FILE, Shortlist, read_shortlist
from regard.errors import RegardError
from regard.predict.continuous import ContinuousTranslator
from regard.predict.translation import Translator

LINES = ["w1 w2 w3", "w4", "w2 w2 w5 w7", "w9 w8 w1 w3 w3 w6", "w3 w1"]


def shortlist(translator: Translator, always: np.ndarray, candidates: int = 0) -> Shortlist:
    """`candidates` for each piece, the piece itself and those after it, of one shared vocabulary."""
    entries = np.arange(translator.vocabulary.source.size)
    own = (entries[:, None] + np.arange(candidates)) % translator.vocabulary.target.size
    return Shortlist(always, own)


def special(translator: Translator) -> np.ndarray:
    t = translator.vocabulary.target
    return np.unique([t.pad, t.unk, t.bos, t.eos])


@pytest.mark.parametrize("precision", ["float32", "bf16", "int8"])
@pytest.mark.parametrize("decoding", [Greedy(), Beam(size=3)])
def test_all_words(toy_run: Path, precision: str, decoding: Greedy | Beam) -> None:
    plain, made = (regard.load(toy_run, "cpu", precision) for _ in range(2))
    made.shortlist = shortlist(made, np.arange(made.vocabulary.target.size))
    count = 1 if isinstance(decoding, Greedy) else 2
    for options in ({}, {"prefixes": ["W2"] * len(LINES)}, {"batch_tokens": 30}):
        expected, found = (t.nbest(LINES, count, decoding, **options) for t in (plain, made))
        assert [[t.text for t in each] for each in found] == [[t.text for t in each] for each in expected]
        for each, want in zip(found, expected, strict=True):
            assert [t.score for t in each] == pytest.approx([t.score for t in want], abs=1e-3)


@pytest.mark.parametrize("decoding", [Greedy(), Beam(size=3)])
def test_few_words(toy_run: Path, decoding: Greedy | Beam) -> None:
    """A batch of two lines, which others join: what is said is a candidate of one of those beside it."""
    made = regard.load(toy_run, "cpu")
    made.shortlist = shortlist(made, special(made), 2)
    sources = made.vocabulary.source.encode_batch(LINES)
    for line, source in zip(LINES, sources, strict=True):
        (found,) = made.nbest([line], 1, decoding)
        allowed = set(made.shortlist.of(source).tolist())
        assert all(set(each.tokens) <= allowed for each in found)
    allowed = {i for source in sources for i in made.shortlist.of(source).tolist()}
    together = made.nbest(LINES, 1, decoding, batch_tokens=20)
    assert all(set(each.tokens) <= allowed for best in together for each in best)
    assert len(allowed) < made.vocabulary.target.size
    forced = made.nbest(["w1"], 1, decoding, prefixes=["W9 W8"])[0][0]
    assert forced.text.startswith("W9 W8")


def test_those_who_need_all_words_get_them(toy_run: Path) -> None:
    plain, made = (regard.load(toy_run, "cpu") for _ in range(2))
    made.shortlist = shortlist(made, special(made))
    for options in ({"decoding": Sample(seed=3)}, {"beam": 3, "phrases": [["W4"]] * len(LINES)}):
        assert made.translate(LINES, **options) == plain.translate(LINES, **options)
    assert made.nbest(LINES[:1], 1, Greedy(), attention=["cross"])[0][0].text == plain.translate(LINES[:1], Greedy())[0]


def test_texts_that_join_a_server(toy_run: Path) -> None:
    plain, made = (regard.load(toy_run, "cpu") for _ in range(2))
    made.shortlist = shortlist(made, np.arange(made.vocabulary.target.size))
    found = []
    for translator in (plain, made):
        arriving = ContinuousTranslator(translator, slots=2)
        arriving.add(range(3), LINES[:3], Beam(size=2))
        done = {}
        while arriving.busy:
            done |= {key: best[0].text for key, best in arriving.step()}
        found.append(done)
    assert found[0] == found[1]
    assert len(found[0]) == 3


def test_the_command_and_its_file(toy_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(toy_run, run)
    asked = ["translate", str(run), "--device", "cpu", "--shortlist"]
    missing = CliRunner().invoke(app, asked, input="w1\n")
    assert str(missing.exception) == f"{run} has no shortlist; write one: regard shortlist {run}"
    written = CliRunner().invoke(app, ["shortlist", str(run), "--candidates", "3", "--frequent", "2"])
    assert written.exit_code == 0, written.exception
    vocabulary = regard.load(run, "cpu").vocabulary
    sizes = vocabulary.source.size, vocabulary.target.size
    lists, (w1,), (said,) = read_shortlist(run, *sizes), *(
        side.encode_batch([text])[0] for side, text in ((vocabulary.source, "w1"), (vocabulary.target, "W1"))
    )  # fmt: skip
    assert lists.candidates[w1, 0] == said  # in the toy corpus w1 becomes W1
    assert lists.candidates.shape == (sizes[0], 3)
    found = CliRunner().invoke(app, asked, input="w1\n")
    assert (found.exit_code, "has no use" in found.stderr) == (0, False)
    for search in ("speculative", "sample"):
        told = CliRunner().invoke(app, [*asked, "--search", search], input="w1\n").stderr
        assert f"regard: --shortlist has no use here: {search} search computes all words" in told
    with pytest.raises(RegardError, match="not a shortlist of this model's vocabularies; write it anew"):
        read_shortlist(run, sizes[0] + 1, sizes[1])
    (run / FILE).write_bytes((run / FILE).read_bytes()[:-1] + b"\x01")
    with pytest.raises(RegardError, match=FILE):
        regard.load(run, "cpu", shortlist=True)


def test_what_has_no_use_for_it(toy_run: Path) -> None:
    made = regard.load(toy_run, "cpu")
    made.shortlist = shortlist(made, special(made))
    with pytest.raises(RegardError, match="a shortlist is for one model"):
        made.ensemble([regard.load(toy_run, "cpu")])
