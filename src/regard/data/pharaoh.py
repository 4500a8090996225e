"""Word alignments in the Pharaoh form: line i for pair i of a text, `0-0 1-2 …`, source word - target word, from 0."""

import re
from collections.abc import Iterator, Sequence

from regard.data.paths import find
from regard.data.readers import Record, lines
from regard.errors import RegardError

LINK = re.compile(r"(\d+)-(\d+)")


def beside(records: Iterator[Record], path: str | None, name: str) -> Iterator[Record]:
    """The records of a text with the links of a file, if one is given; `name` is what messages call the text."""
    if path is None:
        yield from records
        return
    file = find(path)
    given = enumerate(lines(file), 1)
    for record in records:
        number, line = next(given, (0, ""))
        if not number:
            raise RegardError(f"{file}: the file ends before line {record.number} of {name}, which has no alignment")
        yield record._replace(links=_links(line, f"{file}, line {number}"))
    if (more := next(given, None)) is not None:
        raise RegardError(f"{file}, line {more[0]}: an alignment too many: {name} has no line left for it")


def _links(line: str, where: str) -> list[int]:
    """Source and target words in turn."""
    links: list[int] = []
    for text in line.split():
        found = LINK.fullmatch(text)
        if found is None:
            raise RegardError(f"{where}: {text!r} is not a link; write source-target, such as 0-2")
        links += [int(found[1]), int(found[2])]
    return links


def check_words(links: Sequence[int], source: int, target: int, where: str) -> None:
    """Raise RegardError where a link leaves the words of its pair."""
    for s, t in zip(links[::2], links[1::2], strict=True):
        if s >= source or t >= target:
            raise RegardError(
                f"{where}: the link {s}-{t} leaves the pair, which has {source} source and {target} target words here"
            )
