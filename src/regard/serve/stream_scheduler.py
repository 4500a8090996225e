"""Streams of generated text in a running batch, a token of each at every step."""

import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace

from regard.decoding import Beam, Sample
from regard.predict.continuous import ContinuousStreams
from regard.predict.options import SAMPLING, ReplyOptions, SearchOptions
from regard.predict.text_stream import StreamedText
from regard.serve.messages import Item, RequestOptions, WorkerReply
from regard.serve.scheduler import LoadedModel, Send, WorkRequest, ignore, send_error

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
        return model.stream_request(str(prompt), decoding, **limits, warn=ignore)

    def text() -> tuple[str, str]:
        (continuation,) = model.generate(prompt, 1, decoding, **limits, warn=ignore)
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
