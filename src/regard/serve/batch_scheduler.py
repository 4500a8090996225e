"""Batches of waiting requests: those of the same operation and options are computed together."""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from regard.decoding import DecodingConfig
from regard.examples.long_text import Shortened, long_json
from regard.look.attention import look
from regard.predict.options import TranslationSearch
from regard.predict.translation import Translation
from regard.serve.messages import Item, RequestOptions, Result, character_count
from regard.serve.scheduler import LoadedModel, Send, WorkRequest, ignore, send_error

MAX_BATCH_ITEMS = 64
MAX_BATCH_CHARACTERS = 20_000  # about
Compute = Callable[[LoadedModel, Sequence[Item], RequestOptions], list[Result]]


def translation_search(base: DecodingConfig, options: RequestOptions) -> tuple[DecodingConfig, int]:
    """The search, and how many translations each text gets."""
    count = options.get("nbest") or 1
    return TranslationSearch(beam=options.get("beam")).decoding_config(base, False, count), count


def translation_result(nbest: list[Translation]) -> Result:
    rows = [{"text": each.text, "score": each.score} for each in nbest] or [{"text": "", "score": 0.0}]
    return {**rows[0], "alternatives": rows[1:], **long_json(nbest[0].long if nbest else None)}


def _translate(translator: LoadedModel, items: Sequence[Item], options: RequestOptions) -> list[Result]:
    decoding, count = translation_search(translator.recipe.decoding, options)
    aligned, before = options.get("alignments"), options.get("before", 0)
    long, attention = options.get("long") or ("refuse" if aligned else "segments"), ("cross",) if aligned else ()
    found = translator.nbest(items, count, decoding, long=long, attention=attention, warn=ignore, before=before)
    results = [translation_result(nbest) for nbest in found]
    if aligned:
        for line, nbest, result in zip(items, found, results, strict=True):
            result["alignments"] = translator.alignment(line, nbest[0]) if nbest else []
    return results


def _fill(model: LoadedModel, items: Sequence[Item], options: RequestOptions) -> list[Result]:
    long: dict[int, Shortened] = {}
    top, before = options.get("top") or 5, options.get("before", 0)
    filled = model.fill(items, top, before=before, long=options.get("long"), shortened=long)
    return [
        {"text": line, "gaps": [[guess._asdict() for guess in gap] for gap in gaps]} | long_json(long.get(n))
        for n, (line, gaps) in enumerate(zip(items, filled, strict=True))
    ]


def _embed(model: LoadedModel, items: Sequence[Item], options: RequestOptions) -> list[Result]:
    long: dict[int, Shortened] = {}
    vectors = model.embed(
        items, options.get("pooling"), normalise=options.get("normalise"), warn=ignore, long=options.get("long"),
        shortened=long,
    )  # fmt: skip
    return [
        {"vector": [float(f"{value:.9g}") for value in vector]} | long_json(long.get(n))
        for n, vector in enumerate(vectors.tolist())
    ]


def _predict(op: str) -> Compute:
    """The method of this name, whose predictions say themselves what they are in JSON."""

    def compute(model: LoadedModel, items: Sequence[Item], options: RequestOptions) -> list[Result]:
        before = options.get("before", 0)
        predictions = getattr(model, op)(items, warn=ignore, before=before, long=options.get("long"))
        return [prediction.json() for prediction in predictions]

    return compute


def _look(model: LoadedModel, items: Sequence[Item], options: RequestOptions) -> list[Result]:
    target, ablate = options.get("target"), options.get("ablate") or ()
    return [look(model, str(text), target, ablate, referent=options.get("referent")) for text in items]


BATCHED: dict[str, Compute] = {"translate": _translate, "fill": _fill, "embed": _embed}  # by method
BATCHED |= {op: _predict(op) for op in ("classify", "tag", "answer", "choose")}
LOOK: dict[str, Compute] = {"look": _look}  # of every model with attention


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
            options: RequestOptions = {**requests[0].options, "before": len(requests[0].results)}
            results = iter(self.operations[requests[0].op](self.model, items, options))
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
