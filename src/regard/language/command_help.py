"""The command line's own words in the language of the user: help, usage and mistakes in options.

Help is translated where it is laid out, by cells of the terminal: a Chinese character takes two, and lines break
between any of them. Knows no command.
"""

import io
import re
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from typer import Abort, BadParameter
from typer.core import TyperGroup

from regard.language.sentences import localise

ClickException: Any = BadParameter.__mro__[2]  # above UsageError; older versions of typer have click's own

EXTRA = re.compile(r"(.*?)(?:  )?\[([^\[\]]*)\]", re.DOTALL)  # help, and what click adds: [default: 1; required]
OPENING, CLOSING = "（《“‘", "，。；：、！？）》”’"  # marks that end no line, and that begin none


def run_localised(command: Any) -> None:
    """Runs a command of click; what it has to say is localised."""
    localise_help(command)
    try:
        code = command(standalone_mode=False)
    except Abort:
        code = 1
    except ClickException as error:
        code, text = error.exit_code, io.StringIO()
        error.show(file=text)
        for line in text.getvalue().splitlines():
            print(localise(line), file=sys.stderr)
    raise SystemExit(code or 0)


def localise_help(command: Any) -> None:
    """Gives a command of click, and those below it, localised help."""
    if command.help:
        paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", command.help)]
        command.help = localise("\n\n".join(paragraphs))
        command.short_help = re.split("[。\n]", command.help)[0]
    formatter = type("Formatter", (WideFormatter, command.context_class.formatter_class), {})
    command.context_class = type("Context", (command.context_class,), {"formatter_class": formatter})
    for child in command.commands.values() if isinstance(command, TyperGroup) else ():
        localise_help(child)


class WideFormatter:
    """The layout of help where characters may take two cells; the rest is click's HelpFormatter's."""

    width: int
    current_indent: int

    def write(self, text: str) -> None:
        super().write(text)  # type: ignore[misc]

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, localise(prefix or "Usage:").rstrip())  # type: ignore[misc]

    def write_heading(self, heading: str) -> None:
        self.write(f"{'':>{self.current_indent}}{localise(heading)}：\n")

    def write_text(self, text: str) -> None:
        indent = " " * self.current_indent
        paragraphs = (wrap(part, self.width - self.current_indent) for part in text.split("\n\n"))
        self.write("\n\n".join("\n".join(indent + line for line in lines) for lines in paragraphs) + "\n")

    def write_dl(self, rows: Sequence[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        rows = [(first, _row(second)) for first, second in rows]
        column = min(max(cells(first) for first, _ in rows), col_max) + col_spacing
        indent = " " * (column + self.current_indent)
        for first, second in rows:
            start = " " * self.current_indent + first
            lines = list(wrap(second, max(self.width - column - 2, 10)))
            if cells(first) > column - col_spacing or not lines:
                self.write(start + "\n")
            else:
                self.write(start + " " * (column - cells(first)) + lines.pop(0) + "\n")
            for line in lines:
                self.write(f"{indent}{line}\n")


def _row(text: str) -> str:
    """The help of an option, and its default."""
    match = EXTRA.fullmatch(text)
    if match is None:
        return localise(text)
    extra = "；".join(localise(part) for part in match[2].split("; "))
    return f"{localise(match[1])}  [{extra}]".strip()


def cells(text: str) -> int:
    """How wide a terminal shows it."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def wrap(text: str, width: int) -> Iterator[str]:
    """Lines of at most so many cells; words stay whole where they fit, and no closing mark begins a line."""
    line = ""
    for part in re.findall(rf"\s+|[{OPENING}]*(?:[!-~]+|.)[{CLOSING}]*", text):
        if line and not part.isspace() and cells(line + part) > width:
            yield line.rstrip()
            line = ""
        line += part if line or not part.isspace() else ""
    if line.strip():
        yield line.rstrip()
