"""Who is asked, how often, and what is told when nobody answers."""

import asyncio
import fcntl
import resource
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from regard.errors import RegardError
from regard.serve.pool import WorkerPool
from regard.serve.settings import RequestError, ServerSettings
from regard.serve.worker_process import Replies, Worker, WorkerDied


class Mortal:
    """A worker that dies so many times before, or in, its answer."""

    def __init__(self, deaths: int, said: int = 0) -> None:
        self.deaths, self.said, self.ready, self.texts, self.asked = deaths, said, True, 0, 0
        self.silent, self.digest = 0, ""

    async def submit(self, id: int, op: str, items: list[Any], options: Any, deadline: float) -> Replies:
        self.asked += 1
        for n in range(self.said):
            yield {"id": id, "piece": str(n)}
        if self.deaths:
            self.deaths -= 1
            raise WorkerDied
        yield {"id": id, "results": [item.upper() for item in items]}


def pool(worker: Any, **settings: Any) -> WorkerPool:
    made = WorkerPool(ServerSettings({"m": Path("m")}, **settings), lambda event, **facts: None)
    made.models["m"].workers, made.models["m"].capabilities = [worker], {"can": ["up"]}
    return made


async def ask(made: WorkerPool) -> Any:
    return (await made.request(made.find_model(None, "up"), "up", ["a"], {}))["results"]


def test_a_request_is_asked_once_more_and_no_more() -> None:
    worker = Mortal(1)
    assert (asyncio.run(ask(pool(worker))), worker.asked) == (["A"], 2)
    worker = Mortal(2)
    with pytest.raises(RequestError) as caught:
        asyncio.run(ask(pool(worker)))
    assert (caught.value.status, caught.value.code, worker.asked) == (503, "worker_died", 2)


def test_a_stream_that_has_begun_is_not_begun_again() -> None:
    worker = Mortal(1, said=2)
    made = pool(worker)

    async def listen() -> list[str]:
        return [m["piece"] async for m in made.stream(made.find_model("m", "up"), "up", ["a"], {})]

    with pytest.raises(RequestError) as caught:
        asyncio.run(listen())
    assert (caught.value.code, worker.asked, made.models["m"].texts) == ("worker_died", 1, 0)


def test_who_leaves_gives_back_the_place() -> None:
    made = pool(Mortal(0, said=5), queue=1)

    async def leave() -> None:
        messages = made.stream(made.find_model("m", "up"), "up", ["a"], {})
        await anext(messages)
        assert made.models["m"].texts == 1
        with pytest.raises(RequestError) as caught:
            await ask(made)
        assert caught.value.status == 429
        await messages.aclose()
        assert made.models["m"].texts == 0

    asyncio.run(leave())


def test_without_a_worker_it_waits_no_longer_than_allowed() -> None:
    worker = Mortal(0)
    worker.ready = False
    made = pool(worker, timeout=0.05)
    with pytest.raises(RequestError) as caught:
        asyncio.run(ask(made))
    assert (caught.value.status, made.models["m"].texts) == (504, 0)


def test_a_model_must_be_named_where_several_can() -> None:
    made = WorkerPool(ServerSettings({"a": Path("a"), "b": Path("b")}), lambda event, **facts: None)
    for model in made.models.values():
        model.capabilities = {"can": ["up"]}
    assert made.find_model("b", "up").name == "b"
    with pytest.raises(RequestError) as caught:
        made.find_model(None, "up")
    assert (caught.value.status, caught.value.code) == (400, "model_missing")


def test_a_worker_that_cannot_be_started_again_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Mortal):
        process = SimpleNamespace(returncode=-9, pid=7)

        async def listen(self) -> None:
            if self.asked:
                await asyncio.Event().wait()
            self.ready = False

        async def start(self) -> None:
            self.asked += 1
            if self.asked == 1:
                raise RegardError("the folder is gone")
            if self.asked == 2:
                raise ValueError("half a line")
            self.ready = True

    told: list[tuple[str, Any]] = []
    made = WorkerPool(ServerSettings({"m": Path("m")}), lambda event, **facts: told.append((event, facts.get("why"))))
    monkeypatch.setattr("regard.serve.pool.RESTART_DELAY", (0.001, 0.002))

    async def keep() -> None:
        worker: Any = Slow(0)
        made.models["m"].workers = [worker]
        task = asyncio.create_task(made.models["m"]._supervise(worker))
        await made.models["m"].worker_ready.wait()
        task.cancel()

    asyncio.run(keep())
    assert told == [("worker_died", None), ("worker_failed", "the folder is gone"), ("worker_failed", "half a line"),
                    ("worker_started", None)]  # fmt: skip


ENDLESS = """
import runpy, sys
from regard.serve.batch_scheduler import BatchScheduler
def endless(scheduler):
    while True:
        pass
BatchScheduler.step = endless
sys.argv = sys.argv[1:]
runpy.run_module("regard.serve.worker", run_name="__main__", alter_sys=True)
"""


def test_a_worker_is_heard_where_its_server_has_many_descriptors(
    bert_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand clients have all low numbers, and its process inherits a socket with a high one."""
    before, ours, events = resource.getrlimit(resource.RLIMIT_NOFILE), socket.socketpair, list[str]()
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 2048), before[1]))

    def high() -> tuple[socket.socket, socket.socket]:
        one, other = ours()
        with other:
            return one, socket.socket(fileno=fcntl.fcntl(other, fcntl.F_DUPFD_CLOEXEC, 1100))

    async def run() -> Any:
        settings = ServerSettings({"m": bert_run}, device="cpu", timeout=60)
        made = WorkerPool(settings, lambda event, **facts: events.append(event))
        monkeypatch.setattr(socket, "socketpair", high)
        await made.load()
        monkeypatch.undo()
        try:
            return await made.request(made.find_model(None, "fill"), "fill", ["the [MASK]"], {"top": 1})
        finally:
            await made.stop()

    try:
        assert len(asyncio.run(run())["results"]) == 1
        assert events == ["model_loaded"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_an_endless_computation_is_ended(bert_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process gives signs of life all the while."""
    (tmp_path / "endless.py").write_text(ENDLESS)
    endless = (sys.executable, str(tmp_path / "endless.py"), "regard.serve.worker")
    told: list[tuple[str, dict[str, Any]]] = []
    settings = ServerSettings({"m": bert_run}, device="cpu", step_timeout=0.5, timeout=120)

    async def run() -> Any:
        made = WorkerPool(settings, lambda event, **facts: told.append((event, facts)))
        monkeypatch.setattr(Worker, "command", endless)
        await made.load()
        monkeypatch.undo()  # the next one computes
        try:
            return await made.request(made.find_model(None, "fill"), "fill", ["the [MASK]"], {"top": 1})
        finally:
            await made.stop()

    answer = asyncio.run(run())
    assert len(answer["results"]) == 1
    assert [event for event, _ in told] == ["model_loaded", "worker_hung", "worker_died", "worker_started"]
    assert told[1][1]["why"] == "one step took longer than 0.5 seconds"
