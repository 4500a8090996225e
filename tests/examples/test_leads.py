"""Leads of articles as pairs: who is an article, what is drawn, and that text and ids are the same."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard import recipe as recipes
from regard.errors import RegardError
from regard.examples.leads import Articles, Leads, fitting
from regard.examples.long_text import Extract, LongConfig, Truncate
from regard.io.tensors import read_tensors
from regard.run import train_recipe
from regard.tasks.translation import TranslationTask
from tests.training import toy

LINES = """before any title
 = One = 
 lead of one . 
 = = A section = = 
 1 a a . 
 1 b b b . 
 = Two = 
 lead of two . 
 = Three = 
 = = Another = = 
 lead of three . 
 3 a . 
 = = = Deeper = = = 
 3 b . 
 = Four = 
""".splitlines()  # noqa: W291


def write(folder: Path, articles: int = 12) -> None:
    """Each article has a word of its own, which its lead and its passages say."""
    draw = np.random.default_rng(0)
    for split, count in (("train", articles), ("valid", 4)):
        lines = []
        for n in range(count):
            words = lambda n=n: " ".join([f"own{n}", *draw.choice(toy.WORDS, draw.integers(2, 7))])  # noqa: E731
            lines += ["", f" = Title {n} = ", "", f" {words()} . ", "", " = = Section = = ", ""]
            lines += [f" {words()} ; {words()} . " for _ in range(draw.integers(1, 5))]
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def recipe(folder: Path, model: Any = None, text: Any = "word", task: Any = None, **training: Any) -> dict[str, Any]:
    made = toy.recipe(folder, **training)
    data: dict[str, Any] = {split: str(folder / f"{split}.txt") for split in ("train", "valid")}
    filters = {"max_length": 40, "long": "truncate", "duplicates": False}
    sizes = {"layers": 3, "size": 16, "inner": 16, "heads": 2}
    local = {"pattern": ["blocks(8)", "full"], "compress": ["none", "strided_conv"]}
    return made | {
        "task": {"source": "en", "target": "en", "leads": {"others": 0.5}} | (task or {}),
        "data": data | {"filters": filters, "cache": str(folder / "cache")},
        "text": text,
        "model": model or {"kind": "decoder_only", **sizes, "attention": local},
        "decoding": {"kind": "beam", "size": 4, "max_ratio": 0.0, "max_extra": 6},
    }


def prepared(folder: Path, **keys: Any) -> TranslationTask:
    made = recipes.load_recipe(recipe(folder, **keys))
    return made.task.prepare(made, None, lambda *told: None)  # type: ignore[return-value]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("leads")
    write(made)
    return made


# --- articles ------------------------------------------------------------------------------------------------------


def test_articles_by_hand() -> None:
    """Two has no passages, and Four nothing at all."""
    a = Articles.of(LINES)
    assert (a.title.tolist(), a.lead.tolist()) == ([1, 8], [2, 10])
    assert [rows.tolist() for rows in a.passages] == [[4, 5], [11, 13]]
    assert len(Articles.of(["= Only =", "a lead"])) == len(Articles.of([])) == 0


def test_what_fits_one_after_the_other() -> None:
    lengths = np.array([5, 3, 9, 2, 1])
    assert fitting(np.array([0, 2, 1, 3, 4]), lengths, 9).tolist() == [0, 1, 4]
    assert fitting(np.array([2]), lengths, 8).tolist() == []


@pytest.mark.parametrize("others", [0.0, 0.5, 0.9])
def test_sources_are_drawn(others: float) -> None:
    random = np.random.default_rng(1)
    count, each = 9, 12  # articles of a title, a lead and ten passages
    texts = [f"= {n} =" if not k else f"{n} {k}" for n in range(count) for k in range(each)]
    lengths, a = random.integers(3, 30, count * each), Articles.of(texts)
    draw = lambda seed, epoch: [r.tolist() for r in a.draw(np.arange(count), lengths, 150, others, seed, epoch)]  # noqa: E731
    first = draw(1, 0)
    assert first == draw(1, 0)
    assert all(first[n] != other[n] for other in (draw(1, 1), draw(2, 0)) for n in range(count))
    assert draw(1, 0)[3] == a.draw(np.array([3]), lengths, 150, others, 1, 0)[0].tolist()  # whichever are beside it
    own = foreign = 0
    for n, rows in enumerate(first):
        title, *passages = rows
        assert title == n * each
        assert len(set(passages)) == len(passages)
        assert lengths[rows].sum() <= 150
        assert all(row % each > 1 for row in passages)  # no title, and no lead of anybody
        inside = [row for row in passages if row // each == n]
        assert lengths[inside].sum() <= round((150 - lengths[title]) * (1 - others))
        own, foreign = own + len(inside), foreign + len(passages) - len(inside)
    assert own
    assert bool(foreign) == (others > 0)
    assert any(a > b for rows in first for a, b in pairwise(rows[1:]))  # not as they stood


@pytest.mark.parametrize("long", [Truncate(), Extract("tfidf"), Extract("centrality")], ids=str)
def test_of_more_than_is_read_some_are_chosen(long: LongConfig) -> None:
    """Twenty passages of ten words, of which six fit: the first ones, or those that the title's word is in."""
    random = np.random.default_rng(2)
    texts: list[str] = []
    for n in range(4):
        word = f"own{n}"
        texts += [f"= {word} =", f"{word} lead"]
        texts += [
            " ".join(random.permutation([word] * 2 + [f"x{m}" for m in random.integers(0, 900, 8)])) for _ in range(5)
        ]
    lengths, a = np.array([len(text.split()) for text in texts]), Articles.of(texts)
    leads = Leads(others=0.5, tokens=203)
    chosen, found = np.arange(4), dict[int, list[list[int]]]()
    for room in (63, 203):
        rows = leads.sources(a, chosen, texts, lengths, room, long, 1, 0)
        found[room] = [each.tolist() for each in rows]
    drawn = [rows.tolist() for rows in a.draw(chosen, lengths, 203, 0.5, 1, 0)]
    for n, (title, *passages) in enumerate(found[63]):
        assert title == 7 * n
        assert lengths[[title, *passages]].sum() == 63
        own = sum(row // 7 == n for row in passages)
        if long == Truncate():
            assert [title, *passages] == drawn[n][:7]
        elif long == Extract("tfidf"):
            assert own == 5  # all that there are
            assert [row for row in drawn[n] if row in passages] == passages  # in the order of the text
    assert found[203] == drawn  # all fit


@pytest.mark.parametrize(
    "task, said",
    [
        ({"leads": {"tokens": 30}}, "task.leads.tokens is 30, fewer than data.filters.max_length, 40"),
        ({"leads": {"tokens": 300}, "long": "segments"}, "task.leads.tokens needs task.long: truncate, or extract"),
        ({"leads": {"tokens": 300}, "long": {"kind": "extract", "by": "attention"}}, "needs task.long: truncate, or"),
    ],
)
def test_what_cannot_choose_is_refused(folder: Path, task: dict[str, Any], said: str) -> None:
    with pytest.raises(RegardError, match=said):
        recipes.load_recipe(recipe(folder, task=task))


def test_training_and_validation_read_what_was_chosen(folder: Path) -> None:
    task = prepared(folder, task={"leads": {"tokens": 300}, "long": {"kind": "extract", "by": "centrality"}})
    view, tokenizer, texts = task.view(1, 0), task.vocabulary.source, [t.strip() for t in task.prepared.text["text"]]
    a, lengths = task.leads.articles, task.prepared.columns["text"].lengths  # type: ignore[union-attr]
    chosen = Leads(tokens=300).sources(a, np.arange(len(a)), texts, lengths, 40, Extract("centrality"), 1, 0)
    for n, rows in enumerate(chosen):
        assert view.source[n].tolist() == tokenizer.encode(" ".join(texts[row] for row in rows))
        assert len(view.source[n]) <= 40 < 100 < lengths[a.draw(np.array([n]), lengths, 300, 0.5, 1, 0)[0]].sum()
    assert task.valid != prepared(folder, task={"leads": {"tokens": 300}}).valid
    assert all(len(tokenizer.encode(source)) <= 40 for source, _ in task.valid)


# --- examples ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["word", {"kind": "bpe", "size": 90}, {"kind": "wordpiece", "size": 90}, {"kind": "unigram", "size": 45},
             {"kind": "bert", "size": 90}, {"kind": "word", "moses": True}], ids=str
)  # fmt: skip
def test_ids_are_those_of_the_text(folder: Path, text: Any) -> None:
    """What training reads is what a user's line becomes."""
    task = prepared(folder, text=text)
    lines, tokenizer = [t.strip() for t in task.prepared.text["text"]], task.vocabulary.source
    a, view = task.leads.articles, task.view(1, 0)  # type: ignore[union-attr]
    drawn = a.draw(np.arange(len(a)), task.prepared.columns["text"].lengths, 40, 0.5, 1, 0)
    for n, rows in enumerate(drawn):
        assert view.source[n].tolist() == tokenizer.encode(" ".join(lines[row] for row in rows))
        assert view.target.take(np.array([n]))[0].tolist() == tokenizer.encode(lines[a.lead[n]])
    batch = view.collate(np.array([2, 0]))
    assert batch.rows == (a.lead[2], a.lead[0])
    assert task.describe(batch).startswith("2 pairs, first line ")
    assert [view.targets(np.array([n])) for n in (0, 1)] == [int(n) + 1 for n in view.target.lengths[:2]]


def test_held_out_pairs_never_change_and_corpora_have_weights(folder: Path) -> None:
    task = prepared(folder)
    assert task.valid == prepared(folder).valid
    assert [source.split(" = ")[0] for source, _ in task.valid] == [f"= Title {n}" for n in range(4)]
    assert all(f"own{n} " in target for n, (_, target) in enumerate(task.valid))
    assert all(len(task.vocabulary.source.encode(source)) <= 40 for source, _ in task.valid)
    task.prepared.weights = [2.5]
    assert len(task.view(1, 0).rows) > 2 * len(task.leads.articles)  # type: ignore[union-attr]


@pytest.mark.parametrize("model", [None, {"layers": 1, "size": 16, "inner": 16, "heads": 2},
                                   {"kind": "rnn", "size": 8}], ids=["t-dmca", "t-ed", "seq2seq"])  # fmt: skip
def test_a_run_and_its_resuming(folder: Path, tmp_path: Path, model: Any) -> None:
    made = recipes.load_recipe(recipe(folder, model, steps=6))
    train_recipe(made, tmp_path / "one", "cpu")
    assert not train_recipe(made, tmp_path / "two", "cpu", minutes=1e-9).finished
    assert train_recipe(made, tmp_path / "two", "cpu").finished
    one, two = (read_tensors(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert all((one[name] == two[name]).all() for name in one)
    translator = regard.load(tmp_path / "two", device="cpu")
    assert len(translator.translate(["= Title 1 = own1 w1 w2 .", "", "= Title 2 ="])) == 3
    report = translator.recipe.task.evaluate(translator, "valid", {})
    assert (report["lines"], report["notes"]) == (4, [])
    (tmp_path / "a").write_text("= Title 1 = own1 w1\n", encoding="utf-8")
    (tmp_path / "b").write_text("own1 w1\n", encoding="utf-8")
    given: Any = {"source": tmp_path / "a", "reference": tmp_path / "b"}
    assert translator.recipe.task.evaluate(translator, None, given)["lines"] == 1


def test_a_decoder_alone_begins_from_a_language_model(folder: Path, tmp_path: Path) -> None:
    """Its weights are the language model's, compressed layers' too, and it reads with its vocabulary."""
    made = recipe(folder, steps=1)
    sizes = made["model"] | {"kind": "lm", "position": "sinusoidal", "scale_embedding": True, "init": "xavier"}
    text = made | {"task": {"kind": "lm", "length": 16, "boundaries": "marked"}, "model": sizes}
    text |= {"decoding": {"kind": "sample"}, "data": made["data"] | {"filters": {}}}
    text |= {"training": made["training"] | {"goal": "perplexity"}}
    train_recipe(recipes.load_recipe(text), tmp_path / "lm", "cpu")
    made["training"] |= {"init": str(tmp_path / "lm"), "schedule": {"kind": "constant", "peak": 1e-12, "warmup": 0}}
    train_recipe(recipes.load_recipe(made), tmp_path / "pairs", "cpu")
    there, here = (read_tensors(tmp_path / name / "model.safetensors") for name in ("lm", "pairs"))
    assert here.keys() == {f"body.{name}" for name in there}
    assert all(torch.allclose(here[f"body.{name}"], value, atol=1e-9) for name, value in there.items())
    assert any("compress" in name for name in there)
    made["model"] |= {"size": 32}
    with pytest.raises(RegardError, match=r"training\.init: .* has another model: model\.kind is lm there"):
        train_recipe(recipes.load_recipe(made), tmp_path / "other", "cpu")


# --- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys, said",
    [
        ({"task": {"target": "de"}}, "write task.target: en, as task.source"),
        ({"task": {"leads": {"others": 1}}}, r"others must be in \[0, 1\)"),
        ({"task": {"guide": {}}}, "leave out task.guide"),
        ({"text": "char"}, "text.kind must cut at spaces"),
        ({"text": {"kind": "byte_bpe"}}, "not byte_bpe"),
        ({"text": {"kind": "bpe", "dropout": 0.1}}, "text.dropout draws pieces anew"),
        ({"text": {"kind": "word", "shared": False}}, "write text.shared: true"),
    ],
)
def test_what_does_not_go_together(folder: Path, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(RegardError, match=said):
        recipes.load_recipe(recipe(folder, **keys))


def test_two_files_and_texts_without_articles_are_refused(tmp_path: Path) -> None:
    write(tmp_path, 3)
    made = recipe(tmp_path)
    made["data"]["train"] = ["a.en", "a.de"]
    with pytest.raises(RegardError, match="is two files of pairs; name one of text"):
        recipes.load_recipe(made)
    (tmp_path / "train.txt").write_text("one line\nanother\n", encoding="utf-8")
    with pytest.raises(RegardError, match=r"data\.train: no article with a title"):
        prepared(tmp_path)
