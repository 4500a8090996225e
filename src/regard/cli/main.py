"""The command line. Its table of commands is `cli/commands`; the bodies are in this folder."""

import io
import sys

import typer

from regard import language

from regard.cli.commands import training, texts, models, lab  # noqa: F401  in the order of help  # isort: skip
from regard.cli.commands.app import RENAMED, app

__all__ = ["RENAMED", "app", "main"]


def _run() -> None:
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
        sys.stdout.reconfigure(errors="backslashreplace")  # what GBK lacks ends no command, as on stderr
    if language.language() == "en":
        app()
    else:
        from regard.language.command_help import run_localised

        run_localised(typer.main.get_command(app))


def main() -> None:
    """Errors a user can mend are one sentence and exit code 2; --debug, anywhere, shows the traceback instead."""
    from regard.errors import RegardError

    debug = "--debug" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    try:
        language.check_language()
        _run()
    except RegardError as error:
        if debug:
            raise
        print(f"regard: {language.localise(str(error))}", file=sys.stderr)
        raise SystemExit(2) from None
    except OSError as error:
        if debug:
            raise
        what = f"{error.filename or 'output'}: {error.strerror or error}"
        print(f"regard: {language.localise(what)}", file=sys.stderr)
        raise SystemExit(2) from None
    except (RuntimeError, MemoryError) as error:  # torch's own words for full memory, or an absent GPU
        gpu = "CUDA" in str(error)
        full = isinstance(error, MemoryError) or "out of memory" in str(error) or "allocate memory" in str(error)
        if debug or not (gpu or full):
            raise
        what = "the GPU is out of memory" if gpu else "the machine is out of memory"
        instead = "give less at a time (--batch-tokens)" + (", or --device cpu" if gpu else "")
        sentence = f"{what if full else str(error).splitlines()[0]}; {instead}"
        print(f"regard: {language.localise(sentence)}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print(f"regard: {language.localise('interrupted')}", file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
