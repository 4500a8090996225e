"""Filling and embedding: pooling by hand, order, gaps, and texts that are too long."""

import io
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard import recipe as recipes
from regard.cli.pretrained import save_array
from regard.errors import RegardError
from regard.models.batch import TextBatch
from regard.predict.filling import MaskFiller
from regard.run import train_recipe
from tests.tasks import bert_toy

TEXTS = ["The cat sat on the mat .", "", "A king .", "   ", "the wind and the sea and a boat sails", "unhappily"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("embed")
    bert_toy.write_text(folder)
    train_recipe(recipes.load_recipe(bert_toy.recipe(folder, steps=30)), folder / "run", "cpu")
    return folder / "run"


@pytest.fixture
def filler(run: Path) -> MaskFiller:
    return regard.load(run, device="cpu")


def hidden(filler: MaskFiller, text: str, layers: int | None = None) -> torch.Tensor:
    t = filler.tokenizer
    ids = torch.tensor([[t.bos, *t.encode(text), t.eos]])
    with torch.inference_mode():
        return filler.body(TextBatch(ids), layers=layers)[0]  # [T, D]


def test_pooling_is_that_of_each_text_alone(filler: MaskFiller) -> None:
    for layer, depth in ((None, None), (-1, 1), (0, 0), (-2, 0)):
        for name, pool in (("mean", lambda h: h.mean(0)), ("cls", lambda h: h[0]), ("max", lambda h: h.amax(0))):
            found = filler.embed(TEXTS, pooling=name, layer=layer, batch_tokens=20)  # type: ignore[arg-type]
            for text, vector in zip(TEXTS, found, strict=True):
                expected = pool(hidden(filler, text, depth)) if text.strip() else torch.zeros(16)
                np.testing.assert_allclose(vector, expected, atol=1e-5)
    pooled = filler.embed(TEXTS[:1], pooling="pooler")[0]
    np.testing.assert_allclose(
        pooled, filler.model.pooler(hidden(filler, TEXTS[0])[None].clone())[0].detach(), atol=1e-5
    )
    short = np.linalg.norm(filler.embed(TEXTS, normalise=True), axis=1)
    np.testing.assert_allclose(short, [1, 0, 1, 0, 1, 1], atol=1e-5)


@pytest.mark.parametrize("join", ["concat", "sum", "mean"])
def test_several_layers_are_joined(filler: MaskFiller, join: str) -> None:
    both = [hidden(filler, TEXTS[0], 0), hidden(filler, TEXTS[0], 1)]  # [T, D] each
    expected = {"concat": torch.cat(both, -1), "sum": both[0] + both[1], "mean": (both[0] + both[1]) / 2}[join]
    for layers in ("-2..-1", "0,1", [0, -1]):
        found = filler.embed(TEXTS[:2], layers=layers, join=join)  # type: ignore[arg-type]
        np.testing.assert_allclose(found, [expected.mean(0), torch.zeros(expected.shape[-1])], atol=1e-5)
    assert filler.width(layers="0..1", join=join) == expected.shape[-1]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options, said",
    [
        ({"layers": "0..2"}, "there is no layer 2; write 0 to 1, or -1 to -2 from the last on"),
        ({"layers": "-1..0"}, "-1..0 is empty, since layer 1 stands above layer 0; turn it round"),
        ({"layers": "last"}, "'last' names no layers; write a number, or two with dots between them: -4..-1"),
        ({"layers": []}, "no layers are named"),
        ({"layers": "0", "layer": 0}, "leave out one of the two"),
        ({"layers": "0..1", "pooling": "pooler"}, "the pooler reads the last layer"),
        ({"join": "max"}, "join is 'max'"),
    ],
)
def test_layers_that_are_not_there_are_refused(filler: MaskFiller, options: dict, said: str) -> None:
    with pytest.raises(RegardError) as error:
        filler.embed(TEXTS, **options)
    assert said in str(error.value)


def test_long_texts_keep_their_beginnings(filler: MaskFiller) -> None:
    said: list[str] = []
    long = "sea cat " * 40
    found = filler.embed([long, "a cat"], warn=said.append)
    assert said == ["1 of 2 texts have more than 30 tokens, cut short; long texts lost 50 of 80 tokens"]
    np.testing.assert_allclose(found[0], filler.embed(["sea cat " * 15])[0], atol=1e-5)
    with pytest.warns(UserWarning, match="long texts lost 50 of 80 tokens"):
        filler.embed([long])


def test_gaps_are_filled_by_the_scores_of_their_places(filler: MaskFiller) -> None:
    t = filler.tokenizer
    lines = ["sea [MASK] cat mat [MASK] .", "no gap", "", "[MASK]", "Sea[MASK]Cat"]
    found = filler.fill(lines, top=4)
    assert [len(gaps) for gaps in found] == [2, 0, 0, 1, 1]
    sea, cat = t.encode("sea"), t.encode("cat")
    for line, ids in ((0, None), (4, [t.bos, *sea, t.mask, *cat, t.eos])):
        ids = ids or [t.bos, *sea, t.mask, *t.encode("cat mat"), t.mask, *t.encode("."), t.eos]
        places = torch.tensor([n for n, i in enumerate(ids) if i == t.mask])
        with torch.inference_mode():
            words, _ = filler.model.scores(TextBatch(torch.tensor([ids]), label_positions=places))  # type: ignore[operator]
        for gap, scores in zip(found[line], words.softmax(-1), strict=True):
            order = [i for i in scores.argsort(descending=True).tolist() if i not in t.special.values()][:4]
            assert [guess.word for guess in gap] == t.tokens(order)
            np.testing.assert_allclose([guess.probability for guess in gap], scores[order], atol=1e-6)
    everything = filler.fill(["a [MASK]"], top=1000)[0][0]
    assert len(everything) == t.size - len(set(t.special.values()))


def test_a_long_text_is_cut_to_what_stands_around_its_gaps(filler: MaskFiller) -> None:
    before, after = "sea cat " * 30, " sea king" * 30
    ((gap,),) = filler.fill([before + "[MASK]" + after])
    ((same,),) = filler.fill(["cat " + "sea cat " * 7 + "[MASK]" + " sea king" * 7])  # 30 places: 15, the gap, 14
    assert [g.word for g in gap] == [g.word for g in same]
    np.testing.assert_allclose([g.probability for g in gap], [g.probability for g in same], atol=1e-5)
    with pytest.raises(RegardError, match="line 7: its gaps lie 62 tokens apart; 30 can be read at once"):
        filler.fill(["[MASK]" + after + "[MASK]"], before=6)
    told: list[str] = []
    found = filler.fill(["a [MASK]", "[MASK]" + after + "[MASK]", "[MASK]"], warn=told.append)
    assert [len(gaps) for gaps in found] == [1, 0, 1]
    assert told == ["line 2: its gaps lie 62 tokens apart; 30 can be read at once, so it is left empty"]


def test_mistakes(filler: MaskFiller) -> None:
    for call, message in (
        (lambda: filler.embed("one"), r"write embed\(\[text\]\)"),
        (lambda: filler.fill("one"), r"write fill\(\[text\]\)"),
        (lambda: filler.fill(["[MASK]"], top=0), "top must be at least 1"),
        (lambda: filler.embed(["a"], pooling="sum"), "embed: pooling is 'sum'; known: mean, cls, max, pooler"),
        (lambda: filler.embed(["a"], pooling="mena"), r"embed: pooling is 'mena'; did you mean mean\?"),
        (lambda: filler.embed(["a"], poling="mean"), r"embed has no option poling; did you mean pooling\?"),
        (lambda: filler.embed(["a", 3]), "embed takes a list of texts; number 2 is 3, which is not text"),
        (lambda: filler.fill(["a"], tpo=3), r"fill has no option tpo; did you mean top\?"),
        (lambda: filler.fill([None]), "fill takes a list of texts; number 1 is None, which is not text"),
        (lambda: filler.embed(["a"], layer=2), "there is no layer 2; write 0 to 1, or -1 to -2"),
        (lambda: filler.embed(["a"], layer=0, pooling="pooler"), "the pooler reads the last layer"),
    ):
        with pytest.raises(RegardError, match=message):
            call()


def test_an_array_goes_through_a_pipe_too(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "v.npy")
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append((tmp_path / "v.npy").read_bytes()), daemon=True)
    reader.start()
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    save_array(tmp_path / "v.npy", iter([([""] * 2, rows[:2]), ([""], rows[2:])]), 2)
    reader.join(10)
    assert np.load(io.BytesIO(found[0])).tolist() == rows.tolist()
    save_array(tmp_path / "none.npy", iter([]), 2)
    assert np.load(tmp_path / "none.npy").shape == (0, 2)


@pytest.mark.parametrize("pool", ["mean", "max"])
def test_segments_of_long_texts_are_pooled(filler: MaskFiller, pool: str) -> None:
    words, said, long = ["sea", "cat", "king"] * 14, list[str](), dict[int, Any]()  # 42 words, 30 at once
    found = filler.embed(
        ["a cat", " ".join(words)], warn=said.append, long={"kind": "segments", "pool": pool}, shortened=long
    )
    parts = filler.embed([" ".join(words[:30]), " ".join(words[30:])])
    np.testing.assert_allclose(found[1], parts.mean(0) if pool == "mean" else parts.max(0), atol=1e-5)
    np.testing.assert_allclose(found[0], filler.embed(["a cat"])[0], atol=1e-5)
    assert said == ["1 of 2 texts have more than 30 tokens, read in segments; long texts lost 0 of 42 tokens"]
    assert long[1].json() == {"kind": "segments", "tokens": 42, "dropped": 0, "segments": 2}


@pytest.mark.parametrize("by", ["tfidf", "centrality", "attention"])
def test_passages_of_long_texts_are_embedded(filler: MaskFiller, by: str) -> None:
    passages = ["The sea and the wind.", "A king sat.", "The sea sails a boat.", "The cat.", "The wind and a boat."]
    long: dict[int, Any] = {}
    text = " ".join(passages * 2)
    found = filler.embed([text], long={"kind": "extract", "by": by}, shortened=long, warn=lambda sentence: None)
    kept = " ".join((passages * 2)[n - 1] for n in long[0].kept)
    np.testing.assert_allclose(found[0], filler.embed([kept])[0], atol=1e-5)


def test_gaps_far_apart_are_read_one_by_one(filler: MaskFiller) -> None:
    text = "[MASK] cat " + "sea cat " * 30 + "[MASK] king"
    first, second = filler.fill([text], long="segments")[0]
    ((near,),) = filler.fill(["[MASK] cat " + "sea cat " * 14])
    assert [gap.word for gap in first] == [gap.word for gap in near]
    assert len(second) == 5
    with pytest.raises(RegardError, match="line 1: 64 tokens, and 30 can be read"):
        filler.fill([text], long="refuse")
    with pytest.raises(RegardError, match="gaps are filled by what stands around them"):
        filler.fill([text], long="extract")
