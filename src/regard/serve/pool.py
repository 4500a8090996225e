"""The worker processes of a server and their pending requests. Knows no HTTP and no model.

A worker that dies is started again; its pending requests are sent once more to another, or to the new one.
"""

import asyncio
import contextlib
import itertools
import json
import os
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path

from regard.errors import RegardError
from regard.serve.messages import Capabilities, Item, RequestOptions, WorkerConfig, WorkerReply
from regard.serve.settings import RequestError, ServerSettings

MAX_REPLY_BYTES = 1 << 27
RESTART_DELAY = (0.1, 30.0)  # seconds: at first, and at most
Replies = AsyncGenerator[WorkerReply, None]
LogEvent = Callable[..., None]  # (event, **fields)


class WorkerDied(Exception):
    """The worker ended before its reply."""


class Worker:
    """One process and its pending requests."""

    def __init__(self, config: WorkerConfig) -> None:
        self.config, self.ready = config, False
        self.pending: dict[int | None, asyncio.Queue[WorkerReply | None]] = {}  # by request; None: the worker has died
        self.texts = 0  # of pending requests

    async def start(self) -> Capabilities:
        """The capabilities of the model; RegardError where it cannot be loaded."""
        ours, theirs = socket.socketpair()
        arguments = ("-m", "regard.serve.worker", json.dumps(self.config), str(theirs.fileno()))
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, pass_fds=[theirs.fileno()], env=os.environ | self.environment()
        )
        theirs.close()
        self.reader, self.writer = await asyncio.open_connection(sock=ours, limit=MAX_REPLY_BYTES)
        first: WorkerReply = json.loads(await self.reader.readline() or b"{}")
        if "hello" not in first:
            await self.stop()
            raise RegardError(first.get("failed") or f"{self.config['run']}: its worker ended before it was ready")
        self.ready = True
        return first["hello"]

    def environment(self) -> dict[str, str]:
        """Threads of libraries: those of tokenizers, woken up for one sentence, cost more than they gain."""
        return {"OMP_NUM_THREADS": str(self.config["threads"]), "TOKENIZERS_PARALLELISM": "false"}

    async def listen(self) -> None:
        """Hand replies to the requests that wait for them, until the process ends."""
        with contextlib.suppress(ConnectionError, ValueError):
            while line := await self.reader.readline():
                reply: WorkerReply = json.loads(line)
                if queue := self.pending.get(reply.get("id")):
                    queue.put_nowait(reply)
        self.ready = False
        for queue in self.pending.values():
            queue.put_nowait(None)
        await self.stop()

    async def stop(self) -> None:
        """Close the socket, which ends the worker; one that does not see it is killed."""
        self.ready = False
        self.writer.close()
        try:
            await asyncio.wait_for(self.process.wait(), 5)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()

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


class ServedModel:
    """A trained model, and the workers that have it."""

    def __init__(self, name: str, run: Path, settings: ServerSettings, log_event: LogEvent) -> None:
        self.name, self.settings, self.log_event = name, settings, log_event
        self.workers = [Worker(settings.worker_config(run)) for _ in range(settings.workers)]
        self.capabilities: Capabilities = {}
        self.texts = 0  # that wait or are computed
        self.worker_ready = asyncio.Event()

    @property
    def ready(self) -> bool:
        return any(worker.ready for worker in self.workers)

    @property
    def ops(self) -> list[str]:
        return self.capabilities.get("can", [])

    async def start(self) -> list["asyncio.Task[None]"]:
        """Load the model in all workers; gives the tasks that keep them alive."""
        first, *_ = await asyncio.gather(*(worker.start() for worker in self.workers))
        self.capabilities = {"name": self.name, **first}
        return [asyncio.create_task(self._supervise(worker)) for worker in self.workers]

    async def _supervise(self, worker: Worker) -> None:
        """Start a worker again whenever it ends, with growing delays while it cannot be started."""
        delay = RESTART_DELAY[0]
        while True:
            await worker.listen()
            self.log_event("worker_died", model=self.name, exit=worker.process.returncode)
            while not worker.ready:
                await asyncio.sleep(delay)
                delay = min(2 * delay, RESTART_DELAY[1])
                try:
                    await worker.start()
                except Exception as error:  # the folder is being replaced, memory is short …
                    self.log_event("worker_failed", model=self.name, why=str(error))
            self.log_event("worker_started", model=self.name, pid=worker.process.pid)
            self.worker_ready.set()
            delay = RESTART_DELAY[0]

    async def stop(self) -> None:
        await asyncio.gather(*(worker.stop() for worker in self.workers if worker.ready))

    async def least_busy(self) -> Worker:
        """The ready worker with the fewest texts; waits for one where none is ready."""
        while not self.ready:
            self.worker_ready.clear()
            await self.worker_ready.wait()
        return min((worker for worker in self.workers if worker.ready), key=lambda worker: worker.texts)


class WorkerPool:
    """All models of a server."""

    def __init__(self, settings: ServerSettings, log_event: LogEvent) -> None:
        self.settings, self.log_event, self.request_ids = settings, log_event, itertools.count(1)
        self.models = {name: ServedModel(name, run, settings, log_event) for name, run in settings.runs.items()}
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        try:
            for tasks in await asyncio.gather(*(model.start() for model in self.models.values())):
                self.tasks += tasks
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*(model.stop() for model in self.models.values()))

    @property
    def ready(self) -> bool:
        return all(model.ready for model in self.models.values())

    def find_model(self, name: str | None, op: str) -> ServedModel:
        """The model of this name, or the only one that has the operation."""
        able = [model for model in self.models.values() if op in model.ops]
        names = ", ".join(model.name for model in able)
        if name is not None:
            if name not in self.models:
                raise RequestError(
                    404, "no_such_model", f"there is no model of this name; GET /v1/models lists {names}"
                )
            if op not in self.models[name].ops:
                raise RequestError(400, "cannot", f"the model {name} cannot {op}; of those here {names or 'none'} can")
            return self.models[name]
        if not able:
            raise RequestError(400, "cannot", f"none of the models here can {op}")
        if len(able) > 1:
            raise RequestError(400, "model_missing", f"several models can {op}; name one as model: {names}")
        return able[0]

    async def stream(self, model: ServedModel, op: str, items: Sequence[Item], options: RequestOptions) -> Replies:
        """Replies of a worker; RequestError where the queue is full, time is up or there is no result."""
        if model.texts + len(items) > self.settings.queue:
            self.log_event("queue_full", model=model.name)
            sentence = f"{model.texts} texts are waiting for {model.name}; try again soon"
            raise RequestError(429, "busy", sentence, retry=1)
        model.texts += len(items)
        deadline, begun = asyncio.get_running_loop().time() + self.settings.timeout, False
        try:
            for attempt in (1, 2):
                async with asyncio.timeout_at(deadline):
                    worker = await model.least_busy()
                try:
                    replies = worker.submit(next(self.request_ids), op, items, options, deadline)
                    async with contextlib.aclosing(replies):
                        async for reply in replies:
                            if "error" in reply:
                                status = 422 if reply["code"] == "impossible" else 500
                                raise RequestError(status, reply["code"], reply["error"])
                            begun = True
                            yield reply
                    return
                except WorkerDied:
                    if begun or attempt == 2:
                        sentence = "the model's process ended; ask again"
                        raise RequestError(503, "worker_died", sentence, retry=1) from None
        except TimeoutError:
            limit = f"{self.settings.timeout:g} seconds"
            raise RequestError(504, "timeout", f"this took longer than the limit of {limit}") from None
        finally:
            model.texts -= len(items)

    async def request(self, model: ServedModel, op: str, items: Sequence[Item], options: RequestOptions) -> WorkerReply:
        """The one reply to a request that is not a stream."""
        async with contextlib.aclosing(self.stream(model, op, items, options)) as replies:
            return await anext(replies)
