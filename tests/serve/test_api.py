"""Every address of the API, asked as users ask, beside what the model itself says."""

import json
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.look import look
from regard.serve import app
from regard.serve.http import POLICY
from tests.serve.live import Server, until


def test_models_say_what_they_can(server: Server) -> None:
    models = {each["name"]: each for each in server.client.get("/v1/models").json()["models"]}
    assert list(models) == ["toy", "lm", "bert", "choose", "chat"]
    assert models["toy"]["title"].startswith("translation")
    for name, op in (
        ("toy", "translate"),
        ("lm", "generate"),
        ("bert", "fill"),
        ("bert", "embed"),
        ("choose", "choose"),
    ):
        assert op in models[name]["can"]
    assert "generate" not in models["toy"]["can"]


def test_workers_keep_to_their_threads(server: Server) -> None:
    assert {worker.environ()["OMP_NUM_THREADS"] for worker in server.workers()} == {"1"}  # for CTranslate2, too


def test_translate(server: Server, toy_run: Path) -> None:
    lines = ["w1 w2 w3", "w4 w5", ""]
    answer = server.ask("translate", text=lines).json()
    assert answer["model"] == "toy"
    assert [each["text"] for each in answer["results"]] == regard.load(toy_run, "cpu").translate(lines)
    (one,) = server.ask("translate", text="w1 w2 w3", nbest=3).json()["results"]
    scores = [one["score"], *(each["score"] for each in one["alternatives"])]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    (aligned,) = server.ask("translate", text="w1 w2 w3", alignments=True, model="toy").json()["results"]
    assert all(len(pair) == 2 for pair in aligned["alignments"])


def test_generate_at_once_and_as_it_is_written(server: Server, lm_run: Path) -> None:
    asked = {"prompt": "the cat", "max_tokens": 20, "temperature": 0.9, "seed": 4}
    whole = server.ask("generate", **asked).json()
    decoding = regard.decoding.Sample(temperature=0.9, seed=4)
    (wanted,) = regard.load(lm_run, "cpu").generate("the cat", 1, decoding, max_tokens=20)
    assert (whole["text"], whole["reason"]) == (wanted.text, wanted.ended)
    with server.client.stream("POST", "/v1/generate", json=asked | {"stream": True}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [json.loads(line.removeprefix("data: ")) for line in answer.iter_lines() if line]
    assert "".join(each.get("text", "") for each in events) == wanted.text
    assert events[-1] == {"done": True, "reason": wanted.ended}
    assert len(events) > 3
    greedy = server.ask("generate", prompt="the cat", max_tokens=8, temperature=0).json()["text"]
    assert greedy == server.ask("generate", prompt="the cat", max_tokens=8, temperature=0).json()["text"]


def test_chat(server: Server, chat_run: Path) -> None:
    turns = ["hello", "how are you ?", "fine"]
    messages = [{"role": role, "text": text} for role, text in zip(("user", "assistant", "user"), turns, strict=True)]
    asked = {"messages": messages, "temperature": 0, "max_tokens": 6}
    wanted = regard.load(chat_run, "cpu").reply(turns, greedy=True, max_tokens=6)
    assert server.ask("chat", **asked).json()["text"].strip() == wanted
    with server.client.stream("POST", "/v1/chat", json=asked | {"stream": True}) as answer:
        events = [json.loads(line.removeprefix("data: ")) for line in answer.iter_lines() if line]
    assert "".join(each.get("text", "") for each in events).strip() == wanted
    assert events[-1]["done"] is True
    assert server.ask("chat", messages=messages[:2]).json()["error"]["code"] == "order"


def test_fill_and_embed(server: Server, bert_run: Path) -> None:
    made = regard.load(bert_run, "cpu")
    (found,) = server.ask("fill", text="Cat [MASK] purrs .", top=2).json()["results"]
    (gap,) = made.fill(["Cat [MASK] purrs ."], 2)[0]
    assert [guess["word"] for guess in found["gaps"][0]] == [guess.word for guess in gap]
    vectors = [
        each["vector"] for each in server.ask("embed", text=["Cat mat .", "Sea ."], pooling="max").json()["results"]
    ]
    np.testing.assert_allclose(vectors, made.embed(["Cat mat .", "Sea ."], "max"), atol=1e-5)


def test_choose(server: Server, choose_run: Path) -> None:
    (found,) = server.ask("choose", context="the cat sat", question="who ?", options=["the cat", "the dog"]).json()[
        "results"
    ]
    (wanted,) = regard.load(choose_run, "cpu").choose([("the cat sat", "who ?", ["the cat", "the dog"])])
    assert found["option"] == wanted.text
    assert found["probabilities"] == pytest.approx(wanted.probabilities, abs=1e-5)


def test_long_texts_say_what_was_dropped(server: Server, toy_run: Path, bert_run: Path, choose_run: Path) -> None:
    """`long` is the command's `--long`, for every operation that has one; results have `long` as its `--json` has."""
    toy, bert, choose = (regard.load(run, "cpu") for run in (toy_run, bert_run, choose_run))
    line = " ".join(f"w{n % 20}" for n in range(toy.recipe.data.filters.max_length + 9))
    (cut,) = server.ask("translate", text=line, long="truncate", model="toy").json()["results"]
    assert cut["long"] == {
        "kind": "truncate",
        "tokens": toy.recipe.data.filters.max_length + 9,
        "dropped": 9,
        "segments": 1,
    }
    refused = server.ask("translate", text=line, long="refuse", model="toy")
    assert refused.status_code == 422
    assert "trained on at most" in refused.json()["error"]["message"]
    text = "cat mat . " * bert.context
    for long in ("segments", {"kind": "truncate", "keep": "tail"}):
        shortened: dict = {}
        wanted = bert.embed([text], long=long, warn=lambda said: None, shortened=shortened)
        (found,) = server.ask("embed", text=text, long=long).json()["results"]
        np.testing.assert_allclose(found["vector"], wanted[0], atol=1e-5)
        assert found["long"] == shortened[0].json()
    (gaps,) = server.ask("fill", text=f"[MASK] {text} [MASK]", long="segments", top=1).json()["results"]
    assert (len(gaps["gaps"]), gaps["long"]["kind"], gaps["long"]["segments"]) == (2, "segments", 2)
    question = {"context": "the cat sat " * choose.codec.settings.length, "question": "who ?", "options": ["a", "b"]}
    (chosen,) = server.ask("choose", **question, long="segments").json()["results"]
    assert chosen["long"]["kind"] == "segments"
    assert "long" not in server.ask("choose", **question | {"context": "the cat sat"}).json()["results"][0]
    wrong = server.ask("embed", text=text, long=7)
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (422, "invalid")


def test_look(server: Server, chat_run: Path) -> None:
    seen = server.ask("look", text="w1 w2", target="w3", model="toy").json()
    assert {place["name"]: place["queries"] for place in seen["places"]}["cross"] == ["w3", "</s>"]
    turns = "hello\nhow are you ?"  # a line each: not one turn
    wanted = look(regard.load(chat_run, "cpu"), turns, "fine")
    assert server.ask("look", text=turns, target="fine", model="chat").json()["places"] == wanted["places"]
    long = server.ask("look", text="w1", target="w3 " * 5_000, model="toy")
    assert (long.status_code, long.json()["error"]["code"]) == (413, "too_long")


def test_the_wrong_model_is_told(server: Server) -> None:
    for body, status, code in (
        ({"text": "w1", "model": "nobody"}, 404, "no_such_model"),
        ({"text": "w1", "model": "../../etc/passwd"}, 404, "no_such_model"),
        ({"text": "w1", "model": "lm"}, 400, "cannot"),
    ):
        answer = server.ask("translate", **body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    nobody = server.ask("answer", question="who?", context="nobody")
    assert (nobody.status_code, nobody.json()["error"]["code"]) == (400, "cannot")


def test_health_docs_and_metrics(server: Server) -> None:
    assert server.client.get("/healthz").status_code == server.client.get("/readyz").status_code == 200
    docs, schema = server.client.get("/docs").text, server.client.get("/openapi.json").json()
    for path in schema["paths"]:
        assert path in docs
    assert "<script" not in docs
    assert "href=openapi.json" in docs
    assert "href=/" not in docs
    for path in ("/", "/healthz", "/readyz", "/docs"):  # probes ask for heads
        head = server.client.head(path)
        assert (head.status_code, head.content) == (200, b"")
        assert int(head.headers["content-length"]) > 0
    before = server.metric('regard_texts_total{model="toy",op="translate"}')
    server.ask("translate", text=["w1", "w2"])
    assert server.metric('regard_texts_total{model="toy",op="translate"}') == before + 2


def test_the_page_and_its_policy(server: Server) -> None:
    page = server.client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    for name in [path.name for path in app.PAGE.glob("*")] + ["look/look.js", "look/look.css", "look/page.txt"]:
        assert server.client.get(f"/static/{name}").status_code == 200
    for name in ("../app.py", "..%2fapp.py", "%2e%2e/app.py", "look/../app.py", "look%2f..%2fapp.py", "nothing.js"):
        assert server.client.get(f"/static/{name}").status_code == 404


def test_the_log_has_no_text(server: Server) -> None:
    server.ask("translate", text="w1 w2 w3 w4 w5")
    server.ask("generate", prompt="the mat sat on", max_tokens=3)
    until(lambda: server.events("request")[-1]["path"] == "/v1/generate", "the log")
    assert {"status", "ms", "path", "model", "texts"} <= server.events("request")[-1].keys()
    written = "".join(server.log)
    assert "w1 w2 w3 w4 w5" not in written
    assert "the mat sat on" not in written
