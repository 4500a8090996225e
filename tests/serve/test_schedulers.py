"""Desks: what waits together is computed together, a failure stays with who caused it, stories take turns."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import regard
from regard.errors import RegardError
from regard.predict.translation import Translator
from regard.serve.schedulers import Batches, Desk, Job, Stories, Translations, desks, portrait


class Ear(list[dict[str, Any]]):
    """What was said."""

    def __call__(self, **message: Any) -> None:
        self.append(message)

    def of(self, id: int) -> list[dict[str, Any]]:
        return [message for message in self if message["id"] == id]


def finish(desk: Desk) -> None:
    for _ in range(10_000):
        if not desk.busy:
            return
        desk.work()
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
    desk = Batches(made, ear, {"up": upper})
    for id, (items, options) in enumerate([(["a", "b"], {}), (["c"], {"top": 2}), (["d"], {})]):
        desk.take(Job(id, "up", items, options))
    finish(desk)
    assert made.calls == [["a", "b", "d"], ["c"]]
    assert [ear.of(id)[0]["results"] for id in range(3)] == [["A", "B"], ["C"], ["D"]]


def test_one_bad_request_fails_alone(capsys: pytest.CaptureFixture[str]) -> None:
    made, ear = SimpleNamespace(calls=[]), Ear()
    desk = Batches(made, ear, {"up": upper})
    for id, item in enumerate(["a", "bad", "b", "worse"]):
        desk.take(Job(id, "up", [item]))
    desk.drop(2)
    finish(desk)
    assert ear.of(0)[0]["results"] == ["A"]
    assert ear.of(1) == [{"id": 1, "error": "bad cannot be done", "code": "impossible"}]
    assert ear.of(2) == []
    assert (ear.of(3)[0]["code"], "secret" in ear.of(3)[0]["error"]) == ("internal", False)
    told = json.loads(capsys.readouterr().err)  # the operator learns what and where; the words may be a user's
    assert (told["error"], told["where"][-1].split(":")[0]) == ("KeyError", "test_schedulers.py")
    assert "secret" not in str(told)


def test_a_batch_is_bounded() -> None:
    made, ear = SimpleNamespace(calls=[]), Ear()
    desk = Batches(made, ear, {"up": upper})
    for id in range(5):
        desk.take(Job(id, "up", ["a"] * 30))
    finish(desk)
    assert [len(items) for items in made.calls] == [60, 60, 30]


def test_a_large_request_lets_others_have_their_turn() -> None:
    made, ear = SimpleNamespace(calls=[]), Ear()
    desk = Batches(made, ear, {"up": upper})
    desk.take(Job(1, "up", ["a"] * 100))
    desk.take(Job(2, "up", ["b" * 15_000, "c" * 15_000]))
    desk.take(Job(3, "up", ["d"]))
    desk.take(Job(4, "up", ["e"] * 200))
    desk.work()
    desk.drop(4)
    finish(desk)
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


def test_stories_take_turns() -> None:
    ear = Ear()
    desk = Stories(None, ear, {"generate": count})
    desk.take(Job(1, "generate", ["100"]))
    desk.take(Job(2, "generate", ["2"]))
    desk.take(Job(3, "generate", ["9"], {"fail": 1}))
    desk.take(Job(4, "generate", ["9"]))
    desk.work()
    desk.drop(4)
    for _ in range(2):
        desk.work()
    assert [m.get("piece", m.get("done")) for m in ear.of(2)] == ["0", "1", "end"]
    assert len(ear.of(1)) == 3  # the long one has said as much
    assert ear.of(3)[-1] == {"id": 3, "error": "no further", "code": "impossible"}
    assert len(ear.of(4)) == 1
    finish(desk)
    assert len(ear.of(1)) == 101


@pytest.fixture(scope="module")
def translator(toy_run: Path) -> Translator:
    return regard.load(toy_run, "cpu")


def test_translations_join_and_long_ones_are_cut(translator: Translator) -> None:
    ear, lines = Ear(), ["w1 w2 w3", "w4", ""]
    desk = Translations(translator, ear, 8)
    long = " ".join(f"w{n % 20}" for n in range(translator.recipe.data.filters.max_length + 9))
    desk.take(Job(1, "translate", lines))
    desk.take(Job(2, "translate", ["w5 w6"], {"nbest": 3}))
    desk.take(Job(3, "translate", [long, "w7"]))
    desk.take(Job(4, "translate", ["w8 w9"], {"alignments": True}))
    desk.take(Job(5, "translate", ["w8 w9"], {"nbest": 4, "beam": 2}))
    desk.take(Job(6, "translate", ["w8 w9"]))
    desk.drop(6)
    finish(desk)
    assert [each["text"] for each in ear.of(1)[0]["results"]] == translator.translate(lines)
    (best,) = ear.of(2)[0]["results"]
    wanted = translator.nbest(["w5 w6"], 3, regard.decoding.Beam(size=3, max_ratio=2.0, max_extra=20))[0]
    assert [best["text"], *(each["text"] for each in best["alternatives"])] == [each.text for each in wanted]
    assert [each["text"] for each in ear.of(3)[0]["results"]] == translator.translate([long, "w7"], long="segment")
    (aligned,) = ear.of(4)[0]["results"]
    assert all(0 <= source < 2 for source, _ in aligned["alignments"])
    assert "raise the beam" in ear.of(5)[0]["error"]
    assert ear.of(6) == []
    assert desk.owners == {}


def test_long_texts_hold_up_nobody_and_can_be_dropped(translator: Translator) -> None:
    ear = Ear()
    desk = Translations(translator, ear, 8)
    long = " . ".join(f"w{n % 20}" for n in range(10 * translator.recipe.data.filters.max_length))
    for id in (1, 2):
        desk.take(Job(id, "translate", [long] * 20, {"nbest": 2}))
    desk.work()
    assert len(desk.owners) < 200  # of one text
    desk.take(Job(3, "translate", ["w1 w2"], {"nbest": 2}))
    desk.drop(1)
    assert {owner for owner, _, _ in desk.owners.values()} == {3}
    while not ear:
        desk.work()
    assert ear[0]["id"] == 3
    assert desk.jobs[2].missing > 20  # of which most are still to be cut
    desk.drop(2)
    assert not desk.busy


def test_texts_without_words_are_dropped_like_others(translator: Translator) -> None:
    ear = Ear()
    desk = Translations(translator, ear, 8)
    long = " ".join(f"w{n % 20}" for n in range(translator.recipe.data.filters.max_length + 9))
    desk.take(Job(1, "translate", ["", long]))
    desk.take(Job(2, "translate", ["", "w1"]))
    desk.drop(2)
    desk.take(Job(3, "translate", [""]))
    finish(desk)
    assert [each["text"] for each in ear.of(1)[0]["results"]] == translator.translate(["", long], long="segment")
    assert (len(ear.of(1)), ear.of(2), ear.of(3)[0]["results"][0]["text"]) == (1, [], "")


def test_a_model_says_what_it_can(translator: Translator) -> None:
    known = portrait(translator, desks(translator, Ear(), 4))
    assert (known["kind"], known["languages"]) == ("translation", ["en", "de"])
    assert {"translate", "look"} <= set(known["can"])
    blind = SimpleNamespace(model=torch.nn.Linear(2, 2), recipe=translator.recipe)
    assert "look" not in portrait(blind, desks(blind, Ear(), 4))["can"]
    assert not {"generate", "chat", "fill"} & set(known["can"])
