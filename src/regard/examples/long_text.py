"""What becomes of a text that is longer than a model reads: the choices of `long`, which every task has.

Each chooses, of the tokens of a text, those that are read, in one row or several. Knows no task and no model.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar, cast

import numpy as np

from regard.config import Choice, at_least, choice, choices, lookup, option, to_choice
from regard.config.tree import parse_yaml
from regard.errors import RegardError
from regard.examples.windows import word_windows
from regard.text.passages import SCORES, choose_passages, passage_spans

Long = Choice | Mapping[str, object] | str  # as calls take it: a choice, its name, or a mapping with its kind
_LINE_END = re.compile(r"\s*\n\s*")
S = TypeVar("S")  # settings of a task
Ranges = list[tuple[int, int]]  # of tokens, in order
Encode = Callable[[Sequence[str]], list[list[int]]]
Importance = Callable[[Sequence[list[int]]], np.ndarray]  # of passages as tokens, by a model's attention


@dataclass(frozen=True)
class Shortened:
    """What was done with a text that was too long. `kept` counts passages from 1, where passages were chosen."""

    kind: str
    tokens: int
    dropped: int
    segments: int = 1
    passages: int = 0
    kept: tuple[int, ...] = ()

    def json(self) -> dict[str, object]:
        """What says something."""
        own = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return {
            name: value for name, value in own.items() if name in ("kind", "tokens", "dropped", "segments") or value
        }


def long_json(done: Shortened | None) -> dict[str, object]:
    """Its part of a line of JSON; nothing for a text that fits."""
    return {} if done is None else {"long": done.json()}


class LongText(NamedTuple):
    """A text that is too long."""

    where: str  # for messages
    tokens: int
    passages: Sequence[str] = ()  # of it, where they are needed
    sizes: Sequence[int] = ()  # of the passages, in tokens
    question: str = ""  # what the text is read for
    importance: Callable[[], np.ndarray] | None = None  # of the passages, where a model says it


class Parts(NamedTuple):
    rows: list[Ranges]  # what is read, row by row
    shortened: Shortened


class LongConfig(Choice, slot="long"):
    """What becomes of a text that is longer than a model reads."""

    must_define = ("rows",)
    passages = False  # whether it looks at the passages of a text

    def rows(self, text: LongText, room: int, overlap: int) -> Parts:
        """What is read of a text that has more than `room` tokens."""
        raise NotImplementedError


@choice("truncate")
class Truncate(LongConfig):
    """The beginning is read, the end, or half of the room each."""

    keep: Literal["head", "tail", "both"] = option("head", "what is read: the beginning, the end, or some of both")

    def rows(self, text: LongText, room: int, overlap: int) -> Parts:
        head = {"head": room, "tail": 0, "both": (room + 1) // 2}[self.keep]
        ranges = [(0, head), (text.tokens - room + head, text.tokens)]
        kept = [(begin, end) for begin, end in ranges if begin < end]
        return Parts([kept], Shortened(self.kind, text.tokens, text.tokens - room))


@choice("extract", paper="Liu 2018, 4.1; Erkan 2004")
class Extract(LongConfig):
    """Whole passages that say most are read, in their order."""

    passages = True
    by: Literal["tfidf", "centrality", "attention"] = option(
        "tfidf", "against the question, or else the rest; likeness to all others (LexRank); or the model's attention"
    )

    def rows(self, text: LongText, room: int, overlap: int) -> Parts:
        if self.by != "attention":
            scores = SCORES[self.by](text.passages, text.question)
        elif text.importance is not None:
            scores = text.importance()
        else:
            raise RegardError("passages are chosen by attention only where a trained model reads them; write by: tfidf")
        kept = choose_passages(scores, text.sizes, room)
        ends = np.cumsum(text.sizes).tolist()
        ranges = [(ends[n] - text.sizes[n], ends[n]) for n in kept]
        if not kept:  # no passage fits: the best one is cut
            kept = [int(np.argmax(scores))]
            begin = ends[kept[0]] - text.sizes[kept[0]]
            ranges = [(begin, begin + room)]
        read, chosen = sum(end - begin for begin, end in ranges), tuple(n + 1 for n in kept)
        done = Shortened(self.kind, text.tokens, text.tokens - read, 1, len(text.sizes), chosen)
        return Parts([ranges], done)


@choice("segments")
class Segments(LongConfig):
    """All is read, in pieces that may overlap; what is said of the pieces is merged."""

    overlap: int | None = option(None, "tokens that a segment shares with the one before; none: task.overlap, or 0")
    pool: Literal["mean", "max"] = option(
        "mean", "of labels, numbers, options and vectors of segments: mean (of log-probabilities), or the highest"
    )

    def __post_init__(self) -> None:
        at_least(self, 0, "overlap")

    def rows(self, text: LongText, room: int, overlap: int) -> Parts:
        shared = overlap if self.overlap is None else self.overlap
        if shared >= room:
            raise RegardError(f"{text.where}: segments of {room} tokens cannot share {shared}; lower long.overlap")
        windows = list(word_windows([1] * text.tokens, room, shared))
        return Parts([[window] for window in windows], Shortened(self.kind, text.tokens, 0, len(windows)))

    def pooled(self, log_probabilities: np.ndarray) -> np.ndarray:
        """Of segments [S, C], as probabilities [C]."""
        each = log_probabilities.astype(np.float64)
        joined = each.mean(0) if self.pool == "mean" else each.max(0)
        shares = np.exp(joined - joined.max())
        return shares / shares.sum()


@choice("refuse")
class Refuse(LongConfig):
    """It is an error."""

    def rows(self, text: LongText, room: int, overlap: int) -> Parts:
        raise RegardError(f"{text.where}: {text.tokens} tokens, and {room} can be read; choose another way with long")


@choice("none")
class ReadWhole(LongConfig):
    """It is read as it is, though the model has not learned from such."""

    def rows(self, text: LongText, room: int, overlap: int) -> Parts:
        return Parts([[(0, text.tokens)]], Shortened(self.kind, text.tokens, 0))


ALIASES = {"translate": ReadWhole, "segment": Segments}  # what `translate --long` called them before


def to_long(value: Long | None, default: LongConfig, name: str = "long") -> LongConfig:
    """A choice of its name, of an older one, of YAML as on the command line, or of a mapping; None is the default."""
    if value is None:
        return default
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = parse_yaml(value, name).plain()
    if isinstance(value, str):
        value = (ALIASES.get(value) or lookup(choices(LongConfig), value, name))()
    chosen: LongConfig = to_choice(LongConfig, value, name, name)
    return chosen


def check_long(long: LongConfig, kinds: Sequence[str], task: str) -> None:
    """Raise ValueError unless a task can do that."""
    if long.kind not in kinds and not long.plugin:
        raise ValueError(f"long is {long.kind}, and the task {task} knows {', '.join(kinds)}")


def with_long(settings: S, long: Long) -> S:
    """A task's settings with another `long`."""
    try:
        return cast(S, replace(cast(Any, settings), long=to_long(long, Truncate())))
    except ValueError as error:
        raise RegardError(str(error)) from None


def take(ids: Sequence[int], ranges: Ranges) -> list[int]:
    return [i for begin, end in ranges for i in ids[begin:end]]


def shorten(
    long: LongConfig, text: str, ids: list[int], room: int, encode: Encode, where: str, question: str = "",
    importance: Importance | None = None, overlap: int = 0,
) -> tuple[list[list[int]], Shortened | None]:  # fmt: skip
    """The rows of at most `room` tokens that are read of a text, and what was done with it; None: it fits."""
    if len(ids) <= room:
        return [ids], None
    long_text = LongText(where, len(ids))
    if isinstance(long, Extract):
        passages = [_LINE_END.sub(" ", text[begin:end]) for begin, end in passage_spans(text)]
        pieces = encode(passages)
        ids = [i for row in pieces for i in row]
        scores = None if importance is None else lambda: importance(pieces)
        long_text = LongText(where, len(ids), passages, list(map(len, pieces)), question, scores)
    rows, done = long.rows(long_text, max(1, room), overlap)
    return [take(ids, ranges) for ranges in rows], done
