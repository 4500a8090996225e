"""Language modelling from files to figures: blocks, documents that do not see each other, measures, writing."""

import json
import math
import warnings
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard import recipe as recipes
from regard.decoding import Beam, Greedy, Sample
from regard.errors import RegardError
from regard.examples.preparing import read_documents
from regard.examples.windows import StridedWindows
from regard.models.batch import TextBatch
from regard.predict.generation import TextGenerator
from regard.predict.options import SearchOptions
from regard.run import train_recipe
from regard.tasks.language_modelling import LanguageModellingTask
from tests.tasks import lm_toy


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("lm")
    lm_toy.write_text(made)
    return made


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    train_recipe(recipes.load_recipe(lm_toy.recipe(folder, steps=60)), folder / "run", "cpu")
    return folder / "run"


@pytest.fixture
def writer(run: Path) -> TextGenerator:
    return regard.load(run, device="cpu")


def prepared(folder: Path, **keys: Any) -> LanguageModellingTask:
    recipe = recipes.load_recipe(lm_toy.recipe(folder, **keys))
    return recipe.task.prepare(recipe, None, lambda what, n, of: None)  # type: ignore[return-value]


def blocks(task: LanguageModellingTask, seed: int, epoch: int) -> list[TextBatch]:
    view = task.view(seed, epoch)
    return [view.collate(indices) for indices in view.plan(128, seed, epoch)]


# --- blocks --------------------------------------------------------------------------------------------------------


def test_blocks_are_cut_side_by_side_from_a_random_place(folder: Path) -> None:
    task = prepared(folder)
    flat = np.asarray(task.stream.flat)
    firsts = set()
    for epoch in range(4):
        batches = blocks(task, 1, epoch)
        starts = sorted(start for batch in batches for start in batch.rows)
        assert starts == list(range(starts[0], len(flat) - 16, 16))
        assert starts[0] < 16
        firsts.add(starts[0])
        for batch in batches:
            assert batch.ids.numel() <= 128
            for row, start in enumerate(batch.rows):
                assert batch.ids[row].tolist() == flat[start : start + 16].tolist()
                said = batch.labels.view(-1, 16)[row]  # type: ignore[union-attr]
                assert said.tolist() == flat[start + 1 : start + 17].tolist()
    assert len(firsts) > 1
    assert [b.rows for b in blocks(task, 1, 2)] == [b.rows for b in blocks(task, 1, 2)]
    assert [b.rows for b in blocks(task, 1, 2)] != [b.rows for b in blocks(task, 2, 2)]


def test_corpora_have_weights(folder: Path) -> None:
    recipe = recipes.load_recipe(lm_toy.recipe(folder))
    corpora = [replace(recipe.data.train[0], weight=w) for w in (1.0, 2.5)]
    recipe = replace(recipe, data=replace(recipe.data, train=corpora))
    stream = recipe.task.prepare(recipe, None, lambda *a: None).stream  # type: ignore[attr-defined]
    (begin, middle), (_, end) = stream.parts
    starts = stream.block_starts(1, 0)
    once, more = ((starts < middle).sum(), (starts >= middle).sum())
    assert begin == 0
    assert end == 2 * middle
    assert more == pytest.approx(2.5 * once, abs=2.5)
    assert all(start + 16 < (middle if start < middle else end) for start in starts)  # no block has both


def test_documents_do_not_see_each_other(folder: Path) -> None:
    """What a place says depends on its own document alone, unless only a mark stands between them."""
    kept, marked = (prepared(folder, boundaries=b) for b in ("kept", "marked"))
    batch = next(b for b in blocks(kept, 1, 0) if b.document is not None)
    torch.manual_seed(0)
    model = kept.build_model().double().eval()
    bos = kept.encoder.tokenizer.bos
    row = next(n for n in range(len(batch.ids)) if (batch.ids[n, 1:-1] == bos).any())
    logits = model(batch).view(*batch.ids.shape, -1)[row]
    edges = [0, *(batch.ids[row, 1:] == bos).nonzero()[:, 0].add(1).tolist(), batch.ids.shape[1]]
    for begin, end in pairwise(edges):
        alone = batch.ids[None, row, begin:end]
        expected = model(TextBatch(alone, label_positions=torch.arange(end - begin)))
        torch.testing.assert_close(logits[begin:end], expected)
    assert all(b.document is None for b in blocks(marked, 1, 0))
    assert marked.static_batch(model, batch) is None  # shapes, and what is hidden, come again only without documents
    assert marked.static_batch(model, blocks(marked, 1, 0)[0]) is not None


def test_too_little_text(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("short\n", encoding="utf-8")
    (tmp_path / "valid.txt").write_text("short\n", encoding="utf-8")
    with pytest.raises(RegardError, match=r"the text has 8 tokens, too few for a block of task\.length=16; lower it"):
        prepared(tmp_path)


def test_a_corpus_shorter_than_a_block_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "few.txt").write_text("a cat\n", encoding="utf-8")
    recipe = recipes.load_recipe(lm_toy.recipe(folder))
    corpora = [*recipe.data.train, replace(recipe.data.train[0], path=str(tmp_path / "few.txt"))]
    recipe = replace(recipe, data=replace(recipe.data, train=corpora))
    task: Any = recipe.task.prepare(recipe, None, lambda *a: None)
    assert f"{tmp_path / 'few.txt'}: shorter than a block of task.length=16, and not learned from" in task.report()
    assert task.stream.block_starts(1, 0).max() < task.stream.parts[0][1]


def test_states_of_another_number_of_rows_are_left(tmp_path: Path) -> None:
    """A text shorter than a batch has a row for each block, and of those one more or less in every epoch."""
    lm_toy.write_text(tmp_path, documents=10)
    made = lm_toy.recipe(tmp_path)
    made["model"] = {"kind": "lstm_lm", "layers": 1, "size": 8, "hidden": 8, "dropout": 0.0, "weight_dropout": 0.0,
                     "word_dropout": 0.0}  # fmt: skip
    made["training"]["tokens_per_batch"] = 4096
    recipe = recipes.load_recipe(made)
    task: Any = recipe.task.prepare(recipe, None, lambda *a: None)
    firsts = [blocks(task, 1, epoch)[0] for epoch in range(9)]
    few, many = (next(b for b in firsts if len(b.rows) == n) for n in sorted({len(b.rows) for b in firsts}))
    torch.manual_seed(0)
    model = task.build_model()
    for one, other in ((few, many), (many, few)):
        carry = task.loss(model, one, None)[1]
        fresh, carried = task.loss(model, other, None), task.loss(model, other, carry)
        assert torch.equal(carried[0], fresh[0])
        assert torch.equal(carried[1]["next"], torch.tensor(other.rows) + 16)


# --- measuring -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["char", "word", {"kind": "byte_bpe", "size": 275}], ids=str)
@pytest.mark.parametrize("form", ["line", "blank", "file"])
def test_measures_are_those_of_the_definition(folder: Path, text: Any, form: str) -> None:
    task = prepared(folder, text=text, documents=form, boundaries="kept")
    torch.manual_seed(0)
    model = task.build_model().eval()
    found = task.evaluate(model)
    lines = (folder / "valid.txt").read_text().splitlines()
    said = lines if form == "file" else [line for line in lines if line]
    assert found["words"] == sum(len(line.split()) + 1 for line in said)
    assert found["characters"] == sum(len(line) + 1 for line in said)
    scored = task.generator(model).score(read_documents(task.recipe.data.valid, form))  # type: ignore[arg-type]
    nll, tokens = -sum(s for s, _ in scored), sum(n for _, n in scored)
    values = {name: entry["value"] for name, entry in found["metrics"].items()}
    assert found["tokens"] == tokens
    assert values["loss"] == pytest.approx(nll / tokens)
    assert values["perplexity"] == pytest.approx(math.exp(nll / tokens))
    assert values["word_perplexity"] == pytest.approx(math.exp(nll / found["words"]))
    assert values["bits_per_character"] == pytest.approx(nll / found["characters"] / math.log(2))
    if text == "word":
        assert tokens == found["words"]  # so that what is published of words compares
    assert "context:16|stride:16" in found["metrics"]["perplexity"]["signature"]


def test_documents_that_only_a_mark_parts_are_measured_as_one_text(folder: Path) -> None:
    kept, marked = (prepared(folder, boundaries=b) for b in ("kept", "marked"))
    torch.manual_seed(0)
    model = kept.build_model()
    one, other = (task.evaluate(model) for task in (kept, marked))
    assert one["tokens"] == other["tokens"]  # the mark itself is not text
    assert one["metrics"]["loss"]["value"] != other["metrics"]["loss"]["value"]


def test_the_command_measures_as_it_is_told(run: Path, writer: TextGenerator) -> None:
    task = writer.recipe.task
    reports = [task.evaluate(writer, None, given) for given in ({}, {"stride": 4}, {"context": 32, "stride": 8})]
    assert [(r["context"], r["stride"]) for r in reports] == [(16, 16), (16, 4), (32, 8)]
    assert len({r["metrics"]["loss"]["value"] for r in reports}) == 3
    with pytest.raises(RegardError, match="--context is 40, but the model can tell only 32 places apart"):
        task.evaluate(writer, None, {"context": 40})
    with pytest.raises(RegardError, match="--stride must be from 1 to the context of 16, not 17"):
        task.evaluate(writer, None, {"stride": 17})
    saved = json.loads((run / "results.json").read_text())
    assert saved["valid"]["metrics"]["loss"]["value"] == pytest.approx(reports[0]["metrics"]["loss"]["value"])
    assert (
        saved["valid"]["metrics"]["loss"]["value"] < math.log(writer.document_encoder.size) - 1
    )  # it has learned something


# --- writing -------------------------------------------------------------------------------------------------------


def test_greedy_and_a_beam_of_one_write_the_same(writer: TextGenerator) -> None:
    (greedy,) = writer.generate("the c", decoding=Greedy(), max_tokens=8)
    (beam,) = writer.generate("the c", decoding=Beam(size=1), max_tokens=8)
    assert greedy.text == beam.text
    best = writer.generate("the c", 3, Beam(size=3, length_penalty=0.0), max_tokens=8)
    assert [b.log_probability for b in best] == sorted((b.log_probability for b in best), reverse=True)


def test_pieces_of_the_stream_are_the_text(writer: TextGenerator) -> None:
    sampling = Sample(seed=5)
    texts = [w.text for w in writer.generate("the", 3, sampling, max_tokens=60)]  # past the context
    pieces: dict[int, str] = {0: "", 1: "", 2: ""}
    for piece in writer.stream("the", 3, sampling, max_tokens=60):
        pieces[piece.sample] += piece.text
    assert [pieces[n] for n in range(3)] == texts
    assert len(set(texts)) == 3
    assert texts == [w.text for w in writer.generate("the", 3, sampling, max_tokens=60)]


def test_log_probabilities_are_those_of_the_text(writer: TextGenerator) -> None:
    whole = writer.generate("", 1, Sample(seed=2), max_tokens=10, stop=["\x01"])[0]
    tokens = [writer.tokenizer.bos, *whole.tokens] + [writer.document_encoder.end] * (whole.ended == "end")
    batch = TextBatch(torch.tensor([tokens[:-1]]), label_positions=torch.arange(len(tokens) - 1))
    logp = torch.log_softmax(writer.model(batch), -1)
    expected = logp.gather(1, torch.tensor(tokens[1:])[:, None]).sum().item()
    assert whole.log_probability == pytest.approx(expected, abs=1e-4)


def test_stop_strings_end_it(writer: TextGenerator) -> None:
    plain = writer.generate("the cat", decoding=Sample(seed=4), max_tokens=30)[0].text
    letter = next(c for c in plain[2:] if c not in plain[:2])
    (cut,) = writer.generate("the cat", decoding=Sample(seed=4), max_tokens=30, stop=["never", letter])
    assert (cut.text, cut.ended) == (plain[: plain.index(letter)], "stop")


def test_a_prompt_longer_than_the_context(writer: TextGenerator) -> None:
    said: list[str] = []
    long = "the cat sat on a mat"
    (kept,) = writer.generate(long, decoding=Greedy(), max_tokens=5, warn=said.append)
    assert said == ["the prompt has 21 tokens, more than the context of 16: its last ones are kept"]
    assert len(kept.tokens) <= 5
    with pytest.raises(RegardError, match="the prompt has 21 tokens, more than the context of 16; shorten it"):
        writer.generate(long, strict=True)
    said.clear()
    (beam,) = writer.generate("the cat sat", decoding=Beam(size=2), max_tokens=9, warn=said.append)
    room = "more than the context of 16 less the room for what a beam says, 8: its last ones are kept"
    assert said == [f"the prompt has 12 tokens, {room}"]
    assert len(beam.tokens) <= 8
    with pytest.warns(UserWarning, match="its last ones are kept"):
        writer.generate(long, decoding=Greedy(), max_tokens=1)


def test_windows_go_on_past_the_context(folder: Path) -> None:
    """A token depends on distances within windows: 70 tokens of a model of 16 are those of one pass over all."""
    given = lm_toy.recipe(folder, steps=5)
    given["model"] |= {"position": "rotary", "attention": {"pattern": ["window(3)", "window(5)"]}}
    train_recipe(recipes.load_recipe(given), folder / "windows", "cpu")
    writer = regard.load(folder / "windows", "cpu")
    writer.model.double()
    long = "the cat sat on a mat the dog ran"
    assert (writer.context, writer.limit) == (16, 0)
    with warnings.catch_warnings(action="error"):  # the prompt keeps its beginning
        found = writer.generate(long, 2, Sample(seed=3), max_tokens=70, strict=True)
    beams = writer.generate(long, 2, Beam(size=2), max_tokens=70)
    prompt = writer.document_encoder.prompt(long)
    for text in (*found, *beams):
        ended = text.ended == "end" or text in beams  # which count their end, at the limit too
        ids = [*prompt, *text.tokens] + [writer.document_encoder.end] * ended
        places = torch.arange(len(prompt) - 1, len(ids) - 1)
        logp = torch.log_softmax(writer.model(TextBatch(torch.tensor([ids[:-1]]), label_positions=places)), -1)
        whole = logp.gather(1, torch.tensor(ids[len(prompt) :])[:, None]).sum().item()
        assert text.log_probability == pytest.approx(whole, abs=1e-9)
    assert max(len(text.tokens) for text in found) > 48  # thrice the context


def test_the_search_by_keywords(writer: TextGenerator) -> None:
    drawn = Sample(temperature=0.7, top_p=0.9, seed=3)
    (wanted,) = writer.generate("the", decoding=drawn, max_tokens=9)
    assert writer.generate("the", temperature=0.7, top_p=0.9, seed=3, max_tokens=9) == [wanted]
    assert "".join(p.text for p in writer.stream("the", decoding=drawn, top_p=0.9, max_tokens=9)) == wanted.text
    assert SearchOptions(greedy=True).decoding_config(Sample()) == Greedy()
    assert SearchOptions(temperature=0.7).decoding_config(Sample(top_k=5)) == Sample(top_k=5, temperature=0.7)
    assert len(writer.generate("the", 2, beam=2, max_tokens=4)) == 2
    with pytest.raises(RegardError, match=r"generate has no option temprature; did you mean temperature\?"):
        writer.generate("the", temprature=0.7)


def test_what_cannot_be_written(writer: TextGenerator) -> None:
    with pytest.raises(RegardError, match="greedy search writes one text, not 2"):
        writer.generate("a", 2, Greedy())
    with pytest.raises(RegardError, match="a beam of 2 has no 3 best"):
        writer.generate("a", 3, Beam(size=2))
    with pytest.raises(RegardError, match="generate: prompt is None; write a string"):
        writer.generate(None)
    with pytest.raises(RegardError, match=r"generate: stop is 'end'; write a list: \['end'\]"):
        writer.generate("a", stop="end")
    with pytest.raises(RegardError, match="generate: top_k is 'all'; write a whole number"):
        writer.generate("a", top_k="all")
    with pytest.raises(RegardError, match="a beam has a size of at least 1, not 0"):
        writer.generate("a", beam=0)
    with pytest.raises(RegardError, match="score takes a list of texts; number 1 is None, which is not text"):
        writer.score([None])
    with pytest.raises(RegardError, match=r"score takes a list of texts, not one string"):
        writer.score("a cat")
    with pytest.raises(RegardError, match="must be at least 1"):
        writer.generate("a", max_tokens=0)
    with pytest.raises(RegardError, match="greedy takes the likeliest word and beam searches; give one of them"):
        writer.generate("a", greedy=True, beam=2)
    with pytest.raises(RegardError, match=r"'the \?' holds half a character \(a lone surrogate\), so it is not UTF-8"):
        writer.generate("the \udcff")


def test_words_of_a_prompt_that_nobody_taught_are_told(writer: TextGenerator) -> None:
    told: list[str] = []
    writer.generate("the 你 the 好", max_tokens=2, warn=told.append)
    assert told == ["unknown to this model: 2 of the prompt's 12 tokens"]
    with pytest.warns(UserWarning, match="unknown to this model: 1 of the prompt's 6 tokens"):
        writer.generate("the 你", max_tokens=2)


def test_scores_of_texts(writer: TextGenerator) -> None:
    """A text alone and among others; windows do not change a text that fits into one."""
    texts = ["a cat", "the dog ran\non a mat", ""]
    together = writer.score(texts)
    for text, (score, count) in zip(texts, together, strict=True):
        ((alone, tokens),) = writer.score([text])
        assert score == pytest.approx(alone, rel=1e-5)
        assert tokens == count
    assert [n for _, n in together] == [7, 22, 2]  # characters, the end of the last line, and of the document
    assert writer.score(["a cat"], StridedWindows(16, 2))[0][0] == pytest.approx(together[0][0], rel=1e-5)
