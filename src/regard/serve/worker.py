"""A worker process: it owns one model and answers what comes over a socket, a line of JSON each way.

It is told to end by the socket's end, never by a signal, so that what is running can finish. Knows no HTTP.
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
from typing import Any

CHUNK = 1 << 16


class Line:
    """Messages from and to the server."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.rest, self.open = sock, b"", True

    def read(self, wait: bool) -> Iterator[dict[str, Any]]:
        """What has come; where nothing has, wait for it or go on."""
        while self.open and select.select([self.sock], [], [], None if wait else 0)[0]:
            data = self.sock.recv(CHUNK)
            self.open = bool(data)
            *lines, self.rest = (self.rest + data).split(b"\n")
            yield from map(json.loads, lines)
            wait = wait and not lines
            if len(data) < CHUNK and not wait:
                return

    def say(self, **message: Any) -> None:
        try:
            self.sock.sendall(json.dumps(message, ensure_ascii=False).encode(errors="replace") + b"\n")
        except OSError:  # nobody listens any more
            self.open = False


def main(told: dict[str, Any], line: Line) -> None:
    import torch

    from regard.errors import RegardError
    from regard.interop.engines import engine_loader
    from regard.serve.schedulers import Job, desks, portrait

    torch.set_num_threads(told["threads"])
    try:
        made = engine_loader(told["engine"], told["precision"])(Path(told["run"]), told["device"])
        open_desks = desks(made, line.say, told["places"])
    except (RegardError, OSError) as error:
        line.say(failed=str(error))
        return
    gc.collect()
    gc.freeze()  # what is loaded stays: to look through all of it again would hold up everybody for a tenth of a second
    line.say(hello=portrait(made, open_desks))
    by_op = {op: desk for desk in open_desks for op in desk.ops}
    while line.open:
        for message in line.read(wait=not any(desk.busy for desk in open_desks)):
            if "cancel" in message:
                for desk in open_desks:
                    desk.drop(message["cancel"])
            else:
                job = Job(**message)
                by_op[job.op].take(job)
        for desk in open_desks:
            if desk.busy:
                desk.work()


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    failed = 0
    try:
        main(json.loads(sys.argv[1]), Line(socket.socket(fileno=int(sys.argv[2]))))
    except Exception as error:
        from regard.serve.schedulers import confess

        confess(error)
        failed = 1
    sys.stderr.flush()
    os._exit(failed)  # threads of libraries shall hold up neither the end nor the next worker
