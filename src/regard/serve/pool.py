"""The models of a server: their worker processes, and which of them computes a request. Knows no HTTP.

A worker that dies or hangs is started again; its pending requests are sent once more to another, or to the new one. All
workers of a model have the same files, until `reload` puts new workers in the place of all.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from pathlib import Path

from regard.errors import RegardError
from regard.serve.messages import Capabilities, Item, RequestOptions, WorkerReply
from regard.serve.settings import RequestError, ServerSettings, loading
from regard.serve.worker_process import LogEvent, Replies, Worker, WorkerDied

RESTART_DELAY = (0.1, 30.0)  # seconds: at first, and at most


class ServedModel:
    """A trained model, and the workers that have it."""

    def __init__(self, name: str, run: Path, settings: ServerSettings, log_event: LogEvent) -> None:
        self.name, self.run, self.settings, self.log_event = name, run, settings, log_event
        self.workers: list[Worker] = []
        self.capabilities: Capabilities = {}
        self.texts = 0  # that wait or are computed
        self.worker_ready = asyncio.Event()
        self.tasks: set[asyncio.Task[None]] = set()

    def count_ready(self) -> int:
        return sum(worker.ready for worker in self.workers)

    @property
    def ready(self) -> bool:
        return self.count_ready() > 0

    @property
    def ops(self) -> list[str]:
        return self.capabilities.get("can", [])

    @property
    def digest(self) -> str:
        return self.capabilities.get("digest", "")

    async def load(self) -> None:
        """Put new workers in the place of all, once each of them has the model; until then, and after an error, the
        old ones answer. These finish what they have begun."""
        workers = [Worker(self.settings.worker_config(self.run), self.settings, self.log_event)
                   for _ in range(self.settings.workers)]  # fmt: skip
        starts = [asyncio.create_task(worker.start()) for worker in workers]
        try:
            first, *_ = await asyncio.gather(*starts)
            if len({worker.digest for worker in workers}) > 1:
                raise RegardError(f"{self.run}: its files were changed while workers loaded them")
        except BaseException:
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
            await asyncio.gather(*(worker.stop() for worker in workers if worker.ready))
            raise
        old, self.workers = self.workers, workers
        self.capabilities = {"name": self.name, **first}
        self.log_event("model_loaded", model=self.name, digest=self.digest)
        self.worker_ready.set()
        for worker in workers:
            self._keep(asyncio.create_task(self._supervise(worker)))
        for worker in old:
            self._keep(asyncio.create_task(self._retire(worker)))

    def _keep(self, task: "asyncio.Task[None]") -> None:
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _supervise(self, worker: Worker) -> None:
        """Start a worker again whenever it ends, with growing delays while it cannot be started."""
        delay = RESTART_DELAY[0]
        while True:
            await worker.listen()
            if worker not in self.workers:
                return
            self.log_event("worker_died", model=self.name, exit=worker.process.returncode)
            while not worker.ready:
                await asyncio.sleep(delay)
                delay = min(2 * delay, RESTART_DELAY[1])
                if worker not in self.workers:
                    return
                await self._restart(worker)
            self.worker_ready.set()
            delay = RESTART_DELAY[0]

    async def _restart(self, worker: Worker) -> None:
        """One try; a worker that finds other files than the model had is no worker of it."""
        try:
            await worker.start()
            if worker not in self.workers:  # others took its place meanwhile
                await worker.stop()
                return
            if worker.digest != self.digest:
                await worker.stop()
                raise RegardError(f"{self.run}: its files have changed; SIGHUP or /admin/reload takes the new ones")
        except Exception as error:  # the folder is being replaced, memory is short …
            self.log_event("worker_failed", model=self.name, why=str(error))
        else:
            self.log_event("worker_started", model=self.name, pid=worker.process.pid)

    async def _retire(self, worker: Worker) -> None:
        """Stop a worker that gets no more requests when those that it has are answered."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.timeout):
                while worker.pending and worker.ready:
                    await asyncio.sleep(0.02)
        if worker.ready:
            await worker.stop()

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await asyncio.gather(*(worker.stop() for worker in self.workers if worker.ready))

    async def least_busy(self) -> Worker:
        """The ready worker with the fewest texts, rather one that was heard of lately; waits where none is ready."""
        while not self.ready:
            self.worker_ready.clear()
            await self.worker_ready.wait()
        return min((worker for worker in self.workers if worker.ready), key=lambda each: (each.silent, each.texts))


class WorkerPool:
    """All models of a server."""

    def __init__(self, settings: ServerSettings, log_event: LogEvent) -> None:
        self.settings, self.log_event, self.request_ids = settings, log_event, itertools.count(1)
        self.models = {name: ServedModel(name, run, settings, log_event) for name, run in settings.runs.items()}
        self.loading = asyncio.Lock()

    async def load(self) -> None:
        """Load all models, at first or anew, one after the other where they are served already."""
        if self.loading.locked():
            raise RegardError("the models are being loaded already")
        async with self.loading:
            if self.loaded:
                for model in self.models.values():
                    await model.load()
                return
            loads = [asyncio.create_task(model.load()) for model in self.models.values()]
            try:
                await asyncio.gather(*loads)
            finally:
                for load in loads:
                    load.cancel()
                await asyncio.gather(*loads, return_exceptions=True)

    async def stop(self) -> None:
        await asyncio.gather(*(model.stop() for model in self.models.values()))

    @property
    def loaded(self) -> bool:
        """Whether every model has been loaded once."""
        return all(model.capabilities for model in self.models.values())

    @property
    def ready(self) -> bool:
        return all(model.ready for model in self.models.values())

    def find_model(self, name: str | None, op: str) -> ServedModel:
        """The model of this name, or the only one that has the operation."""
        if not self.loaded:
            raise loading()
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
                            yield {**reply, "digest": worker.digest}
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
