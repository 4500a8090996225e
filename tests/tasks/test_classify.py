"""Texts and pairs get the labels they should; what is wrong with a file is said with its line."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard import recipe as recipes
from regard.data.config import Corpus
from regard.data.labelled import labelled_texts
from regard.errors import RegardError
from regard.io.tensors import read_tensors
from regard.run import train_recipe
from regard.tasks.classify import sort_labels
from regard.tasks.finetuning import FinetuningTask
from tests.tasks import toys

GOOD, BAD = ("good", "fine", "great"), ("bad", "poor", "awful")
OTHERS = [f"w{i}" for i in range(12)]


def write_texts(folder: Path, counts: tuple[int, int] = (200, 40)) -> Path:
    """The label says whether a good or a bad word is there."""
    draw = random.Random(1)
    for name, count in zip(("train.tsv", "valid.tsv"), counts, strict=True):
        rows = ["sentence\tlabel"]
        for _ in range(count):
            label = draw.randint(0, 1)
            words = [draw.choice(OTHERS) for _ in range(draw.randint(1, 8))]
            words.insert(draw.randint(0, len(words)), draw.choice((BAD, GOOD)[label]))
            rows.append(f"{' '.join(words)}\t{('no', 'yes')[label]}")
        (folder / name).write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_texts(tmp_path_factory.mktemp("classify"))
    outcome = toys.trained(toys.recipe(folder, {"kind": "classify"}, ("train.tsv", "valid.tsv")), folder / "run")
    assert toys.value(outcome, "accuracy") >= 97.5
    assert toys.value(outcome, "f1") >= 97
    assert toys.value(outcome, "matthews") >= 95
    return folder / "run"


def test_it_learns_and_is_used(run: Path) -> None:
    assert json.loads((run / "labels.json").read_text()) == {"labels": ["no", "yes"], "texts": 1}
    model = regard.load(run, "cpu")
    said = model.classify(["w1 great w2", "", "w3 awful", "  "])
    assert [s.label for s in said] == ["yes", "", "no", ""]
    assert said[0].probabilities.keys() == {"no", "yes"}
    assert sum(said[0].probabilities.values()) == pytest.approx(1, abs=1e-6)
    alone = model.classify(["w3 awful"])[0].probabilities["no"]
    assert alone == pytest.approx(said[2].probabilities["no"], abs=1e-5)  # padding changes nothing
    with pytest.raises(RegardError, match=r"classify has no option befor; did you mean before\?"):
        model.classify(["w1"], befor=3)
    for wrong in ([("w1", None)], [None]):
        with pytest.raises(RegardError, match=r"number 1 is .*, which is not text"):
            model.classify(wrong)
    with pytest.raises(RegardError, match=r"classify takes a list of \w+, not None"):
        model.classify(None)
    with pytest.raises(RegardError, match=r"classify takes a list of texts, not one string; write classify"):
        model.classify("w3 awful")
    with pytest.raises(RegardError, match="text 2: 3 texts; give one, or a pair"):
        model.classify(["w3", ("a", "b", "c")])
    told: list[str] = []
    model.classify(["", "w3 " * 40], told.append, before=4096)
    assert told == [
        "texts longer than task.length=32 pieces, cut short: 1 (text 4098)",
        "long texts lost 10 of 40 tokens",
    ]
    model.classify(["w3", ("w1", "great")], told.append)
    assert told[2:] == ["pairs for a model trained on single texts: 1 (text 2)"]


def test_the_command(run: Path) -> None:
    assert toys.command("classify", run, stdin="w1 great\n\nbad w2\n") == "yes\n\nno\n"
    first, second = map(json.loads, toys.command("classify", run, "--json", stdin="w1 great\n\n").splitlines())
    assert first["line"] == 1
    assert first["probabilities"]["yes"] > 0.9
    assert second == {"line": 2, "label": "", "probabilities": {}}
    with pytest.raises(RegardError, match="standard input, line 1: 3 columns; write a text, or two"):
        toys.command("classify", run, stdin="a\tb\tc\n")
    measured = json.loads(toys.command("evaluate", run, "--json"))
    assert measured["metrics"]["accuracy"]["value"] >= 97.5


def test_pairs_and_numbers(tmp_path: Path) -> None:
    """The number is the share of the second text's words that the first one has."""
    draw = random.Random(2)
    for name, count in (("train.jsonl", 300), ("valid.jsonl", 50)):
        rows = []
        for _ in range(count):
            same = draw.randint(0, 4)
            a, b = draw.sample(GOOD + BAD, 4), draw.sample(OTHERS, 4)
            rows.append({"text1": " ".join(a), "text2": " ".join(a[:same] + b[same:]), "score": same})
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = toys.recipe(tmp_path, {"kind": "regress"}, ("train.jsonl", "valid.jsonl"), steps=100)
    outcome = toys.trained(made, tmp_path / "run")
    assert toys.value(outcome, "pearson") > 90
    assert toys.value(outcome, "spearman") > 90
    said = regard.load(tmp_path / "run", "cpu").classify([("good bad", "w1 w2"), ("good bad", "good bad"), ("", "")])
    assert said[2].value is None
    model, pair = regard.load(tmp_path / "run", "cpu"), ("good bad", "w1 " * 26 + "good " * 26)
    parts = [number.value for number in model.classify([("good bad", "w1 " * 26 + "good"), ("good bad", "good " * 25)])]
    for pool, wanted in (("mean", sum(parts) / 2), ("max", max(parts))):
        (found,) = model.classify([pair], long={"kind": "segments", "pool": pool}, warn=lambda sentence: None)
        assert found.value == pytest.approx(wanted, abs=1e-4)
        assert found.long.segments == 2
    assert said[0].value < said[1].value


# --- beginning from another run -------------------------------------------------------------------------------------


def test_from_another_run_the_body_is_taken_and_the_head_is_new(run: Path) -> None:
    folder = run.parent
    made = toys.recipe(folder, {"kind": "classify", "frozen": True}, ("train.tsv", "valid.tsv"), steps=4)
    made["training"] |= {"init": str(run)}
    toys.trained(made, folder / "frozen")
    before, after = (read_tensors(path / "model.safetensors") for path in (run, folder / "frozen"))
    for name, tensor in after.items():
        assert torch.equal(tensor, before[name]) == name.startswith("body."), name
    frozen = regard.load(folder / "frozen", "cpu").model.train()
    assert (frozen.training, frozen.body.training) == (True, False)  # it drops nothing
    assert not any(p.requires_grad for p in frozen.body.parameters())
    task = recipes.load_recipe(made).task.prepare(recipes.load_recipe(made), run, lambda *_: None)
    begun = task.initial_weights(task.build_model(), before, run)
    assert torch.equal(begun["pooler.dense.weight"], before["pooler.dense.weight"])
    assert not torch.equal(begun["output.weight"], before["output.weight"])
    made["task"] |= {"frozen": False}
    toys.trained(made, folder / "thawed")
    after = read_tensors(folder / "thawed" / "model.safetensors")
    assert not torch.equal(after["body.embedding.weight"], before["body.embedding.weight"])


def test_a_stopped_run_ends_with_the_same_weights(run: Path) -> None:
    folder = run.parent
    made = toys.recipe(folder, {"kind": "classify"}, ("train.tsv", "valid.tsv"), steps=9)
    made["training"] |= {"init": str(run)}
    made["model"] = toys.MODEL | {"dropout": 0.1}
    toys.trained(made, folder / "whole")
    stopped = train_recipe(recipes.load_recipe(made), folder / "stopped", "cpu", minutes=1e-6)
    assert not stopped.finished
    assert 0 < stopped.state.step < 9
    toys.trained(made, folder / "stopped")
    first, second = (read_tensors(folder / name / "model.safetensors") for name in ("whole", "stopped"))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_what_does_not_go_together_is_said(run: Path) -> None:
    made = toys.recipe(run.parent, {"kind": "classify", "frozen": True}, ("train.tsv", "valid.tsv"))
    with pytest.raises(RegardError, match=r"task\.frozen leaves the body as training\.init gives it"):
        recipes.load_recipe(made)
    made = toys.recipe(run.parent, {"kind": "classify", "length": 100}, ("train.tsv", "valid.tsv"))
    with pytest.raises(RegardError, match=r"model\.position"):
        recipes.load_recipe(made)
    made = toys.recipe(run.parent, {"kind": "classify"}, ("train.tsv", "valid.tsv"), model=toys.MODEL | {"layers": 2})
    made["training"] |= {"init": str(run)}
    with pytest.raises(RegardError, match=r"another model: model\.layers is 1 there and 2 here"):
        toys.trained(made, run.parent / "other")


# --- files -----------------------------------------------------------------------------------------------------------


def task(folder: Path, train: str, valid: str | None = None, **keys: object) -> FinetuningTask:
    (folder / "train.tsv").write_text(train)
    (folder / "valid.tsv").write_text(valid or train)
    made = toys.recipe(folder, {"kind": "classify", **keys}, ("train.tsv", "valid.tsv"))
    loaded = recipes.load_recipe(made)
    return loaded.task.prepare(loaded, None, lambda *_: None)  # type: ignore[return-value]


GIVEN = "sentence\tlabel\na b\tx\nc d\ty\n"


@pytest.mark.parametrize(
    "train, valid, said",
    [
        (GIVEN, "sentence\tlabel\na b\tx\nc\tz\n", r"valid\.tsv, line 3: the label 'z' was never seen in training, which has x, y"),  # noqa: E501
        (GIVEN, "sentence\tlabel\na b\t\n", r"valid\.tsv, line 2: the label is empty"),
        ("sentence\tlabel\na\tx\n", None, r"the training data has 1 label \(x\)"),
        ("one\ttwo\na\tx\n", None, r"tsv, line 2: which columns are the text and the label\? There are one, two"),
        ("sentence\tlabel\na\n", None, r"train\.tsv, line 2: 1 columns instead of 2"),
        ("sentence\tlabel\n", None, r"there are no examples"),
    ],
)  # fmt: skip
def test_bad_files(tmp_path: Path, train: str, valid: str | None, said: str) -> None:
    with pytest.raises(RegardError, match=said):
        task(tmp_path, train, valid)


def test_a_new_label_in_the_test_data_is_told_before_training(tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text("sentence\tlabel\na\tq\n")
    for name in ("train.tsv", "valid.tsv"):
        (tmp_path / name).write_text(GIVEN)
    made = toys.recipe(tmp_path, {"kind": "classify"}, ("train.tsv", "valid.tsv"))
    loaded = recipes.load_recipe(made, [f"data.test={tmp_path}/test.tsv"])
    with pytest.raises(RegardError, match=r"test\.tsv, line 2: the label 'q' was never seen in training"):
        loaded.task.prepare(loaded, None, lambda *_: None)


def test_smoothing_is_for_labels(tmp_path: Path) -> None:
    made = toys.recipe(tmp_path, {"kind": "regress"}, ("a.tsv", "b.tsv"))
    with pytest.raises(RegardError, match=r"training\.label_smoothing means nothing to the task regress; write 0"):
        recipes.load_recipe(made, ["training.label_smoothing=0.1"])


def test_pieces_are_not_drawn_anew(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text(GIVEN)
    made = toys.recipe(tmp_path, {"kind": "classify"}, ("train.tsv", "train.tsv"))
    recipe = recipes.load_recipe(
        made, ["text={kind: bpe, size: 30, dropout: 0.1}"]
    )  # a model that has it can be opened
    with pytest.raises(RegardError, match=r"text\.dropout draws pieces anew .* the task classify does not; write 0"):
        recipe.task.prepare(recipe, None, lambda *_: None)


def test_empty_and_long_texts_are_counted(tmp_path: Path) -> None:
    long = " ".join(["a"] * 50)
    made = task(tmp_path, GIVEN + f"\t x\n \ty\n{long}\ty\n", length=8)
    assert made.report() == [
        "5 examples in 3 rows, 2 labels",
        f"examples without text, dropped: 2 ({tmp_path}/train.tsv, line 4, 5)",
        f"texts longer than task.length=8 pieces, cut short: 1 ({tmp_path}/train.tsv, line 6)",
        "long texts lost 44 of 50 tokens",
        f"validation data: texts longer than task.length=8 pieces, cut short: 1 ({tmp_path}/valid.tsv, line 6)",
        "validation data: long texts lost 44 of 50 tokens",
    ]
    assert max(feature.length for feature in made.features) == 8


def test_every_example_is_in_an_epoch_once_and_like_lengths_meet(tmp_path: Path) -> None:
    draw = random.Random(0)
    rows = "".join(f"{' '.join(['a'] * draw.randint(1, 25))}\t{n % 2}\n" for n in range(500))
    made = task(tmp_path, "sentence\tlabel\n" + rows, batch=16)
    plans = [made.view(1, epoch).plan(10**6, 1, epoch) for epoch in (0, 1, 0)]
    for plan in plans:
        assert sorted(np.concatenate(plan)) == list(range(500))
    assert all(np.array_equal(a, b) for a, b in zip(plans[0], plans[2], strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(plans[0], plans[1], strict=True))
    view = made.view(1, 0)
    batches = [view.collate(batch) for batch in plans[0]]
    padding = [1 - float(b.real.float().mean()) for b in batches]
    assert np.mean(padding) < 0.25
    assert all(b.ids.shape[1] % 8 == 0 for b in batches)
    small = view.plan(64, 1, 0)  # a budget bounds a batch
    assert sorted(np.concatenate(small)) == list(range(500))
    assert all(len(b) * max(made.features[n].length for n in b) <= 64 for b in small)


def test_weights_of_corpora(tmp_path: Path) -> None:
    made = task(tmp_path, "sentence\tlabel\n" + "".join(f"a\t{n % 2}\n" for n in range(400)))
    made.weights = np.array([2.0] * 200 + [0.5] * 200)
    order = made.view(1, 0).order
    counts = np.bincount(order, minlength=400)
    assert (counts[:200] == 2).all()
    assert 70 < counts[200:].sum() < 130
    assert counts.max() == 2


def test_columns_by_name_by_number_and_by_custom(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("Quality\tone\ttwo\n1\tx y\tz\n")
    (tmp_path / "b.csv").write_text('label,premise,hypothesis\nno,"a, ""b""",c\n')
    (tmp_path / "c.jsonl").write_text('{"text": "t", "label": 3}\n\n{"text": "u", "label": "4"}\n')

    def rows(name: str, **keys: object) -> list[tuple]:
        return [(r.texts, r.label) for r in labelled_texts(Corpus(path=str(tmp_path / name), **keys))]  # type: ignore[arg-type]

    assert rows("a.tsv", columns=["one", "two", "Quality"]) == [(("x y", "z"), "1")]
    assert rows("a.tsv", columns=[2, 1]) == [(("one",), "Quality"), (("x y",), "1")]
    assert rows("b.csv") == [(("a, \"b\"", "c"), "no")]  # fmt: skip
    assert rows("c.jsonl") == [(("t",), "3"), (("u",), "4")]
    with pytest.raises(RegardError, match=r"a\.tsv, line 2: there is no column on; did you mean one\?"):
        rows("a.tsv", columns=["on", "Quality"])
    assert sort_labels({"10", "9", "-1"}) == ["-1", "9", "10"]
    assert sort_labels({"b", "a", "1"}) == ["1", "a", "b"]


# --- long texts -----------------------------------------------------------------------------------------------------


def test_every_way_with_a_long_text(run: Path) -> None:
    """The good word is far behind what fits: 60 words in rows of 30."""
    model = regard.load(run, "cpu")
    text = "w1\n\n" * 45 + "great great\n\n" * 2 + "w2 w3\n\n" * 5
    tokens = len(model.tokenizer.encode(text))
    for long, dropped, segments in (
        ("truncate", tokens - 30, 1),
        ({"kind": "truncate", "keep": "tail"}, tokens - 30, 1),
        ("segments", 0, -(-tokens // 30)),
        ({"kind": "segments", "overlap": 20, "pool": "max"}, 0, 1 + -(-(tokens - 30) // 10)),
    ):
        told: list[str] = []
        (found,) = model.classify([text], told.append, long=long)
        assert (found.long.tokens, found.long.dropped, found.long.segments) == (tokens, dropped, segments)
        assert told[-1] == f"long texts lost {dropped:,} of {tokens:,} tokens"
        assert sum(found.probabilities.values()) == pytest.approx(1)
    for by in ("tfidf", "centrality", "attention"):
        (found,) = model.classify([text], told.append, long={"kind": "extract", "by": by})
        assert found.long.kind == "extract"
        assert 0 < tokens - found.long.dropped <= 30
        assert len(found.long.kept) < found.long.passages == 52
    tail = model.classify([text], told.append, long="{kind: truncate, keep: tail}")[0]
    last = model.tokenizer.decode(model.tokenizer.encode(text)[-30:])
    assert tail.probabilities["yes"] == pytest.approx(model.classify([last])[0].probabilities["yes"], abs=1e-5)
    with pytest.raises(RegardError, match=rf"text 1: {tokens} tokens, and 30 can be read"):
        model.classify([text], long="refuse")
    with pytest.raises(RegardError, match=r"long is 'segmens'; did you mean segments\?"):
        model.classify([text], long="segmens")


def test_segments_are_pooled_as_log_probabilities(run: Path) -> None:
    model = regard.load(run, "cpu")
    text = " ".join(["w1", "great", *["w2"] * 28, "w3", "awful", *["w4"] * 28])
    (found,) = model.classify([text], long="segments")
    words = text.split()
    parts = model.classify([" ".join(words[:30]), " ".join(words[30:])])
    logs = np.mean([[np.log(p) for p in part.probabilities.values()] for part in parts], 0)
    wanted = np.exp(logs) / np.exp(logs).sum()
    np.testing.assert_allclose(list(found.probabilities.values()), wanted, atol=1e-5)


def test_the_command_says_what_was_dropped(run: Path) -> None:
    given = "w1 " * 60 + "\nw1 great\n"
    cut, fits = map(json.loads, toys.command("classify", run, "--json", "--long", "segment", stdin=given).splitlines())
    assert cut["long"] == {"kind": "segments", "tokens": 60, "dropped": 0, "segments": 2}
    assert "long" not in fits
    with pytest.raises(RegardError, match="--long is 'cut'; known: truncate, extract, segments, refuse, none"):
        toys.command("classify", run, "--long", "cut", stdin=given)


def test_long_in_a_recipe_is_learned_from(tmp_path: Path) -> None:
    long = " ".join(["a"] * 50)
    made = task(tmp_path, GIVEN + f"{long}\ty\n", length=8, long="segments")
    assert len([f for f in made.features if f.example == len(made.train) - 1]) == 9  # of 6 tokens each
    with pytest.raises(RegardError, match=r"task\.long\.by: attention needs a model that is trained"):
        task(tmp_path, GIVEN, long={"kind": "extract", "by": "attention"})


def test_of_a_pair_the_longer_text_has_segments(tmp_path: Path) -> None:
    made = task(tmp_path, "text1\ttext2\tlabel\na b c\ta b c d e f g h i\tx\nb\tc\ty\n", length=10, long="segments")
    rows = [made.codec.tokenizer.decode(f.rows[0].ids) for f in made.features if f.example == 0]
    assert rows == ["a b c a b c d", "a b c e f g h", "a b c i"]
