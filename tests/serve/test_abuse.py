"""What clients must not be able to do to a server, and what they are told instead."""

import json
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serve.live import Server, until

JSON = {"content-type": "application/json"}


def post(server: Server, content: Any, op: str = "translate") -> httpx.Response:
    return server.client.post(f"/v1/{op}", content=content, headers=JSON)


@pytest.mark.parametrize(
    "content, status",
    [
        (b'{"text": "w1"', 400),
        (b"", 422),
        (b"\xff\xfe{}", 400),
        (b'{"text": "\xc3\x28"}', 400),  # not UTF-8
        (b'{"text": 3}', 422),
        (b'{"text": ["w1", null]}', 422),
        (b'{"text": {"a": 1}}', 422),
        (b'["w1"]', 422),
        (b'{"text": []}', 422),
        (b'{"text": "w1", "beam": 0}', 422),
        (b'{"text": "w1", "beam": true}', 422),
        (b'{"text": "w1", "beam": 1e400}', 422),
        (b'{"text": "w1", "nbest": 17}', 422),
        (b'{"text": "w1", "nbest": 4, "beam": 2}', 422),
        (b'{"text": "w1", "wish": true}', 422),
        (b'{"text": "w1", "beam": ' + b"9" * 5000 + b"}", 400),
        (b"[" * 100_000, 400),
    ],
)
def test_wrong_bodies(server: Server, content: bytes, status: int) -> None:
    answer = post(server, content)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error["message"]
    assert error["code"]
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-1", '"x"', "5e-324", "1e308"])
@pytest.mark.parametrize("name", ["temperature", "top_p", "repetition_penalty", "max_tokens", "seed"])
def test_wrong_numbers(server: Server, name: str, number: str) -> None:
    answer = post(server, f'{{"prompt": "a", "{name}": {number}}}'.encode(), "generate")
    assert answer.status_code == 422, answer.text


@pytest.mark.parametrize(
    "numbers", [{"temperature": 0.001, "top_p": 1e-6}, {"repetition_penalty": 0.01, "top_k": 10**6}]
)
def test_numbers_at_their_bounds(server: Server, numbers: dict[str, float]) -> None:
    answer = server.ask("generate", model="lm", prompt="the", max_tokens=3, **numbers)
    assert answer.status_code == 200, answer.text


def test_too_much(server: Server) -> None:
    cases = {
        "too_long": {"text": "word " * 10_000},
        "too_many": {"text": ["w1"] * 300},
        "too_large": {"text": "w" * (2 << 20)},
    }
    for code, body in cases.items():
        answer = server.ask("translate", **body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, code)


def test_a_huge_body_without_a_length(server: Server) -> None:
    """It is refused as soon as it is too large, not when it has all come."""
    sent = 0

    def endless() -> Any:
        nonlocal sent
        while sent < 1 << 30:
            sent += 1 << 16
            yield b"x" * (1 << 16)

    try:
        answer = post(server, endless())
        assert answer.status_code == 413
    except (httpx.WriteError, httpx.RemoteProtocolError):  # it was still being sent
        pass
    assert sent < 1 << 28
    assert server.ask("translate", text="w1").status_code == 200


@pytest.mark.parametrize(
    "text", ["w1\0w2", "w1\x07\x1b[31m w2", "w1\nw2\r\n", "\u202e\ufeffw1 \u2028 w2", "\U0010ffff"]
)
def test_control_characters_are_spaces(server: Server, text: str) -> None:
    content = json.dumps({"text": text}).encode()  # httpx itself would not send half a character
    (found,) = post(server, content).json()["results"]
    assert "\n" not in found["text"]


def test_half_a_character_does_no_harm(server: Server) -> None:
    for op, body in (
        ("generate", b'{"prompt": "the \\ud800", "max_tokens": 3}'),
        ("generate", b'{"prompt": "the", "stop": ["\\ud800"], "max_tokens": 3}'),
        ("translate", b'{"text": "w1", "model": "\\ud800"}'),
        ("choose", b'{"context": "\\ud800", "question": "\\udfff", "options": ["a", "\\ud800"]}'),
    ):
        assert post(server, body, op).status_code in (200, 404, 422)


def test_html_is_text(server: Server) -> None:
    answer = server.ask("fill", text="<script>alert(1)</script> [MASK]")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.json()["results"][0]["text"] == "<script>alert(1)</script> [MASK]"


def test_methods_and_addresses_that_do_not_exist(server: Server) -> None:
    wrong = server.client.get("/v1/translate")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert wrong.json()["error"] == {"message": "this address takes POST", "code": "method"}
    assert server.client.get("/v1/%2e%2e/%2e%2e/etc/passwd").status_code == 404
    assert server.client.request("BREW", "/v1/translate").status_code == 405


def test_a_body_that_is_not_said_to_be_json(server: Server) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}  # curl -d without -H
    answer = server.client.post("/v1/translate", content=b'{"text": "w1"}', headers=form)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "the body is not JSON; send Content-Type: application/json with it"
    listed = server.client.post("/v1/translate", json=[1, 2])
    assert listed.status_code == 422
    assert "must be a JSON object" in listed.json()["error"]["message"]


def closed(sock: socket.socket) -> bytes:
    """All that comes until the server hangs up."""
    with sock:
        return b"".join(iter(lambda: sock.recv(1 << 16), b""))


@pytest.mark.parametrize(
    "begun, told",
    [
        (b"", b""),
        (b"POST /v1/translate HTTP/1.1\r\nhost: x\r\ncontent-", b""),
        (b"POST /v1/translate HTTP/1.1\r\nhost: x\r\ncontent-length: 20\r\n\r\n{", b"408"),
        (b"POST /v1/translate HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n", b"408"),
        (b"NOT HTTP AT ALL\r\n\r\n", b"400"),
    ],
)
def test_slow_and_strange_clients_are_let_go(server: Server, begun: bytes, told: bytes) -> None:
    assert told in closed(server.raw(begun))[:40]


def test_two_ways_to_say_a_length_close_the_connection(server: Server) -> None:
    both = b"POST /v1/translate HTTP/1.1\r\nhost: x\r\ncontent-length: 6\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    answered = closed(server.raw(both + b"XGET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"))
    assert answered.startswith(b"HTTP/1.1 400")
    assert b"connection: close" in answered.lower()
    assert answered.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_half_closed_client_is_answered(server: Server, version: str) -> None:
    body = b'{"text": "w1 w2", "model": "toy"}'
    head = (
        f"POST /v1/translate HTTP/{version}\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    )
    client = server.raw(head.encode() + b"\r\n\r\n" + body)
    client.shutdown(socket.SHUT_WR)
    answered = closed(client).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert answered.startswith(b"HTTP/1.1 200")
    assert b'"results"' in answered


def test_a_half_closed_client_that_sent_half_is_let_go(server: Server) -> None:
    client = server.raw(b"POST /v1/translate HTTP/1.1\r\nhost: x\r\ncontent-length: 20\r\n\r\n{")
    client.shutdown(socket.SHUT_WR)
    assert closed(client) == b""


def test_connections_beyond_the_limit_are_refused_with_a_reason(toy_run: Path) -> None:
    with Server(f"toy={toy_run}", "--connections", 8, "--patience", 600) as server:
        idle = [server.raw(b"") for _ in range(8)]
        answer = httpx.post(f"{server.url}/v1/translate", json={"text": "w1"}, timeout=60)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "connections")
        assert (answer.headers["connection"], answer.headers["retry-after"]) == ("close", "1")
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        more = [server.raw(b"") for _ in range(20)]
        fewer = [idle.pop() for _ in range(4)]
        for client in fewer + more:
            client.close()
        until(lambda: httpx.post(f"{server.url}/v1/translate", json={"text": "w1"}).status_code == 200, "there is room")
        for client in idle:
            client.close()


def running(server: Server) -> float:
    return server.metric("regard_requests_running") - 1  # the one that asks


def test_a_client_that_vanishes_frees_its_place(server: Server) -> None:
    """Thousands of words were asked for; who asked has gone after the first."""
    until(lambda: running(server) == 0, "nothing runs")
    before = server.metric('regard_events_total{event="client_gone"}')
    body = {"prompt": "the", "max_tokens": 100_000, "temperature": 0, "stream": True, "model": "lm"}
    with httpx.stream("POST", f"{server.url}/v1/generate", json=body, timeout=60) as answer:
        lines = answer.iter_lines()  # kept: with the last reference to it, httpx would hang up
        next(lines)
        assert running(server) == 1
    until(lambda: running(server) == 0, "the story ends with its reader")
    whole = httpx.Client(base_url=server.url, timeout=0.5)
    with pytest.raises(httpx.ReadTimeout):  # not a stream: nothing has come yet when the client goes
        whole.post("/v1/generate", json=body | {"stream": False})
    whole.close()
    until(lambda: running(server) == 0, "the story ends with its reader")
    assert server.metric('regard_events_total{event="client_gone"}') > before
    assert server.ask("generate", prompt="the", max_tokens=2).status_code == 200


def test_who_vanishes_after_a_large_body_is_noticed(server: Server) -> None:
    """uvicorn stops reading at 64 KiB; with nobody reading, nobody would learn that the client has gone."""
    until(lambda: running(server) == 0, "nothing runs")
    body = json.dumps({"model": "toy", "text": ["w1 w2 " * 800] * 20, "beam": 16}).encode()
    before = server.metric('regard_events_total{event="client_gone"}')
    head = f"POST /v1/translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    with server.raw(f"{head}\r\n\r\n".encode()) as client:
        until(lambda: running(server) == 1, "its head has come")
        client.sendall(body)  # all at once
        until(lambda: server.metric("regard_requests_running") > 1, "it has begun")
        time.sleep(0.2)
    until(lambda: server.metric('regard_events_total{event="client_gone"}') > before, "it has gone")
    assert server.ask("translate", text="w1", model="toy").status_code == 200


def test_keys(toy_run: Path, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("first-key\nsecond-key\n")
    with Server(f"toy={toy_run}", "--api-key-file", tmp_path / "keys") as server:
        ask = {"url": f"{server.url}/v1/translate", "json": {"text": "w1"}, "timeout": 60}
        for headers, status in (
            ({}, 401),
            ({"authorization": "Bearer wrong"}, 401),
            ({"x-api-key": "first-key\xe9".encode("latin-1")}, 401),
            ({"authorization": "Basic second-key"}, 401),
            ({"authorization": "Bearer second-key"}, 200),
            ({"authorization": "bearer second-key"}, 200),  # names of schemes have no case
            ({"x-api-key": "first-key"}, 200),
        ):
            assert httpx.post(**ask, headers=headers).status_code == status, headers  # type: ignore[arg-type]
        assert [server.client.get(path).status_code for path in ("/healthz", "/", "/metrics", "/v1/models")] == [
            200, 200, 401, 401]  # fmt: skip
        assert "first-key" not in "".join(server.log)
