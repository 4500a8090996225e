"""How `regard serve` bears faults: at half of its load a worker is killed or stopped every 30 seconds.

Starts a server of its own on the loopback, finds what it can do, then asks at random (Poisson) at half of that: first
in quiet, then with faults. Every request must be answered, or refused with a reason; the 99th percentile outside the
ten seconds after a fault is compared with that in quiet. It ends with 1 where a request was lost or got another
answer.

    python benchmarks/chaos.py RUN [--minutes 10] [--every 30] [--workers 2] [-- options of serve]
"""

import argparse
import asyncio
import json
import random
import signal
import sys
import time
from collections import Counter
from typing import NamedTuple

import psutil
from common import arguments, write_json
from serving import Client, closed, embedded_sources, own_and_serve_options, part, serving

REASONS = ("busy", "worker_died", "connections", "timeout")  # codes of refusals
KEPT = 30.0  # seconds that a connection is kept for another request: less than the server keeps it
RECOVERY = 10.0  # seconds after a fault that the percentile leaves out
PATIENCE = 90.0  # of a client: more than --timeout


class Answer(NamedTuple):
    sent: float
    seconds: float
    outcome: str  # answered, the code of a refusal, or how it was lost


async def load(port: int, rate: float, seconds: float, lines: list[str], seed: int) -> list[Answer]:
    """Answers to requests that come at random, so many a second, whoever is still waiting."""
    draw, answers, tasks = random.Random(seed), list[Answer](), list[asyncio.Task[None]]()
    idle: list[tuple[float, Client]] = []  # since when

    async def ask(due: float) -> None:
        since, client = idle.pop() if idle else (0.0, Client(port))
        if since and (client.reader.at_eof() or time.perf_counter() - since > KEPT):
            client.writer.close()
            client = Client(port)
        try:
            status = await asyncio.wait_for(client.ask([draw.choice(lines)]), PATIENCE)
            outcome = "answered" if status == 200 else json.loads(client.body)["error"]["code"]
            if client.closing:
                client.writer.close()
            else:
                idle.append((time.perf_counter(), client))
        except (OSError, EOFError, TimeoutError) as error:
            outcome = type(error).__name__
        answers.append(Answer(due, time.perf_counter() - due, outcome))

    due = begin = time.perf_counter()
    while due < begin + seconds:
        due += draw.expovariate(rate)
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(ask(due)))
    await asyncio.gather(*tasks)
    return answers


async def make_faults(server: psutil.Process, seconds: float, every: float) -> list[tuple[float, str]]:
    """Kill and stop workers in turn; times and names of the faults."""
    draw, faults = random.Random(1), list[tuple[float, str]]()
    for _ in range(int(seconds / every)):
        await asyncio.sleep(every / 2)
        number = (signal.SIGKILL, signal.SIGSTOP)[len(faults) % 2]
        draw.choice(server.children()).send_signal(number)
        faults.append((time.perf_counter(), signal.Signals(number).name))
        await asyncio.sleep(every / 2)
    return faults


async def measure(port: int, options: argparse.Namespace, lines: list[str], server: psutil.Process) -> dict:
    await closed(port, 32, 1, 3, lines)  # warm
    most, _, _ = await closed(port, 32, 1, options.seconds, lines)
    quiet = await load(port, most / 2, max(options.seconds, 6 * options.minutes), lines, seed=1)
    seconds = 60 * options.minutes
    faults, answers = await asyncio.gather(
        make_faults(server, seconds, options.every), load(port, most / 2, seconds, lines, seed=2)
    )
    settled = [each for each in answers if not any(0 <= each.sent - at <= RECOVERY for at, _ in faults)]
    outcomes = Counter(each.outcome for each in answers)
    p99 = {name: part([each.seconds for each in taken if each.outcome == "answered"], 0.99)
           for name, taken in (("quiet", quiet), ("settled", settled), ("all", answers))}  # fmt: skip
    return {
        "requests": len(answers), "rate": most / 2, "faults": dict(Counter(name for _, name in faults)),
        "outcomes": dict(sorted(outcomes.items())),
        "lost": sum(count for outcome, count in outcomes.items() if outcome not in ("answered", *REASONS)),
        "p99_quiet": p99["quiet"], "p99": p99["settled"], "p99_with_faults": p99["all"],
        "times": p99["settled"] / p99["quiet"], "slowest": max(each.seconds for each in answers),
    }  # fmt: skip


def table(figures: dict) -> str:
    ms = {name: f"{1000 * figures[name]:.0f} ms" for name in ("p99_quiet", "p99", "p99_with_faults", "slowest")}
    outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in figures["outcomes"].items())
    faults = ", ".join(f"{count} × {name}" for name, count in figures["faults"].items())
    return "\n".join((
        "| what | |\n|---|---|",
        f"| requests, {figures['rate']:.0f} a second | {figures['requests']:,}: {outcomes}; {figures['lost']} lost |",
        f"| faults | {faults} |",
        f"| p99 in quiet | {ms['p99_quiet']} |",
        f"| p99 outside the {RECOVERY:.0f} s after a fault | {ms['p99']}: {figures['times']:.1f} × quiet |",
        f"| p99 of all, the slowest | {ms['p99_with_faults']}, {ms['slowest']} |",
    ))  # fmt: skip


def parser() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    parser.add_argument("run")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--every", type=float, default=30, help="seconds from fault to fault")
    parser.add_argument("--seconds", type=float, default=10, help="for finding the load")
    parser.add_argument("--workers", type=int, default=2)
    return parser


def main() -> None:
    options, others = own_and_serve_options(parser())
    without_requests = ["grep", "-v", '"request"']
    with serving(options.run, without_requests, "--workers", str(options.workers), *others) as (process, port):
        figures = asyncio.run(measure(port, options, embedded_sources(), process))
    print(table(figures))
    write_json(options.json, figures)
    sys.exit(figures["lost"] > 0)


if __name__ == "__main__":
    main()
