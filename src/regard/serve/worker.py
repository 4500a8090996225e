"""A worker process: it owns one model and answers requests that come over a socket, a line of JSON each way.

It ends when the socket is closed, never by a signal, so that running requests can finish. Knows no HTTP.
"""

import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Unpack

from regard.serve.messages import WorkerConfig, WorkerReply

CHUNK = 1 << 16


class Channel:
    """Messages from and to the server."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.buffer, self.open = sock, b"", True

    def receive(self, wait: bool) -> Iterator[dict[str, Any]]:
        """Messages that have arrived; where there are none, wait for one if asked to."""
        while self.open and select.select([self.sock], [], [], None if wait else 0)[0]:
            data = self.sock.recv(CHUNK)
            self.open = bool(data)
            *lines, self.buffer = (self.buffer + data).split(b"\n")
            yield from map(json.loads, lines)
            wait = wait and not lines
            if len(data) < CHUNK and not wait:
                return

    def send(self, **message: Unpack[WorkerReply]) -> None:
        try:
            self.sock.sendall(json.dumps(message, ensure_ascii=False).encode(errors="replace") + b"\n")
        except OSError:  # the server has gone
            self.open = False


def run_worker(config: WorkerConfig, channel: Channel) -> None:
    import torch

    from regard.errors import RegardError
    from regard.interop.engines import engine_loader
    from regard.serve.schedulers import WorkRequest, build_schedulers, capabilities

    torch.set_num_threads(config["threads"])
    try:
        model = engine_loader(config["engine"], config["precision"])(Path(config["run"]), config["device"])
        schedulers = build_schedulers(model, channel.send, config["slots"])
    except (RegardError, OSError) as error:
        channel.send(failed=str(error))
        return
    gc.collect()
    gc.freeze()  # the model stays: a collection that looks through it would delay every request by a tenth of a second
    channel.send(hello=capabilities(model, schedulers))
    by_op = {op: scheduler for scheduler in schedulers for op in scheduler.ops}
    while channel.open:
        for message in channel.receive(wait=not any(scheduler.busy for scheduler in schedulers)):
            if "cancel" in message:
                for scheduler in schedulers:
                    scheduler.cancel(message["cancel"])
            else:
                by_op[message["op"]].add(WorkRequest(**message))
        for scheduler in schedulers:
            if scheduler.busy:
                scheduler.step()


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    failed = 0
    try:
        run_worker(json.loads(sys.argv[1]), Channel(socket.socket(fileno=int(sys.argv[2]))))
    except Exception as error:
        from regard.serve.schedulers import log_exception

        log_exception(error)
        failed = 1
    sys.stderr.flush()
    os._exit(failed)  # threads of libraries must delay neither the end nor the next worker
