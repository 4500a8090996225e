"""English sentences, as they stand in the code, and the Chinese of those that are shown, from the tables in `zh`.

Sentences are made in English everywhere, so exceptions, logs and results stay English; `localise` recognises a
finished one where it is shown. A key of a table is an English sentence with `{}` for each value, as its f-string has
it; `file(s)` is a noun that is counted. The file and line that a sentence begins with are no part of its key. Knows no
sentence itself; `python -m tools.messages` lists what the tables lack.
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path

from regard.errors import RegardError

VARIABLE = "REGARD_LANG"  # wins over the locale
LANGUAGES = ("en", "zh")
TABLES = Path(__file__).parent / "zh"


def language() -> str:
    """en or zh: as REGARD_LANG says, else the locale; English where that is another language."""
    names = (os.environ.get(name, "") for name in (VARIABLE, "LC_ALL", "LC_MESSAGES", "LANG"))
    chosen = next(filter(None, names), "")
    return "zh" if chosen.lower().startswith("zh") else "en"


def check_language() -> None:
    """Refuses a REGARD_LANG that is neither language."""
    chosen = os.environ.get(VARIABLE, "")
    if chosen and chosen[:2].lower() not in LANGUAGES:
        raise RegardError(f"{VARIABLE} is {chosen!r}; write {' or '.join(LANGUAGES)}")


def localise(text: str) -> str:
    """The text in the language of the user; what no table knows stays as it is."""
    if language() == "en" or not text.strip():
        return text
    body = text.strip("\n ")
    start = text.index(body)
    known, chinese = _read(body)
    return text[:start] + (chinese if known >= LEAST or body in message_table() else body) + text[start + len(body) :]


@cache
def message_table() -> dict[str, str]:
    """All Chinese sentences by their English keys."""
    files = sorted(TABLES.glob("*.json"))
    return {key: value for file in files for key, value in json.loads(file.read_text(encoding="utf-8")).items()}


# --- recognising a sentence ----------------------------------------------------------------------------------------

HOLE = re.compile(r"\{\}|\(s\)")  # of a key: a value, and the end of a noun that is counted
FILLED = re.compile(r"(\{\d*\*?\})")  # of its Chinese: the next value, the value of a number, a word of ours
NO_SPACE = re.compile("[\u3000-\u9fff\uff00-\uffef] [\u3000-\u9fff\uff00-\uffef]")  # Chinese on both sides
WEAK = 6  # with fewer letters of its own a key says little: only its last value may have spaces
LEAST = 4  # letters that are known of a sentence which is not foreign
LONGEST = 4000  # characters of a text that is read

Reading = tuple[int, str]  # how many letters of a text the tables know, and its Chinese


@lru_cache(maxsize=4096)
def _read(text: str) -> Reading:
    """The reading of which the tables know most; of equals, the first."""
    if text in message_table():
        return _letters(text), message_table()[text]
    readings = _readings(text) if len(text) < LONGEST else iter(())
    best = max(readings, key=lambda reading: reading[0], default=(0, text))
    return best if best[0] else (0, text)


def _readings(text: str) -> Iterator[Reading]:
    for gap in re.finditer("[;:] ", text):  # two sentences, or a place and what is wrong there
        yield _join([text[: gap.start()], text[gap.end() :]], "；" if gap[0] == "; " else "：")
    yield from (_join(text.split(gap), gap) for gap in ("\n", "  ") if gap in text)
    if match := re.fullmatch(r"(.+?) \((.+)\)", text):
        known, chinese = _join([match[1], match[2]], "（")
        yield known, f"{chinese}）"
    for key, parts in _keys():
        if all(part in text for part in parts) and (match := _pattern(key).fullmatch(text)):
            known, chinese = _fill(message_table()[key], match.groups())
            yield known + sum(map(_letters, parts)), chinese
    if ", " in text:
        yield _join(text.split(", "), "，")
    if text.startswith("--"):  # a sentence about a key of a recipe, which is an option here
        known, chinese = _read(text[2:])
        yield known, f"--{chinese}"
    if text.endswith(","):
        known, chinese = _value(text[:-1])
        yield known, f"{chinese}，"


@cache
def _keys() -> list[tuple[str, list[str]]]:
    """Keys with values, and their literal parts."""
    return [(key, [part for part in HOLE.split(key) if part]) for key in message_table() if HOLE.search(key)]


@cache
def _pattern(key: str) -> re.Pattern[str]:
    holes, literal = HOLE.findall(key), HOLE.split(key)
    value = r"(\S*?)" if _letters("".join(literal)) < WEAK else "(.*?)"
    between = [r"(?:s|\(s\))?" if hole == "(s)" else value for hole in holes]
    between[-1] = between[-1].replace(r"\S", ".")
    return re.compile("".join(map("".join, zip(map(re.escape, literal), [*between, ""], strict=True))), re.DOTALL)


def _fill(sentence: str, values: Sequence[str]) -> Reading:
    """A Chinese sentence with the values of the English one."""
    known, chinese, order = 0, "", iter(values)
    for number, part in enumerate(FILLED.split(sentence)):
        if number % 2:
            value = values[int(part[1])] if part[1].isdigit() else next(order)
            more, part = _read(value) if "*" in part else _value(value)
            known += more
        if NO_SPACE.search(chinese[-2:] + part[:2]):
            chinese, part = chinese.rstrip(" "), part.lstrip(" ")
        chinese += part
    return known, chinese


def _join(parts: Sequence[str], separator: str) -> Reading:
    """Parts that are read by themselves."""
    readings = [_value(part) for part in parts]
    return sum(known for known, _ in readings), separator.join(chinese for _, chinese in readings)


def _value(text: str) -> Reading:
    """A part of a sentence, which may be a sentence itself; a lone word, or a quotation, is the user's and stays."""
    if re.fullmatch(r"\S+( (and in|and|or) \S+)+", text):
        return 0, re.sub(" (and in|and|or) ", lambda match: " 或 " if match[1] == "or" else " 和 ", text)
    return (0, text) if " " not in text or text[0] in "'\"" else _read(text)


def _letters(text: str) -> int:
    return sum(map(str.isalpha, text))
