"""Connections: what a client that does not read its answer costs."""

import asyncio
import socket
from typing import Any

import uvicorn

from regard.serve.connections import http_protocol, listening_socket
from regard.serve.http import LimitsMiddleware
from regard.serve.log import ServerLog
from regard.serve.settings import ServerSettings


async def endless(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": b"x" * (1 << 16), "more_body": True})


def test_an_answer_that_nobody_reads_is_given_up() -> None:
    """The connection too: one that is closed in good order would wait for its reader for ever."""
    log = ServerLog()
    settings = ServerSettings(client_timeout=0.2)
    limits = LimitsMiddleware(settings, log)
    limits.app = endless

    async def ask() -> bytes:
        sock = listening_socket("127.0.0.1", 0)
        config = uvicorn.Config(
            limits, http=http_protocol(settings, limits.refuse), ws="none", lifespan="off", log_config=None
        )
        server = uvicorn.Server(config)
        running = asyncio.create_task(server._serve([sock]))
        while not server.started:
            await asyncio.sleep(0.01)
        client = socket.create_connection(sock.getsockname())
        client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        async with asyncio.timeout(60):
            while limits.running == 0:
                await asyncio.sleep(0.01)
            while limits.running or server.server_state.connections:
                await asyncio.sleep(0.01)
        server.should_exit = True
        await running
        with client:
            return client.recv(12)

    assert asyncio.run(ask()) in (b"HTTP/1.1 200", b"")
    assert log.registry.get_sample_value("regard_events_total", {"event": "client_gone"}) == 1
