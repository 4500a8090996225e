"""Messages between the server and its workers, which are lines of JSON. Knows no HTTP and no model."""

from collections.abc import Sequence
from typing import TypedDict

from regard.reporting import Json

Item = str | Sequence["Item"]  # one input: a text, a pair of texts, the turns of a dialogue …
Result = Json  # one output, a JSON object


class RequestOptions(TypedDict, total=False):
    """Options of all items of a request; those that are absent are as in the model's recipe."""

    beam: int
    nbest: int
    alignments: bool
    top: int
    pooling: str
    normalise: bool
    target: str
    temperature: float
    top_k: int
    top_p: float
    repetition_penalty: float
    seed: int
    max_tokens: int
    stop: list[str]
    ablate: list[str]
    referent: str
    before: int  # items of the request that were computed earlier, for messages; the server's own
    long: str | Json  # what becomes of texts that are too long, as the task's key says it


class WorkerConfig(TypedDict):
    """The first argument of a worker process."""

    run: str
    engine: str
    precision: str | None
    shortlist: bool
    device: str
    threads: int
    slots: int  # sentences that it translates at once
    server: int  # the process whose end is the worker's end


class Capabilities(TypedDict, total=False):
    """A model as GET /v1/models lists it."""

    name: str
    kind: str
    title: str
    can: list[str]  # operations
    languages: list[str]
    examples: list[str]  # texts to try, of the model's card
    digest: str  # of the model's files


class WorkerReply(TypedDict, total=False):
    """A message of a worker; `id` is the request's. A stream ends with `done`, any other request with `results`."""

    id: int
    results: list[Result]
    rows: int  # items that were computed together
    piece: str  # of a stream
    done: str  # why a stream ended
    error: str
    code: str
    hello: Capabilities  # the first message of a worker whose model is loaded …
    failed: str  # … or is not
    beat: int  # sign of life: how many steps it has computed
    busy: bool  # whether it is computing one
    digest: str  # of the model that gave the reply


def character_count(item: Item) -> int:
    """Characters of a text, or of all texts of an item."""
    return len(item) if isinstance(item, str) else sum(map(character_count, item))
