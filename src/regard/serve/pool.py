"""The worker processes of a server, and who waits for what of them. Knows no HTTP and no model.

A worker that dies is started again; what it was asked is asked once more of another, or of the new one.
"""

import asyncio
import contextlib
import itertools
import json
import os
import socket
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.serve.settings import Refused, Settings

LONGEST = 1 << 27  # bytes of an answer
WAIT = (0.1, 30.0)  # seconds before a worker is started again: at first, and at most
Messages = AsyncGenerator[dict[str, Any], None]
Tell = Callable[..., None]  # (event, facts…): what the log and the metrics learn


class Died(Exception):
    """The worker ended before its answer."""


class Worker:
    """One process and the requests it was given."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.told, self.ready = told, False
        self.waiting: dict[int, asyncio.Queue[dict[str, Any] | None]] = {}  # None: it has died
        self.texts = 0  # that it was given and has not answered

    async def start(self) -> dict[str, Any]:
        """What the model is; RegardError where it cannot be loaded."""
        ours, theirs = socket.socketpair()
        code = ("-m", "regard.serve.worker", json.dumps(self.told), str(theirs.fileno()))
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, *code, pass_fds=[theirs.fileno()], env=os.environ | self.settled()
        )
        theirs.close()
        self.reader, self.writer = await asyncio.open_connection(sock=ours, limit=LONGEST)
        first = json.loads(await self.reader.readline() or b"{}")
        if "hello" not in first:
            await self.stop()
            raise RegardError(first.get("failed") or f"{self.told['run']}: its worker ended before it was ready")
        self.ready = True
        return first["hello"]

    def settled(self) -> dict[str, str]:
        """Threads, for every library: its own that wake up for a sentence cost tokenizers more than they do."""
        return {"OMP_NUM_THREADS": str(self.told["threads"]), "TOKENIZERS_PARALLELISM": "false"}

    async def listen(self) -> None:
        """Hand out answers, until the process ends."""
        with contextlib.suppress(ConnectionError, ValueError):
            while line := await self.reader.readline():
                message = json.loads(line)
                if queue := self.waiting.get(message.get("id")):
                    queue.put_nowait(message)
        self.ready = False
        for queue in self.waiting.values():
            queue.put_nowait(None)
        await self.stop()

    async def stop(self) -> None:
        """The end of the socket is the worker's end; one that does not see it is killed."""
        self.ready = False
        self.writer.close()
        try:
            await asyncio.wait_for(self.process.wait(), 5)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()

    async def ask(self, id: int, op: str, items: list[Any], options: dict[str, Any], deadline: float) -> Messages:
        """Messages of this request, the last one too; who stops listening has cancelled it."""
        queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.waiting[id], last = queue, False
        self.texts += len(items)
        self._send({"id": id, "op": op, "items": items, "options": options})
        try:
            while not last:
                async with asyncio.timeout_at(deadline):  # a stream may be read in another task than it began in
                    message = await queue.get()
                if message is None:
                    raise Died
                last = "piece" not in message
                yield message
        finally:
            del self.waiting[id]
            self.texts -= len(items)
            if not last and self.ready:
                self._send({"cancel": id})

    def _send(self, message: dict[str, Any]) -> None:
        if not self.writer.is_closing():
            self.writer.write(json.dumps(message, ensure_ascii=False).encode(errors="replace") + b"\n")


class Model:
    """A trained model, and the workers that have it."""

    def __init__(self, name: str, run: Path, settings: Settings, tell: Tell) -> None:
        self.name, self.settings, self.tell = name, settings, tell
        self.workers = [Worker(settings.worker(run)) for _ in range(settings.workers)]
        self.portrait: dict[str, Any] = {}
        self.texts = 0  # that wait or are worked on
        self.came = asyncio.Event()  # a worker is ready

    @property
    def ready(self) -> bool:
        return any(worker.ready for worker in self.workers)

    @property
    def can(self) -> list[str]:
        return self.portrait.get("can", [])

    async def start(self) -> list["asyncio.Task[None]"]:
        portraits = await asyncio.gather(*(worker.start() for worker in self.workers))
        self.portrait = {"name": self.name, **portraits[0]}
        return [asyncio.create_task(self._keep(worker)) for worker in self.workers]

    async def _keep(self, worker: Worker) -> None:
        """Start a worker again whenever it ends, later and later while it cannot."""
        wait = WAIT[0]
        while True:
            await worker.listen()
            self.tell("worker_died", model=self.name, exit=worker.process.returncode)
            while not worker.ready:
                await asyncio.sleep(wait)
                wait = min(2 * wait, WAIT[1])
                try:
                    await worker.start()
                except Exception as error:  # the folder is being replaced, memory is short …
                    self.tell("worker_failed", model=self.name, why=str(error))
            self.tell("worker_started", model=self.name, pid=worker.process.pid)
            self.came.set()
            wait = WAIT[0]

    async def stop(self) -> None:
        await asyncio.gather(*(worker.stop() for worker in self.workers if worker.ready))

    async def pick(self) -> Worker:
        """The ready worker with the least to do; wait for one where there is none."""
        while not self.ready:
            self.came.clear()
            await self.came.wait()
        return min((worker for worker in self.workers if worker.ready), key=lambda worker: worker.texts)


class Pool:
    def __init__(self, settings: Settings, tell: Tell) -> None:
        self.settings, self.tell, self.numbers = settings, tell, itertools.count(1)
        self.models = {name: Model(name, run, settings, tell) for name, run in settings.runs.items()}
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

    def model(self, name: str | None, op: str) -> Model:
        """The one that is named, or the only one that can do it."""
        able = [model for model in self.models.values() if op in model.can]
        names = ", ".join(model.name for model in able)
        if name is not None:
            if name not in self.models:
                raise Refused(404, "no_such_model", f"there is no model of this name; GET /v1/models lists {names}")
            if op not in self.models[name].can:
                raise Refused(400, "cannot", f"the model {name} cannot {op}; of those here {names or 'none'} can")
            return self.models[name]
        if not able:
            raise Refused(400, "cannot", f"none of the models here can {op}")
        if len(able) > 1:
            raise Refused(400, "model_missing", f"several models can {op}; name one as model: {names}")
        return able[0]

    async def stream(self, model: Model, op: str, items: list[Any], options: dict[str, Any]) -> Messages:
        """Messages of a worker; Refused where there is no room, no time or no result."""
        if model.texts + len(items) > self.settings.queue:
            self.tell("queue_full", model=model.name)
            raise Refused(429, "busy", f"{model.texts} texts are waiting for {model.name}; try again soon", retry=1)
        model.texts += len(items)
        deadline, begun = asyncio.get_running_loop().time() + self.settings.timeout, False
        try:
            for again in (True, False):
                async with asyncio.timeout_at(deadline):
                    worker = await model.pick()
                try:
                    messages = worker.ask(next(self.numbers), op, items, options, deadline)
                    async with contextlib.aclosing(messages):
                        async for message in messages:
                            if "error" in message:
                                status = 422 if message["code"] == "impossible" else 500
                                raise Refused(status, message["code"], message["error"])
                            begun = True
                            yield message
                    return
                except Died:
                    if begun or not again:
                        raise Refused(503, "worker_died", "the model's process ended; ask again", retry=1) from None
        except TimeoutError:
            limit = f"{self.settings.timeout:g} seconds"
            raise Refused(504, "timeout", f"this took longer than the limit of {limit}") from None
        finally:
            model.texts -= len(items)

    async def ask(self, model: Model, op: str, items: list[Any], options: dict[str, Any]) -> dict[str, Any]:
        """The one answer of a request that is not a stream."""
        async with contextlib.aclosing(self.stream(model, op, items, options)) as messages:
            return await anext(messages)
