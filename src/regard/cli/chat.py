"""`regard chat`: a conversation with a model, in a terminal line by line, or one turn a line through a pipe."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from rich.table import Table

from regard.api import load_as
from regard.cli.streams import decode, warn, writing
from regard.console import Console
from regard.decoding import DecodingConfig
from regard.errors import RegardError
from regard.io.files import os_errors_for
from regard.predict.chat import Talker

PROMPT = "> "
LOOKED = 3  # pieces of the history that are shown for each piece of a reply


def chat(run: Path, options: dict[str, Any], device: str, as_json: bool) -> None:
    talker = load_as(Talker, run, device, "chat")
    talk = Conversation(talker, talker.search(**options))
    with writing(None) as out:
        if sys.stdin.isatty():
            terminal(talk, out, as_json)
        else:
            piped(talk, decode(sys.stdin.buffer, "standard input"), out, as_json)


class Conversation:
    """What was said so far, and how it goes on. Knows no terminal."""

    def __init__(self, talker: Talker, decoding: DecodingConfig) -> None:
        self.talker, self.decoding = talker, decoding
        self.turns: list[str] = []  # the other's and the model's, in turn

    def answer(self, text: str) -> dict[str, Any]:
        """The reply to one more turn, and what is known of it."""
        self.turns.append(text)
        (reply,) = self.talker.replies([self.turns], self.decoding, keys=[len(self.turns)])
        said = " ".join(reply.text.split())
        self.turns.append(said)
        return {
            "turn": len(self.turns) // 2,
            "text": text,
            "reply": said,
            "log_probability": reply.log_probability,
            "tokens": len(reply.tokens),
        }

    def show(self, text: str, out: IO[str]) -> None:
        """The same as it is being said; an interrupt stops it, and what was said by then is the reply."""
        self.turns.append(text)
        said = ""
        with contextlib.suppress(KeyboardInterrupt):
            for piece in self.talker.stream(self.turns, decoding=self.decoding):
                new = piece.replace("\n", " ") if said else piece.lstrip()
                said += new
                out.write(new)
                out.flush()
        out.write("\n")
        if said:
            self.turns.append(said)
        else:
            self.turns.pop()

    # --- commands ----------------------------------------------------------------------------------------------

    def reset(self, given: str, out: IO[str]) -> None:
        """forget all that was said"""
        self.turns.clear()
        out.write("A new conversation.\n")

    def undo(self, given: str, out: IO[str]) -> None:
        """take back your last turn and the reply to it"""
        if not self.turns:
            raise RegardError("nothing was said yet")
        taken = self.turns[-2]
        del self.turns[-2:]
        out.write(f"Taken back: {taken}\n")

    def look(self, given: str, out: IO[str]) -> None:
        """what the words of the last reply looked at most in what was said before"""
        if not self.turns:
            raise RegardError("nothing was said yet")
        before, said, weights = self.talker.attention(self.turns[:-1], self.turns[-1])
        table = Table("reply", "looked at, and how much of its attention to words")
        for piece, row in zip(said, weights, strict=True):
            best = row.topk(min(LOOKED, len(row)))
            seen = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            table.add_row(piece, "   ".join(f"{before[n]} {share:.0%}" for n, share in seen if share > 0))
        Console(file=out, highlight=False, markup=False).print(table)

    def save(self, given: str, out: IO[str]) -> None:
        """FILE: write what was said; to a name that ends in .jsonl a line is added, from which a model can learn"""
        if not given:
            raise RegardError("/save needs the name of a file")
        path = Path(given).expanduser()
        lines = json.dumps({"turns": self.turns}, ensure_ascii=False) + "\n"
        if path.suffix != ".jsonl":
            lines = "".join(f"{'' if n % 2 else PROMPT}{turn}\n" for n, turn in enumerate(self.turns))
        with (
            os_errors_for(path, "written"),
            open(path, "a" if path.suffix == ".jsonl" else "w", encoding="utf-8") as file,
        ):
            file.write(lines)
        out.write(f"{len(self.turns)} turns in {path}\n")

    def help(self, given: str, out: IO[str]) -> None:
        """this list"""
        for name, command in self.commands.items():
            out.write(f"{name:8}{command.__doc__}\n")
        out.write("Ctrl-C stops a reply, Ctrl-D ends the conversation.\n")

    @property
    def commands(self) -> dict[str, Callable[[str, IO[str]], None]]:
        own = (self.reset, self.undo, self.look, self.save, self.help)
        return {f"/{command.__name__}": command for command in own}

    def command(self, line: str, out: IO[str]) -> None:
        """A line that begins with a slash."""
        name, _, given = line.partition(" ")
        if name not in self.commands:
            raise RegardError(f"there is no {name}; there are {', '.join(self.commands)}")
        self.commands[name](given.strip(), out)


def piped(talk: Conversation, lines: Iterator[str], out: IO[str], as_json: bool) -> None:
    """One turn a line in, one reply a line out; an empty line stays empty, and nothing is said."""
    for line in lines:
        text = line.strip()
        found: dict[str, Any] = talk.answer(text) if text else {"turn": None, "text": "", "reply": ""}
        out.write((json.dumps(found, ensure_ascii=False) if as_json else found["reply"]) + "\n")
        out.flush()


def terminal(talk: Conversation, out: IO[str], as_json: bool) -> None:
    """Line by line, until Ctrl-D. Mistakes are told, and the conversation goes on."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # `input` then edits lines and knows those of before; Windows has its own
    warn("/help lists commands; Ctrl-C stops a reply, Ctrl-D ends")
    while True:
        try:
            line = input(PROMPT).strip()
        except EOFError:
            out.write("\n")
            return
        except KeyboardInterrupt:  # as a shell does: this line is forgotten
            out.write("\n")
            continue
        said = len(talk.turns)
        try:
            if line.startswith("/"):
                talk.command(line, out)
            elif line and as_json:
                out.write(json.dumps(talk.answer(line), ensure_ascii=False) + "\n")
            elif line:
                talk.show(line, out)
        except RegardError as error:
            del talk.turns[said:]
            warn(str(error))
        out.flush()
