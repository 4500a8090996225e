"""Bad requests without end: bodies with wrong values, bytes that were changed, broken heads, noise. Seeded."""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

BODIES: dict[str, dict[str, Any]] = {
    "translate": {"text": ["w1 w2", "w3"], "beam": 2, "nbest": 2, "alignments": False},
    "generate": {"prompt": "the cat", "max_tokens": 3, "temperature": 0.7, "top_k": 5, "top_p": 0.9, "seed": 1,
                 "repetition_penalty": 1.2, "stop": ["."], "model": "lm", "stream": False},
    "chat": {"messages": [{"role": "user", "text": "hello"}], "temperature": 0.5, "max_tokens": 3},
    "fill": {"text": "the [MASK] sat", "top": 3},
    "embed": {"text": ["a", "b"], "pooling": "mean", "normalise": True},
    "choose": {"context": "the cat sat", "question": "who ?", "options": ["the cat", "the dog"]},
    "look": {"text": "w1", "target": "w2", "model": "toy"},
}  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 17, 1 << 31, 1 << 63, 1 << 64, 10**400, 0.0, -0.0, 5e-324, 1e-9, 1e308, -1e308, 0.5,
    float("nan"), float("inf"), "", " ", "\0", "\ud800", "\u202e\ufeff", "x" * 6000, "[MASK] " * 400, "w1 " * 900,
    "mean", [], {}, [[]], [None], ["a"] * 300, [[["a"]]], {"a": {"b": {}}}, {"role": "system", "text": 3},
]  # fmt: skip
HEADS = [
    b"Content-Length: -1", b"Content-Length: 99999999999999999999", b"Content-Length: 5\r\nContent-Length: 6",
    b"Content-Length: 0x10", b"Content-Length:", b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", b"Expect: 100-continue", b"Expect: nonsense",
    b"Upgrade: websocket\r\nConnection: Upgrade", b"Connection: close, keep-alive", b"X: " + b"y" * 70_000, b": x",
    b" folded: x", b"X\0Y: z", b"Authorization: Bearer \xff\xfe", b"Content-Type: text/html", b"Host: a\r\nHost: b",
    b"Content-Encoding: gzip", b"Accept: */*;q=nonsense", b"Range: bytes=0-18446744073709551615",
]  # fmt: skip
TARGETS = [
    b"/v1/%00", b"/v1/../../etc/passwd", b"/static/%2e%2e/%2e%2e/app.py", b"*", b"http://x/v1/translate", b"//",
    b"/%ff%fe", b"/v1/translate?" + b"a=b&" * 2000, b"/" + b"x" * 70_000, b"", b"/admin/reload", b"/v1/translate\x7f",
    b"/openapi.json",
]  # fmt: skip
METHODS = [
    b"GET",
    b"HEAD",
    b"POST",
    b"PUT",
    b"DELETE",
    b"OPTIONS",
    b"CONNECT",
    b"TRACE",
    b"BREW",
    b"post",
    b"P\0ST",
    b"",
]
VERSIONS = [b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9", b"", b"http/1.1"]


def request(op: str, body: bytes, method: bytes = b"POST", version: bytes = b"HTTP/1.1", more: bytes = b"") -> bytes:
    head = b"%s /v1/%s %s\r\nHost: x\r\nContent-Type: application/json\r\n" % (method, op.encode(), version)
    return head + more + b"Content-Length: %d\r\n\r\n" % len(body) + body


def wrong_value(draw: random.Random) -> bytes:
    op, body = draw.choice(list(BODIES.items()))
    body = dict(body)
    for _ in range(draw.randint(1, 3)):
        key = draw.choice([*body, "wish"])
        if draw.random() < 0.15:
            body.pop(key, None)
        elif isinstance(body.get(key), list) and draw.random() < 0.5:
            body[key] = [*body[key], draw.choice(VALUES)]
        else:
            body[key] = draw.choice(VALUES)
    return request(op, json.dumps(body).encode())


def changed_bytes(draw: random.Random) -> bytes:
    op, body = draw.choice(list(BODIES.items()))
    data = bytearray(request(op, json.dumps(body).encode()))
    for _ in range(draw.randint(1, 6)):
        place = draw.randrange(len(data))
        kind = draw.randrange(4)
        if kind == 0:
            data[place] = draw.randrange(256)
        elif kind == 1:
            del data[place : place + draw.randint(1, 9)]
        elif kind == 2:
            data[place:place] = draw.randbytes(draw.randint(1, 9))
        else:
            data[place:place] = data[place : place + 40]
    return bytes(data[: draw.randrange(1, len(data))] if draw.random() < 0.1 else data)


def broken_head(draw: random.Random) -> bytes:
    op, body = draw.choice(list(BODIES.items()))
    more = b"".join(draw.choice(HEADS) + b"\r\n" for _ in range(draw.randint(0, 2)))
    data = request(op, json.dumps(body).encode(), draw.choice(METHODS), draw.choice(VERSIONS), more)
    return data.replace(b"/v1/" + op.encode(), draw.choice(TARGETS), 1) if draw.random() < 0.4 else data


def broken_body(draw: random.Random) -> bytes:
    deep = draw.choice([10, 1000, 100_000])
    body = draw.choice([
        b"[" * deep, b'{"a":' * deep, b'{"text": ' + b"9" * deep + b"}", b'{"text": "' + b"\\u0000" * deep + b'"}',
        b"\xff\xfe", b"", b"null", b"1e999", b'{"text": "w1", "text": 3}', b'"text"', b"{" + b" " * deep + b"}",
        draw.randbytes(200),
    ])  # fmt: skip
    return request(draw.choice(list(BODIES)), body)


def noise(draw: random.Random) -> bytes:
    return draw.randbytes(draw.randint(1, 400)) + draw.choice([b"", b"\r\n\r\n", b"\n\n"])


KINDS: list[Callable[[random.Random], bytes]] = [
    wrong_value,
    wrong_value,
    changed_bytes,
    broken_head,
    broken_body,
    noise,
]


def bad_requests(seed: int) -> Iterator[bytes]:
    draw = random.Random(seed)
    while True:
        yield draw.choice(KINDS)(draw)
