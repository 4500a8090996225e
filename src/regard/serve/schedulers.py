"""What a worker does with the requests it is given: desks, each of which works a little at a time, in turn.

Texts to translate join those that are being translated; other requests that wait together are computed together;
stories are written a word at a time, so that a long one holds up nobody. Knows no sockets and no HTTP.
"""

import json
import secrets
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from regard.decoding import Beam, DecodingConfig, Sample
from regard.errors import RegardError
from regard.look.recording import has_attention, look
from regard.predict.continuous import ContinuousTranslator
from regard.predict.long_text import LineSegments
from regard.predict.options import SAMPLING, SearchOptions, TranslationSearch
from regard.predict.translation import Translation, Translator, distinct_texts
from regard.serve.settings import letters

TOGETHER = 64  # items that are computed at once …
LETTERS = 20_000  # … and about so many characters of them
Say = Callable[..., None]  # (id=…, results=… | piece=… | done=… | error=…, code=…)


@dataclass
class Job:
    """A request: items of one kind, and what is asked of all of them."""

    id: int
    op: str
    items: list[Any]
    options: dict[str, Any] = field(default_factory=dict)
    found: list[Any] = field(default_factory=list)  # results, of its first items

    @property
    def left(self) -> list[Any]:
        return self.items[len(self.found) :]


class Desk(Protocol):
    ops: tuple[str, ...]

    @property
    def busy(self) -> bool: ...

    def take(self, job: Job) -> None: ...

    def drop(self, id: int) -> None:
        """The one who asked has gone."""

    def work(self) -> None:
        """A little."""


def desks(made: Any, say: Say, places: int) -> list[Desk]:
    """For all that a model can do."""
    found: list[Desk] = []
    if type(made) is Translator:
        found.append(Translations(made, say, places))
    if told := {op: story for op, (kind, story) in STORIES.items() if hasattr(made, kind)}:
        found.append(Stories(made, say, told))
    taken = {op for desk in found for op in desk.ops}
    batches = {op: compute for op, compute in BATCHES.items() if hasattr(made, op) and op not in taken}
    if has_attention(made):
        batches["look"] = _look
    return [*found, Batches(made, say, batches)]


def portrait(made: Any, open_desks: list[Desk]) -> dict[str, Any]:
    """What callers may know of a model."""
    task = made.recipe.task
    known = {"kind": task.kind, "title": task.title, "can": [op for desk in open_desks for op in desk.ops]}
    return known | ({"languages": list(made.languages)} if hasattr(made, "languages") else {})


def confess(error: BaseException) -> None:
    """A line of the log: what kind of error and where, without its words, which may be a user's."""
    where = [f"{Path(at.filename).name}:{at.lineno} {at.name}" for at in traceback.extract_tb(error.__traceback__)]
    print(
        json.dumps({"event": "worker_error", "error": type(error).__name__, "where": where}),
        file=sys.stderr,
        flush=True,
    )


def failure(say: Say, id: int, error: Exception) -> None:
    """A mistake of the caller in its own words; of any other the caller learns only that there was one."""
    if isinstance(error, RegardError):
        say(id=id, error=str(error), code="impossible")
    else:
        confess(error)
        say(id=id, error="the model failed on this request", code="internal")


# --- translations --------------------------------------------------------------------------------------------------


@dataclass
class Open:
    """A request whose texts are being translated."""

    job: Job
    decoding: DecodingConfig
    count: int  # of translations for each text
    parts: list[list[list[Translation]]]  # of each text, of which most have one, what was found
    missing: int  # parts
    segments: dict[int, LineSegments] = field(default_factory=dict)  # of texts that were cut

    def results(self) -> list[Any]:
        found = [
            self.segments[n].join(parts, self.decoding)[0] if n in self.segments else parts[0]
            for n, parts in enumerate(self.parts)
        ]
        return [translated(distinct_texts(each, self.decoding, self.count)) for each in found]


class Translations:
    """Texts join those that are being translated; long ones in parts, one after the other, when nobody else waits.

    Those with alignments go to `Batches`.
    """

    ops: tuple[str, ...] = ("translate",)

    def __init__(self, made: Translator, say: Say, places: int) -> None:
        self.made, self.say, self.open = made, say, ContinuousTranslator(made, places)
        self.jobs: dict[int, Open] = {}
        self.owners: dict[int, tuple[int, int, int]] = {}  # of each part the request, its text, and its number there
        self.long: deque[tuple[int, int]] = deque()  # texts to be cut: the request, and the number in it
        self.aside = Batches(made, say, {"_": _translate})
        self.last = 0

    @property
    def busy(self) -> bool:
        return self.open.busy or self.aside.busy or bool(self.long)

    def take(self, job: Job) -> None:
        if job.options.get("alignments"):
            self.aside.take(Job(job.id, "_", job.items, job.options))
            return
        try:
            decoding, count = search(self.made.recipe.decoding, job.options)
            self.jobs[job.id] = Open(job, decoding, count, [[[]] for _ in job.items], len(job.items))
            long = self._add(self.jobs[job.id], job.items, [(n, 0) for n in range(len(job.items))])
            self.long.extend((job.id, n) for n, _ in long)
        except Exception as error:
            self._fail(job.id, error)

    def _add(self, job: Open, texts: list[str], places: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Let them wait for their turn; which of them are too long for that."""
        keys = range(self.last + 1, self.last + 1 + len(texts))
        self.last += len(texts)
        long = set(self.open.add(keys, texts, job.decoding, job.count))
        self.owners |= {key: (job.job.id, *at) for key, at in zip(keys, places, strict=True) if key not in long}
        return [at for key, at in zip(keys, places, strict=True) if key in long]

    def _cut(self, id: int, number: int) -> None:
        job = self.jobs[id]
        try:
            made = job.segments[number] = self.made.segments([job.job.items[number]])
            texts = made.texts
            job.parts[number] = [[] for _ in texts]
            job.missing += len(texts) - 1
            if self._add(job, texts, [(number, part) for part in range(len(texts))]):
                raise RegardError(f"text {number + 1} cannot be cut into parts that the model knows")
        except Exception as error:
            self._fail(id, error)

    def _fail(self, id: int, error: Exception) -> None:
        self.drop(id)
        failure(self.say, id, error)

    def drop(self, id: int) -> None:
        self.aside.drop(id)
        if self.jobs.pop(id, None):
            gone = {key for key, owner in self.owners.items() if owner[0] == id}
            self.open.drop(gone)
            self.owners = {key: owner for key, owner in self.owners.items() if key not in gone}
            self.long = deque(each for each in self.long if each[0] != id)

    def work(self) -> None:
        if self.long and not self.open.waiting:
            self._cut(*self.long.popleft())
        rows = self.open.rows
        for key, found in self.open.step():
            id, number, part = self.owners.pop(key)
            job = self.jobs[id]
            job.parts[number][part] = found
            job.missing -= 1
            if not job.missing:
                del self.jobs[id]
                self.say(id=id, results=job.results(), rows=rows)
        if self.aside.busy:
            self.aside.work()


def search(base: DecodingConfig, options: dict[str, Any]) -> tuple[DecodingConfig, int]:
    count = options.get("nbest") or 1
    return TranslationSearch(beam=options.get("beam")).decoding_config(base, False, count), count


def translated(found: list[Translation]) -> dict[str, Any]:
    said = [{"text": each.text, "score": each.score} for each in found] or [{"text": "", "score": 0.0}]
    return {**said[0], "alternatives": said[1:]}


def _translate(made: Any, items: list[Any], options: dict[str, Any]) -> list[Any]:
    decoding, count = search(made.recipe.decoding, options)
    if not options.get("alignments"):
        found = made.nbest(items, count, decoding, long="segment", warn=_unsaid)
        return [translated(each) for each in found]
    found = made.nbest(items, count, decoding, long="refuse", attention=("cross",), warn=_unsaid)
    return [
        translated(each) | {"alignments": made.alignment(line, each[0]) if each else []}
        for line, each in zip(items, found, strict=True)
    ]


# --- requests that are computed together ---------------------------------------------------------------------------


Compute = Callable[[Any, list[Any], dict[str, Any]], list[Any]]


def _unsaid(sentence: str) -> None:
    """Warnings are for people at a terminal."""


def _fill(made: Any, items: list[Any], options: dict[str, Any]) -> list[Any]:
    found = made.fill(items, options.get("top") or 5)
    return [
        {"text": line, "gaps": [[guess._asdict() for guess in gap] for gap in gaps]}
        for line, gaps in zip(items, found, strict=True)
    ]


def _embed(made: Any, items: list[Any], options: dict[str, Any]) -> list[Any]:
    found = made.embed(items, options.get("pooling"), normalise=options.get("normalise"), warn=_unsaid)
    return [{"vector": [float(f"{value:.9g}") for value in vector]} for vector in found.tolist()]


def _said(op: str) -> Compute:
    return lambda made, items, options: [each.json() for each in getattr(made, op)(items, _unsaid)]


def _look(made: Any, items: list[Any], options: dict[str, Any]) -> list[Any]:
    return [look(made, text, options.get("target")) for text in items]


BATCHES: dict[str, Compute] = {"translate": _translate, "fill": _fill, "embed": _embed}
BATCHES |= {op: _said(op) for op in ("classify", "tag", "answer", "choose")}


class Batches:
    """Requests that wait together and ask for the same are computed together."""

    def __init__(self, made: Any, say: Say, compute: dict[str, Compute]) -> None:
        self.made, self.say, self.compute, self.ops = made, say, compute, tuple(compute)
        self.waiting: deque[Job] = deque()

    @property
    def busy(self) -> bool:
        return bool(self.waiting)

    def take(self, job: Job) -> None:
        self.waiting.append(job)

    def drop(self, id: int) -> None:
        self.waiting = deque(job for job in self.waiting if job.id != id)

    def work(self) -> None:
        """The one that waits longest, and those like it; of a large one some items, then others have their turn."""
        first = self.waiting.popleft()
        if (some := fitting(first.left)) < len(first.left):
            if self._computed([first], some):
                self.waiting.append(first)
            return
        now, items, later = [first], first.left, deque[Job]()
        for job in self.waiting:
            more = [*items, *job.left]
            if (job.op, job.options) == (first.op, first.options) and fitting(more) == len(more):
                now.append(job)
                items = more
            else:
                later.append(job)
        self.waiting = later
        if not self._computed(now, len(items)) and len(now) > 1:  # one of them cannot be done: let it fail alone
            for job in now:
                self._computed([job], len(job.left))

    def _computed(self, jobs: list[Job], count: int) -> bool:
        """So many items of those jobs; a job of which all are done is answered."""
        items = [item for job in jobs for item in job.left][:count]
        try:
            results = iter(self.compute[jobs[0].op](self.made, items, jobs[0].options))
        except Exception as error:
            if len(jobs) == 1:
                failure(self.say, jobs[0].id, error)
            return False
        for job in jobs:
            job.found += islice(results, len(job.left))
            if not job.left:
                self.say(id=job.id, results=job.found, rows=len(items))
        return True


def fitting(items: list[Any]) -> int:
    """How many of them are computed at once, one at least."""
    total = 0
    for n, item in enumerate(items[:TOGETHER]):
        total += letters(item)
        if n and total > LETTERS:
            return n
    return min(len(items), TOGETHER)


# --- stories -------------------------------------------------------------------------------------------------------


def _story(made: Any, prompt: str, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    plain = {name: options[name] for name in ("max_tokens", "stop") if options.get(name)} | {"warn": _unsaid}
    sampling = {name: options.get(name) for name in SAMPLING}
    decoding = SearchOptions.from_kwargs("generate", sampling).decoding_config(made.recipe.decoding)
    if isinstance(decoding, Sample) and options.get("seed") is None:
        decoding = replace(decoding, seed=secrets.randbits(31))  # another story each time
    if isinstance(decoding, Beam):
        (whole,) = made.generate(prompt, 1, decoding, **plain)
        yield {"piece": whole.text}
        yield {"done": whole.ended}
        return
    for piece in made.stream(prompt, 1, decoding, **plain):
        if piece.text:
            yield {"piece": piece.text}
        if piece.whole:
            yield {"done": piece.whole.ended}


def _reply(made: Any, history: list[str], options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if isinstance(made.recipe.decoding, Sample) or options.keys() & set(SAMPLING):
        options = {"seed": secrets.randbits(31)} | options
    pieces = made.stream(history, **options) if hasattr(made, "stream") else [made.reply(history, **options)]
    for piece in filter(None, pieces):
        yield {"piece": piece}
    yield {"done": "end"}


Tell = Callable[[Any, Any, dict[str, Any]], Iterator[dict[str, Any]]]
STORIES: dict[str, tuple[str, Tell]] = {"generate": ("generate", _story), "chat": ("reply", _reply)}  # by a method


class Stories:
    """Texts that are written a piece at a time, each in its turn."""

    def __init__(self, made: Any, say: Say, told: dict[str, Tell]) -> None:
        self.made, self.say, self.told, self.ops = made, say, told, tuple(told)
        self.running: dict[int, Iterator[dict[str, Any]]] = {}

    @property
    def busy(self) -> bool:
        return bool(self.running)

    def take(self, job: Job) -> None:
        self.running[job.id] = self.told[job.op](self.made, job.items[0], job.options)

    def drop(self, id: int) -> None:
        self.running.pop(id, None)

    def work(self) -> None:
        """One piece of every story."""
        for id, story in list(self.running.items()):
            try:
                said = next(story)
                self.say(id=id, **said)
                if "done" in said:
                    del self.running[id]
            except Exception as error:
                del self.running[id]
                failure(self.say, id, error)
