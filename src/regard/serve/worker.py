"""A worker process: it owns one model and answers requests that come over a socket, a line of JSON each way.

It ends when the socket is closed or the server's process has gone, never by a polite signal, so that running requests
can finish. A thread says at short intervals that the process lives and how many steps it has computed. Knows no HTTP.
"""

import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Unpack

from regard.errors import RegardError
from regard.reporting import Json
from regard.serve.messages import WorkerConfig, WorkerReply

CHUNK = 1 << 16
BEAT_SECONDS = 0.25
PR_SET_PDEATHSIG = 1  # of prctl, in Linux


class Channel:
    """Messages from and to the server."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.buffer, self.open = sock, b"", True
        self.steps, self.busy, self.sending = 0, False, threading.Lock()

    def receive(self, wait: bool) -> Iterator[Json]:
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
            with self.sending:
                self.sock.sendall(json.dumps(message, ensure_ascii=False).encode(errors="replace") + b"\n")
        except OSError:  # the server has gone
            self.open = False

    def beat(self) -> None:
        """Signs of life until the server has gone, which ends the process in whatever it computes."""
        while self.open:
            self.send(beat=self.steps, busy=self.busy)
            time.sleep(BEAT_SECONDS)
        os._exit(0)


def end_with(server: int) -> None:
    """Linux kills this process when its server ends, even by SIGKILL; a stopped process too."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:  # it was gone before
            os._exit(0)


def load_model(config: WorkerConfig) -> tuple[Any, str]:
    """The model and the digest of its files, which nobody may change meanwhile."""
    from regard.interop.engines import engine_loader
    from regard.io.manifest import file_stamps, model_digest

    run = Path(config["run"])
    load, before = engine_loader(config["engine"], config["precision"]), file_stamps(run)
    digest = model_digest(run)
    model = load(run, config["device"])
    if file_stamps(run) != before:
        raise RegardError(f"{run}: its files were changed while they were read")
    return model, digest


def card_examples(run: str) -> list[str]:
    """Texts to try, of the model's card, which may be missing or wrong: it is words."""
    from regard.io.model_card import read_card

    try:
        card = read_card(Path(run))
    except RegardError:
        return []
    return list(card.examples) if card else []


def run_worker(config: WorkerConfig, channel: Channel) -> None:
    import torch

    from regard.serve.scheduler import WorkRequest
    from regard.serve.schedulers import build_schedulers, capabilities

    torch.set_num_threads(config["threads"])
    try:
        model, digest = load_model(config)
        schedulers = build_schedulers(model, channel.send, config["slots"])
    except (RegardError, OSError) as error:
        channel.send(failed=str(error))
        return
    gc.collect()
    gc.freeze()  # the model stays: a collection that looks through it would delay every request by a tenth of a second
    facts = capabilities(model, schedulers)
    if examples := card_examples(config["run"]):
        facts["examples"] = examples
    channel.send(hello={**facts, "digest": digest})
    by_op = {op: scheduler for scheduler in schedulers for op in scheduler.ops}
    while channel.open:
        channel.busy = any(scheduler.busy for scheduler in schedulers)
        for message in channel.receive(wait=not channel.busy):
            channel.busy = True
            if "cancel" in message:
                for scheduler in schedulers:
                    scheduler.cancel(message["cancel"])
            else:
                by_op[message["op"]].add(WorkRequest(**message))
        for scheduler in schedulers:
            if scheduler.busy:
                scheduler.step()
                channel.steps += 1


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    failed = 0
    try:
        worker_config: WorkerConfig = json.loads(sys.argv[1])
        end_with(worker_config["server"])
        # A copy has the lowest free number: `select` takes none from 1024 on, which a server with many clients gives.
        own_channel = Channel(socket.socket(fileno=os.dup(int(sys.argv[2]))))
        os.close(int(sys.argv[2]))
        threading.Thread(target=own_channel.beat, daemon=True).start()
        run_worker(worker_config, own_channel)
    except Exception as error:
        from regard.serve.scheduler import log_exception

        log_exception(error)
        failed = 1
    sys.stderr.flush()
    os._exit(failed)  # threads of libraries must delay neither the end nor the next worker
