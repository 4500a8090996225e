"""The console that commands print tables and notes to, in the language of the user."""

import contextlib
from typing import Any

from rich import console

from regard.language import localise


class Console(console.Console):
    """Translates the sentences that it prints; what tables hold is the caller's to translate.

    Ends as other tools do when the reader of its output has seen enough (`| head`); rich would exit with 1.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(localise(each) if isinstance(each, str) else each for each in objects), **options)

    def on_broken_pipe(self) -> None:
        with contextlib.suppress(SystemExit):
            super().on_broken_pipe()
        raise SystemExit(141)  # 128 + SIGPIPE
