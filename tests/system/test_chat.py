"""`regard chat` as a user runs it: through pipes, and in a terminal with real line editing."""

import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from regard import load
from regard import recipe as recipes
from regard.run import train_recipe
from tests.tasks import chat_toy
from tests.training import toy


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chat")
    chat_toy.write(folder)
    train_recipe(recipes.load_recipe(chat_toy.recipe(folder, "lm", steps=60)), folder / "run", "cpu")
    return folder / "run"


def chat(run: Path, *arguments: str, **options: str) -> subprocess.CompletedProcess:
    return toy.regard("chat", run, *arguments, "--device", "cpu", **options)


def test_a_turn_a_line_in_a_reply_a_line_out(run: Path) -> None:
    said = "do you like tea\n\nwill you have tea now\n"
    found = chat(run, "--greedy", stdin=said)
    assert (found.returncode, found.stderr) == (0, "")
    talker = load(run, device="cpu")
    first = talker.reply(["do you like tea"], greedy=True)
    second = talker.reply(["do you like tea", first, "will you have tea now"], greedy=True)
    assert found.stdout == f"{first}\n\n{second}\n"
    rows = [json.loads(line) for line in chat(run, "--greedy", "--json", stdin=said).stdout.splitlines()]
    assert [(row["turn"], row["text"], row["reply"]) for row in rows] == [
        (1, "do you like tea", first), (None, "", ""), (2, "will you have tea now", second),
    ]  # fmt: skip
    assert rows[0]["log_probability"] < 0
    assert rows[0]["tokens"] == len(first.split())


def test_mistakes_are_sentences(run: Path, toy_run: Path) -> None:
    for arguments, said in (
        ([toy_run], "a model of the task translation, which `regard chat` is not for"),
        ([run, "--greedy", "--top-k", "3"], "--top-k is about drawing words, not about searching"),
    ):
        found = toy.regard("chat", *arguments, "--device", "cpu", stdin="x\n")
        assert (found.returncode, found.stdout) == (2, "")
        assert said in found.stderr
        assert "Traceback" not in found.stderr


def test_evaluate_and_info_know_the_task(run: Path, tmp_path: Path) -> None:
    report = json.loads(toy.regard("evaluate", run, "--json", "--device", "cpu").stdout)
    turns = (run.parent / "valid.txt").read_text().count("__eou__")
    assert (report["dialogues"], report["replies"]) == (6, turns - 6)
    assert {"loss", "perplexity", "bleu", "distinct_1", "distinct_2"} == set(report["metrics"])
    saved = json.loads((run / "results.json").read_text())["valid"]["metrics"]
    assert report["metrics"]["perplexity"]["value"] == pytest.approx(saved["perplexity"]["value"], rel=1e-4)
    (tmp_path / "own.jsonl").write_text('{"turns": ["do you like tea", "yes I like tea"]}\n', encoding="utf-8")
    shown = toy.regard("evaluate", run, "--text", tmp_path / "own.jsonl", "--beam", "2", "--device", "cpu")
    assert "1 replies" in " ".join(shown.stdout.split())
    assert "different pairs of words %" in shown.stdout
    assert json.loads(toy.regard("info", run, "--json").stdout)["task"] == "chat en"


class Terminal:
    """A command in a terminal of its own. Keys are typed only when the prompt stands there: before that, readline has
    not set the terminal up, and may throw them away."""

    PROMPT = re.compile(r"(?:^|\n)(?:\x1b\[\?2004h)?> $")

    def __init__(self, *command: str) -> None:
        import fcntl
        import pty
        import termios

        def controlled() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C is a signal

        ours, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "dumb", "INPUTRC": os.devnull}
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment,
            start_new_session=True, preexec_fn=controlled,
        )  # fmt: skip
        os.close(theirs)
        self.end, self.seen = ours, ""

    def until_prompt(self) -> str:
        """What was shown up to the next prompt."""
        return self._read(lambda: self.PROMPT.search(self.seen) is not None)

    def type(self, keys: str) -> str:
        """What was shown after the line that these keys made was sent, up to the next prompt."""
        self.seen = ""
        os.write(self.end, keys.encode())
        self._read(lambda: "\n" in self.seen)  # the line has been taken
        self.seen = self.seen[self.seen.index("\n") :]
        return self.until_prompt()

    def interrupt(self, keys: str) -> str:
        """Some keys, then Ctrl-C; what was shown after it, up to the next prompt.

        CPython's readline does not see a signal that comes just before it begins to wait for keys. So, where nothing
        has happened for long, Ctrl-C again, as people do.
        """
        self.seen = ""
        os.write(self.end, keys.encode())
        self._read(lambda: keys in self.seen)  # it has been read
        self.seen = ""
        os.write(self.end, b"\x03")
        again = time.monotonic() + 30

        def taken() -> bool:
            nonlocal again
            if time.monotonic() > again:
                os.write(self.end, b"\x03")
                again += 30
            return "\n" in self.seen

        self._read(taken)
        return self.until_prompt()

    def finish(self, keys: str) -> int:
        os.write(self.end, keys.encode())
        self._read(lambda: False)
        return self.process.wait(60)

    def _read(self, enough: Callable[[], bool]) -> str:
        """The output is read all the time, so that whoever writes never waits; until it is enough, or its end."""
        limit = time.monotonic() + 120
        while not enough():
            assert time.monotonic() < limit, f"waited too long; the terminal shows {self.seen!r}"
            if select.select([self.end], [], [], 1)[0]:
                try:
                    more = os.read(self.end, 65536)
                except OSError:  # the other side is closed
                    return self.seen
                self.seen += more.decode(errors="replace").replace("\r\n", "\n")
        return self.seen


@pytest.fixture
def terminal(run: Path) -> Iterator[Terminal]:
    pytest.importorskip("readline")
    pytest.importorskip("pty")
    command = [sys.executable, "-m", "regard", "chat", str(run), "--greedy", "--device", "cpu"]
    made = Terminal(*command)
    yield made
    made.process.kill()
    made.process.wait()
    os.close(made.end)


def test_a_conversation_in_a_terminal(terminal: Terminal, run: Path, tmp_path: Path) -> None:
    talker = load(run, device="cpu")
    expected = [talker.reply(["do you like tea"], greedy=True)]
    assert "/help lists commands" in terminal.until_prompt()
    left, home, before, wipe = "\x02", "\x01", "\x10", "\x15"  # Ctrl-B, Ctrl-A, Ctrl-P, Ctrl-U: line editing
    shown = terminal.type(f"nonsense{wipe}you lke tea{left * 6}i{home}do \n")
    assert expected[0] in shown
    history = ["do you like tea", expected[0], "do you like tea"]
    assert talker.reply(history, greedy=True) in terminal.type(f"{before}\n")  # the line of before again
    assert "Taken back: do you like tea" in terminal.type("/undo\n")
    assert "there is no /quit" in terminal.type("/quit\n")
    assert "looked at" in terminal.type("/look\n")
    path = tmp_path / "said.jsonl"
    assert "2 turns" in terminal.type(f"/save {path}\n")
    assert json.loads(path.read_text()) == {"turns": ["do you like tea", expected[0]]}
    assert "A new conversation" in terminal.type("/reset\n")
    terminal.interrupt("forget this")  # the line is forgotten, the conversation goes on
    assert "nothing was said yet" in terminal.type("/undo\n")
    assert terminal.finish("\x04") == 0  # Ctrl-D
