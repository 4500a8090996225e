"""Prose of a block: its sentences for a translator, and the block again with their translations.

What is no prose within a line of Markdown (code, addresses, tags, marks) is one character of a private range while text
is cut into sentences, a word `X1` for the translator, and itself again in the end. Where a translation has lost such a
word, what stands between them is translated piece by piece. Knows no model.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from regard.predict.constraints import spaceless
from regard.predict.documents.blocks import Block
from regard.text.sentences import split_sentences

FIRST, LAST = 0xF0000, 0xFFFFD  # the private range that stands for what is kept
_KEPT = re.compile(f"[{chr(FIRST)}-{chr(LAST)}]")
_RESERVED = re.compile(f"[\0{chr(FIRST)}-{chr(LAST)}]")  # in the text itself
_WORD = re.compile(r"\bX(\d+)\b")
_ENDS = ".!?…。！？｡"
_PAUSES = "，。；：、！？,;:.!?）)”’"

_INLINE = re.compile(
    r"""
    (?P<kept>
        (?<!`)(?P<ticks>`{1,8})(?!`).{1,4000}?(?<!`)(?P=ticks)(?!`)  # code
        | \\[!-/:-@\[-`{-~]
        | <[A-Za-z][A-Za-z0-9+.-]{1,31}:[^\s<>]*> | <[^\s<>@]+@[^\s<>]+>
        | </?[A-Za-z][^<>]{0,2000}> | <!--.{0,4000}?-->
        | \[\^[^\[\]\s]+\]
        | !?\[[^\[\]]{1,500}\]\[\]
        | https?://[^\s<>()\[\]]+
        | &(?:\#\d{1,7}|\#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});
        | \$(?=[^\s$])[^$\n]{0,500}?(?<=[^\s\\])\$(?!\d)
        | \{[\#.:%{][^}\n]{0,500}\}+
    )
    | (?P<open>!?\[)(?P<label>(?:[^\[\]\\`]|\\.|`[^`]{0,500}`|!?\[[^\[\]]{0,500}\](?:\([^()]{0,500}\))?){0,2000}?)
      (?P<close>\](?:\((?:[^()\\\n]|\\.|\([^()\n]{0,500}\)){0,2000}\)|\[[^\[\]]{1,500}\]))
    | (?P<bracket>\[[^\[\]\n]{1,200}\](?![(\[:]))  # a reference by its own name
    | (?P<marks>\*\*|__|~~)(?=\S)(?P<strong>.{1,2000}?)(?<=\S)(?P=marks)
    | (?P<star>(?<![\w*])\*|(?<![\w_])_)(?=[^\s*_])(?P<emphasis>[^*_]{1,2000}?)(?<=\S)(?P=star)(?![\w*_])
    """,
    re.VERBOSE | re.DOTALL,
)

_NESTED = (("label", "open", "close"), ("strong", "marks", "marks"), ("emphasis", "star", "star"))  # text within marks


class Languages(NamedTuple):
    """Whether words of the source and the target stand apart."""

    source_spaces: bool
    target_spaces: bool

    @staticmethod
    def of(source: str, target: str) -> "Languages":
        return Languages(not spaceless(source), not spaceless(target))


def unended(source: str, translation: str) -> str:
    """The translation without the full stop that a model adds to what is no sentence, such as a heading."""
    if source.rstrip()[-1:] in _ENDS or not translation.endswith((".", "。")):
        return translation
    return translation.rstrip(".。 ")


@dataclass
class Sentence:
    """A sentence, with private characters for what is kept."""

    source: str
    text: str  # for the translator
    output: str | None = None  # with private characters, once it is known

    def take(self, translation: str) -> bool:
        """Whether all that is kept is in the translation, each once."""
        translation = unended(self.source, _KEPT.sub("", translation).replace("\n", " "))
        wanted = _KEPT.findall(self.source)
        found = [int(number) for number in _WORD.findall(translation)] if wanted else []
        if sorted(found) != list(range(1, len(wanted) + 1)):
            return False
        self.output = _WORD.sub(lambda m: wanted[int(m[1]) - 1], translation) if wanted else translation
        return True

    @property
    def fragments(self) -> list[str]:
        """What stands between what is kept, that too, in turn."""
        return re.split(f"({_KEPT.pattern})", self.source)


@dataclass
class Prose:
    """A stretch of text: its sentences, and stretches within it, such as the text of a link."""

    text: str
    markdown: bool
    by: str
    languages: Languages
    parts: list["str | Prose"] = field(default_factory=list)  # of the private characters
    around: list[tuple[str, str]] = field(default_factory=list)  # a nested stretch: the marks around it
    sentences: list[Sentence] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)  # before, between and after the sentences
    breaks: list[int] = field(default_factory=list)  # of lines, in the skeleton

    def __post_init__(self) -> None:
        skeleton = self._skeleton()
        self.breaks = [n for n, character in enumerate(skeleton) if character == "\n"]
        self.skeleton = skeleton = skeleton.replace("\n", " ")
        parts = split_sentences(skeleton) if self.by == "sentence" else [skeleton.strip()] * bool(skeleton.strip())
        end = 0
        for part in parts:
            begin = skeleton.index(part, end)
            self.gaps.append(self._joined(end, begin))
            end = begin + len(part)
            self.sentences.append(self._sentence(self._joined(begin, end)))
        self.gaps.append(self._joined(end, len(skeleton)))

    def _joined(self, begin: int, end: int) -> str:
        """A stretch of the skeleton; where words do not stand apart, ends of lines are no spaces."""
        if self.languages.source_spaces:
            return self.skeleton[begin:end]
        return "".join(c for n, c in enumerate(self.skeleton[begin:end], begin) if n not in self.breaks)

    def _skeleton(self) -> str:
        def put(part: "str | Prose", around: tuple[str, str] = ("", "")) -> str:
            self.parts.append(part)
            self.around.append(around)
            return chr(FIRST + len(self.parts) - 1)

        def replace(match: re.Match[str]) -> str:
            for name, open, close in _NESTED:
                if match[name] is not None:
                    return put(Prose(match[name], True, self.by, self.languages), (match[open], match[close]))
            return put(match[0])

        at, pieces = 0, list[str]()
        for match in _INLINE.finditer(self.text) if self.markdown else ():
            pieces += [_RESERVED.sub(lambda m: put(m[0]), self.text[at : match.start()]), replace(match)]
            at = match.end()
        return "".join([*pieces, _RESERVED.sub(lambda m: put(m[0]), self.text[at:])])

    @staticmethod
    def _sentence(part: str) -> Sentence:
        if not any(c.isalpha() for c in part):  # private characters are no letters
            return Sentence(part, "", part)  # there is nothing to translate
        if _WORD.search(part) and _KEPT.search(part):
            return Sentence(part, "")  # its words would be taken for ours
        numbers = iter(range(1, len(part) + 1))
        return Sentence(part, _KEPT.sub(lambda m: f"X{next(numbers)}", part))

    def all_sentences(self) -> Iterator[Sentence]:
        """Those within too."""
        yield from self.sentences
        for part in self.parts:
            if isinstance(part, Prose):
                yield from part.all_sentences()

    # --- back to text ----------------------------------------------------------------------------------------------

    def result(self) -> str:
        """The text with its translations, of as many lines."""
        spans, gaps = [sentence.output or "" for sentence in self.sentences], self.gaps
        joined = gaps[0] + "".join(span + self._gap(gap) for span, gap in zip(spans, gaps[1:-1], strict=False))
        joined += (spans[-1] if spans else "") + (gaps[-1] if spans else "")
        cuts = self._cuts(joined)
        lines = [joined[a:b] for a, b in cuts]
        text = "\n".join(lines) + "\n" * (len(self.breaks) + 1 - len(lines))
        return _KEPT.sub(lambda m: self._part(ord(m[0]) - FIRST), text)

    def _part(self, number: int) -> str:
        part, (before, after) = self.parts[number], self.around[number]
        return before + (part.result() if isinstance(part, Prose) else part) + after

    def _gap(self, gap: str) -> str:
        if self.languages.target_spaces and not self.languages.source_spaces:
            return gap or " "
        return "" if not self.languages.target_spaces and self.languages.source_spaces and gap == " " else gap

    def _weights(self, text: str, skipped: Sequence[int] = ()) -> list[int]:
        """Before each character, and after the last, how wide the text is."""
        own = set(skipped)
        widths = (
            0 if n in own else self._width(ord(c) - FIRST) if FIRST <= ord(c) <= LAST else 1 for n, c in enumerate(text)
        )
        return list(accumulate(widths, initial=0))

    def _width(self, number: int) -> int:
        part = self.parts[number]
        return len(part.text if isinstance(part, Prose) else part) + sum(map(len, self.around[number]))

    def _cuts(self, output: str) -> list[tuple[int, int]]:
        """The lines of an output: cut where the source was, in proportion, and never within a word."""
        if not self.breaks:
            return [(0, len(output))]
        spaces = self.languages.target_spaces
        source = self._weights(self.skeleton, () if self.languages.source_spaces or spaces else self.breaks)
        target = self._weights(output)
        places = [n for n, c in enumerate(output) if c == " "] if spaces else list(range(1, len(output)))
        if not spaces:
            pauses = [n for n in places if output[n - 1] in _PAUSES]
            paused = self.languages.source_spaces or all(self.skeleton[n - 1] in _PAUSES for n in self.breaks)
            places = pauses if paused and len(pauses) >= len(self.breaks) else places
        before = [target[place] * source[-1] for place in places]
        lines, begin, first = list[tuple[int, int]](), 0, 0
        for done, line_break in enumerate(self.breaks):
            last = len(places) - (len(self.breaks) - done) + 1  # the others need places, too
            if first >= last:
                break
            wanted = source[line_break] * target[-1]
            best = min(bisect_left(before, wanted, first, last), last - 1)
            if best > first and wanted - before[best - 1] <= before[best] - wanted:
                best -= 1
            lines.append((begin, places[best]))
            begin, first = places[best] + spaces, best + 1
        return [*lines, (begin, len(output))]


def block_text(block: Block, prose: Prose | None) -> str:
    """The block with its translations, all that stands around its lines as it was; None: nothing is translated."""
    lines = prose.result().split("\n") if prose else [line.text for line in block.lines]
    return "".join(line.before + text + line.after for line, text in zip(block.lines, lines, strict=True))
