"""A server that says what a test wants: the page's files, and canned answers of the API, odd ones included."""

import base64
import json
import re
import struct
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from regard.look.html import script, style

PACKAGE = Path(__file__).parents[2] / "src" / "regard"
PAGE = PACKAGE / "serve" / "page"
LOOK = {"look/look.js": script, "look/look.css": style}
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
PREFIX = "/under"  # as a proxy may put it before every path
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
KNOWN = {
    "The goat couldn't carry the basket because it was too thirsty.": [
        ("Die Ziege konnte den Korb nicht tragen, weil sie zu durstig war.", -0.1173),
        ("Die Ziege konnte den Korb nicht tragen, weil sie zu hungrig war.", -0.5712),
        ("Die Ziege konnte den Korb nicht tragen, weil sie zu durstig", -0.6506),
    ],
    "Every evening my sister washes her car.": [("Jeden Abend wäscht meine Schwester ihr Auto.", -0.0971)],
    "The mouse is sitting on the carpet. It is round.": [("Die Maus sitzt auf dem Teppich. Er ist rund.", -0.21)],
}
ALL = [
    {
        "name": "en-de",
        "kind": "transformer",
        "title": "translation, en→de",
        "can": ["translate", "look"],
        "languages": ["en", "de"],
    },
    {"name": "chat", "kind": "lm", "title": "chat", "can": ["chat", "generate", "look"]},
    {"name": "novels", "kind": "lm", "title": "novels", "can": ["generate"]},
    {"name": "bert", "kind": "bert", "title": "BERT", "can": ["fill", "embed", "look"]},
    {"name": "films", "kind": "bert", "title": "films", "can": ["classify"]},
    {"name": "names", "kind": "bert", "title": "names", "can": ["tag"]},
    {"name": "answers", "kind": "bert", "title": "answers", "can": ["answer"]},
    {"name": "choices", "kind": "bert", "title": "choices", "can": ["choose"]},
]


def translated(text: str) -> list[tuple[str, float]]:
    return KNOWN.get(text, [(text.upper(), -0.5)])


def translate(asked: dict[str, Any]) -> dict[str, Any]:
    texts = [asked["text"]] if isinstance(asked["text"], str) else asked["text"]
    found = [translated(text)[: asked.get("nbest", 1)] for text in texts]
    rows = [[{"text": text, "score": score} for text, score in each] for each in found]
    return {"model": "en-de", "results": [{**each[0], "alternatives": each[1:]} for each in rows]}


def look(asked: dict[str, Any]) -> dict[str, Any]:
    """Target piece n looks at source piece n with 0.75 and at the end with the rest; the source at itself, 0.5, and at
    its second piece. Words longer than five letters are two pieces, as BPE writes them.
    """
    source, target = ([*pieces(text), "</s>"] for text in (asked["text"], asked["target"]))
    last = len(source) - 1
    cross = [{min(n, last - 1): 0.75, last: 0.25} if n < len(target) - 1 else {last: 1.0} for n in range(len(target))]
    encoder = [{n: 0.5, 1: 0.3, last: 0.2} for n in range(len(source))]
    places = [_place("encoder", source, source, encoder), _place("cross", target, source, cross)]
    return {
        "version": 1,
        "model": {"title": "stub"},
        "text": asked["text"],
        "output": asked["target"],
        "places": places,
    }


def pieces(text: str) -> list[str]:
    words = re.findall(r"\w+'?\w*|[^\w\s]", text)
    return [piece for word in words for piece in ([word] if len(word) < 6 else [f"{word[:4]}@@", word[4:]])]


def _place(name: str, queries: list[str], keys: list[str], rows: list[dict[int, float]]) -> dict[str, Any]:
    whole = [round(65534 * row.get(k, 0.0)) for row in rows for k in range(len(keys))]
    packed = base64.b64encode(struct.pack(f"<{4 * len(whole)}H", *(4 * whole))).decode()  # 2 layers of 2 heads
    weights = {"shape": [2, 2, len(queries), len(keys)], "data": packed}
    return {"name": name, "title": name, "queries": queries, "keys": keys, "layers": 2, "heads": 2, "weights": weights,
            "causal": False}  # fmt: skip


def _one(said: dict[str, Any]) -> dict[str, Any]:
    return {"model": "stub", "results": [said]}


def fill(asked: dict[str, Any]) -> dict[str, Any]:
    guesses = [("capital", 0.62), ("heart", 0.21), ("centre", 0.08), ("##s", 0.04)]
    gap = [{"word": word, "probability": chance} for word, chance in guesses]
    return _one({"text": asked["text"], "gaps": [gap] * asked["text"].count("[MASK]")})


def tag(asked: dict[str, Any]) -> dict[str, Any]:
    words = asked["text"].split()
    tags = ["B-PER", "I-PER", *["O"] * (len(words) - 2)]
    entity = {"type": "PER", "text": " ".join(words[:2]), "begin": 0, "end": 2}
    return _one({"words": words, "tags": tags, "probabilities": [0.97] * len(words), "entities": [entity]})


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    start = asked["context"].find("Anna Berg")
    said = "Anna Berg" if start >= 0 else ""
    return _one({"answer": said, "start": start, "end": start + 9, "score": 7.1, "probability": 0.91})


def classify(asked: dict[str, Any]) -> dict[str, Any]:
    return _one({"label": "good", "probabilities": {"bad": 0.07, "good": 0.93}})


def choose(asked: dict[str, Any]) -> dict[str, Any]:
    chances = [0.8, *[0.1] * (len(asked["options"]) - 1)]
    return _one({"index": 0, "option": asked["options"][0], "probabilities": chances})


class Stub:
    """Runs until it is stopped, and may start again at the same port. `asked` is what came in."""

    def __init__(self, models: list[dict[str, Any]] | None = None) -> None:
        self.models = ALL if models is None else models
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, Callable[[dict[str, Any]], Any]] = {
            "translate": translate, "look": look, "fill": fill, "classify": classify, "tag": tag, "answer": answer,
            "choose": choose,
        }  # fmt: skip
        self.pieces = ["There ", "was ", "a ", "lighthouse."]
        self.key: str | None = None
        self.held: dict[str, threading.Event] = {}  # requests whose text holds the word wait for the event
        self.gone = threading.Event()  # a client went away in the middle of a stream
        self.endless = False
        self.port = 0
        self.start()

    def start(self) -> None:
        stub = self

        class Handler(_Handler):
            owner = stub

        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def bodies(self, path: str) -> list[dict[str, Any]]:
        return [body for name, body in self.asked if name == path]


class Refusal(Exception):
    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers or {}


class _Handler(BaseHTTPRequestHandler):
    owner: Stub

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        path = self.path.removeprefix(PREFIX)
        if path == "/v1/models":
            return self._guarded("models", {}, lambda _: {"models": self.owner.models})
        name = "index.html" if path == "/" else path.removeprefix("/static/")
        file = PAGE / name
        if name in LOOK:
            return self._send(200, {}, LOOK[name]().encode(), TYPES[file.suffix])
        if not file.is_file():
            return self._send(404, {}, b"{}", "application/json")
        self._send(200, {}, file.read_bytes(), TYPES[file.suffix])

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = self.path.removeprefix(PREFIX).removeprefix("/v1/")
        self.owner.asked.append((name, body))
        for word, event in list(self.owner.held.items()):
            if word in json.dumps(body, ensure_ascii=False):
                event.wait(30)
        if name in ("generate", "chat"):
            return self._stream()
        self._guarded(name, body, self.owner.answers[name])

    def _guarded(self, name: str, body: dict[str, Any], act: Callable[[dict[str, Any]], Any]) -> None:
        try:
            if self.owner.key and self.headers["Authorization"] != f"Bearer {self.owner.key}":
                raise Refusal(401, "a key is needed")
            said, status, headers = act(body), 200, {}
        except Refusal as no:
            said, status, headers = {"error": {"message": str(no), "code": "refused"}}, no.status, no.headers
        self._send(status, headers, json.dumps(said, ensure_ascii=False).encode(), "application/json")

    def _send(self, status: int, headers: dict[str, str], body: bytes, kind: str) -> None:
        self.send_response(status)
        sent = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body)), "Cache-Control": "no-store",
                "Content-Security-Policy": POLICY, **headers}  # fmt: skip
        for key, value in sent.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        try:
            for piece in self.owner.pieces:
                self._event({"text": piece})
            while self.owner.endless:
                self._event({"text": "more "})
                if self.owner.gone.wait(0.02):
                    break
            self._event({"done": True})
        except OSError:
            self.owner.gone.set()

    def _event(self, said: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(said)}\n\n".encode())
        self.wfile.flush()
