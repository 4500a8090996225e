"""Dialogues as records whose one field holds the turns, a line each. Knows no tokenizer.

One dialogue a line, with a separator between its turns (tabs in .tsv), or JSON objects with `turns`; plain or gzip.
A dialogue with an empty turn, or with one turn only, teaches no reply: it is left out, counted, and the first is named.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from regard.data.catalog import find_file, resolve_set
from regard.data.config import Corpus
from regard.data.readers import TextRecord, corpus_files, parse_json, read_lines, suffix
from regard.errors import RegardError

Spacing = Literal["kept", "closed"]
EOU = "__eou__"  # as DailyDialog writes the end of an utterance
_QUOTES = str.maketrans("’‘′", "'''")
_SHORT = re.compile(r"(?<=\w) ?' ?(s|m|t|re|ve|ll|d)\b", re.IGNORECASE)
_DOTS = re.compile(r"\.(?: \.)+")
_MARKS = re.compile(r" +([,.?!;:%)])")
_GLUED = re.compile(r"(?<=[a-z][.?!])(?=[A-Z])")


def close_spacing(text: str) -> str:
    """I ’ m fine , Tom.And you ? → I'm fine, Tom. And you?"""
    text = _SHORT.sub(lambda match: f"'{match[1].lower()}", text.translate(_QUOTES))
    text = _DOTS.sub(lambda match: match[0].replace(" ", ""), text)
    return _GLUED.sub(" ", _MARKS.sub(r"\1", text))


@dataclass(frozen=True)
class DialogueReader:
    """A reader of dialogues: the separator of turns, and whether spaces before punctuation are removed."""

    separator: str = EOU
    spacing: Spacing = "kept"

    def normalise_turn(self, text: str) -> str:
        """The turn on one line, with its spacing closed if that is set."""
        text = " ".join(text.split())
        return close_spacing(text) if self.spacing == "closed" else text

    def __call__(
        self,
        corpus: Corpus,
        names: Sequence[str] = (),
        languages: Sequence[str] | None = None,
        counts: Counter[str] | None = None,
    ) -> Iterator[TextRecord]:
        """The dialogues of a corpus that have replies; `counts` gains those that were left out, by reason."""
        dropped: dict[str, list[int]] = {}
        count = 0
        for number, raw in self._read_all(corpus, counts):
            turns = [self.normalise_turn(turn) for turn in raw]
            if len(turns) < 2 or not all(turns):
                dropped.setdefault("with an empty turn" if len(turns) > 1 else "of less than two turns", []).append(
                    number
                )
                continue
            count += 1
            yield TextRecord(number, ("\n".join(turns),))
        if not count:
            raise RegardError(
                f"{corpus.name}: no dialogue of two turns or more; turns are told apart by "
                f"{self.separator!r} (task.separator), in .tsv by tabs, in .jsonl as a list with the key turns"
            )
        if counts is not None:
            for reason, lines in dropped.items():
                counts[f"dialogues {reason}, first line {lines[0]}, left out"] += len(lines)

    def _read_all(self, corpus: Corpus, counts: Counter[str] | None) -> Iterator[tuple[int, list[str]]]:
        """The line and the raw turns of every dialogue."""
        path, separator = self._file(corpus)
        for number, line in enumerate(read_lines(path, counts), 1):
            if not line.strip():
                continue
            if suffix(path) in (".jsonl", ".ndjson"):
                yield number, _json_turns(line, str((corpus.columns or ["turns"])[0]), f"{path}, line {number}")
            else:
                turns = line.split(separator)
                yield number, turns if turns[-1].strip() else turns[:-1]  # a separator may end the line, too

    def _file(self, corpus: Corpus) -> tuple[Path, str]:
        if corpus.set is not None:
            if resolve_set(corpus.set)[0].layout != "dialogue":
                raise RegardError(f"{corpus.set}: not a set of dialogues")
            return corpus_files(corpus)[0], EOU
        if corpus.path is None:
            raise RegardError(f"{corpus.name} is two parallel files, but dialogues are one: write `path: FILE`")
        path = find_file(corpus.path)
        return path, "\t" if suffix(path) == ".tsv" else self.separator


def _json_turns(line: str, key: str, where: str) -> list[str]:
    item: Any = parse_json(line, where)
    turns = item.get(key) if isinstance(item, dict) else None
    if not isinstance(turns, list) or not all(isinstance(turn, str) for turn in turns):
        raise RegardError(f'{where}: a dialogue is {{"{key}": ["…", "…"]}}, a list of texts')
    return turns
