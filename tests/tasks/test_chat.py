"""Chat from dialogues to replies: what is read, what is learned, both kinds of model, conversations."""

import gzip
import io
import json
import math
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import regard
from regard import recipe as recipes
from regard.cli.chat import Conversation, terminal_chat
from regard.data.config import Corpus
from regard.data.dialogues import DialogueReader, close_spacing
from regard.decoding import Beam, Greedy, Sample
from regard.errors import RegardError
from regard.evaluation.metrics import distinct
from regard.io.tensors import read_tensors
from regard.nn.record import AttentionRecorder
from regard.predict.chat import ChatPredictor
from regard.predict.continuous import ContinuousStreams
from regard.predict.options import ReplyOptions
from regard.run import train_recipe
from regard.tasks.chat import ChatTask, read_dialogues
from tests.tasks import chat_toy

KINDS = ("transformer", "lm")


def search(talker: ChatPredictor, **options: Any) -> Any:
    return ReplyOptions(**options).decoding_config(talker.recipe.decoding)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("chat")
    chat_toy.write(made)
    return made


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, Path]:
    for kind in KINDS:
        train_recipe(
            recipes.load_recipe(chat_toy.recipe(folder, kind, steps=250, training={"validation": {"every": 50}})),
            folder / kind,
            "cpu",
        )
    return {kind: folder / kind for kind in KINDS}


@pytest.fixture(params=KINDS)
def talker(runs: dict[str, Path], request: pytest.FixtureRequest) -> ChatPredictor:
    return regard.load(runs[request.param], device="cpu")


def prepared(folder: Path, model: str, **keys: Any) -> ChatTask:
    recipe = recipes.load_recipe(chat_toy.recipe(folder, model, **keys))
    return recipe.task.prepare(recipe, None, lambda what, n, of: None)  # type: ignore[return-value]


def batches(task: ChatTask, epoch: int = 0) -> list[Any]:
    view = task.view(1, epoch)
    return [view.collate(rows) for rows in view.plan(256, 1, epoch)]


def labels(task: ChatTask) -> Counter[int]:
    return Counter(token for batch in batches(task) for token in batch.labels.tolist())


# --- files ---------------------------------------------------------------------------------------------------------


def turns(path: Path, counts: Counter[str] | None = None, **how: Any) -> list[list[str]]:
    return [record.fields[0].split("\n") for record in DialogueReader(**how)(Corpus(path=str(path)), counts=counts)]


def test_the_same_dialogues_from_every_form(tmp_path: Path) -> None:
    expected = [["Hi there.", "Hello!"], ["你好", "吃了吗", "吃了"]]
    (tmp_path / "a.txt").write_text(
        "Hi  there. __eou__ Hello! __eou__\n\n你好__eou__吃了吗__eou__吃了\n", encoding="utf-8"
    )
    (tmp_path / "a.tsv").write_text("Hi there.\tHello!\n你好\t吃了吗\t吃了\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("Hi there. | Hello!\n你好|吃了吗|吃了|\n", encoding="utf-8")
    listed = "".join(json.dumps({"turns": row}) + "\n" for row in [["Hi\nthere.", "Hello!"], expected[1]])
    (tmp_path / "a.jsonl").write_text(listed, encoding="utf-8")
    with gzip.open(tmp_path / "a.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(listed)
    for name in ("a.txt", "a.tsv", "a.jsonl", "a.jsonl.gz"):
        assert turns(tmp_path / name) == expected
    assert turns(tmp_path / "b.txt", separator="|") == expected


def test_what_teaches_no_reply_is_counted_and_named(tmp_path: Path) -> None:
    rows = ["a __eou__ b", "alone", "a __eou__ __eou__ b", "also alone __eou__", "c __eou__ d __eou__ e"]
    (tmp_path / "train.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (tmp_path / "valid.txt").write_text("a __eou__ b\n", encoding="utf-8")
    counts: Counter[str] = Counter()
    assert turns(tmp_path / "train.txt", counts) == [["a", "b"], ["c", "d", "e"]]
    assert counts == {
        "dialogues of less than two turns, first line 2, left out": 2,
        "dialogues with an empty turn, first line 3, left out": 1,
    }
    said = prepared(tmp_path, "lm").report()[0]
    assert said.endswith("2 dialogues of less than two turns, first line 2, left out; "
                         "1 dialogues with an empty turn, first line 3, left out")  # fmt: skip
    assert prepared(tmp_path, "lm").report()[0] == said  # from the cache, too


def test_files_that_are_no_dialogues(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a | b\n", encoding="utf-8")
    with pytest.raises(RegardError, match=r"no dialogue of two turns or more; turns are told apart by '__eou__'"):
        turns(tmp_path / "a.txt")
    (tmp_path / "a.jsonl").write_text('{"turns": ["a", "b"]}\n{"turns": "a b"}\n', encoding="utf-8")
    with pytest.raises(RegardError, match=r"line 2: a dialogue is \{\"turns\""):
        turns(tmp_path / "a.jsonl")
    with pytest.raises(RegardError, match="multi30k:train: not a set of dialogues"):
        list(DialogueReader()(Corpus(set="multi30k:train")))


def test_text_with_spaces_is_read_as_people_write() -> None:
    given = "I ’ Ve got it , don ' t worry.He said : 5 % ! Well . . . it's John ' s ( new ) car ?"
    assert close_spacing(given) == "I've got it, don't worry. He said: 5%! Well... it's John's ( new) car?"
    plain = "It's 3.5 o'clock, e.g. now. 'Tis (so)."
    assert close_spacing(plain) == plain


# --- what is learned -----------------------------------------------------------------------------------------------

ONE = ["a b", "c", "d e f"]  # by hand: replies are c </s> d e f </s>, 6 tokens of the 9 that are said


def one(tmp_path: Path, model: str, **keys: Any) -> tuple[ChatTask, Any, dict[str, int]]:
    tmp_path.mkdir(exist_ok=True)
    for name in ("train", "valid"):
        (tmp_path / f"{name}.txt").write_text("__eou__".join(ONE) + "\n", encoding="utf-8")
    task = prepared(tmp_path, model, **keys)
    view = task.view(1, 0)
    t = task.encoder.tokenizer
    ids = {word: t.encode(word)[0] for word in "abcdef"} | {"<s>": t.bos, "</s>": t.eos, ".": t.pad}
    everything = np.arange(len(view.target_lengths))
    assert view.targets(everything) == len(view.collate(everything).labels)
    return task, view.collate(everything), ids


def spelled(ids: dict[str, int], row: torch.Tensor) -> str:
    names = {n: word for word, n in ids.items()}
    return " ".join(names[n] for n in row.tolist())


def test_a_language_model_learns_all_turns_but_the_first(tmp_path: Path) -> None:
    _, batch, ids = one(tmp_path, "lm")
    assert [spelled(ids, row) for row in batch.ids] == ["<s> a b </s> c </s> d e f"]
    assert spelled(ids, batch.labels) == "c </s> d e f </s>"
    assert batch.label_positions.tolist() == [3, 4, 5, 6, 7, 8]
    _, batch, ids = one(tmp_path, "lm", learn="all")
    assert spelled(ids, batch.labels) == "a b </s> c </s> d e f </s>"


def test_sequence_to_sequence_reads_the_turns_before(tmp_path: Path) -> None:
    _, batch, ids = one(tmp_path, "transformer")
    assert [spelled(ids, row) for row in batch.source] == ["a b </s> . .", "a b </s> c </s>"]
    assert spelled(ids, batch.labels) == "c </s> d e f </s>"
    _, batch, ids = one(tmp_path, "transformer", history=1, learn="all")
    assert [spelled(ids, row) for row in batch.source] == ["</s> . .", "a b </s>", "c </s> ."]
    assert spelled(ids, batch.labels) == "a b </s> c </s> d e f </s>"


def test_a_long_history_keeps_its_end(tmp_path: Path) -> None:
    _, batch, ids = one(tmp_path, "transformer", length=4)
    assert [spelled(ids, row) for row in batch.source] == ["a b </s> .", "b </s> c </s>"]
    assert spelled(ids, batch.labels) == "c </s> d e f </s>"
    task, batch, ids = one(tmp_path / "more", "lm", length=4)  # windows of 4, on by 2
    windows = [spelled(ids, row) for row in batch.ids]
    assert windows == ["<s> a b </s>", "b </s> c </s>", "c </s> d e", "</s> d e f"]
    assert sorted(batch.labels.tolist()) == sorted(ids[w] for w in ["c", "d", "e", "f", "</s>", "</s>"])
    talker = task.predictor(task.build_model())
    for model, expected in (("lm", "c </s>"), ("transformer", "b </s> c")):
        task, _, ids = one(tmp_path, model, length=4)
        prompt, limit = task.predictor(talker.model).encode_history(["a b", "c"], Greedy())
        assert (spelled(ids, torch.tensor(prompt)), limit) == (expected, 2 if model == "lm" else 3)


def test_both_kinds_of_model_learn_the_same(folder: Path) -> None:
    sets = [labels(prepared(folder, model)) for model in KINDS]
    assert sets[0] == sets[1]
    rows = read_dialogues(prepared(folder, "lm").settings, [Corpus(path=str(folder / "train.txt"))])
    assert sum(sets[0].values()) == sum(len(turn.split()) + 1 for row in rows for turn in row[1:])
    assert labels(prepared(folder, "lm", length=7)) == sets[0]  # in many windows, every token still once
    everything = [labels(prepared(folder, model, learn="all")) for model in KINDS]
    assert everything[0] == everything[1]
    assert sum(everything[0].values()) == sum(len(turn.split()) + 1 for row in rows for turn in row)


def test_turns_that_are_too_long_are_told(folder: Path) -> None:
    assert "turns longer than task.length=4 are no replies to learn" in " ".join(
        prepared(folder, "transformer", length=4).report()
    )


@pytest.mark.parametrize("model", KINDS)
def test_the_loss_is_that_of_replies_given_what_came_before(tmp_path: Path, model: str) -> None:
    """Token by token with the step contract, which knows no labels and no masks."""
    task, batch, ids = one(tmp_path, model)
    network: Any = task.build_model().eval()
    found = task.loss(network, batch, None)[0].item()
    talker, expected = task.predictor(network), 0.0
    for n in range(1, len(ONE)):
        prompt, _ = talker.encode_history(ONE[:n], Greedy(max_ratio=0.0, max_extra=10))
        read = talker.form.collate_prompts([prompt])
        state, last = network.start(read, 10), read.first_tokens(ids["<s>"])
        for word in [*ONE[n].split(), "</s>"]:
            logits, state = network.step(last, state)
            last = torch.tensor([[ids[word]]])
            expected += F.cross_entropy(logits[:, -1], last[0]).item()
    assert found == pytest.approx(expected, rel=1e-5)
    nll, count = talker.negative_log_likelihood([ONE])
    assert (nll, count) == (pytest.approx(expected, rel=1e-5), 6)
    measured = task.validate(network, torch.device("cpu"))
    assert measured["perplexity"] == pytest.approx(math.exp(expected / 6), rel=1e-5)


def test_corpora_have_weights(folder: Path) -> None:
    given = chat_toy.recipe(folder, "transformer")
    given["data"]["train"] = [{"path": given["data"]["train"], "weight": 2.5}]
    recipe = recipes.load_recipe(given)
    task: Any = recipe.task.prepare(recipe, None, lambda what, n, of: None)
    single, seen = prepared(folder, "transformer"), Counter(task.view(1, 0).rows.tolist())
    assert set(seen.values()) == {2, 3}
    assert set(seen) == set(range(len(single.view(1, 0).rows)))


@pytest.mark.parametrize("model", KINDS)
def test_a_resumed_run_ends_with_the_same_weights(folder: Path, tmp_path: Path, model: str) -> None:
    recipe = recipes.load_recipe(chat_toy.recipe(folder, model, steps=12))
    train_recipe(recipe, tmp_path / "one", "cpu")
    stopped = train_recipe(recipe, tmp_path / "two", "cpu", minutes=1e-9)
    assert not stopped.finished
    assert train_recipe(recipe, tmp_path / "two", "cpu").finished
    one, two = (read_tensors(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert all(torch.equal(one[name], two[name]) for name in one)


# --- recipes -------------------------------------------------------------------------------------------------------


def test_what_does_not_go_together_is_refused(folder: Path) -> None:
    for model, keys, said in (
        ("lm", {"history": 2}, "task.history: a language model reads all turns that fit in task.length"),
        ("transformer", {"history": 0}, "history must be at least 1, not 0"),
        ("lm", {"length": 3}, "length must be at least 4"),
        ("lm", {"separator": " "}, "separator must be more than spaces"),
        ("lm", {"text": {"kind": "bpe", "dropout": 0.1}}, "text.dropout draws pieces anew"),
        ("lm", {"training": {"goal": "bleu"}}, "needs training.validation.decode: true"),
        ("lm", {"position": {"kind": "learned", "length": 8}}, "model.position"),
    ):
        with pytest.raises(RegardError, match=said):
            recipes.load_recipe(chat_toy.recipe(folder, model, **keys))


# --- replies -------------------------------------------------------------------------------------------------------


def test_it_learns_to_reply(talker: ChatPredictor) -> None:
    for word in ("tea", "snow"):
        assert talker.reply([f"do you like {word}"], greedy=True) == f"yes I like {word}"
    told = ["do you like tea", "yes I like tea", "will you have tea now"]
    assert talker.reply(told, beam=3) == "no tea later"
    results = json.loads((talker.run / "results.json").read_text())["valid"]["metrics"]
    assert results["perplexity"]["value"] < 1.1  # after the first turn nothing is left to chance
    assert {"loss", "bleu", "distinct_1", "distinct_2"} <= set(results)
    assert results["bleu"]["signature"].startswith("nrefs:1|case:mixed")


def test_a_stream_says_what_reply_says(talker: ChatPredictor) -> None:
    history = ["do you like tea", "yes I like tea"]
    for options in ({}, {"temperature": 2.0}, {"repetition_penalty": 2.0, "top_k": 9}, {"greedy": True}, {"beam": 2}):
        pieces = list(talker.stream(history, seed=3, **options) if not {"greedy", "beam"} & set(options)
                      else talker.stream(history, **options))  # fmt: skip
        again = {} if {"greedy", "beam"} & set(options) else {"seed": 3}
        assert "".join(pieces).strip() == talker.reply(history, **again, **options)
    assert len(list(talker.stream(history, greedy=True))) > 2


@pytest.mark.parametrize("options", [{}, {"search": "speculative"}], ids=["token by token", "by guessing"])
def test_replies_that_join_each_other(talker: ChatPredictor, options: dict[str, Any]) -> None:
    """Of one search and other seeds, a few steps apart, in two slots."""
    histories = [["do you like tea"], ["snow"], ["do you like tea", "yes I like tea", "will you have tea now"]] * 2
    streams, texts = ContinuousStreams(talker, slots=2), [""] * len(histories)
    for n, history in enumerate(histories):
        streams.add(n, talker.stream_request(history, search(talker, seed=n, **options)))
        for delta in streams.step():
            texts[delta.sample] += delta.text
    assert len(streams.batches) == 1
    while streams.busy:
        for delta in streams.step():
            texts[delta.sample] += delta.text
    assert [text.strip() for text in texts] == [talker.reply(h, seed=n, **options) for n, h in enumerate(histories)]


def test_draws_depend_on_the_seed_and_the_turn_alone(talker: ChatPredictor) -> None:
    hot: dict[str, Any] = {"temperature": 50.0, "max_tokens": 8}
    said = {talker.reply(["do you like tea"], seed=seed, **hot) for seed in range(4)}
    assert len(said) == 4
    assert talker.reply(["do you like tea"], seed=2, **hot) in said
    histories = [["do you like tea"] * n for n in (1, 2, 3)]
    alone = [talker.reply(history, seed=1, **hot) for history in histories]
    assert len(set(alone)) == 3  # a conversation does not throw the same dice at every turn
    together = talker.replies(histories, search(talker, seed=1, **hot), keys=[1, 2, 3])
    assert [reply.text for reply in together] == alone


def test_options_of_a_reply(talker: ChatPredictor) -> None:
    assert isinstance(search(talker), Sample)
    assert search(talker, greedy=True) == Greedy(max_ratio=0.0, max_extra=12)
    assert search(talker, beam=4, max_tokens=7) == Beam(size=4, max_ratio=0.0, max_extra=7)
    assert search(talker, top_p=0.5).repetition_penalty == 1.1  # what the task says where the recipe does not
    assert len(talker.reply(["do you like tea"], greedy=True, max_tokens=2).split()) == 2
    for options, said in (
        ({"greedy": True, "top_k": 3}, "top_k is about drawing words"),
        ({"temperature": -1.0}, "temperature must be 0 or more"),
        ({"temperature": float("inf")}, "temperature must be 0 or more, and less than a million, not inf"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"temprature": 1.0}, r"reply has no option temprature; did you mean temperature\?"),
    ):
        with pytest.raises(RegardError, match=said):
            talker.reply(["do you like tea"], **options)
    with pytest.raises(RegardError, match="a list of turns, not one string"):
        talker.reply("do you like tea")
    with pytest.raises(RegardError, match="reply takes a list of turns; number 2 is None, which is not text"):
        list(talker.stream(["tea", None]))


def test_an_empty_history(talker: ChatPredictor, folder: Path) -> None:
    for history in ([], ["", "  "]):
        with pytest.raises(RegardError, match="has learned to reply, not to begin"):
            talker.reply(history)
    for model in KINDS:
        task = prepared(folder, model, learn="all")
        opener = task.predictor(task.build_model())
        assert isinstance(opener.reply([], max_tokens=3, seed=1), str)
        assert "".join(opener.stream([], greedy=True, max_tokens=3)).strip() == opener.reply(
            [], greedy=True, max_tokens=3
        )


LEARNED = {"kind": "learned", "length": 24}


@pytest.mark.parametrize(
    "model, position", [*((kind, p) for kind in KINDS for p in ("rotary", LEARNED)), ("rnn", None)]
)
def test_any_history_fits(folder: Path, model: str, position: Any) -> None:
    """Replies as long as they may be, to histories of every length at once; positions that end where the task does."""
    task = prepared(folder, model, position=position)
    talker = task.predictor(task.build_model())
    histories = [["do you like tea and music"] * n for n in (1, 2, 9, 30)]
    found = talker.replies(histories, search(talker, temperature=30.0, max_tokens=500))
    assert all(len(reply.tokens) <= 23 for reply in found)
    for n, history in enumerate(histories):
        alone = talker.replies([history], search(talker, temperature=30.0, max_tokens=500), keys=[n])[0]
        assert alone.text == found[n].text


def test_chinese(tmp_path: Path) -> None:
    rows = [["你喜欢茶吗？", "我喜欢茶。"], ["你喜欢雨吗？", "我喜欢雨。", "真的吗？", "真的。"]] * 20
    for name in ("train", "valid"):
        listed = "".join(json.dumps({"turns": row}, ensure_ascii=False) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(listed, encoding="utf-8")
    for model in KINDS:
        given = chat_toy.recipe(
            tmp_path, model, steps=100, language="zh", text={"kind": "byte_bpe", "size": 290}, length=96
        )
        given["data"] |= {name: str(tmp_path / f"{name}.jsonl") for name in ("train", "valid")}
        train_recipe(recipes.load_recipe(given), tmp_path / model, "cpu")
        talker = regard.load(tmp_path / model, device="cpu")
        assert talker.reply(["你喜欢雨吗？"], greedy=True, max_tokens=40) == "我喜欢雨。"
        assert "".join(talker.stream(["你喜欢茶吗？"], greedy=True, max_tokens=40)) == "我喜欢茶。"
        results = json.loads((tmp_path / model / "results.json").read_text())["valid"]["metrics"]
        assert "tok:zh" in results["bleu"]["signature"]
        assert results["distinct_2"]["signature"].endswith("tok:zh")


def test_distinct_by_hand() -> None:
    found = distinct(["a b a", "a b", ""], "en")
    assert found["distinct_1"].value == pytest.approx(100 * 2 / 5)
    assert found["distinct_2"].value == pytest.approx(100 * 2 / 3, abs=1e-3)  # a b, b a, a b
    assert distinct([], "en")["distinct_1"].value == 0.0
    assert distinct(["我爱我"], "zh")["distinct_1"].value == pytest.approx(200 / 3, abs=1e-3)


# --- looking and talking -------------------------------------------------------------------------------------------


def test_what_a_reply_looked_at(talker: ChatPredictor) -> None:
    """Beside the weights of the whole dialogue read at once."""
    history, reply = ["do you like tea", "yes I like tea", "will you have tea now"], "no tea later"
    before, said, weights = talker.attention(history, reply)
    assert said == reply.split()
    assert [piece for piece in before if not piece.startswith("<")] == " ".join(history).split()
    examples = talker.form.examples(talker.dialogue_encoder.encode_rows(["\n".join([*history, reply])]))
    last: Any = talker.form.view(examples, np.arange(len(examples.row))).collate(np.array([len(examples.row) - 1]))
    record = AttentionRecorder(("cross", "decoder"))
    talker.model(last, record)
    (layer,) = record.layers("cross") or record.layers("decoder")
    expected = layer[0].mean(0)[-4:-1, : len(before)].detach()  # what says no, tea, later
    words = torch.tensor([not piece.startswith("<") for piece in before])
    expected = expected * words / (expected * words).sum(-1, keepdim=True)
    assert torch.allclose(weights, expected, atol=1e-5)


@pytest.fixture
def talk(talker: ChatPredictor) -> Conversation:
    return Conversation(talker, search(talker, greedy=True))


def told(talk: Conversation, line: str) -> str:
    out = io.StringIO()
    talk.command(line, out) if line.startswith("/") else talk.stream_reply(line, out)
    return out.getvalue()


def test_a_conversation_and_its_commands(talk: Conversation, tmp_path: Path) -> None:
    assert told(talk, "do you like tea") == "yes I like tea\n"
    assert talk.reply("will you have tea now") | {"log_probability": 0} == {
        "turn": 2, "text": "will you have tea now", "reply": "no tea later", "log_probability": 0, "tokens": 3,
    }  # fmt: skip
    assert len(talk.turns) == 4
    looked = told(talk, "/look").splitlines()
    assert [line.split()[1] for line in looked[3:-1]] == ["no", "tea", "later"]
    assert all(line.count("%") == 3 for line in looked[3:-1])
    assert told(talk, "/undo") == "Taken back: will you have tea now\n"
    assert talk.turns == ["do you like tea", "yes I like tea"]
    for _ in range(2):
        told(talk, f"/save {tmp_path / 'said.jsonl'}")
    assert turns(tmp_path / "said.jsonl") == [talk.turns, talk.turns]
    told(talk, f"/save {tmp_path / 'said.txt'}")
    assert (tmp_path / "said.txt").read_text() == "> do you like tea\nyes I like tea\n"
    told(talk, "/reset")
    assert talk.turns == []
    assert all(name in told(talk, "/help") for name in talk.commands)


def test_mistakes_in_a_conversation_are_sentences(talk: Conversation, tmp_path: Path) -> None:
    for line, said in (
        ("/undo", "nothing was said yet"),
        ("/look", "nothing was said yet"),
        ("/save", "/save needs the name of a file"),
        ("/quit", "there is no /quit; there are /reset, /undo"),
        (f"/save {tmp_path / 'no' / 'such'}", "cannot be written"),
    ):
        with pytest.raises(RegardError, match=said):
            told(talk, line)


def test_half_a_character_is_told_and_the_conversation_goes_on(
    talk: Conversation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    lines = iter(["do you like tea", "bad \udcff\udcfe byte", "do you like tea"])

    def typed(prompt: str) -> str:
        for line in lines:
            return line
        raise EOFError

    monkeypatch.setattr("builtins.input", typed)
    terminal_chat(talk, io.StringIO(), as_json=False)
    assert talk.turns[::2] == ["do you like tea"] * 2
    assert len(talk.turns) == 4
    assert "'bad ?? byte' holds half a character" in capsys.readouterr().err


def test_an_interrupt_stops_a_reply_and_keeps_what_was_said(
    talk: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(pieces: list[str]) -> Any:
        def stream(history: list[str], **options: Any) -> Iterator[str]:
            yield from pieces
            raise KeyboardInterrupt

        return stream

    monkeypatch.setattr(talk.predictor, "stream", interrupted([" yes", " I"]))
    assert told(talk, "do you like tea") == "yes I\n"
    assert talk.turns == ["do you like tea", "yes I"]
    monkeypatch.setattr(talk.predictor, "stream", interrupted([]))
    assert told(talk, "do you like rain") == "\n"
    assert talk.turns == ["do you like tea", "yes I"]


def test_spans_of_random_dialogues(folder: Path) -> None:
    """Every pair of history and reply, made by hand from the turns."""
    draw = random.Random(5)
    rows = [[" ".join(draw.choices(chat_toy.WORDS, k=draw.randint(1, 5))) for _ in range(draw.randint(2, 6))]
            for _ in range(20)]  # fmt: skip
    task = prepared(folder, "transformer", history=2, length=9)
    t, form = task.encoder.tokenizer, task.form
    examples = form.examples(task.encoder.encode_rows(["\n".join(row) for row in rows]))
    view = form.view(examples, np.arange(len(examples.row)))
    expected = []
    for row in rows:
        for n in range(1, len(row)):
            ids = [token for turn in row[max(0, n - 2) : n] for token in [*t.encode(turn), t.eos]]
            expected.append((ids[-9:], t.encode(row[n])))
    assert len(expected) == len(examples.row)
    for n, (source, target) in enumerate(expected):
        batch: Any = view.collate(np.array([n]))
        assert batch.source[0].tolist() == source
        assert batch.labels.tolist() == [*target, t.eos]
