"""Whatever bytes come: no 5xx, no traceback, no hang, no growth, and the server answers as before."""

import asyncio
import re
from collections import Counter

import psutil
import pytest

from tests.serve.bad_requests import bad_requests
from tests.serve.live import Server

CLIENTS = 16
HANG = 5.0  # seconds; asked for of a quiet machine, and this one may be busy
STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")


async def send_all(port: int, count: int) -> tuple[Counter[int], list[bytes], float]:
    """Statuses, requests that got a 5xx or nothing in time, and the longest wait. Each client closes its side."""
    statuses, failed, slowest = Counter[int](), list[bytes](), 0.0
    requests, loop = bad_requests(seed=count), asyncio.get_running_loop()
    left = iter(range(count))

    async def client() -> None:
        nonlocal slowest
        for _ in left:
            data, answer, begin = next(requests), b"", loop.time()
            try:
                async with asyncio.timeout(6 * HANG):
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.write(data)
                    writer.write_eof()
                    answer = await reader.read()
            except ConnectionError:  # it was closed while it was being sent
                pass
            except TimeoutError:
                failed.append(data)
            writer.transport.abort()
            slowest = max(slowest, loop.time() - begin)
            found = [int(status) for status in STATUS.findall(answer) if status != b"100"] or [0]
            statuses.update(found[:1])
            if found[0] >= 500:
                failed.append(data)

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return statuses, failed, slowest


def memory(server: Server) -> float:
    process = psutil.Process(server.process.pid)
    return sum(each.memory_info().rss for each in [process, *process.children()]) / 2**20


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", [1_500, pytest.param(100_000, marks=pytest.mark.slow)])
def test_bad_requests_do_no_harm(models: list[str], count: int) -> None:
    with Server(*models, "--max-tokens", 8, "--patience", 3, "--max-texts", 32) as server:
        wanted = server.ask("translate", text="w1 w2", model="toy").json()["results"][0]["text"]
        workers = {worker.pid for worker in server.workers()}
        asyncio.run(send_all(server.port, count // 5))  # libraries make and keep what they need
        before = memory(server)
        statuses, failed, slowest = asyncio.run(send_all(server.port, count))
        growth = memory(server) / before
        print(f"{count:,} requests: {dict(statuses)}, slowest {slowest:.1f} s, memory × {growth:.2f}")
        assert failed == [], failed[:3]
        assert statuses[400] > count / 20
        assert statuses[422] > count / 20
        assert growth < 1.2
        assert {worker.pid for worker in server.workers()} == workers
        assert not any("Traceback" in line for line in server.log)
        assert not any(server.events(name) for name in ("worker_error", "worker_died", "worker_hung"))
        assert server.ask("translate", text="w1 w2", model="toy").json()["results"][0]["text"] == wanted
