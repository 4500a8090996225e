"""Patterns as text: `window(256) | global(2)`. & binds tighter than |, and brackets group."""

import re
from dataclasses import MISSING, fields

from regard.config import nearest
from regard.nn.pattern.masks import Pattern

WORD = re.compile(r"\s*(?:(?P<name>[a-z_]\w*)|(?P<number>-?\d+(?:\.\d+)?)|(?P<sign>[()&|,=]))")


def parse_pattern(text: str | Pattern, known: dict[str, type[Pattern]]) -> Pattern:
    """The pattern that `text` describes; ValueError says what is wrong, and at which character."""
    return text if isinstance(text, Pattern) else _Parser(text, known).whole()


class _Parser:
    """pattern = part {'|' part};  part = piece {'&' piece};  piece = name['(' arguments ')'] | '(' pattern ')'."""

    def __init__(self, text: str, known: dict[str, type[Pattern]]) -> None:
        self.text, self.known = text, known
        self.words: list[tuple[str, str, int]] = []  # (kind, word, offset)
        offset = 0
        while offset < len(text.rstrip()):
            match = WORD.match(text, offset)
            if match is None:
                start = offset + len(text[offset:]) - len(text[offset:].lstrip())
                raise self._wrong(f"{text[start]!r} has no meaning", start)
            kind = str(match.lastgroup)
            self.words.append((kind, match[kind], match.start(kind)))
            offset = match.end()
        self.at = 0

    def whole(self) -> Pattern:
        pattern = self._pattern()
        if self.at < len(self.words):
            raise self._wrong(f"{self._word!r} is not expected here")
        return pattern

    def _pattern(self) -> Pattern:
        pattern = self._part()
        while self._take("|"):
            pattern = pattern | self._part()
        return pattern

    def _part(self) -> Pattern:
        pattern = self._piece()
        while self._take("&"):
            pattern = pattern & self._piece()
        return pattern

    def _piece(self) -> Pattern:
        if self._take("("):
            pattern = self._pattern()
            self._expect(")")
            return pattern
        offset, name = self._offset, self._word
        if self._kind != "name":
            raise self._wrong(f"a pattern is expected, not {name!r}" if name else "a pattern is missing")
        if name not in self.known:
            raise self._wrong(f"{name} is not a pattern; {nearest(name, self.known)}")
        self.at += 1
        arguments = self._arguments() if self._take("(") else []
        return self._build(name, arguments, offset)

    def _arguments(self) -> list[tuple[str, float]]:
        """(name or nothing, number) of each, up to the closing bracket."""
        arguments: list[tuple[str, float]] = []
        while not self._take(")"):
            if not self._kind:
                self._expect(")")
            if arguments:
                self._expect(",")
            name = ""
            if self._kind == "name":
                name = self._word
                self.at += 1
                self._expect("=")
            if self._kind != "number":
                raise self._wrong(f"a number is expected, not {self._word!r}" if self._word else "a number is missing")
            arguments.append((name, float(self._word)))
            self.at += 1
        return arguments

    def _build(self, name: str, arguments: list[tuple[str, float]], offset: int) -> Pattern:
        cls = self.known[name]
        options = {f.metadata.get("name", f.name): f for f in fields(cls) if f.init}  # type: ignore[arg-type]
        values: dict[str, float] = {}
        for key, number in arguments:
            if not key:
                free = [k for k in options if k not in values]
                if not free:
                    raise self._wrong(f"{name} takes at most {len(options)} numbers", offset)
                key = free[0]
            if key not in options or key in values:
                raise self._wrong(f"{name} has no option {key} to set; {nearest(key, options)}", offset)
            values[key] = int(number) if number == int(number) else number
        missing = [k for k, f in options.items() if k not in values and f.default is MISSING]
        if missing:
            raise self._wrong(f"{name} needs a number: {name}({', '.join(missing)})", offset)
        try:
            return cls(**{options[k].name: v for k, v in values.items()})
        except ValueError as error:
            raise self._wrong(str(error), offset) from None

    # --- the words ---------------------------------------------------------------------------------------------

    @property
    def _kind(self) -> str:
        return self.words[self.at][0] if self.at < len(self.words) else ""

    @property
    def _word(self) -> str:
        return self.words[self.at][1] if self.at < len(self.words) else ""

    @property
    def _offset(self) -> int:
        return self.words[self.at][2] if self.at < len(self.words) else len(self.text)

    def _take(self, sign: str) -> bool:
        if self._kind == "sign" and self._word == sign:
            self.at += 1
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise self._wrong(f"{sign!r} is missing")

    def _wrong(self, problem: str, offset: int | None = None) -> ValueError:
        at = self._offset if offset is None else offset
        return ValueError(f"the pattern {self.text!r} does not parse: {problem} (character {at + 1})")
