"""The sentence splitter: sentences of a line of text, by rules. Knows no vocabulary, no documents and no files.

`rules-1` serves Latin script and Chinese, text as people write it and text whose tokens stand apart, as in WikiText. A
mark of the end (. ! ? …) ends a sentence where white space follows and the next word does not begin in lower case; a
full stop does not after an abbreviation, an initial or a number of one or two digits. 。！？ end one anywhere. Closing
quotes and brackets stay with what they close.
"""

import re
from collections.abc import Callable

_END = re.compile(r"[.!?…]+(?=[\s\"'”’»)\]]|$)|[。！？｡]+|…{2,}")
_CHINESE = "。！？｡"
_CLOSING = "”’»)]"
_CHINESE_CLOSING = "”’」』）》】"
_OPENING = "\"'“‘«([¿¡ \t"
_INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]|\d{1,2}")  # J, U.S, 3: what a full stop may follow inside a sentence
# Abbreviations after which a sentence goes on, whatever follows, and those after which it does before a number.
ALWAYS = frozenset(
    "mr mrs ms dr prof st rev gen col lt sgt capt gov sen messrs mme mlle vs cf approx ca mt ft viz "  # noqa: SIM905
    "e.g i.e p.ex z.b d.h u.a bzw evtl ggf vgl".split()
)
BEFORE_NUMBERS = frozenset(
    "no nos nr vol vols p pp ch chap fig figs sec art bd abs str tel jan feb mar apr jun jul aug "  # noqa: SIM905
    "sep sept oct nov dec".split()
)


def split_sentences(line: str) -> list[str]:
    """The sentences of a line, none of them empty."""
    sentences, begin = [], 0
    for mark in _END.finditer(line):
        if mark.start() < begin:
            continue
        end = _closed(line, mark.end(), mark[0])
        if _ends(line, begin, mark, end):
            sentences.append(line[begin:end].strip())
            begin = end
    sentences.append(line[begin:].strip())
    return [sentence for sentence in sentences if sentence]


def whole_line(line: str) -> list[str]:
    """A line is a sentence, as in text that was cut before."""
    return [line.strip()] if line.strip() else []


SPLITTERS: dict[str, Callable[[str], list[str]]] = {"rules-1": split_sentences, "lines": whole_line}


def _closed(line: str, place: int, mark: str) -> int:
    """Behind the quotes and brackets that close after the mark; a plain quote closes where one is open."""
    closing = _CHINESE_CLOSING if mark[0] in _CHINESE else _CLOSING
    while True:
        after = place + (line[place : place + 1] == " ")
        character = line[after : after + 1]
        if not character or not (character in closing or _closes(line, after, character)):
            return place
        place = after + 1


def _closes(line: str, place: int, character: str) -> bool:
    return character == '"' and line.count('"', 0, place) % 2 == 1


def _ends(line: str, begin: int, mark: re.Match[str], end: int) -> bool:
    rest = line[end:]
    if mark[0][0] in _CHINESE or not rest:
        return True
    if not rest[0].isspace():
        return False
    following = rest.lstrip(_OPENING)[:1]
    if not following or following.islower() or following in ".,;:!?%":
        return False
    if mark[0] != "." or not mark.start() or line[mark.start() - 1].isspace():
        return True
    word = re.split(r"[\s(\[\"'“‘«]", line[begin : mark.start()])[-1]
    word = word.lower()
    return not (word in ALWAYS or (word in BEFORE_NUMBERS and following.isdigit()) or _INITIALS.fullmatch(word))
