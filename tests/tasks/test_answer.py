"""Answers are parts of the text, to the letter, however long it is; what is wrong with a file is counted and listed."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard import recipe as recipes
from regard.data.config import Corpus
from regard.data.questions import AnswerSpan, Question, read_questions
from regard.errors import RegardError
from regard.examples.codec import ExampleCodec, Notes
from regard.examples.long_text import Extract
from regard.tasks.answer import AnswerConfig, encode_with_offsets
from regard.tasks.finetuning import FinetuningTask
from regard.text import from_bert
from regard.text.passages import passage_spans
from tests.parity.test_heads import write_vocabulary
from tests.tasks import toys

COLOURS, THINGS = ("red", "blue", "green", "black"), ("cat", "dog", "hat", "cup", "car")
TASK = {"kind": "answer", "length": 40, "question": 8, "overlap": 12, "longest": 4}


def paragraph(draw: random.Random) -> tuple[str, str, str]:
    """Which question, a text that answers two, and the answer."""
    fill = [" ".join(f"w{draw.randint(0, 6)}" for _ in range(draw.randint(0, 2))) for _ in range(3)]
    words = {"thing": draw.choice(THINGS), "colour": draw.choice(COLOURS)}
    order = draw.sample(list(words), 2)
    asked = draw.choice(order)
    return asked, f"{fill[0]} {words[order[0]]}. {fill[1]} {words[order[1]]}. {fill[2]}", words[asked]


def squad(contexts: list[tuple[str, list[dict[str, Any]]]]) -> str:
    paragraphs = [{"context": context, "qas": asked} for context, asked in contexts]
    return json.dumps({"version": "1.1", "data": [{"title": "toy", "paragraphs": paragraphs}]})


def asked(name: str, question: str, context: str, answer: str, start: int | None = None) -> dict[str, Any]:
    start = context.index(f" {answer}.") + 1 if start is None else start
    return {"id": name, "question": question, "answers": [{"text": answer, "answer_start": start}]}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, draw = tmp_path_factory.mktemp("answer"), random.Random(0)
    for name, count in (("train.json", 600), ("valid.json", 40)):
        made = []
        for n in range(count):
            what, context, answer = paragraph(draw)
            made.append((context, [asked(str(n), f"{what} {what} {what}", context, answer)]))
        (folder / name).write_text(squad(made))
    made_recipe = toys.recipe(folder, TASK, ("train.json", "valid.json"), steps=300)
    outcome = toys.trained(made_recipe, folder / "run")
    assert toys.value(outcome, "exact_match") > 90
    assert toys.value(outcome, "f1") > 90
    return folder / "run"


def test_it_learns_and_is_used(run: Path) -> None:
    model = regard.load(run, "cpu")
    context = "w1\tw2  cat w3 \n blue. w4"
    asked = [("colour colour colour", context), ("", context), ("thing thing thing", context), ("which", " ")]
    found, empty, thing, none = model.answer(asked)
    assert (found.text, context[found.start : found.end], thing.text) == ("blue", "blue", "cat")
    assert 0.3 < found.probability <= 1
    assert (empty.text, none.text) == ("", "")
    with pytest.raises(RegardError, match=r"answer has no option befor; did you mean before\?"):
        model.answer([("w1", "w2")], befor=3)
    for wrong in ([("w1", None)], [None]):
        with pytest.raises(RegardError, match=r"number 1 is .*, which is not text"):
            model.answer(wrong)
    with pytest.raises(RegardError, match=r"answer takes a list of \w+, not None"):
        model.answer(None)
    with pytest.raises(RegardError, match=r"answer takes a list of pairs, not one string; write answer"):
        model.answer("colour")
    for wrong in ("ab", ("which",)):
        with pytest.raises(RegardError, match="question 1: not a pair of a question and a text"):
            model.answer([wrong])


def test_longer_windows_of_a_trained_body(run: Path) -> None:
    """64 positions become 128, under BigBird; a text of two windows is one, and only the head has to learn."""
    made = toys.recipe(run.parent, TASK | {"length": 120, "frozen": True}, ("train.json", "valid.json"), steps=40)
    del made["text"]
    made["training"] |= {"init": str(run), "schedule": {"kind": "constant", "peak": 0.02}}
    made["model"] = {"position": {"length": 128}, "attention": {"pattern": "bigbird(8, global=1, random=1)"}}
    assert toys.value(toys.trained(made, run.parent / "longer"), "f1") > 80
    context = " ".join(["w1 w2"] * 20) + " blue. w4"
    (found,) = regard.load(run.parent / "longer", "cpu").answer([("colour colour colour", context)])
    assert context[found.start : found.end] == found.text


def test_the_command(run: Path) -> None:
    question, context = "colour colour colour", "w1 w2 hat. green. w3"
    given = f"{question}\t{context}\n\n" + json.dumps({"question": question, "context": context}) + "\n"
    assert toys.command("answer", run, stdin=given) == "green\n\ngreen\n"
    found = json.loads(toys.command("answer", run, "--json", stdin=given).splitlines()[2])
    assert (found["line"], found["answer"], found["start"], found["end"]) == (3, "green", 11, 16)
    with pytest.raises(RegardError, match="line 1: 1 column; write question TAB text, or JSON"):
        toys.command("answer", run, stdin="what?\n")


# --- windows ---------------------------------------------------------------------------------------------------------


def codec(folder: Path, **keys: Any) -> ExampleCodec[Any, Any, Any]:
    write_vocabulary(folder)
    return ExampleCodec(AnswerConfig(**keys), from_bert(folder / "vocab.txt"), [])


def question(context: str, *answers: tuple[int, str], known: bool = True) -> Question:
    return Question("here", "the cat ?", context, tuple(AnswerSpan(*a) for a in answers), known)


def test_pieces_keep_their_characters(tmp_path: Path) -> None:
    bert = codec(tmp_path).tokenizer
    words = regard.text.train_tokenizer(regard.text.Word(), ["the cat dogs ab"])
    text = "The CÄTS,  dogs\u200b ab\n(the)"
    for tokenizer in (bert, words):
        (found,) = encode_with_offsets(tokenizer, [text])
        assert len(found.ids) == len(found.spans)
        covered = "".join(text[a:b] for a, b in found.spans)
        assert covered.replace("\u200b", "") == "".join(text.split()).replace("\u200b", "")
    transformers = pytest.importorskip("transformers")
    theirs = transformers.BertTokenizerFast(vocab=str(tmp_path / "vocab.txt"))
    wanted = theirs(text, add_special_tokens=False, return_offsets_mapping=True)
    (found,) = encode_with_offsets(bert, [text])
    assert (found.ids, found.spans) == (wanted["input_ids"], wanted["offset_mapping"])


def test_windows_are_those_of_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    made = codec(tmp_path, length=16, question=4, overlap=3)
    theirs = transformers.BertTokenizerFast(vocab=str(tmp_path / "vocab.txt"))
    for words in (1, 9, 10, 17, 31):
        context = " ".join("abcdefg"[n % 7] for n in range(words))
        features = made.features([question(context, known=False)])
        wanted = theirs("the cat ?", context, truncation="only_second", max_length=16, stride=3,
                        return_overflowing_tokens=True)  # fmt: skip
        assert [feature.rows[0].ids for feature in features] == wanted["input_ids"]
        assert [feature.rows[0].segments for feature in features] == wanted["token_type_ids"]


def test_targets_are_where_the_answer_is_or_the_first_place(tmp_path: Path) -> None:
    made = codec(tmp_path, length=16, question=4, overlap=3)
    context = "a b c d e f g a b the dogs e f g"
    features = made.features([question(context, (22, "dogs e"))])
    found = [tuple(feature.target) for feature in features]
    assert found[0] == (0, 0)  # the first window ends before it
    begin, end = found[1]
    spans = features[1].window.spans
    covered = context[spans[begin - features[1].window.place][0] : spans[end - features[1].window.place][1]]
    assert covered == "dogs e"
    assert made.collate(features).classes.tolist() == [list(target) for target in found]


def test_the_best_span_of_all_windows_is_the_answer(tmp_path: Path) -> None:
    made = codec(tmp_path, length=16, question=4, overlap=3, longest=3)
    context = "a b c d e f g a b c d e f g a b"
    example = question(context, known=False)
    features = made.features([example])
    place = features[0].window.place
    scores = [np.zeros((16, 2)) for _ in features]
    scores[0][place + 1, 0], scores[0][place + 2, 1] = 5, 4  # "b c": 9
    scores[1][place + 3, 0], scores[1][place + 4, 1] = 6, 6  # 12
    scores[1][place + 1, 1] = 50  # an end before any likely begin
    scores[0][1, 0] = scores[0][1, 1] = 99  # in the question: never
    scores[0][0, 0] = 99  # [CLS] begins nothing
    best = made.settings.merge(example, features, scores, made)
    assert (best.score, best.end) == (50, features[1].window.spans[1][1])  # with a begin that nothing speaks for
    scores[1][place + 1, 1] = 0
    best = made.settings.merge(example, features, scores, made)
    first, last = features[1].window.spans[3], features[1].window.spans[4]
    assert (best.text, best.start, best.end, best.score) == (context[first[0] : last[1]], first[0], last[1], 12)
    assert 0.9 < best.probability < 1


def test_an_answer_is_no_longer_than_allowed(tmp_path: Path) -> None:
    for longest, wanted in ((3, "a"), (4, "a b c d")):
        made = codec(tmp_path, length=16, question=4, overlap=3, longest=longest)
        example = question("a b c d e", known=False)
        features = made.features([example])
        scores = np.zeros((16, 2))
        scores[features[0].window.place, 0], scores[features[0].window.place + 3, 1] = 5, 5
        found = made.settings.merge(example, features, [scores], made).text
        assert (found == wanted) if longest == 4 else len(found.split()) <= 3


def test_nothing_is_said_where_that_is_likelier(tmp_path: Path) -> None:
    made = codec(tmp_path, length=16, question=4, overlap=3, empty=True)
    example = question("a b c d e f g a b c d e f g", known=False)
    features = made.features([example])
    scores = [np.zeros((16, 2)) for _ in features]
    assert len(features) == 2
    for own in scores:
        own[0] = 3  # each window is sure that it has none
    assert made.settings.merge(example, features, scores, made).text == ""
    scores[1][0] = -3  # one is not
    assert made.settings.merge(example, features, scores, made).text != ""


# --- files -----------------------------------------------------------------------------------------------------------


def task(folder: Path, **keys: Any) -> FinetuningTask:
    made = recipes.load_recipe(toys.recipe(folder, TASK | keys, ("a.json", "a.json")))
    return made.task.prepare(made, None, lambda *_: None)  # type: ignore[return-value]


def write(folder: Path) -> None:
    context = "The cat is red. The dog is blue."
    impossible = {**asked("none", "why?", context, "red"), "is_impossible": True}
    made = [asked("good", "q?", context, "red"), asked("bad", "q?", context, "blue", 3), impossible]
    (folder / "a.json").write_text(squad([(context, made)]))


def test_misplaced_and_missing_answers_are_counted_and_listed(tmp_path: Path) -> None:
    write(tmp_path)
    where = f"{tmp_path}/a.json, question"
    said = task(tmp_path).report()
    assert said[0] == "3 examples in 1 rows"
    dropped = f"questions without an answer where answer_start says, dropped: 1 ({where} bad)"
    assert [sentence for sentence in said if "bad" in sentence and "validation" not in sentence] == [dropped]
    assert f"questions without an answer, dropped (task.empty: true learns from them): 1 ({where} none)" in said
    with_none = task(tmp_path, empty=True)
    assert [feature.target for feature in with_none.features][1] == (0, 0)
    assert len(with_none.features) == 2


def test_a_misplaced_answer_leaves_the_loss_of_the_others(tmp_path: Path) -> None:
    context = "The cat is red. The dog is blue."
    good, bad = asked("good", "q?", context, "red"), asked("bad", "q?", context, "blue", 3)
    (tmp_path / "train.json").write_text(squad([(context, [good])]))
    found = []
    for name, given in (("good", [good]), ("both", [bad, good]), ("bad", [bad])):
        (tmp_path / f"{name}.json").write_text(squad([(context, given)]))
        made = recipes.load_recipe(toys.recipe(tmp_path, TASK, ("train.json", f"{name}.json")))
        prepared: Any = made.task.prepare(made, None, lambda *_: None)
        torch.manual_seed(0)
        model = prepared.build_model()
        found.append(prepared.validate(model, torch.device("cpu")).get("loss"))
        told = prepared.evaluate(model)["metrics"].get("loss")
        assert (told and told["value"]) == found[-1]
    assert found[0] > 0
    assert found == [pytest.approx(found[0]), pytest.approx(found[0]), None]  # nothing measured is not a loss of 0


def test_other_layouts(tmp_path: Path) -> None:
    rows = [
        {"question": "q", "context": "a b", "answers": {"text": ["b"], "answer_start": [2]}},
        {"question": "q", "context": "a b", "answers": [{"text": "a", "answer_start": 0}]},
        {"question": "q", "context": "a b"},
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = list(read_questions(Corpus(path=str(path))))
    assert [q.answers for q in found] == [(AnswerSpan(2, "b"),), (AnswerSpan(0, "a"),), ()]
    path.write_text('{"question": "q", "context": "a b", "answers": ["b"]}\n')
    with pytest.raises(RegardError, match=r"a\.jsonl, line 1: answers must be \[\{\"text\""):
        list(read_questions(Corpus(path=str(path))))
    (tmp_path / "b.json").write_text('{"data": [{"title": "x"}]}')
    with pytest.raises(RegardError, match=r"b\.json: not laid out as SQuAD is: there is no paragraphs$"):
        list(read_questions(Corpus(path=str(tmp_path / "b.json"))))
    (tmp_path / "b.json").write_text("[]")
    with pytest.raises(RegardError, match=r"b\.json: not laid out as SQuAD is: lists and objects stand elsewhere$"):
        list(read_questions(Corpus(path=str(tmp_path / "b.json"))))


def test_long_questions_are_cut_and_counted(tmp_path: Path) -> None:
    made, notes = codec(tmp_path, length=16, question=4, overlap=3), Notes()
    long = question("a b", known=False)._replace(question="a b c d e f")
    (feature,) = made.features([long], notes)
    assert feature.window.place == 6
    assert notes.messages() == ["questions longer than task.question=4 pieces, cut: 1 (here)"]
    with pytest.raises(ValueError, match="overlap must be from 0 to less than length - 3 - question, which is 9"):
        AnswerConfig(length=16, question=4, overlap=9)
    with pytest.raises(ValueError, match=r"length must be at least question \+ 4, which is 68, not 64"):
        AnswerConfig(length=64)


def test_answers_in_other_places_are_counted_and_named(tmp_path: Path) -> None:
    rows = [{"question": "q", "context": "a b c", "answers": [{"text": "b", "answer_start": n % 2}]} for n in range(50)]
    rows[3]["answers"].append({"text": "c", "answer_start": 4})
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found, made = list(read_questions(Corpus(path=str(path)))), codec(tmp_path, length=16, question=4, overlap=3)
    learned, measured = Notes(), Notes()
    assert len(made.features(found, learned, training=True)) == 1
    heading = "questions without an answer where answer_start says, dropped"
    numbers = [n for n in range(1, 51) if n != 4]
    shown = ", ".join(map(str, numbers[:20]))
    assert learned.messages()[0] == f"{heading}: 49 ({path}, line {shown}; and 29 more)"
    other = "questions with answers that do not stand where answer_start says"
    assert learned.messages()[1] == f"{other}: 1 ({path}, line 4)"
    made.features(found[:3], measured)
    assert measured.messages() == [f"{other}: 3 ({path}, line 1, 2, 3)"]


# --- long texts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("long", ["segments", "truncate", "{kind: truncate, keep: both}", "extract"])
def test_answers_of_every_way_stand_where_they_say(run: Path, long: str) -> None:
    """Offsets are of the whole text, found again by a search in it, and no answer spans what was left out."""
    model, draw = regard.load(run, "cpu"), random.Random(4)
    texts = [" ".join(paragraph(draw)[1] for _ in range(12)) for _ in range(4)]
    told: list[str] = []
    found = model.answer([("colour colour colour", text) for text in texts], told.append, long=long)
    for text, answer in zip(texts, found, strict=True):
        assert text[answer.start : answer.end] == answer.text
        assert answer.start in [n for n in range(len(text)) if text.startswith(answer.text, n)]
        assert answer.long.kind in long
        assert (answer.long.dropped > 0) == (long != "segments")
    assert "long texts lost " in told[-1]
    with pytest.raises(RegardError, match="learned positions end at 64; shorten it"):
        model.answer([("colour", texts[0])], long="none")


def test_the_passage_with_the_words_of_the_question_is_kept(tmp_path: Path) -> None:
    made = codec(tmp_path, length=20, question=4, overlap=3, long=Extract())
    context = "A b c d e f g! A b c! The cat dogs ab! C d e f g! A b!"
    (feature,) = made.features([question(context, (context.index("ab!"), "ab"))])
    kept = made.tokenizer.decode(feature.rows[0].ids)
    assert "the cat dogs ab" in kept
    assert feature.window.long.kept
    first, last = feature.target
    spans = [feature.window.spans[n - feature.window.place] for n in (first, last)]
    assert context[spans[0][0] : spans[1][1]] == "ab"
    dropped = next(n for n in range(1, 6) if n not in feature.window.long.kept)
    end = passage_spans(context)[dropped - 1][1] - 1
    (other,) = made.features([question(context, (end - 1, context[end - 1 : end]))])
    assert other.target == (0, 0)  # what was left out is no answer to learn
