"""Processes that die, queues that are full, and an end in good order. A stopped worker stands for one that is busy."""

import http.client
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import psutil
import pytest

from tests.serve.live import WAIT, Server, signal_to, until

BUSY = ("--heartbeat-timeout", 600)  # a stopped worker is not taken for a hung one


def given(server: Server, count: int) -> None:
    """Wait until so many requests are with the workers; one more is the question itself."""
    until(lambda: server.metric("regard_requests_running") >= count + 1, f"{count} requests are running")


def test_a_killed_worker_is_started_again_and_its_request_answered(toy_run: Path, lm_run: Path) -> None:
    with Server(f"toy={toy_run}", f"lm={lm_run}", *BUSY) as server:
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
        (death,) = until(lambda: server.events("worker_died"), "it is logged")
        assert death["exit"] == -signal.SIGKILL
        until(lambda: server.client.get("/readyz").status_code == 200, "it is ready again")


def test_a_worker_that_does_not_answer_is_replaced(toy_run: Path) -> None:
    with Server(f"toy={toy_run}", "--heartbeat-timeout", 2) as server:
        wanted = server.ask("translate", text="w1 w2").json()
        (worker,) = server.workers()
        signal_to(worker, signal.SIGSTOP)
        waiting = server.later("translate", text="w1 w2")
        until(lambda: server.events("worker_hung"), "it is noticed")
        assert server.client.get("/readyz").json()["error"]["code"] == "not_ready"
        assert server.client.get("/healthz").status_code == 200
        assert waiting.answer().json() == wanted
        assert not worker.is_running()
        assert "no sign of life for 2 seconds" in server.events("worker_hung")[0]["why"]
        assert server.metric('regard_workers_ready{model="toy"}') == 1


def test_a_server_that_stood_still_kills_no_worker(toy_run: Path) -> None:
    with Server(f"toy={toy_run}", "--heartbeat-timeout", 2) as server:
        for seconds in (1, 4):
            server.process.send_signal(signal.SIGSTOP)
            time.sleep(seconds)
            server.process.send_signal(signal.SIGCONT)
            assert server.ask("translate", text="w1").status_code == 200
        time.sleep(1)
        assert server.events("worker_hung") == []


@pytest.mark.parametrize("stopped", [pytest.param(False, marks=pytest.mark.slow), True])
def test_no_worker_outlives_its_server(toy_run: Path, stopped: bool) -> None:
    with Server(f"toy={toy_run}", "--workers", 2) as server:
        workers = server.workers()
        assert len(workers) == 2
        for worker in workers if stopped else ():
            signal_to(worker, signal.SIGSTOP)
        server.process.kill()
        server.process.wait(WAIT)
        for worker in workers:
            until(lambda w=worker: not w.is_running() or w.status() == psutil.STATUS_ZOMBIE, "it has ended")


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of forkpty, among threads
def test_it_ends_with_its_terminal(toy_run: Path, tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
        os.dup2(os.open(tmp_path / "log", os.O_WRONLY), 2)
        os.execv(sys.executable, [sys.executable, "-m", "regard", "serve", str(toy_run), "--port", "0"])
    until(lambda: '"ready"' in (tmp_path / "log").read_text(), "it is ready")
    os.kill(pid, signal.SIGHUP)
    until(lambda: '"reloaded"' in (tmp_path / "log").read_text(), "it has read the files anew")
    os.close(terminal)
    until(lambda: os.waitpid(pid, os.WNOHANG) == (pid, 0), "it has ended in good order")


def test_it_lives_but_is_not_ready_while_models_load(toy_run: Path) -> None:
    server = Server(f"toy={toy_run}")
    try:
        url = until(lambda: server.events("listening"), "it listens")[0]["address"]
        assert httpx.get(f"{url}/healthz").status_code == 200
        for answer in (httpx.get(f"{url}/readyz"), httpx.post(f"{url}/v1/translate", json={"text": "w1"})):
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "loading")
        server.end()  # in the middle of it
        assert server.process.wait(WAIT) == 0
        assert not any("Traceback" in line for line in server.log)
    finally:
        server.process.kill()
        server.close()


class KeepAlive(threading.Thread):
    """A client that keeps its connection until a response ends it, and opens no other while a server is ending."""

    def __init__(self, port: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.port, self.stop, self.statuses, self.lost = port, stop, list[int](), list[str]()

    def run(self) -> None:
        body, headers = json.dumps({"text": "w1 w2"}), {"content-type": "application/json"}
        while not self.stop.is_set():
            client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)
            try:
                client.connect()
            except ConnectionRefusedError:  # a load balancer would have asked another server
                return
            try:
                while True:
                    client.request("POST", "/v1/translate", body, headers)
                    answer = client.getresponse()
                    answer.read()
                    self.statuses.append(answer.status)
                    if answer.getheader("connection") == "close":
                        break
                    time.sleep(0.01)
            except (OSError, http.client.HTTPException) as error:
                self.lost.append(repr(error))
                return
            finally:
                client.close()


@pytest.mark.parametrize("delay", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_the_end_loses_no_request_of_clients_that_keep_their_connections(toy_run: Path, delay: float) -> None:
    stop = threading.Event()
    with Server(f"toy={toy_run}", "--drain-delay", delay) as server:
        clients = [KeepAlive(server.port, stop) for _ in range(32)]
        for client in clients:
            client.start()
        until(lambda: all(client.statuses for client in clients), "all are answered")
        time.sleep(0.5)
        assert server.end() == 0
        stop.set()
        for client in clients:
            client.join(WAIT)
        assert [client.lost for client in clients] == [[]] * 32
        assert {status for client in clients for status in client.statuses} == {200}


@pytest.mark.slow
def test_one_of_two_workers_is_enough(toy_run: Path) -> None:
    with Server(f"toy={toy_run}", "--workers", 2) as server:
        first, second = server.workers()
        signal_to(first, signal.SIGKILL)
        for _ in range(4):
            assert server.ask("translate", text="w1").status_code == 200
        until(lambda: len(server.events("worker_started")) == 1, "the first is back")
        assert second in server.workers()


def test_a_full_queue_says_so(toy_run: Path) -> None:
    with Server(f"toy={toy_run}", "--queue", 3, *BUSY) as server:
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
    with Server(
        f"toy={toy_run}", f"lm={lm_run}", "--timeout", 1, "--queue", 1, "--max-tokens", 1_000_000, *BUSY
    ) as server:
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
    with Server(f"toy={toy_run}", "--timeout", 10_000, "--drain", 0.1, *BUSY) as server:
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
    with Server(f"toy={toy_run}", *BUSY, "--drain-delay", 600) as server:
        (worker,) = server.workers()
        signal_to(worker, signal.SIGSTOP)
        waiting = server.later("translate", text="w1")
        given(server, 1)
        server.process.send_signal(signal.SIGTERM)
        until(lambda: server.client.get("/readyz").status_code == 503, "it is not ready any more")
        late = server.later("translate", text="w1")
        alive = server.client.get("/healthz")
        assert (alive.status_code, alive.headers["connection"]) == (200, "close")
        given(server, 2)
        server.process.send_signal(signal.SIGTERM)  # for the second time: no more waiting for load balancers
        signal_to(worker, signal.SIGCONT)
        assert [waiting.answer().status_code, late.answer().status_code] == [200, 200]
        assert server.process.wait(WAIT) == 0
        until(lambda: not worker.is_running(), "the worker has ended")


def test_what_cannot_start_says_why(toy_run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "keys").write_bytes(b"\xff\xfe")
    for arguments, said in (
        ([toy_run, "--api-key-file", tmp_path / "keys"], "keys: it is not UTF-8"),
        ([toy_run, "--precision", "int4"], "--precision is 'int4'; write float32 or bf16 or int8"),
        ([tmp_path / "nothing"], "there is no such folder"),
        ([tmp_path / "empty"], "not a trained model"),
        ([f"a b={toy_run}"], "a model's name"),
        ([f"x={toy_run}", f"x={toy_run}"], "two models are called x"),
        ([toy_run, "--engine", "steam"], "--engine is 'steam'"),
        ([toy_run, "--host", "no.such.host.invalid"], "cannot listen there"),
        ([toy_run, "--host", "0.0.0.0"], "others could call it without a key; give --api-key-file, or --open"),
        ([toy_run, "--start-timeout", "0.2"], "its worker did not load the model in time"),
        ([toy_run, "--connections", "999999999"], "raise `ulimit -n`"),
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
