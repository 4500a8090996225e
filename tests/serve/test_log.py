"""A log whose reader has stalled or gone delays nobody; what an attacker can cause is bounded."""

import errno
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from regard.serve import log as logs
from regard.serve.connections import Listener
from regard.serve.log import LineWriter, ServerLog
from tests.serve.live import WAIT, until

PIPE_BYTES = 1 << 16


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, LineWriter]]:
    """A reader, and the writer of lines to it, which has ended before its descriptor may be somebody else's."""
    monkeypatch.setattr(logs, "MAX_WAITING_LINES", 100)
    reader, writer = os.pipe()
    lines = LineWriter(writer)
    yield reader, lines
    os.close(reader)
    lines.close()
    assert not lines.thread.is_alive()
    os.close(writer)


def test_lines_that_nobody_reads_are_counted_and_told_later(pipe: tuple[int, LineWriter]) -> None:
    reader, lines = pipe
    for _ in range(PIPE_BYTES // 1000 + 500):
        lines.put("x" * 1000)
    assert lines.dropped > 300
    os.set_blocking(reader, False)
    read = bytearray()

    def told() -> bool:
        try:
            read.extend(os.read(reader, PIPE_BYTES))
        except BlockingIOError:
            lines.put("more")
        return b"log_dropped" in read

    until(told, "it says how many")
    found = [json.loads(line) for line in read.splitlines() if b"log_dropped" in line]
    assert found[0]["count"] > 300


def test_a_server_whose_log_nobody_reads_goes_on(toy_run: Path) -> None:
    command = [sys.executable, "-m", "regard", "serve", f"toy={toy_run}", "--port", "0", "--device", "cpu"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr
        url = next(event["address"] for event in map(json.loads, server.stderr) if event["event"] == "ready")
        with httpx.Client(base_url=url, timeout=20) as client:
            slowest = 0.0
            for _ in range(900):  # of 140 bytes in the log: twice what a pipe holds
                begin = time.perf_counter()
                assert client.get("/v1/nothing").status_code == 404
                slowest = max(slowest, time.perf_counter() - begin)
            assert slowest < 10
            assert client.post("/v1/translate", json={"text": "w1"}).status_code == 200
        server.terminate()
        assert server.wait(WAIT) == 0
    finally:
        server.kill()
        server.wait()
        assert server.stderr
        server.stderr.close()


def test_errors_of_accepting_are_counted_but_seldom_written(capfd: pytest.CaptureFixture[str]) -> None:
    class Exhausted:
        def accept(self) -> Any:
            raise OSError(errno.EMFILE, "Too many open files")

    log = ServerLog()
    paused = list[float]()
    listener = Listener.__new__(Listener)
    loop = SimpleNamespace(time=lambda: 100.0, remove_reader=lambda _: None, call_later=lambda s, _: paused.append(s))
    vars(listener).update(sock=Exhausted(), loop=loop, log=log, connections=[], connecting=set(), most=9, next_line=0.0)
    for _ in range(50):
        listener._accept(64)
    log.writer.close()
    assert capfd.readouterr().err.count("accept_failed") == 1
    assert log.registry.get_sample_value("regard_events_total", {"event": "accept_failed"}) == 50
    assert len(paused) == 50  # it does not try again at once


def test_what_libraries_say_is_bounded(capfd: pytest.CaptureFixture[str]) -> None:
    log = ServerLog()
    for n in range(500):
        log.emit(logging.LogRecord("uvicorn", logging.WARNING, "", 0, f"Invalid HTTP request {n}", None, None))
    log.writer.close()
    assert capfd.readouterr().err.count("Invalid HTTP") == logs.LIBRARY_LINES[0]
    assert log.registry.get_sample_value("regard_events_total", {"event": "log"}) == 500
