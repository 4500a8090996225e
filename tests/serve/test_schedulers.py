"""Schedulers: what waits together is computed together, an error stays with its request, streams take turns."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import regard
from regard.errors import RegardError
from regard.predict.translation import Translator
from regard.serve.batch_scheduler import BatchScheduler
from regard.serve.scheduler import Scheduler, WorkRequest
from regard.serve.schedulers import build_schedulers, capabilities
from regard.serve.stream_scheduler import StreamScheduler
from regard.serve.translation_scheduler import TranslationScheduler


class Ear(list[dict[str, Any]]):
    """What was said."""

    def __call__(self, **message: Any) -> None:
        self.append(message)

    def of(self, id: int) -> list[dict[str, Any]]:
        return [message for message in self if message["id"] == id]


def finish(scheduler: Scheduler) -> None:
    for _ in range(10_000):
        if not scheduler.busy:
            return
        scheduler.step()
    raise AssertionError("it does not end")


def upper(made: Any, items: list[str], options: dict[str, Any]) -> list[str]:
    made.calls.append(list(items))
    if "bad" in items:
        raise RegardError("bad cannot be done")
    if "worse" in items:
        raise KeyError("a secret of the machine")
    return [item.upper() for item in items]


def test_equal_requests_are_computed_together() -> None:
    made, ear = SimpleNamespace(calls=[]), Ear()
    scheduler = BatchScheduler(made, ear, {"up": upper})
    for id, (items, options) in enumerate([(["a", "b"], {}), (["c"], {"top": 2}), (["d"], {})]):
        scheduler.add(WorkRequest(id, "up", items, options))
    finish(scheduler)
    assert made.calls == [["a", "b", "d"], ["c"]]
    assert [ear.of(id)[0]["results"] for id in range(3)] == [["A", "B"], ["C"], ["D"]]


def test_one_bad_request_fails_alone(capsys: pytest.CaptureFixture[str]) -> None:
    made, ear = SimpleNamespace(calls=[]), Ear()
    scheduler = BatchScheduler(made, ear, {"up": upper})
    for id, item in enumerate(["a", "bad", "b", "worse"]):
        scheduler.add(WorkRequest(id, "up", [item]))
    scheduler.cancel(2)
    finish(scheduler)
    assert ear.of(0)[0]["results"] == ["A"]
    assert ear.of(1) == [{"id": 1, "error": "bad cannot be done", "code": "impossible"}]
    assert ear.of(2) == []
    assert (ear.of(3)[0]["code"], "secret" in ear.of(3)[0]["error"]) == ("internal", False)
    told = json.loads(capsys.readouterr().err)  # the operator learns what and where; the words may be a user's
    assert (told["error"], told["where"][-1].split(":")[0]) == ("KeyError", "test_schedulers.py")
    assert "secret" not in str(told)


def test_a_batch_is_bounded() -> None:
    made, ear = SimpleNamespace(calls=[]), Ear()
    scheduler = BatchScheduler(made, ear, {"up": upper})
    for id in range(5):
        scheduler.add(WorkRequest(id, "up", ["a"] * 30))
    finish(scheduler)
    assert [len(items) for items in made.calls] == [60, 60, 30]


def test_a_large_request_lets_others_have_their_turn() -> None:
    made, ear = SimpleNamespace(calls=[]), Ear()
    scheduler = BatchScheduler(made, ear, {"up": upper})
    scheduler.add(WorkRequest(1, "up", ["a"] * 100))
    scheduler.add(WorkRequest(2, "up", ["b" * 15_000, "c" * 15_000]))
    scheduler.add(WorkRequest(3, "up", ["d"]))
    scheduler.add(WorkRequest(4, "up", ["e"] * 200))
    scheduler.step()
    scheduler.cancel(4)
    finish(scheduler)
    assert [len(items) for items in made.calls] == [64, 1, 1 + 36 + 1]
    assert ear.of(1)[0]["results"] == ["A"] * 100
    assert ear.of(2)[0]["results"] == ["B" * 15_000, "C" * 15_000]
    assert [message["id"] for message in ear] == [3, 1, 2]


def count(made: Any, prompt: str, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for n in range(int(prompt)):
        if n == options.get("fail"):
            raise RegardError("no further")
        yield {"piece": str(n)}
    yield {"done": "end"}


def test_streams_take_turns() -> None:
    ear = Ear()
    scheduler = StreamScheduler(None, ear, {"generate": count})
    scheduler.add(WorkRequest(1, "generate", ["100"]))
    scheduler.add(WorkRequest(2, "generate", ["2"]))
    scheduler.add(WorkRequest(3, "generate", ["9"], {"fail": 1}))
    scheduler.add(WorkRequest(4, "generate", ["9"]))
    scheduler.step()
    scheduler.cancel(4)
    for _ in range(2):
        scheduler.step()
    assert [m.get("piece", m.get("done")) for m in ear.of(2)] == ["0", "1", "end"]
    assert len(ear.of(1)) == 3  # the long one has said as much
    assert ear.of(3)[-1] == {"id": 3, "error": "no further", "code": "impossible"}
    assert len(ear.of(4)) == 1
    finish(scheduler)
    assert len(ear.of(1)) == 101


def test_generated_texts_run_side_by_side(lm_run: Path, chat_run: Path) -> None:
    """Prompts of several lengths and searches, one beyond the context; one leaves, and a bad one fails alone."""
    model, ear = regard.load(lm_run, "cpu"), Ear()
    scheduler = next(s for s in build_schedulers(model, ear, 8) if isinstance(s, StreamScheduler))
    prompts = ["the", "a cat sat on a", "", "the dog"]
    options = [{"seed": n, "temperature": 0.9, "max_tokens": 40 + n} for n in range(4)]
    for id, (prompt, own) in enumerate(zip(prompts, options, strict=True)):
        scheduler.add(WorkRequest(id, "generate", [prompt], own))
    scheduler.add(WorkRequest(4, "generate", ["the"], {"temperature": 0, "max_tokens": 9}))
    scheduler.add(WorkRequest(6, "generate", ["the"], {"temperature": -1.0}))
    scheduler.add(WorkRequest(7, "generate", ["the"], {"temperature": 0.9}))
    scheduler.step()
    scheduler.cancel(7)
    assert len(scheduler.batch.batches) < 4  # those of one search and size are in one batch
    finish(scheduler)
    for id, (prompt, own) in enumerate(zip(prompts, options, strict=True)):
        (whole,) = model.generate(prompt, **own)
        assert "".join(message.get("piece", "") for message in ear.of(id)) == whole.text
        assert ear.of(id)[-1] == {"id": id, "done": whole.ended}
    assert "".join(m.get("piece", "") for m in ear.of(4)) == model.generate("the", greedy=True, max_tokens=9)[0].text
    assert ear.of(6) == [
        {"id": 6, "error": "temperature must be 0 or more, and less than a million, not -1.0", "code": "impossible"}
    ]
    assert len(ear.of(7)) <= 1
    assert not scheduler.batch.requests


def test_replies_run_side_by_side(chat_run: Path) -> None:
    model, ear = regard.load(chat_run, "cpu"), Ear()
    scheduler = next(s for s in build_schedulers(model, ear, 8) if isinstance(s, StreamScheduler))
    histories = [["do you like tea"], ["do you like snow", "yes I like snow", "will you have snow now"], ["tea"]]
    for id, history in enumerate(histories):
        scheduler.add(WorkRequest(id, "chat", [history], {"seed": id, "repetition_penalty": 1.5}))
    scheduler.add(WorkRequest(3, "chat", [[]]))
    finish(scheduler)
    for id, history in enumerate(histories):
        reply = "".join(message.get("piece", "") for message in ear.of(id)).strip()
        assert reply == model.reply(history, seed=id, repetition_penalty=1.5)
        assert ear.of(id)[-1] == {"id": id, "done": "end"}
    assert "nothing was said yet" in ear.of(3)[0]["error"]
    model.recipe = replace(model.recipe, decoding=regard.decoding.Beam(size=2, max_extra=9))
    scheduler.add(WorkRequest(4, "chat", [histories[0]]))
    finish(scheduler)
    assert ear.of(4) == [{"id": 4, "piece": model.reply(histories[0])}, {"id": 4, "done": "end"}]


@pytest.fixture(scope="module")
def translator(toy_run: Path) -> Translator:
    return regard.load(toy_run, "cpu")


def test_translations_join_and_long_ones_are_cut(translator: Translator) -> None:
    ear, lines = Ear(), ["w1 w2 w3", "w4", ""]
    scheduler = TranslationScheduler(translator, ear, 8)
    long = " ".join(f"w{n % 20}" for n in range(translator.recipe.data.filters.max_length + 9))
    scheduler.add(WorkRequest(1, "translate", lines))
    scheduler.add(WorkRequest(2, "translate", ["w5 w6"], {"nbest": 3}))
    scheduler.add(WorkRequest(3, "translate", [long, "w7"]))
    scheduler.add(WorkRequest(4, "translate", ["w8 w9"], {"alignments": True}))
    scheduler.add(WorkRequest(5, "translate", ["w8 w9"], {"nbest": 4, "beam": 2}))
    scheduler.add(WorkRequest(6, "translate", ["w8 w9"]))
    scheduler.cancel(6)
    finish(scheduler)
    assert [each["text"] for each in ear.of(1)[0]["results"]] == translator.translate(lines)
    (best,) = ear.of(2)[0]["results"]
    wanted = translator.nbest(["w5 w6"], 3, regard.decoding.Beam(size=3, max_ratio=2.0, max_extra=20))[0]
    assert [best["text"], *(each["text"] for each in best["alternatives"])] == [each.text for each in wanted]
    assert [each["text"] for each in ear.of(3)[0]["results"]] == translator.translate([long, "w7"], long="segment")
    (aligned,) = ear.of(4)[0]["results"]
    assert all(0 <= source < 2 for source, _ in aligned["alignments"])
    assert "raise the beam" in ear.of(5)[0]["error"]
    assert ear.of(6) == []
    assert scheduler.owners == {}


def test_long_texts_hold_up_nobody_and_can_be_dropped(translator: Translator) -> None:
    ear = Ear()
    scheduler = TranslationScheduler(translator, ear, 8)
    long = " . ".join(f"w{n % 20}" for n in range(10 * translator.recipe.data.filters.max_length))
    for id in (1, 2):
        scheduler.add(WorkRequest(id, "translate", [long] * 20, {"nbest": 2}))
    scheduler.step()
    assert len(scheduler.owners) < 200  # of one text
    scheduler.add(WorkRequest(3, "translate", ["w1 w2"], {"nbest": 2}))
    scheduler.cancel(1)
    assert {owner for owner, _, _ in scheduler.owners.values()} == {3}
    while not ear:
        scheduler.step()
    assert ear[0]["id"] == 3
    assert scheduler.pending[2].missing > 20  # of which most are still to be cut
    scheduler.cancel(2)
    assert not scheduler.busy


def test_long_texts_by_the_ways_of_the_command(translator: Translator) -> None:
    room = translator.recipe.data.filters.max_length
    ear, scheduler = Ear(), None
    long = " ".join(f"w{n % 20}" for n in range(room + 9))
    scheduler = TranslationScheduler(translator, ear, 8)
    ways: list[Any] = ["truncate", {"kind": "truncate", "keep": "tail"}, "extract", "segments", "refuse", "refuze"]
    for id, way in enumerate(ways):
        scheduler.add(WorkRequest(id, "translate", ["w4", long], {"long": way}))
    finish(scheduler)
    for id, way in enumerate(ways[:4]):
        short, cut = ear.of(id)[0]["results"]
        wanted = translator.nbest([long], 1, long=way, warn=lambda said: None)[0][0]
        assert (cut["text"], cut["long"]) == (wanted.text, wanted.long.json())  # type: ignore[union-attr]
        assert cut["long"]["dropped"] == (0 if way == "segments" else 9)
        assert "long" not in short
    assert f"has {room + 9} pieces; the model was trained on at most {room}" in ear.of(4)[0]["error"]
    assert "did you mean refuse?" in ear.of(5)[0]["error"]
    scheduler.add(WorkRequest(7, "translate", [*["w4"] * 69, long], {"long": "refuse"}))  # more than one batch
    finish(scheduler)
    assert f"line 70 has {room + 9} pieces" in ear.of(7)[0]["error"]
    scheduler.add(WorkRequest(8, "translate", [*["w4"] * 69, long], {"alignments": True}))  # which refuses by itself
    finish(scheduler)
    assert f"line 70 has {room + 9} pieces" in ear.of(8)[0]["error"]


def test_texts_without_words_are_dropped_like_others(translator: Translator) -> None:
    ear = Ear()
    scheduler = TranslationScheduler(translator, ear, 8)
    long = " ".join(f"w{n % 20}" for n in range(translator.recipe.data.filters.max_length + 9))
    scheduler.add(WorkRequest(1, "translate", ["", long]))
    scheduler.add(WorkRequest(2, "translate", ["", "w1"]))
    scheduler.cancel(2)
    scheduler.add(WorkRequest(3, "translate", [""]))
    finish(scheduler)
    assert [each["text"] for each in ear.of(1)[0]["results"]] == translator.translate(["", long], long="segment")
    assert (len(ear.of(1)), ear.of(2), ear.of(3)[0]["results"][0]["text"]) == (1, [], "")


def test_a_model_says_what_it_can(translator: Translator) -> None:
    known = capabilities(translator, build_schedulers(translator, Ear(), 4))
    assert (known["kind"], known["languages"]) == ("translation", ["en", "de"])
    assert {"translate", "look"} <= set(known["can"])
    blind = SimpleNamespace(model=torch.nn.Linear(2, 2), recipe=translator.recipe)
    assert "look" not in capabilities(blind, build_schedulers(blind, Ear(), 4))["can"]
    assert not {"generate", "chat", "fill"} & set(known["can"])
