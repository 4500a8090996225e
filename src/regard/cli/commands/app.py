"""The application that commands are added to; their plugins, names of models and renamed options."""

import functools
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer import Option
from typer.core import TyperCommand, TyperGroup

from regard import language


class Commands(TyperGroup):
    """Ends as other tools do when the reader of its output has seen enough (`| head`); click would exit with 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            if sys.stdout:  # `>&-` leaves none
                sys.stdout.flush()
            return result
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left has nowhere to go
            raise SystemExit(141) from None  # 128 + SIGPIPE


app = typer.Typer(
    name="regard",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="The Transformer, complete: train and measure attention models, translate and write.\n\n"
    "First steps:  regard quickstart  trains a small translator in minutes and shows what to try next.",
)
data = typer.Typer(no_args_is_help=True, help="The catalog of public data sets.")
app.add_typer(data, name="data")
models = typer.Typer(no_args_is_help=True, help="The trained models that commands know by name.")
app.add_typer(models, name="models")
lab = typer.Typer(no_args_is_help=True, help="The claims of the notes as experiments: is it true, what is said?")
app.add_typer(lab, name="lab")


def _version(requested: bool) -> None:
    if requested:
        from regard import __version__

        print(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    pass


def _allow_plugins(context: typer.Context, names: list[str] | None) -> None:
    if names:
        from regard.config import allow_plugins

        allow_plugins(names, "--plugin", load=context.info_name != "serve")  # whose workers load them


Plugins = Annotated[
    list[str] | None,
    Option(
        "--plugin", metavar="MODULE", callback=_allow_plugins, is_eager=True,
        help="Load choices of your own from this module (docs/plugins.md); may be repeated.",
    ),
]  # fmt: skip


def with_plugins(command: Callable[..., None]) -> Callable[..., None]:
    """A command on a recipe or a trained model, with the option --plugin.

    A dataclass, as its only parameter, stands for its fields: these are the options.
    """
    signature, hints = inspect.signature(command), get_type_hints(command, include_extras=True)
    option_set = hints.get("options")
    own = list((inspect.signature(option_set) if option_set else signature).parameters.values())
    hints = get_type_hints(option_set, include_extras=True) if option_set else hints
    own = [parameter.replace(annotation=hints[parameter.name]) for parameter in own]
    plugin = inspect.Parameter("plugin", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Plugins)

    @functools.wraps(command)
    def run(**options: object) -> None:
        del options["plugin"]  # which its callback has loaded
        options = _with_folders(options)
        command(option_set(**options)) if option_set else command(**options)

    parameters = [*own, plugin]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _with_folders(options: dict[str, object]) -> dict[str, object]:
    """The options of a command with the folders of trained models in the place of their names."""
    from regard.io.models import find_model

    def folder(value: object) -> object:
        if isinstance(value, list):
            return [folder(item) for item in value]
        return find_model(value) if isinstance(value, Path) else value  # serve's NAME=RUN it takes apart itself

    taken = {"run", "runs", "others", "over", "teacher"}
    return {name: folder(value) if name in taken else value for name, value in options.items()}


RENAMED = {"translate --heads": "--trees", "score --heads": "--trees", "evaluate --heads": "--trees"}
RENAMED |= {"look --out": "--output"}


class RenamedOptions(TyperCommand):
    """Takes the old names of options too, and says the new ones on stderr."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        for n, argument in enumerate(args[:end]):
            old, equals, value = argument.partition("=")
            if new := RENAMED.get(f"{self.name} {old}"):
                print(f"regard: {language.localise(f'{old} is now called {new}')}", file=sys.stderr)
                args[n] = f"{new}{equals}{value}"
        return super().parse_args(ctx, args)


class TrainCommand(TyperCommand):
    """`regard train --help` also lists every key of a recipe, from the same classes that parse it."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        from regard.cli.train import recipe_help

        formatter.write(recipe_help())
