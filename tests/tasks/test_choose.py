"""The right option is chosen, each being a row of its own; what is wrong with a file is said with its place."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard import recipe as recipes
from regard.data.config import Corpus
from regard.data.questions import ChoiceQuestion, read_multiple_choice
from regard.errors import RegardError
from regard.examples.codec import ExampleCodec, Notes
from regard.tasks.choose import ChooseConfig
from regard.text import from_bert
from tests.parity.test_heads import write_vocabulary
from tests.tasks import toys

WORDS = [f"w{n}" for n in range(8)]
KINDS = {"colour": ("red", "blue", "green"), "thing": ("cat", "dog", "hat")}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The right option is a colour where a colour is asked for, else a thing; some have three options, some four."""
    folder, draw = tmp_path_factory.mktemp("choose"), random.Random(0)
    for name, count in (("train.jsonl", 400), ("valid.jsonl", 60)):
        rows = []
        for _ in range(count):
            what = draw.choice(list(KINDS))
            right, others = draw.choice(KINDS[what]), [w for kind in KINDS if kind != what for w in KINDS[kind]]
            options = draw.sample([right, *draw.sample(others, draw.choice((2, 3)))], k=3)
            options = options if right in options else [*options, right]
            text = " ".join(draw.sample(WORDS, 3))
            rows.append({"context": text, "question": what, "options": options, "answer": options.index(right)})
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = toys.recipe(folder, {"kind": "choose"}, ("train.jsonl", "valid.jsonl"), steps=200,
                       model=toys.MODEL | {"layers": 2})  # fmt: skip
    outcome = toys.trained(made, folder / "run")
    assert toys.value(outcome, "accuracy") > 90
    return folder / "run"


def test_it_learns_and_is_used(run: Path) -> None:
    model = regard.load(run, "cpu")
    found = model.choose([("w1 w2 w3", "colour", ["cat", "red", "hat"]), ("w4 w6 w0", "thing", ["dog", "blue"])])
    assert [(c.index, c.text) for c in found] == [(1, "red"), (0, "dog")]
    assert [len(c.probabilities) for c in found] == [3, 2]
    results = json.loads((run / "results.json").read_text())
    assert results["examples"] == 16 * 200  # a batch has 16 questions
    assert results["examples_per_second"] > 0
    assert not [name for name in results if "tokens" in name]
    assert all(sum(c.probabilities) == pytest.approx(1, abs=1e-5) for c in found)
    with pytest.raises(RegardError, match="question 1: 1 options"):
        model.choose([("a", "b", ["c"])])
    with pytest.raises(RegardError, match=r"choose has no option befor; did you mean before\?"):
        model.choose([("a", "b", ["c", "d"])], befor=3)
    for wrong in ([("a", "b", ["c", None])], [None]):
        with pytest.raises(RegardError, match=r"number 1 is .*, which is not text"):
            model.choose(wrong)
    with pytest.raises(RegardError, match=r"choose takes a list of \w+, not None"):
        model.choose(None)
    with pytest.raises(RegardError, match="choose takes a list of questions, not one string"):
        model.choose("colour")
    for wrong in ("abc", ("a", "b"), ("a", "b", "cd")):
        with pytest.raises(RegardError, match="question 1: not a text, a question and a list of options"):
            model.choose([wrong])


def test_the_command(run: Path) -> None:
    asked = {"context": "w4 w6", "question": "thing", "options": ["hat", "green"]}
    given = "w1 w2 w3\tcolour\tdog\tred\tcat\n\n" + json.dumps(asked) + "\n"
    assert toys.command("choose", run, stdin=given).splitlines() == ["red", "", "hat"]
    assert toys.command("choose", run, stdin="{ w1 w2 w3\tcolour\tdog\tred\n").splitlines() == ["red"]  # no JSON
    lines = toys.command("choose", run, "--json", stdin=given).splitlines()
    first, empty = (json.loads(line) for line in lines[:2])
    assert (first["line"], first["index"], first["option"]) == (1, 1, "red")
    assert (empty["line"], empty["index"], empty["probabilities"]) == (2, -1, [])
    with pytest.raises(RegardError, match="line 2: 1 option; write text TAB question TAB option TAB option, or JSON"):
        toys.command("choose", run, stdin="\na\tb\tc\n")
    with pytest.raises(RegardError, match="line 1: JSON that is cut short; write text TAB question"):
        toys.command("choose", run, stdin=json.dumps(asked)[:-9] + "\n")


def codec(folder: Path, **keys: Any) -> ExampleCodec[Any, Any, Any]:
    write_vocabulary(folder)
    return ExampleCodec(ChooseConfig(**keys), from_bert(folder / "vocab.txt"), [])


def test_every_option_is_a_row_of_its_question(tmp_path: Path) -> None:
    made = codec(tmp_path)
    given = [ChoiceQuestion("x", "a b", "the", ("cat", "dogs", "e"), 2), ChoiceQuestion("y", "c", "", ("f", "g"), 0)]
    batch = made.collate(made.features(given))
    assert batch.groups.tolist() == [[0, 1, 2], [3, 4, -1]]
    assert batch.classes.tolist() == [2, 0]
    assert batch.rows == (0, 1)
    pieces = made.tokenizer.tokens(batch.ids[1, : int(batch.real[1].sum())].tolist())
    assert pieces == ["[CLS]", "a", "b", "[SEP]", "the", "dog", "##s", "[SEP]"]
    assert batch.segments[1, :8].tolist() == [0] * 4 + [1] * 4
    assert batch.to("cpu").pin is not None
    assert isinstance(batch.fixed().groups, torch.Tensor)


def test_of_long_texts_the_end_is_cut_and_counted(tmp_path: Path) -> None:
    made, notes = codec(tmp_path, length=10), Notes()
    (feature,) = made.features([ChoiceQuestion("here", "a b c d e f g", "the", ("cat", "a b c d"), 0)], notes)
    assert [made.tokenizer.decode(row.ids) for row in feature.rows] == ["a b c d e the cat", "a b the a b c d"]
    assert notes.messages() == [
        "texts longer than task.length=10 pieces, cut short: 1 (here)",
        "long texts lost 5 of 7 tokens",
    ]


# --- files -----------------------------------------------------------------------------------------------------------


def read(path: Path, text: str) -> list[ChoiceQuestion]:
    path.write_text(text)
    return list(read_multiple_choice(Corpus(path=str(path))))


def test_dream_and_swag(tmp_path: Path) -> None:
    dream = [[["M: Hi.", "W: Yes?"], [{"question": "Who?", "choice": ["a", "b"], "answer": "b"}], "1-1"]]
    (found,) = read(tmp_path / "a.json", json.dumps(dream))
    assert found == ChoiceQuestion(f"{tmp_path}/a.json, question 1", "M: Hi. W: Yes?", "Who?", ("a", "b"), 1)
    del dream[0][1][0]["choice"]
    with pytest.raises(RegardError, match=r"a\.json: not laid out as DREAM is: there is no choice$"):
        read(tmp_path / "a.json", json.dumps(dream))
    swag = ",video-id,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label,ending-source\n"
    swag += '0,v,"A man, old, sits.",He,gold,stands.,sings.,"eats, fast.",sleeps.,2,gold\n'
    (found,) = read(tmp_path / "b.csv", swag)
    wanted = ("stands.", "sings.", "eats, fast.", "sleeps.")
    assert found == ChoiceQuestion(f"{tmp_path}/b.csv, line 2", "A man, old, sits.", "He", wanted, 2)
    (found,) = read(tmp_path / "c.jsonl", '{"context": "x", "options": ["a", "b"], "answer": "a"}\n')
    assert (found.question, found.answer) == ("", 0)


@pytest.mark.parametrize(
    "row, said",
    [
        ({"context": "x", "options": ["a"], "answer": 0}, "line 1: 1 options; there must be two"),
        ({"context": "x", "options": ["a", "b"], "answer": 2}, "line 1: the answer is none of the 2 options"),
        ({"context": "x", "options": ["a", "b"], "answer": "c"}, "line 1: the answer is none of the 2 options"),
        ({"context": "x", "options": ["a", "b"], "answer": 0.5}, "answer must be the number of an option"),
        ({"context": "x", "options": "ab", "answer": 0}, "line 1: options must be a list, not str"),
        ({"context": "x", "answer": 0}, "line 1: there is no column options"),
    ],
)
def test_bad_files(tmp_path: Path, row: dict[str, Any], said: str) -> None:
    with pytest.raises(RegardError, match=said):
        read(tmp_path / "a.jsonl", json.dumps(row) + "\n")


def test_the_budget_counts_all_rows_of_a_question(tmp_path: Path) -> None:
    rows = [{"context": "a", "options": ["b", "c", "d"], "answer": 0}] * 20
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    loaded = recipes.load_recipe(toys.recipe(tmp_path, {"kind": "choose"}, ("a.jsonl", "a.jsonl")))
    made = loaded.task.prepare(loaded, None, lambda *_: None)
    view = made.view(1, 0)
    assert {len(batch) for batch in view.plan(45, 1, 0)} <= {2, 3}  # a question has 3 rows of 5 places
    assert view.targets(view.plan(45, 1, 0)[0]) in (2, 3)


@pytest.mark.parametrize("long, rows", [("segments", 2), ("extract", 1), ("{kind: truncate, keep: tail}", 1)])
def test_long_texts_in_other_ways(run: Path, long: str, rows: int) -> None:
    model = regard.load(run, "cpu")
    text = "w1 w2.\n\n" * 16 + "w3."
    told: list[str] = []
    (found,) = model.choose([(text, "colour", ["dog", "red"])], told.append, long=long)
    assert sum(found.probabilities) == pytest.approx(1)
    assert found.long.segments == rows
    assert (found.long.dropped > 0) == (rows == 1)
    assert found.json()["long"]["tokens"] == found.long.tokens
    assert "long texts lost " in told[-1]
