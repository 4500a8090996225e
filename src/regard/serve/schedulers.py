"""Schedulers of a worker: each holds the requests of some operations and computes a little at every step, in turn.

Texts to translate join a running batch, and so do texts that are generated, a token of each at a time; other requests
that wait together are computed together. Knows no sockets and no HTTP.
"""

import json
import secrets
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, Unpack

from regard.decoding import Beam, DecodingConfig, Sample
from regard.errors import RegardError
from regard.look.attention import has_attention, look
from regard.predict.continuous import ContinuousStreams, ContinuousTranslator
from regard.predict.long_text import LineSegments
from regard.predict.options import SAMPLING, ReplyOptions, SearchOptions, TranslationSearch
from regard.predict.text_stream import StreamedText
from regard.predict.translation import Translation, Translator, distinct_texts
from regard.serve.messages import Capabilities, Item, RequestOptions, Result, WorkerReply, character_count

MAX_BATCH_ITEMS = 64
MAX_BATCH_CHARACTERS = 20_000  # about
LoadedModel = Any  # what `regard.load` returns; its methods say which operations it has


class Send(Protocol):
    def __call__(self, **message: Unpack[WorkerReply]) -> None: ...


@dataclass
class WorkRequest:
    """A request: items of one operation, and options for all of them."""

    id: int
    op: str
    items: Sequence[Item]
    options: RequestOptions = field(default_factory=RequestOptions)
    results: list[Result] = field(default_factory=list)  # of its first items

    @property
    def remaining(self) -> Sequence[Item]:
        return self.items[len(self.results) :]


class Scheduler(Protocol):
    ops: tuple[str, ...]

    @property
    def busy(self) -> bool: ...

    def add(self, request: WorkRequest) -> None: ...

    def cancel(self, id: int) -> None:
        """Drop a request whose client has gone."""

    def step(self) -> None:
        """Compute a little of what waits."""


def build_schedulers(model: LoadedModel, send: Send, slots: int) -> list[Scheduler]:
    """For all operations of a model."""
    schedulers: list[Scheduler] = []
    if type(model) is Translator:
        schedulers.append(TranslationScheduler(model, send, slots))
    if streams := {op: stream for op, (method, stream) in STREAMS.items() if hasattr(model, method)}:
        schedulers.append(StreamScheduler(model, send, streams, slots))
    taken = {op for scheduler in schedulers for op in scheduler.ops}
    batched = {op: compute for op, compute in BATCHED.items() if hasattr(model, op) and op not in taken}
    if has_attention(model):
        batched["look"] = _look
    return [*schedulers, BatchScheduler(model, send, batched)]


def capabilities(model: LoadedModel, schedulers: list[Scheduler]) -> Capabilities:
    """Facts about a model that clients may know."""
    task = model.recipe.task
    facts: Capabilities = {"kind": task.kind, "title": task.title, "can": [op for s in schedulers for op in s.ops]}
    if hasattr(model, "languages"):
        facts["languages"] = list(model.languages)
    return facts


def log_exception(error: BaseException) -> None:
    """A line of the log: type and place of an error, without its message, which may hold a user's text."""
    where = [f"{Path(at.filename).name}:{at.lineno} {at.name}" for at in traceback.extract_tb(error.__traceback__)]
    line = json.dumps({"event": "worker_error", "error": type(error).__name__, "where": where})
    print(line, file=sys.stderr, flush=True)


def send_error(send: Send, id: int, error: Exception) -> None:
    """A mistake of the client in its own words; of any other error the client learns only that there was one."""
    if isinstance(error, RegardError):
        send(id=id, error=str(error), code="impossible")
    else:
        log_exception(error)
        send(id=id, error="the model failed on this request", code="internal")


# --- translations in a running batch -------------------------------------------------------------------------------


@dataclass
class PendingTranslation:
    """A request whose texts are being translated."""

    request: WorkRequest
    decoding: DecodingConfig
    count: int  # of translations for each text
    parts: list[list[list[Translation]]]  # of each text, most of which have one: the translations
    missing: int  # parts
    segments: dict[int, LineSegments] = field(default_factory=dict)  # of texts that were split

    def results(self) -> list[Result]:
        nbest = [
            self.segments[n].join(parts, self.decoding)[0] if n in self.segments else parts[0]
            for n, parts in enumerate(self.parts)
        ]
        return [translation_result(distinct_texts(each, self.decoding, self.count)) for each in nbest]


class TranslationScheduler:
    """Texts join a running batch; long ones in parts, one after the other, when no other text waits for a slot.

    Those with alignments are computed by a `BatchScheduler`.
    """

    ops: tuple[str, ...] = ("translate",)

    def __init__(self, translator: Translator, send: Send, slots: int) -> None:
        self.translator, self.send, self.batch = translator, send, ContinuousTranslator(translator, slots)
        self.pending: dict[int, PendingTranslation] = {}  # by request
        self.owners: dict[int, tuple[int, int, int]] = {}  # of each part: request, text, and number of the part
        self.long: deque[tuple[int, int]] = deque()  # texts to be split: request, and number of the text
        self.aligned = BatchScheduler(translator, send, {"translate": _translate})
        self.last_key = 0

    @property
    def busy(self) -> bool:
        return self.batch.busy or self.aligned.busy or bool(self.long)

    def add(self, request: WorkRequest) -> None:
        if request.options.get("alignments"):
            self.aligned.add(request)
            return
        try:
            decoding, count = translation_search(self.translator.recipe.decoding, request.options)
            parts: list[list[list[Translation]]] = [[[]] for _ in request.items]
            pending = PendingTranslation(request, decoding, count, parts, len(request.items))
            self.pending[request.id] = pending
            long = self._enqueue(pending, request.items, [(n, 0) for n in range(len(request.items))])
            self.long.extend((request.id, n) for n, _ in long)
        except Exception as error:
            self._fail(request.id, error)

    def _enqueue(
        self, pending: PendingTranslation, texts: Sequence[Item], parts: list[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """Queue texts, each with the numbers of its text and part; gives back those that are too long."""
        keys = range(self.last_key + 1, self.last_key + 1 + len(texts))
        self.last_key += len(texts)
        long = set(self.batch.add(keys, [str(text) for text in texts], pending.decoding, pending.count))
        numbered = list(zip(keys, parts, strict=True))
        self.owners |= {key: (pending.request.id, *part) for key, part in numbered if key not in long}
        return [part for key, part in numbered if key in long]

    def _split(self, id: int, number: int) -> None:
        pending = self.pending[id]
        try:
            segments = pending.segments[number] = self.translator.segments([str(pending.request.items[number])])
            texts = segments.texts
            pending.parts[number] = [[] for _ in texts]
            pending.missing += len(texts) - 1
            if self._enqueue(pending, texts, [(number, part) for part in range(len(texts))]):
                raise RegardError(f"text {number + 1} cannot be cut into parts that the model knows")
        except Exception as error:
            self._fail(id, error)

    def _fail(self, id: int, error: Exception) -> None:
        self.cancel(id)
        send_error(self.send, id, error)

    def cancel(self, id: int) -> None:
        self.aligned.cancel(id)
        if self.pending.pop(id, None):
            gone = {key for key, owner in self.owners.items() if owner[0] == id}
            self.batch.drop(gone)
            self.owners = {key: owner for key, owner in self.owners.items() if key not in gone}
            self.long = deque(each for each in self.long if each[0] != id)

    def step(self) -> None:
        """One token of every text in the batch."""
        if self.long and not self.batch.waiting:
            self._split(*self.long.popleft())
        rows = self.batch.rows
        for key, translations in self.batch.step():
            id, number, part = self.owners.pop(key)
            pending = self.pending[id]
            pending.parts[number][part] = translations
            pending.missing -= 1
            if not pending.missing:
                del self.pending[id]
                self.send(id=id, results=pending.results(), rows=rows)
        if self.aligned.busy:
            self.aligned.step()


def translation_search(base: DecodingConfig, options: RequestOptions) -> tuple[DecodingConfig, int]:
    """The search, and how many translations each text gets."""
    count = options.get("nbest") or 1
    return TranslationSearch(beam=options.get("beam")).decoding_config(base, False, count), count


def translation_result(nbest: list[Translation]) -> Result:
    rows = [{"text": each.text, "score": each.score} for each in nbest] or [{"text": "", "score": 0.0}]
    return {**rows[0], "alternatives": rows[1:]}


# --- batches of waiting requests -----------------------------------------------------------------------------------


Compute = Callable[[LoadedModel, Sequence[Item], RequestOptions], list[Result]]


def _ignore(warning: str) -> None:
    """Warnings are for people at a terminal."""


def _translate(translator: LoadedModel, items: Sequence[Item], options: RequestOptions) -> list[Result]:
    decoding, count = translation_search(translator.recipe.decoding, options)
    if not options.get("alignments"):
        found = translator.nbest(items, count, decoding, long="segment", warn=_ignore)
        return [translation_result(nbest) for nbest in found]
    found = translator.nbest(items, count, decoding, long="refuse", attention=("cross",), warn=_ignore)
    return [
        translation_result(nbest) | {"alignments": translator.alignment(line, nbest[0]) if nbest else []}
        for line, nbest in zip(items, found, strict=True)
    ]


def _fill(model: LoadedModel, items: Sequence[Item], options: RequestOptions) -> list[Result]:
    return [
        {"text": line, "gaps": [[guess._asdict() for guess in gap] for gap in gaps]}
        for line, gaps in zip(items, model.fill(items, options.get("top") or 5), strict=True)
    ]


def _embed(model: LoadedModel, items: Sequence[Item], options: RequestOptions) -> list[Result]:
    vectors = model.embed(items, options.get("pooling"), normalise=options.get("normalise"), warn=_ignore)
    return [{"vector": [float(f"{value:.9g}") for value in vector]} for vector in vectors.tolist()]


def _predict(op: str) -> Compute:
    """The method of this name, whose predictions say themselves what they are in JSON."""
    return lambda model, items, options: [prediction.json() for prediction in getattr(model, op)(items, _ignore)]


def _look(model: LoadedModel, items: Sequence[Item], options: RequestOptions) -> list[Result]:
    target, ablate, referent = (options.get(name) for name in ("target", "ablate", "referent"))
    return [look(model, str(text), target, ablate or (), referent=referent) for text in items]


BATCHED: dict[str, Compute] = {"translate": _translate, "fill": _fill, "embed": _embed}  # by method
BATCHED |= {op: _predict(op) for op in ("classify", "tag", "answer", "choose")}


class BatchScheduler:
    """Waiting requests of the same operation and options are computed together."""

    def __init__(self, model: LoadedModel, send: Send, operations: dict[str, Compute]) -> None:
        self.model, self.send, self.operations, self.ops = model, send, operations, tuple(operations)
        self.waiting: deque[WorkRequest] = deque()

    @property
    def busy(self) -> bool:
        return bool(self.waiting)

    def add(self, request: WorkRequest) -> None:
        self.waiting.append(request)

    def cancel(self, id: int) -> None:
        self.waiting = deque(request for request in self.waiting if request.id != id)

    def step(self) -> None:
        """The oldest request, and those like it; of a large one some items, before others have their turn."""
        first = self.waiting.popleft()
        if (count := batch_size(first.remaining)) < len(first.remaining):
            if self._compute([first], count):
                self.waiting.append(first)
            return
        batch, items, later = [first], list(first.remaining), deque[WorkRequest]()
        for request in self.waiting:
            more = [*items, *request.remaining]
            if (request.op, request.options) == (first.op, first.options) and batch_size(more) == len(more):
                batch.append(request)
                items = more
            else:
                later.append(request)
        self.waiting = later
        if not self._compute(batch, len(items)) and len(batch) > 1:  # one of them cannot be computed: it fails alone
            for request in batch:
                self._compute([request], len(request.remaining))

    def _compute(self, requests: list[WorkRequest], count: int) -> bool:
        """So many items of the requests; a request of which all are computed is answered. False: it failed."""
        items = [item for request in requests for item in request.remaining][:count]
        try:
            results = iter(self.operations[requests[0].op](self.model, items, requests[0].options))
        except Exception as error:
            if len(requests) == 1:
                send_error(self.send, requests[0].id, error)
            return False
        for request in requests:
            request.results += islice(results, len(request.remaining))
            if not request.remaining:
                self.send(id=request.id, results=request.results, rows=len(items))
        return True


def batch_size(items: Sequence[Item]) -> int:
    """How many of the items are computed at once, at least one."""
    total = 0
    for n, item in enumerate(items[:MAX_BATCH_ITEMS]):
        total += character_count(item)
        if n and total > MAX_BATCH_CHARACTERS:
            return n
    return min(len(items), MAX_BATCH_ITEMS)


# --- streams of generated text -------------------------------------------------------------------------------------


Replies = Iterator[WorkerReply]


def _whole(text: Callable[[], tuple[str, str]]) -> Replies:
    """A text that is known at its end, and why it ended; computed when its turn comes."""
    piece, ended = text()
    yield {"piece": piece}
    yield {"done": ended}


def _generate(model: LoadedModel, prompt: Item, options: RequestOptions) -> StreamedText | Replies:
    limits = {key: value for key, value in options.items() if key in ("max_tokens", "stop") and value}
    sampling = {name: options.get(name) for name in SAMPLING}
    decoding = SearchOptions.from_kwargs("generate", sampling).decoding_config(model.recipe.decoding)
    if isinstance(decoding, Sample) and options.get("seed") is None:
        decoding = replace(decoding, seed=secrets.randbits(31))  # another text each time
    if not isinstance(decoding, Beam):
        return model.stream_request(str(prompt), decoding, **limits, warn=_ignore)

    def text() -> tuple[str, str]:
        (continuation,) = model.generate(prompt, 1, decoding, **limits, warn=_ignore)
        return continuation.text, continuation.ended

    return _whole(text)


def _chat(model: LoadedModel, history: Item, options: RequestOptions) -> StreamedText | Replies:
    if "seed" not in options and (isinstance(model.recipe.decoding, Sample) or options.keys() & set(SAMPLING)):
        options = {**options, "seed": secrets.randbits(31)}
    decoding = ReplyOptions.from_kwargs("stream", options).decoding_config(model.recipe.decoding)
    if not isinstance(decoding, Beam):
        return model.stream_request(history, decoding)
    return _whole(lambda: (model.replies([history], decoding)[0].text, "end"))


Stream = Callable[[LoadedModel, Item, RequestOptions], StreamedText | Replies]
STREAMS: dict[str, tuple[str, Stream]] = {"generate": ("generate", _generate), "chat": ("reply", _chat)}  # by method


class StreamScheduler:
    """Texts that are generated as streams: those of a search side by side in a running batch, a token at a time.

    A search that knows its text only at its end gives it whole, each such request in its turn.
    """

    def __init__(self, model: LoadedModel, send: Send, operations: dict[str, Stream], slots: int = 64) -> None:
        self.model, self.send, self.operations, self.ops = model, send, operations, tuple(operations)
        self.batch = ContinuousStreams(model, slots)
        self.whole: dict[int, Replies] = {}  # by request
        self.chats: set[int] = set()  # requests whose clients learn only that the reply has ended

    @property
    def busy(self) -> bool:
        return bool(self.whole) or self.batch.busy

    def add(self, request: WorkRequest) -> None:
        try:
            stream = self.operations[request.op](self.model, request.items[0], request.options)
            if isinstance(stream, StreamedText):
                self.batch.add(request.id, stream)
                self.chats |= {request.id} if request.op == "chat" else set()
            else:
                self.whole[request.id] = stream
        except Exception as error:
            send_error(self.send, request.id, error)

    def cancel(self, id: int) -> None:
        self.whole.pop(id, None)
        self.batch.drop({id})
        self.chats.discard(id)

    def step(self) -> None:
        """A token of every text, and what is next of each that comes whole."""
        for id, replies in list(self.whole.items()):
            try:
                reply = next(replies)
                self._send(id, reply)
                if "done" in reply:
                    del self.whole[id]
            except Exception as error:
                del self.whole[id]
                send_error(self.send, id, error)
        try:
            deltas = self.batch.step()
        except Exception as error:
            for id in list(self.batch.requests):
                self.cancel(id)
                send_error(self.send, id, error)
            return
        for delta in deltas:
            if delta.text:
                self._send(delta.sample, {"piece": delta.text})
            if delta.whole:
                self._send(delta.sample, {"done": "end" if delta.sample in self.chats else delta.whole.ended})
                self.chats.discard(delta.sample)

    def _send(self, id: int, reply: WorkerReply) -> None:
        message: WorkerReply = {"id": id, **reply}
        self.send(**message)
