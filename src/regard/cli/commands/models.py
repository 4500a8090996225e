"""Commands about models and data: looking into them, bringing them in and out, serving them."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from regard.cli.commands.app import RenamedOptions, app, data, models, with_plugins
from regard.cli.commands.options import Device, Engine, Json, LookOptions, Precision, Run, UsesShortlist


@app.command(cls=RenamedOptions)
@with_plugins
def look(options: LookOptions) -> None:
    """Show what a model's attention does with a text: one page that needs no network, a picture, or JSON."""
    if options.lens or options.patch or options.answer:
        from regard.cli.lab.interventions import intervene as body
    else:
        from regard.cli.look import look as body
    body(options)


@app.command()
def figures(
    names: Annotated[list[str] | None, Argument(help="positions, masks, paths, softmax …; none: all of them.")] = None,
    out: Annotated[Path, Option(help="The folder for them.")] = Path("figures"),
    form: Annotated[str, Option("--format", help="svg, png or pdf.")] = "svg",
    language: Annotated[str, Option(help="en or zh.")] = "en",
) -> None:
    """Draw the figures of the docs: positions, masks, paths, softmax, schedules, norms, a timeline."""
    from regard.cli.look import figures as body

    body(names or [], out, form, language)


@app.command("import")
def import_model(
    form: Annotated[str, Argument(metavar="hf", help="Whose form: hf, Hugging Face.")],
    name: Annotated[str, Argument(metavar="PATH_OR_NAME", help="A folder, or a name on the hub.")],
    out: Annotated[Path, Argument(help="Where the model goes.")],
) -> None:
    """Bring in a model of another library: OPUS-MT's Marian models, the BERT family, GPT-2."""
    from regard.cli.interop import import_model as body

    body(form, name, out)


@app.command("export")
@with_plugins
def export_model(
    form: Annotated[str, Argument(metavar="hf|ct2|safetensors", help="Whose form; see docs/interop.md.")],
    run: Run,
    out: Annotated[Path, Argument(help="Where the folder goes.")],
    precision: Annotated[str, Option(help="For ct2: float32 or int8.")] = "int8",
    bits: Annotated[
        int | None, Option(help="For safetensors: 8 stores weights in 8 bits, a quarter of the size.")
    ] = None,
    over: Annotated[
        Path | None, Option(help="For safetensors: store the change of this model, with which training began.")
    ] = None,
    rank: Annotated[int, Option(help="For --over: of the change of each matrix.")] = 8,
) -> None:
    """Take a model to another library: Hugging Face, CTranslate2, or bare safetensors."""
    from regard.cli.interop import export_model as body
    from regard.interop.model_folder import Storage

    body(form, run, out, precision, Storage(bits, over, rank))


@app.command()
@with_plugins
def info(
    run: Annotated[Path | None, Argument(help="A trained model. Without it: this installation.")] = None,
    tokens: Annotated[
        int | None, Option(min=1, help="Memory of training at a batch of so many tokens. Default: as the run had.")
    ] = None,
    length: Annotated[int, Option(min=1, help="FLOPs a token in sequences of this length.")] = 128,
    mechanisms: Annotated[
        bool, Option("--mechanisms", help="List every attention, position, block and model: meaning, formula, paper.")
    ] = False,
    verify: Annotated[
        bool, Option("--verify", help="Compare every file of the model and its checkpoints with manifest.json.")
    ] = False,
    as_json: Json = False,
) -> None:
    """What this installation has, or what a trained model is and how well it did."""
    if mechanisms:
        from regard.config import load_allowed_plugins
        from regard.mechanisms import print_mechanisms

        load_allowed_plugins()
        print_mechanisms(as_json)
    else:
        from regard.cli.info import info as body

        body(run, as_json, tokens, length, verify)


@app.command()
@with_plugins
def serve(
    runs: Annotated[list[str], Argument(metavar="RUN…", help="Models, each as RUN or NAME=RUN; RUN may be a name.")],
    host: Annotated[str, Option(help="Where to listen; 0.0.0.0 is everywhere.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    engine: Engine = "own",
    precision: Precision = None,
    shortlist: UsesShortlist = False,
    workers: Annotated[int, Option(min=1, help="Processes of each model.")] = 1,
    threads: Annotated[int, Option(min=1, help="Of each process.")] = 1,
    places: Annotated[int, Option(min=1, help="Sentences that a process translates at once.")] = 256,
    api_key: Annotated[str | None, Option(help="Callers must show it; better in a file, or in REGARD_API_KEY.")] = None,
    api_key_file: Annotated[Path | None, Option(help="Keys, one a line.")] = None,
    admin_key_file: Annotated[Path | None, Option(help="Keys for /admin/, one a line; or REGARD_ADMIN_KEY.")] = None,
    open_to_all: Annotated[bool, Option("--open", help="Let others call a server that has no key.")] = False,
    max_length: Annotated[int, Option(min=1, help="Characters of a text.")] = 5_000,
    max_texts: Annotated[int, Option(min=1, help="Texts of a request.")] = 256,
    max_body: Annotated[int, Option(min=1, help="Bytes of a request.")] = 1 << 20,
    max_tokens: Annotated[int, Option(min=1, help="Tokens of a text that is written.")] = 1_024,
    queue: Annotated[int, Option(min=1, help="Texts of a model that may wait or be worked on.")] = 1_024,
    connections: Annotated[int, Option(min=1, help="Open at once; others are told to come again.")] = 1_024,
    timeout: Annotated[float, Option(min=0.01, help="Seconds that a request may take.")] = 60.0,
    start_timeout: Annotated[float, Option(min=0.01, help="Seconds that a worker may take to load its model.")] = 300.0,
    heartbeat_timeout: Annotated[float, Option(min=2, help="Seconds of silence until a worker is replaced.")] = 5.0,
    step_timeout: Annotated[float, Option(min=0.01, help="Seconds of one computation, then it is replaced.")] = 30.0,
    patience: Annotated[float, Option(min=0.01, help="Seconds for a client to send a request.")] = 10.0,
    drain_delay: Annotated[float, Option(min=0, help="Seconds from SIGTERM until it stops listening.")] = 0.0,
    drain: Annotated[float, Option(min=0, help="Seconds for requests that run when the server ends.")] = 30.0,
    log_text: Annotated[bool, Option("--log-text", help="Write what users send into the log.")] = False,
    device: Device = "auto",
) -> None:
    """Put trained models behind an HTTP API and a page; see docs/serving.md."""
    from regard.cli.serve import named_runs, read_keys
    from regard.cli.serve import serve as body
    from regard.serve.settings import ServerSettings

    limits = {"max_length": max_length, "max_texts": max_texts, "max_body": max_body, "max_tokens": max_tokens}
    limits |= {"queue": queue, "connections": connections}
    times = {"timeout": timeout, "client_timeout": patience, "drain": drain, "drain_delay": drain_delay}
    times |= {"start_timeout": start_timeout, "heartbeat_timeout": heartbeat_timeout, "step_timeout": step_timeout}
    work = {
        "engine": engine,
        "precision": precision,
        "shortlist": shortlist,
        "workers": workers,
        "threads": threads,
        "slots": places,
    }
    keys = read_keys(api_key, "REGARD_API_KEY", api_key_file)
    admin_keys = read_keys(None, "REGARD_ADMIN_KEY", admin_key_file)
    body(ServerSettings(named_runs(runs), host, port, device=device, keys=keys, admin_keys=admin_keys,
                  open=open_to_all, log_text=log_text, **limits, **times, **work))  # type: ignore[arg-type]  # fmt: skip


@data.command("list")
def data_list(as_json: Json = False) -> None:
    """Every set of the catalog: what it is, and whether it is here."""
    from regard.cli.data import list_sets

    list_sets(as_json)


@data.command("get")
def data_get(name: Annotated[str, Argument(help="A name from `regard data list`.")]) -> None:
    """Download a set from its public address."""
    from regard.cli.data import get

    get(name)


@models.command("list")
def models_list(as_json: Json = False) -> None:
    """Every model that has a name: what it does, its size and its terms."""
    from regard.cli.shipped.models import list_models

    list_models(as_json)


@models.command("show")
def models_show(
    name: Annotated[str, Argument(help="A name from `regard models list`, or a folder.")], as_json: Json = False
) -> None:
    """Print the card of a model: how it was made, of which data, how good it is, and its limits."""
    from regard.cli.shipped.models import show_model

    show_model(name, as_json)
