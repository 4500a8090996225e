"""Processes that die, queues that are full, and an end in good order. A stopped worker stands for one that is busy."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve.live import WAIT, Server, signal_to, until


def given(server: Server, count: int) -> None:
    """Wait until so many requests are with the workers; one more is the question itself."""
    until(lambda: server.metric("regard_requests_running") >= count + 1, f"{count} requests are running")


def test_a_killed_worker_is_started_again_and_its_request_answered(toy_run: Path, lm_run: Path) -> None:
    with Server(f"toy={toy_run}", f"lm={lm_run}") as server:
        wanted = server.ask("translate", text="w1 w2").json()
        (worker,) = server.workers(toy_run)
        signal_to(worker, signal.SIGSTOP)
        waiting = server.later("translate", text="w1 w2")
        given(server, 1)
        signal_to(worker, signal.SIGKILL)
        assert server.ask("generate", prompt="the", max_tokens=2).status_code == 200  # the other model goes on
        assert waiting.answer().json() == wanted
        (other,) = server.workers(toy_run)
        assert other.pid != worker.pid
        assert [event["exit"] for event in server.events("worker_died")] == [-signal.SIGKILL]
        until(lambda: server.client.get("/readyz").status_code == 200, "it is ready again")


def test_one_of_two_workers_is_enough(toy_run: Path) -> None:
    with Server(f"toy={toy_run}", "--workers", 2) as server:
        first, second = server.workers()
        signal_to(first, signal.SIGKILL)
        for _ in range(4):
            assert server.ask("translate", text="w1").status_code == 200
        until(lambda: len(server.events("worker_started")) == 1, "the first is back")
        assert second in server.workers()


def test_a_full_queue_says_so(toy_run: Path) -> None:
    with Server(f"toy={toy_run}", "--queue", 3) as server:
        (worker,) = server.workers()
        signal_to(worker, signal.SIGSTOP)
        waiting = [server.later("translate", text=["w1", "w2"]), server.later("translate", text="w3")]
        given(server, 2)
        answer = server.ask("translate", text="w4")
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert answer.json()["error"]["code"] == "busy"
        assert server.ask("translate", text=["w4"] * 4).status_code == 413  # for which there will never be room
        signal_to(worker, signal.SIGCONT)
        assert [each.answer().status_code for each in waiting] == [200, 200]
        assert server.ask("translate", text="w4").status_code == 200
        assert server.metric('regard_events_total{event="queue_full"}') == 1


def test_what_takes_too_long_is_given_up_and_frees_its_place(toy_run: Path, lm_run: Path) -> None:
    with Server(f"toy={toy_run}", f"lm={lm_run}", "--timeout", 1, "--queue", 1, "--max-tokens", 1_000_000) as server:
        endless = {"prompt": "the", "max_tokens": 1_000_000, "temperature": 0}
        last = server.ask("generate", **endless, stream=True).text.split("data: ")[-1]
        assert json.loads(last)["reason"] == "timeout"
        assert server.ask("generate", **endless).status_code == 504
        assert server.events("log") == []  # nothing went wrong in the server itself
        (worker,) = server.workers(toy_run)
        signal_to(worker, signal.SIGSTOP)
        for _ in range(2):
            answer = server.ask("translate", text="w1")
            assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timeout")
        signal_to(worker, signal.SIGCONT)
        until(lambda: server.ask("translate", text="w1").status_code == 200, "it answers again")


def test_the_end_waits_no_longer_than_it_was_told(toy_run: Path) -> None:
    with Server(f"toy={toy_run}", "--timeout", 10_000, "--drain", 0.1) as server:
        (worker,) = server.workers()
        signal_to(worker, signal.SIGSTOP)
        waiting = server.later("translate", text="w1")
        given(server, 1)
        server.process.send_signal(signal.SIGTERM)
        answer = waiting.answer()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "ending")
        assert server.process.wait(WAIT) == 0
        assert not any("Traceback" in line for line in server.log)


def test_the_end_waits_for_what_is_running(toy_run: Path) -> None:
    with Server(f"toy={toy_run}") as server:
        (worker,) = server.workers()
        signal_to(worker, signal.SIGSTOP)
        waiting = server.later("translate", text="w1")
        given(server, 1)
        server.process.send_signal(signal.SIGTERM)
        until(lambda: server.client.get("/readyz").status_code == 503, "it is not ready any more")
        late = server.ask("translate", text="w1")
        assert (late.status_code, late.json()["error"]["code"]) == (503, "ending")
        assert server.client.get("/healthz").status_code == 200
        signal_to(worker, signal.SIGCONT)
        assert waiting.answer().status_code == 200
        assert server.process.wait(WAIT) == 0
        until(lambda: not worker.is_running(), "the worker has ended")


def test_what_cannot_start_says_why(toy_run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "keys").write_bytes(b"\xff\xfe")
    for arguments, said in (
        ([toy_run, "--api-key-file", tmp_path / "keys"], "keys: it is not UTF-8"),
        ([toy_run, "--precision", "int8"], "--precision is 'int8'; write float32 or bf16"),
        ([tmp_path / "nothing"], "there is no such folder"),
        ([tmp_path / "empty"], "not a trained model"),
        ([f"a b={toy_run}"], "a model's name"),
        ([f"x={toy_run}", f"x={toy_run}"], "two models are called x"),
        ([toy_run, "--engine", "steam"], "--engine is 'steam'"),
        ([toy_run, "--host", "no.such.host.invalid"], "cannot listen there"),
    ):
        command = [sys.executable, "-m", "regard", "serve", *map(str, arguments), "--port", "0"]
        found = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=False)
        assert found.returncode == 2, found.stderr
        assert said in found.stderr
        assert "Traceback" not in found.stderr


def test_text_is_logged_only_on_request(toy_run: Path) -> None:
    with Server(f"toy={toy_run}", "--log-text") as server:
        server.ask("translate", text="w1 w2 w3")
        (event,) = until(lambda: server.events("request"), "the request is logged")
        assert event["given"] == ["w1 w2 w3"]


def test_ct2_answers_like_its_own_command(toy_run: Path) -> None:
    pytest.importorskip("ctranslate2")
    from regard.interop.ct2_engine import load_ct2

    lines = ["w1 w2 w3", "w4 w5", ""]
    with Server(f"toy={toy_run}", "--engine", "ct2") as server:
        answer = server.ask("translate", text=lines).json()
        assert [each["text"] for each in answer["results"]] == load_ct2(toy_run, "cpu").translate(lines)
        refused = server.ask("translate", text="w1", alignments=True)
        assert (refused.status_code, json.loads(refused.text)["error"]["code"]) == (422, "impossible")
