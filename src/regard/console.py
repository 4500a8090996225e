"""The console that commands print tables and notes to."""

import contextlib

from rich import console


class Console(console.Console):
    """Ends as other tools do when the reader of its output has seen enough (`| head`); rich would exit with 1."""

    def on_broken_pipe(self) -> None:
        with contextlib.suppress(SystemExit):
            super().on_broken_pipe()
        raise SystemExit(141)  # 128 + SIGPIPE
