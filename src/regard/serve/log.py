"""The log of a server, a line of JSON for each event, and its metrics for Prometheus. Knows no HTTP and no model.

Lines go through a queue to a thread of their own: where nobody reads them they are dropped and counted; nothing waits.
"""

import json
import logging
import os
import queue
import sys
import threading
import time
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

MAX_WAITING_LINES = 10_000
FLUSH_SECONDS = 1.0  # at the end, for a reader that may have stalled
LIBRARY_LINES = (20, 10.0)  # at most so many messages of libraries in so many seconds: an attacker can cause them


class LineWriter:
    """Writes lines to a descriptor from a thread; those for which there is no room are counted."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor, self.dropped, self.unreported = descriptor, 0, 0
        self.lines: queue.Queue[bytes | None] = queue.Queue(MAX_WAITING_LINES)
        self.thread = threading.Thread(target=self._write, daemon=True)
        self.thread.start()

    def put(self, line: str) -> None:
        try:
            self.lines.put_nowait(line.encode(errors="replace") + b"\n")
        except queue.Full:
            self.dropped += 1
            self.unreported += 1

    def _write(self) -> None:
        while (line := self.lines.get()) is not None:
            if self.unreported:
                count, self.unreported = self.unreported, 0
                line += event_line("log_dropped", count=count).encode() + b"\n"
            try:
                while line:
                    line = line[os.write(self.descriptor, line) :]
            except BlockingIOError:  # a descriptor that others have made so
                time.sleep(0.05)
            except OSError:  # its reader has gone for good
                self.dropped += 1

    def close(self) -> None:
        """Wait for what is queued, but not for a reader that has stalled."""
        try:
            self.lines.put(None, timeout=FLUSH_SECONDS)
            self.thread.join(FLUSH_SECONDS)
        except queue.Full:
            pass


def event_line(event: str, **fields: object) -> str:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return json.dumps({"time": now, "event": event, **fields}, ensure_ascii=False)


class ServerLog(logging.Handler):
    """Events as lines and numbers."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.writer = LineWriter(sys.stderr.fileno())
        self.library_lines, self.library_since = 0, 0.0
        self.registry = CollectorRegistry()
        options: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter("regard_requests", "Requests.", ["path", "status"], **options)
        self.seconds = Histogram("regard_request_seconds", "Time from request to answer.", ["path"], **options)
        self.requests_running = Gauge("regard_requests_running", "Requests that are being worked on.", **options)
        self.connections = Gauge("regard_connections", "Open connections.", **options)
        self.events = Counter("regard_events", "queue_full, worker_died, worker_started …", ["event"], **options)
        dropped = Gauge("regard_log_dropped", "Lines of the log that nobody took.", **options)
        dropped.set_function(lambda: self.writer.dropped)
        self.texts = Counter("regard_texts", "Texts that were answered.", ["model", "op"], **options)
        self.models = Gauge("regard_model_info", "1 for each model that is served.", ["model", "digest"], **options)
        self.workers = Gauge("regard_workers_ready", "Workers of a model that can be asked.", ["model"], **options)
        options["buckets"] = (1, 2, 4, 8, 16, 32, 64, 128, 256)
        self.batch_rows = Histogram("regard_batch_rows", "Texts computed together.", ["model"], **options)

    def log_event(self, event: str, **fields: object) -> None:
        if event != "request":
            self.events.labels(event).inc()
        self.writer.put(event_line(event, **fields))

    def emit(self, record: logging.LogRecord) -> None:
        """What a library says, within a limit; beyond it the event is counted all the same."""
        count, seconds = LIBRARY_LINES
        if time.monotonic() - self.library_since > seconds:
            self.library_since, self.library_lines = time.monotonic(), 0
        self.library_lines += 1
        if self.library_lines <= count:
            self.log_event("log", message=self.format(record))
        else:
            self.events.labels("log").inc()
