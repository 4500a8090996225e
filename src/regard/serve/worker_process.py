"""One worker as its server sees it: a process, its signs of life, its pending requests. Knows no HTTP and no model."""

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

from regard.errors import RegardError
from regard.serve.messages import Capabilities, Item, RequestOptions, WorkerConfig, WorkerReply
from regard.serve.settings import ServerSettings

MAX_REPLY_BYTES = 1 << 27
MAX_LOG_LINE = 1 << 16
LOADING_SILENCE = 60.0  # seconds without a sign of life while it imports and loads, which may hold back its threads
SILENCES = 4  # in a row, each a part of the heartbeat timeout: one alone may be the server's own standstill
STOP_SECONDS = 5.0
Replies = AsyncGenerator[WorkerReply, None]
LogEvent = Callable[..., None]  # (event, **fields)


class WorkerDied(Exception):
    """The worker ended before its reply."""


class Worker:
    """A process that is killed when it gives no sign of life, or computes one step for too long."""

    command = (sys.executable, "-m", "regard.serve.worker")
    process: asyncio.subprocess.Process

    def __init__(self, config: WorkerConfig, settings: ServerSettings, log_event: LogEvent) -> None:
        self.config, self.settings, self.log_event = config, settings, log_event
        self.ready, self.digest = False, ""
        self.pending: dict[int | None, asyncio.Queue[WorkerReply | None]] = {}  # by request; None: the worker has died
        self.texts = 0  # of pending requests
        self.silent = 0  # parts of the heartbeat timeout without a message

    async def start(self) -> Capabilities:
        """The capabilities of the model; RegardError where it cannot be loaded."""
        ours, theirs = socket.socketpair()
        arguments = (json.dumps(self.config), str(theirs.fileno()))
        with theirs:
            self.process = await asyncio.create_subprocess_exec(
                *self.command, *arguments, pass_fds=[theirs.fileno()], env=os.environ | self.environment(),
                stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, limit=MAX_LOG_LINE,
            )  # fmt: skip
        self.reader, self.writer = await asyncio.open_connection(sock=ours, limit=MAX_REPLY_BYTES)
        self.log_task = asyncio.create_task(self._relay_log())
        try:
            first = await self._first_message()
        except BaseException:
            await self.stop()
            raise
        if "hello" not in first:
            await self.stop()
            raise RegardError(first.get("failed") or f"{self.config['run']}: its worker ended before it was ready")
        self.ready, self.digest, self.silent = True, first["hello"].get("digest", ""), 0
        return first["hello"]

    def environment(self) -> dict[str, str]:
        """Threads of libraries: those of tokenizers, woken up for one sentence, cost more than they gain."""
        return {"OMP_NUM_THREADS": str(self.config["threads"]), "TOKENIZERS_PARALLELISM": "false"}

    async def _first_message(self) -> WorkerReply:
        """The first that is no sign of life; empty where the process ended."""
        try:
            async with asyncio.timeout(self.settings.start_timeout):
                while True:
                    async with asyncio.timeout(LOADING_SILENCE):
                        line = await self.reader.readline()
                    message: WorkerReply = json.loads(line or b"{}")
                    if "beat" not in message:
                        return message
        except TimeoutError:
            self.kill()
            sentence = "its worker did not load the model in time; --start-timeout may allow more"
            raise RegardError(f"{self.config['run']}: {sentence}") from None

    async def listen(self) -> None:
        """Hand replies to the requests that wait for them, until the process ends or is killed."""
        steps, moved = -1, 0.0
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ConnectionError, ValueError):
            while reply := await self._next_message():
                if "beat" not in reply:
                    if queue := self.pending.get(reply.get("id")):
                        queue.put_nowait(reply)
                elif not reply["busy"] or reply["beat"] != steps:
                    steps, moved = reply["beat"], loop.time()
                elif loop.time() - moved > self.settings.step_timeout:
                    self._kill_hung(f"one step took longer than {self.settings.step_timeout:g} seconds")
                    break
        self.ready = False
        for queue in self.pending.values():
            queue.put_nowait(None)
        await self.stop()

    async def _next_message(self) -> WorkerReply | None:
        """None where the process has ended, or is killed because it says nothing."""
        while True:
            try:
                async with asyncio.timeout(self.settings.heartbeat_timeout / SILENCES):
                    line = await self.reader.readline()
                self.silent = 0
                return json.loads(line) if line else None
            except TimeoutError:
                self.silent += 1
                if self.silent == SILENCES:
                    self._kill_hung(f"it gave no sign of life for {self.settings.heartbeat_timeout:g} seconds")
                    return None

    def _kill_hung(self, why: str) -> None:
        self.log_event("worker_hung", run=self.config["run"], pid=self.process.pid, why=why)
        self.kill()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    async def _relay_log(self) -> None:
        """Lines of the worker's stderr become lines of the server's log; a worker never waits for who reads that."""
        assert self.process.stderr
        while True:
            try:
                line = (await self.process.stderr.readline()).decode(errors="replace")
            except ValueError:  # longer than a line may be: dropped
                continue
            if not line:
                return
            try:
                event = json.loads(line)
                self.log_event(event.pop("event"), **event)
            except (ValueError, AttributeError, KeyError, TypeError):
                if line.strip():
                    self.log_event("log", message=line.rstrip())

    async def stop(self) -> None:
        """Close the socket, which ends the worker; one that does not see it is killed."""
        self.ready = False
        self.writer.transport.abort()
        for _ in range(2):
            try:
                await asyncio.wait_for(self.process.wait(), STOP_SECONDS)
                await asyncio.wait_for(self.log_task, STOP_SECONDS)
                return
            except TimeoutError:
                self.kill()
        self.log_event("worker_left", run=self.config["run"], pid=self.process.pid)  # the kernel holds it

    async def submit(
        self, id: int, op: str, items: Sequence[Item], options: RequestOptions, deadline: float
    ) -> Replies:
        """Replies to a request, until the last; closing the generator earlier cancels it."""
        queue: asyncio.Queue[WorkerReply | None] = asyncio.Queue()
        self.pending[id], last = queue, False
        self.texts += len(items)
        self._send({"id": id, "op": op, "items": items, "options": options})
        try:
            while not last:
                async with asyncio.timeout_at(deadline):  # a stream may be read in another task than it began in
                    reply = await queue.get()
                if reply is None:
                    raise WorkerDied
                last = "piece" not in reply
                yield reply
        finally:
            del self.pending[id]
            self.texts -= len(items)
            if not last and self.ready:
                self._send({"cancel": id})

    def _send(self, message: Mapping[str, object]) -> None:
        if not self.writer.is_closing():
            self.writer.write(json.dumps(message, ensure_ascii=False).encode(errors="replace") + b"\n")
