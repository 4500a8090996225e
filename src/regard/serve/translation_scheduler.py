"""Translations in a running batch, one token of each text at every step."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from regard.decoding import DecodingConfig
from regard.errors import RegardError
from regard.examples.long_text import long_json
from regard.predict.continuous import ContinuousTranslator
from regard.predict.long_text import LineSegments
from regard.predict.translation import Translation, Translator, distinct_texts
from regard.serve.batch_scheduler import BATCHED, BatchScheduler, translation_result, translation_search
from regard.serve.messages import Item, Result
from regard.serve.scheduler import Send, WorkRequest, send_error


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
        results = []
        for n, parts in enumerate(self.parts):
            segments = self.segments.get(n)
            nbest = parts[0] if segments is None else segments.join(parts, self.decoding)[0]
            result = translation_result(distinct_texts(nbest, self.decoding, self.count))
            results.append(result | long_json(None if segments is None else segments.shortened.get(0)))
        return results


class TranslationScheduler:
    """Texts join a running batch; long ones in parts, one after the other, when no other text waits for a slot.

    Those with alignments, or with another way for long texts than segments, are computed by a `BatchScheduler`.
    """

    ops: tuple[str, ...] = ("translate",)

    def __init__(self, translator: Translator, send: Send, slots: int) -> None:
        self.translator, self.send, self.batch = translator, send, ContinuousTranslator(translator, slots)
        self.pending: dict[int, PendingTranslation] = {}  # by request
        self.owners: dict[int, tuple[int, int, int]] = {}  # of each part: request, text, and number of the part
        self.long: deque[tuple[int, int]] = deque()  # texts to be split: request, and number of the text
        self.batched = BatchScheduler(translator, send, {"translate": BATCHED["translate"]})
        self.last_key = 0

    @property
    def busy(self) -> bool:
        return self.batch.busy or self.batched.busy or bool(self.long)

    def add(self, request: WorkRequest) -> None:
        if request.options.get("alignments") or request.options.get("long") not in (None, "segments"):
            self.batched.add(request)
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
        self.batched.cancel(id)
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
        if self.batched.busy:
            self.batched.step()
