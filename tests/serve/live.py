"""A server of its own for tests: started as a user starts it, asked over the loopback, ended by SIGTERM."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import psutil

WAIT = 300.0  # seconds; a busy machine may take one to start a worker


def until(true: Callable[[], Any], what: str) -> Any:
    """Wait for a condition, never for a time."""
    end = time.monotonic() + WAIT
    while not (found := true()):
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.02)
    return found


def words_of(process: psutil.Process) -> list[str]:
    """The words of its command; none of one that has just ended, whether the server has seen it or not."""
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


class Server:
    def __init__(self, *arguments: Any) -> None:
        command = [sys.executable, "-m", "regard", "serve", *map(str, arguments), "--port", "0", "--device", "cpu"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, encoding="utf-8")
        self.log: list[str] = []
        self.reading = threading.Thread(target=self._read, daemon=True)
        self.reading.start()

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.log.append(line)

    def __enter__(self) -> "Server":
        try:
            until(lambda: self.process.poll() is not None or self.events("ready"), "the server is ready")
            assert self.process.poll() is None, "".join(self.log)
        except BaseException:
            self.process.kill()
            raise
        self.url = self.events("ready")[0]["address"]
        self.port = int(self.url.rpartition(":")[2])
        self.client = httpx.Client(base_url=self.url, timeout=WAIT)
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        if failed is not None:
            print("".join(self.log), file=sys.stderr)  # pytest shows it beside the failure
        self.client.close()
        for worker in self.workers():
            worker.send_signal(signal.SIGCONT)
        self.end()
        if self.process.poll() is None:
            self.process.kill()
        self.close()

    def close(self) -> None:
        self.process.wait()
        self.reading.join(WAIT)
        assert self.process.stderr
        self.process.stderr.close()

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(WAIT)

    def events(self, name: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.log if line.startswith("{")]
        return [each for each in found if each["event"] == name]

    def ask(self, op: str, **body: Any) -> httpx.Response:
        return self.client.post(f"/v1/{op}", json=body)

    def later(self, op: str, **body: Any) -> "Later":
        return Later(lambda: httpx.post(f"{self.url}/v1/{op}", json=body, timeout=WAIT))

    def workers(self, run: Any = "") -> list[psutil.Process]:
        if self.process.poll() is not None:
            return []
        found = psutil.Process(self.process.pid).children()
        return [each for each in found if any(str(run) in word for word in words_of(each))]

    def metric(self, line: str) -> float:
        for each in self.client.get("/metrics").text.splitlines():
            if each.startswith(line + " "):
                return float(each.split()[-1])
        return 0.0

    def raw(self, data: bytes) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port), timeout=WAIT)
        made.sendall(data)
        return made


class Later:
    """A request that is under way."""

    def __init__(self, ask: Callable[[], httpx.Response]) -> None:
        self.answers: list[httpx.Response] = []
        self.thread = threading.Thread(target=lambda: self.answers.append(ask()), daemon=True)
        self.thread.start()

    def answer(self) -> httpx.Response:
        self.thread.join(WAIT)
        assert self.answers, "no answer"
        return self.answers[0]


def signal_to(process: psutil.Process, number: int) -> None:
    os.kill(process.pid, number)
