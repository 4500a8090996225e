"""How fast `regard serve` answers, beside `regard translate` with the same sentences in a file.

Starts a server of its own on the loopback and asks it from one process: one client that waits for each answer before
it asks again, then 32 such; then requests that arrive at random (Poisson) at 70% of what the 32 got, for latencies as
users see them; then 128 clients; then the sentences of a file, several in a request. Sentences come from the embedded
corpus. The file is translated as the command does it, without its start. Clients, server and model share the machine's
cores.

    python benchmarks/serving.py RUN [--engine ct2] [--seconds 10] [--rounds 3] [--soak MINUTES] [-- options of serve]
"""

import argparse
import asyncio
import json
import random
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from common import arguments, write_json

from regard.data.config import Corpus
from regard.data.readers import read_corpus

CROWD = 128  # clients
FILE = """
import statistics, sys, time
from pathlib import Path
from regard.interop.engines import engine_loader
run, engine, path, rounds = sys.argv[1:]
made = engine_loader(engine, None)(Path(run), "auto")
lines = Path(path).read_text(encoding="utf-8").splitlines()
made.translate(lines[:200])
speeds, work = [], time.process_time()
for _ in range(int(rounds)):
    begin = time.perf_counter()
    made.translate(lines)
    speeds.append(len(lines) / (time.perf_counter() - begin))
print(statistics.median(speeds), (time.process_time() - work) / len(lines) / len(speeds))
"""


class Client:
    """One connection; as little as HTTP needs, so that it measures the server and not itself."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def ask(self, texts: list[str]) -> int:
        """The status of the answer."""
        if not hasattr(self, "reader"):
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        body = json.dumps({"text": texts}).encode()
        head = (
            f"POST /v1/translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        )
        self.writer.write(head.encode() + b"\r\n\r\n" + body)
        answer = await self.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", answer)
        assert length, answer
        self.body = await self.reader.readexactly(int(length[1]))
        self.closing = b"\nconnection: close" in answer.lower()
        return int(answer[9:12])


async def closed(
    port: int, clients: int, texts: int, seconds: float, lines: list[str]
) -> tuple[float, list[float], Counter[int]]:
    """Texts a second, latencies and statuses of clients that ask again as soon as they are answered."""
    end, taken, statuses, done = time.perf_counter() + seconds, [], Counter[int](), 0

    async def one(seed: int) -> None:
        nonlocal done
        client, draw = Client(port), random.Random(seed)
        while (begin := time.perf_counter()) < end:
            status = await client.ask(draw.choices(lines, k=texts))
            statuses[status] += 1
            if status == 200:
                taken.append(time.perf_counter() - begin)
                done += texts
            else:
                await asyncio.sleep(0.05)

    begin = time.perf_counter()
    await asyncio.gather(*(one(n) for n in range(clients)))
    return done / (time.perf_counter() - begin), taken, statuses


async def arriving(port: int, rate: float, seconds: float, lines: list[str]) -> tuple[list[float], Counter[int]]:
    """Latencies of requests that come at random, so many a second, whoever is still waiting."""
    draw, idle, taken, statuses = random.Random(7), [], [], Counter[int]()
    tasks = []

    async def one(due: float) -> None:
        client = idle.pop() if idle else Client(port)
        statuses[await client.ask([draw.choice(lines)])] += 1
        taken.append(time.perf_counter() - due)  # from when it should have been sent: a late sender is no excuse
        idle.append(client)

    due = begin = time.perf_counter()
    while due < begin + seconds:
        due += draw.expovariate(rate)
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(due)))
    await asyncio.gather(*tasks)
    return taken, statuses


@contextmanager
def serving(run: str, log_filter: list[str], *options: str) -> Iterator[tuple[psutil.Process, int]]:
    """`regard serve` on a port of its own: process and port; the filter passes on what it logs, or nothing."""
    command = [sys.executable, "-m", "regard", "serve", run, "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr
            ready = next(event for event in map(json.loads, server.stderr) if event["event"] == "ready")
            log = subprocess.Popen(log_filter, stdin=server.stderr, stdout=sys.stderr)
            yield psutil.Process(server.pid), int(ready["address"].rpartition(":")[2])
        finally:
            server.terminate()
            server.wait(60)
    log.wait(10)


def own_and_serve_options(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, list[str]]:
    """What the command line says, and behind `--` what is for `regard serve`."""
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    return parser.parse_args(sys.argv[1:cut]), sys.argv[cut + 1 :]


def embedded_sources() -> list[str]:
    """The sources of the embedded test set."""
    return [record.fields[0] for record in read_corpus(Corpus(set="embedded:test"), languages=("en", "de"))]


def part(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def spread(values: list[float]) -> str:
    """The median over rounds, and all that they gave."""
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def work(process: psutil.Process) -> float:
    """Seconds that the workers have computed."""
    return sum(sum(each.cpu_times()[:2]) for each in process.children(recursive=True))


def memory(process: psutil.Process) -> float:
    """MB of the server and its workers."""
    return sum(each.memory_info().rss for each in [process, *process.children(recursive=True)]) / 2**20


async def soak(port: int, minutes: float, lines: list[str], process: psutil.Process) -> None:
    held, statuses = [], Counter[int]()
    for n in range(max(2, round(minutes * 2))):
        speed, _, more = await closed(port, 32, 1, 30, lines)
        statuses += more
        held.append(memory(process))
        print(f"  minute {(n + 1) / 2:4.1f}: {speed:6.0f} a second, {held[-1]:.0f} MB", flush=True)
    settled = held[len(held) // 5 :]  # at first libraries make and keep what each shape needs
    change = 100 * (max(settled) - min(settled)) / (max(settled) + min(settled))
    print(f"| memory in the last four fifths | {min(settled):.0f} to {max(settled):.0f} MB: ± {change:.1f}% |")
    print(f"| answers | {', '.join(f'{n:,} × {status}' for status, n in sorted(statuses.items()))} |")


async def measure(port: int, given: argparse.Namespace, lines: list[str], process: psutil.Process) -> None:
    await closed(port, 32, 1, 3, lines)  # warm
    rounds: dict[str, list[float]] = {}

    def note(**values: float) -> None:
        for name, value in values.items():
            rounds.setdefault(name, []).append(value)

    for _ in range(given.rounds):
        file = await asyncio.create_subprocess_exec(
            sys.executable, "-c", FILE, given.run, given.engine, str(given.file), "3", stdout=subprocess.PIPE
        )
        speed, computed = map(float, (await file.communicate())[0].split())
        note(file=speed, file_work=computed)
        speed, taken, _ = await closed(port, 1, 1, given.seconds, lines)
        note(one=speed, alone=statistics.median(taken), alone99=part(taken, 0.99))
        before = work(process)
        speed, taken, _ = await closed(port, 32, 1, given.seconds, lines)
        note(many=speed, many50=statistics.median(taken), many_work=(work(process) - before) / len(taken))
        taken, statuses = await arriving(port, 0.7 * speed, given.seconds, lines)
        note(load50=statistics.median(taken), load99=part(taken, 0.99), refused=statuses[429])
        alone = {name: rounds["load99"][-1] / rounds[name][-1] for name in ("alone", "alone99")}  # of the same minute
        note(times=alone["alone"], times99=alone["alone99"])
        speed, _, _ = await closed(port, CROWD, 1, given.seconds, lines)
        note(crowd=speed)
        before = work(process)
        speed, taken, _ = await closed(port, 32, given.texts, given.seconds, lines)
        note(lists=speed, lists_work=(work(process) - before) / len(taken) / given.texts)
    m = {name: statistics.median(values) for name, values in rounds.items()}
    ms = {name: f"{1000 * value:.1f} ms" for name, value in m.items()}
    print(f"medians of {given.rounds} rounds of {given.seconds:g} s each; texts a second unless said otherwise\n")
    print("| what | | computing, a text |\n|---|---|---|")
    print(f"| one client | {m['one']:.0f}; median {ms['alone']}, p99 {ms['alone99']} | |")
    print(
        f"| 32 clients | {m['many']:.0f}, {m['many'] / m['one']:.1f} × one; median {ms['many50']} | {ms['many_work']} |"
    )
    print(
        f"| 70% of that, at random | p50 {ms['load50']}, p99 {ms['load99']}: {spread(rounds['times99'])} × the "
        f"unloaded p99, {spread(rounds['times'])} × its median; {m['refused']:.0f} × 429 | |"
    )
    print(f"| {CROWD} clients | {m['crowd']:.0f} | |")
    print(f"| 32 clients, {given.texts} texts a request | {m['lists']:.0f} | {ms['lists_work']} |")
    print(f"| `regard translate`, a file | {m['file']:.0f} | {ms['file_work']} |")
    shares = f"{m['lists'] / m['file']:.2f}; with one text a request {m['many'] / m['file']:.2f}"
    shares += f", from {CROWD} clients {m['crowd'] / m['file']:.2f}"
    print(f"| the server's share of the file's speed | {shares} | |")
    print(f"| memory | {memory(process):.0f} MB | |")
    write_json(given.json, m | {"memory_mb": memory(process)})


def parser() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    parser.add_argument("run")
    parser.add_argument("--engine", default="own")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--texts", type=int, default=16)
    parser.add_argument("--soak", type=float, default=0)
    parser.add_argument("--file", type=Path, default=Path("/tmp/serving.txt"))
    return parser


def main() -> None:
    given, others = own_and_serve_options(parser())
    lines = embedded_sources()
    given.file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    silent = ["sed", "d"]  # reads all of the log, and writes nothing
    with serving(given.run, silent, "--engine", given.engine, *others) as (process, port):
        asyncio.run(soak(port, given.soak, lines, process) if given.soak else measure(port, given, lines, process))


if __name__ == "__main__":
    main()
