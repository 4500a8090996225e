"""Blocks of a document: which lines are prose, translated together, and which are kept as they are.

Plain text: paragraphs, where a line that was wrapped goes on in the next. Markdown: CommonMark's blocks and tables,
front matter, formulas; what is not prose, and every mark around prose, is kept byte for byte. Knows no model.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

from regard.predict.documents.pieces import Piece

MOST_LINES = 100  # of a block; a longer one is cut between lines
FRONT_MATTER = 400  # lines in which front matter must end
_FRONT = {"---": ("---", "..."), "+++": ("+++",)}

_CONTAINER = re.compile(r"[ \t]*(?:(?:>|[-*+]|\d{1,9}[.)])(?:[ \t]+|$)|>)*")
_QUOTE = re.compile(r"[ \t]*(?:>[ \t]*)*")
_FENCE = re.compile(r"(`{3,})[^`]*$|(~{3,})")
_RULE = re.compile(r"[ \t>]*([-*_=])(?:[ \t]*\1)*[ \t]*$")
_HEADING = re.compile(r"#{1,6}(?:[ \t]+|$)")
_KEPT_LINE = re.compile(r"\[(?!\^)[^\]]+\]:[ \t]*\S|:::|!!!|\?\?\?|\{%|%%")  # references, directives
_FOOTNOTE = re.compile(r"\[\^[^\]\s]+\]:[ \t]*|\[[ xX]\][ \t]+")  # and boxes of tasks: prose follows
_DELIMITERS = re.compile(r"[ \t>]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
_CELLS = re.compile(r"(?:\\.|`[^`]*`|[^|\\`]|[\\`])+|\|")
_FIRST_WORD = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uff00-\uffef]|\S+")
_TAGS = (
    "address|article|aside|blockquote|body|center|col|colgroup|dd|details|dialog|dir|div|dl|dt|fieldset|figcaption|figure"
    "|footer|form|frame|frameset|h[1-6]|head|header|hr|html|iframe|legend|li|link|main|menu|nav|ol|p|param|picture"
    "|section|source|summary|table|tbody|td|template|tfoot|th|thead|title|tr|track|ul|video"
)
_UNTIL = [  # how a kept block begins, and what its last line holds; nothing: an empty line ends it
    (re.compile(r"<(?:script|pre|style|textarea)\b", re.I), re.compile(r"</(?:script|pre|style|textarea)>", re.I)),
    (re.compile(r"<!--"), re.compile(r"-->")),
    (re.compile(r"<\?"), re.compile(r"\?>")),
    (re.compile(r"<![A-Za-z]"), re.compile(">")),
    (re.compile(r"\$\$(?!.*\$\$)"), re.compile(r"\$\$")),
    (re.compile(r"\$\$"), re.compile("")),
    (re.compile(rf"</?(?:{_TAGS})(?:[\s/>]|$)", re.I), None),
    (re.compile(r"</?[A-Za-z][\w-]*(?:\s[^<>]*)?/?>\s*$"), None),
]


class Line(NamedTuple):
    """A line of prose, with what stands around it and is kept."""

    before: str
    text: str
    after: str  # its end included


class Block(NamedTuple):
    """Lines of prose that belong together; a block without text is kept."""

    lines: list[Line]
    markdown: bool = False

    @property
    def text(self) -> str:
        return "\n".join(line.text for line in self.lines)


Warn = Callable[[str], None]


def kept(piece: Piece) -> Block:
    return Block([Line(piece.text + piece.end, "", "")])


def prose_line(before: str, text: str, end: str) -> Line:
    """Spaces around the text are kept; two before the end, or a backslash, break the line."""
    body = text.strip()
    begin = text.index(body)
    after = text[begin + len(body) :] + end
    if body.endswith("\\") and end:
        body, after = body[:-1], "\\" + after
    return Line(before + text[:begin], body, after)


def text_blocks(pieces: Iterator[Piece], warn: Warn, name: str) -> Iterator[Block]:
    """Paragraphs of plain text. A line goes on in the next one where the next word would not have fit."""
    lines: list[Line] = []
    for piece in pieces:
        if not piece.text.strip():
            yield from _unwrapped(lines)
            lines = []
            yield kept(piece)
            continue
        lines.append(prose_line("", piece.text, piece.end))
        if not piece.end or len(lines) == MOST_LINES:
            yield from _unwrapped(lines)
            lines = []
    yield from _unwrapped(lines)


def _unwrapped(lines: list[Line]) -> Iterator[Block]:
    widest, block = max((len(line.text) for line in lines), default=0), list[Line]()
    for line, following in pairwise([*lines, None]):
        if line is None:
            return
        block.append(line)
        word = _FIRST_WORD.match(following.text) if following else None
        if word is None or len(line.text) + 1 + len(word[0]) <= widest:
            yield Block(block)
            block = []


def markdown_blocks(pieces: Iterator[Piece], warn: Warn, name: str) -> Iterator[Block]:
    return MarkdownBlocks(pieces, warn, name).blocks()


class MarkdownBlocks:
    """The blocks of Markdown, line by line; `ahead` are lines that were looked at already."""

    def __init__(self, pieces: Iterator[Piece], warn: Warn, name: str) -> None:
        self.pieces, self.warn, self.name = pieces, warn, name
        self.ahead: deque[Piece] = deque()
        self.lines: list[Line] = []  # of the paragraph that is open
        self.quotes = 0  # marks of quotation before it
        self.indent = 0  # of the list item that is open
        self.after_blank = True

    def _next(self) -> Piece | None:
        return self.ahead.popleft() if self.ahead else next(self.pieces, None)

    def _peek(self, count: int = 0) -> Piece | None:
        while len(self.ahead) <= count:
            piece = next(self.pieces, None)
            if piece is None:
                return None
            self.ahead.append(piece)
        return self.ahead[count]

    def _close(self) -> Iterator[Block]:
        if self.lines:
            yield Block(self.lines, markdown=True)
            self.lines = []

    def blocks(self) -> Iterator[Block]:
        yield from self._front_matter()
        while piece := self._next():
            yield from self._line(piece)
        yield from self._close()

    def _front_matter(self) -> Iterator[Block]:
        first = self._peek()
        ends = _FRONT.get(first.text.rstrip().lstrip("\ufeff"), ()) if first else ()
        for count in range(1, FRONT_MATTER) if ends else ():
            line = self._peek(count)
            if line is None:
                return
            if line.text.rstrip() in ends:
                for _ in range(count + 1):
                    yield kept(self.ahead.popleft())
                return

    def _line(self, piece: Piece) -> Iterator[Block]:
        text = piece.text
        if not text.strip(" \t>") or not piece.begins:
            yield from self._close()
            going_on = bool(text.strip(" \t>"))  # of a line longer than the window
            yield Block([prose_line("", text, piece.end)], markdown=True) if going_on else kept(piece)
            self.after_blank = not going_on
            return
        container = _CONTAINER.match(text)
        assert container is not None
        before, body = container[0], text[container.end() :]
        marked = bool(before.strip(" \t>"))
        blank, self.after_blank = self.after_blank, False
        if _RULE.match(text) or (not self.lines and blank and self._code(text, marked)):
            yield from self._close()
            self.after_blank = not _RULE.match(text)  # the next line may be code too
            yield kept(piece)
        elif (end := self._block_end(body)) is not None:
            yield from self._close()
            yield from self._kept_until(piece, end, body)
        elif _KEPT_LINE.match(body):
            yield from self._close()
            yield kept(piece)
        elif "|" in text and (below := self._peek()) and "|" in below.text and _DELIMITERS.match(below.text):
            yield from self._close()
            yield from self._table(piece)
        else:
            yield from self._prose(piece, before, body, marked)

    def _code(self, text: str, marked: bool) -> bool:
        """Whether a line after an empty one is indented code; a list item indents what belongs to it."""
        width = len(text.expandtabs(4)) - len(text.expandtabs(4).lstrip(" "))
        if width < self.indent and not marked:
            self.indent = width if width > 1 else 0
        return width >= self.indent + 4

    def _block_end(self, body: str) -> re.Pattern[str] | None:
        """What the last line of a kept block holds that begins so; None where none begins."""
        if fence := _FENCE.match(body):
            mark = fence[1] or fence[2]
            return re.compile(rf"[ \t>]*{re.escape(mark[0])}{{{len(mark)},}}[ \t]*$")
        for begin, end in _UNTIL:
            if begin.match(body) and not (end is None and self.lines and begin is _UNTIL[-1][0]):
                return end or re.compile(r"[ \t>]*$")
        return None

    def _kept_until(self, piece: Piece, end: re.Pattern[str], body: str) -> Iterator[Block]:
        yield kept(piece)
        fenced = bool(_FENCE.match(body))
        if not fenced and end.search(body, 2) and end.pattern != r"[ \t>]*$":
            return
        while line := self._next():
            yield kept(line)
            if end.match(line.text) if fenced or end.pattern.endswith("]*$") else end.search(line.text):
                self.after_blank = not line.text.strip(" \t>")
                return
        if fenced or not end.pattern.endswith("]*$"):
            self.warn(
                f"{self.name}, line {piece.number}: the block that begins here is never closed; "
                "all after it is kept as it is"
            )

    def _table(self, piece: Piece) -> Iterator[Block]:
        """The cells of each row, as blocks of their own; rows may have as many as they like."""
        yield from self._cells(piece)
        delimiters = self._next()
        assert delimiters is not None
        yield kept(delimiters)
        while (line := self._peek()) and "|" in line.text and line.begins:
            yield from self._cells(self.ahead.popleft())

    def _cells(self, piece: Piece) -> Iterator[Block]:
        quote = _QUOTE.match(piece.text)
        before = quote[0] if quote else ""
        parts = _CELLS.findall(piece.text[len(before) :])
        for part in parts:
            if part == "|" or not part.strip():
                before += part
                continue
            line = prose_line(before, part, "")
            yield Block([line], markdown=True)
            before = ""
        yield Block([Line(before + piece.end, "", "")])

    def _prose(self, piece: Piece, before: str, body: str, marked: bool) -> Iterator[Block]:
        quotes = before.count(">")
        if marked or quotes > self.quotes or not self.lines:
            yield from self._close()
            self.quotes = quotes
        if marked:
            self.indent = len(before.expandtabs(4))
        heading = _HEADING.match(body)
        special = heading or (None if self.lines else _FOOTNOTE.match(body))
        if special:
            if heading:
                yield from self._close()
            before, body = before + special[0], body[special.end() :]
        closing = re.search(r"[ \t]+#+[ \t]*$", body) if heading else None
        end = (closing[0] if closing else "") + piece.end
        line = prose_line(before, body[: closing.start()] if closing else body, end)
        self.lines.append(line)
        hard = line.after.startswith(("  ", "\\")) and piece.end
        if heading or hard or not piece.end or len(self.lines) == MOST_LINES:
            yield from self._close()
