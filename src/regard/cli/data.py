"""`regard data list` and `regard data get`: the catalog for people and, with JSON, for programs."""

import json as json_module
import sys

from regard.cli.streams import warn
from regard.data.catalog import find_set, set_folder
from regard.data.datasets import DATASETS
from regard.data.download import download_set
from regard.io.files import cache_root
from regard.language import localise
from regard.reporting import Json


def catalog_rows() -> list[Json]:
    """Every set of the catalog, and where it is on this machine."""
    rows = []
    for entry in DATASETS.values():
        folder = set_folder(entry)
        location = "built in" if entry.layout == "embedded" else str(folder) if folder else None
        rows.append(
            {
                "name": entry.name,
                "what": entry.description,
                "languages": list(entry.languages),
                "splits": list(entry.splits),
                "size": entry.size,
                "terms": entry.terms,
                "home": entry.homepage,
                "get": bool(entry.downloads),
                "note": entry.manual,
                "found": location,
            }
        )
    return rows


def list_sets(json: bool = False) -> None:
    rows = catalog_rows()
    if json:
        print(json_module.dumps(rows, ensure_ascii=False, indent=1))
        return
    from rich.table import Table

    from regard.console import Console

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("name", "what", "languages", "splits", "size", "where"):
        table.add_column(localise(name), no_wrap=name in ("name", "size"), overflow="fold")
    for row in rows:
        where = _where(row["found"]) if row["found"] else "get" if row["get"] else "by hand"
        lists = [" ".join(row[key]) for key in ("languages", "splits")]
        table.add_row(row["name"], localise(row["what"]), *lists, row["size"], localise(where))
    Console().print(table)
    print(localise("get: regard data get NAME; by hand, terms and addresses: regard data list --json"))


def _where(location: str) -> str:
    if location == "built in":
        return location
    return "in the cache" if location.startswith(str(cache_root())) else "found"


def get(name: str, json: bool = False) -> None:
    """Download a set into the cache and say where it is."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

    from regard.console import Console

    entry = find_set(name)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=Console(file=sys.stderr), disable=not sys.stderr.isatty()) as bar:

        def progress(file: str, done: int, size: int | None) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file, total=size)
            bar.update(tasks[file], completed=done)

        folder = download_set(name, progress, warn)
    if json:
        print(json_module.dumps({"name": entry.name, "folder": str(folder)}))
        return
    print(localise(f"{entry.name} is in {folder}; terms: {entry.terms}"))
    if entry.manual:
        print(localise(entry.manual))
