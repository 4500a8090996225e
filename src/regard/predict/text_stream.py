"""Texts as they are generated: tokens of the engine become pieces of text, of several texts beside each other."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from regard.decoding import DecodingConfig, Engine, GenerationRequest, RequestQueue, SearchSpec, StreamedToken, Symbols
from regard.decoding.context import ContextWindows
from regard.decoding.contract import InputBatch

DECODED, KEPT = 512, 64  # tokens that are decoded again with every new one; so many stay when they become too many
Ended = Literal["end", "stop", "limit"]
CollatePrompts = Callable[[Sequence[Sequence[int]]], InputBatch]


@dataclass(frozen=True)
class Continuation:
    """The text after a prompt."""

    text: str
    log_probability: float  # of its tokens, and of the end where it came to one
    ended: Ended  # by the model, by a stop string, or by the number of tokens
    tokens: list[int] = field(default_factory=list, repr=False)


class TextDelta(NamedTuple):
    """A piece of a stream."""

    sample: int
    text: str  # what is new
    whole: Continuation | None = None  # with the last piece of a sample


@dataclass
class StreamedText:
    """A text to be generated as a stream: what the model reads, how it goes on, and how tokens become text."""

    prompt: list[int]
    request: GenerationRequest
    decoding: DecodingConfig
    detokenizer: "IncrementalDetokenizer"
    tokens: list[int] = field(default_factory=list)

    def add(self, token: StreamedToken) -> TextDelta:
        """The text that is new with one more token."""
        detokenizer, ended = self.detokenizer, token.ended
        if ended == "end":
            new = detokenizer.rest()
        else:
            self.tokens.append(token.token)
            new = detokenizer.add(token.token)
        how: Ended | None = "stop" if detokenizer.stopped else ended
        if how is None:
            return TextDelta(token.id, new)
        new += detokenizer.rest()
        return TextDelta(token.id, new, Continuation(detokenizer.text, token.log_probability, how, self.tokens))


def stream_texts(
    engine: Engine, symbols: Symbols, requests: Sequence[StreamedText], collate: CollatePrompts, context: int = 0
) -> Iterator[TextDelta]:
    """Texts of one search beside each other, piece by piece; those of a `context` may be longer than it."""
    queue = RequestQueue(
        lambda rows: collate([requests[n].prompt for n in rows]), [each.request for each in requests], len(requests)
    )
    windows = ContextWindows(context, collate) if context else None
    batch = engine.begin(queue, SearchSpec.of(queue, symbols, requests[0].decoding), context=windows)
    while batch.busy:
        for token in batch.stream_step():
            delta = requests[token.id].add(token)
            if delta.whole and not token.ended:  # at a stop string
                batch.cancel({token.id})
            if delta.text or delta.whole:
                yield delta


class IncrementalDetokenizer:
    """Text of one row of tokens, piece by piece.

    A piece is held back while it may be half a character or the beginning of a stop string. `text` has all of it.
    """

    def __init__(
        self, decode: Callable[[Sequence[int]], str], prompt: Sequence[int], stops: Sequence[str] = ()
    ) -> None:
        stops = [stops] if isinstance(stops, str) else stops
        self.decode, self.tokens, self.stops = decode, list(prompt), [stop for stop in stops if stop]
        self.before = len(decode(self.tokens))  # characters of the prompt, or that were returned before
        self.past, self.text, self.returned, self.stopped = "", "", 0, False

    def add(self, token: int) -> str:
        """The text that is certain after one more token."""
        if len(self.tokens) > DECODED and self.returned == len(self.text):
            self.past, self.tokens = self.text, self.tokens[-KEPT:]
            self.before = len(self.decode(self.tokens))
        self.tokens.append(token)
        self.text = self.past + self.decode(self.tokens)[self.before :]
        stops = [index for stop in self.stops if (index := self.text.find(stop)) >= 0]
        if stops:
            self.text, self.stopped = self.text[: min(stops)], True
            return self.rest()
        certain = self.text.rstrip("\ufffd")  # a character of which only some bytes have come
        return self._upto(len(certain) - max((_overlap(certain, stop) for stop in self.stops), default=0))

    def rest(self) -> str:
        """What is left at the end."""
        return self._upto(len(self.text))

    def _upto(self, end: int) -> str:
        piece, self.returned = self.text[self.returned : end], max(self.returned, end)
        return piece


def _overlap(text: str, stop: str) -> int:
    """How many of the last characters may be the beginning of a stop string."""
    sizes = range(min(len(stop) - 1, len(text)), 0, -1)
    return next((size for size in sizes if text.endswith(stop[:size])), 0)
