"""Where data lies on this machine: files by name, and public datasets of the catalog. Reads and downloads nothing."""

import os
from collections.abc import Sequence
from pathlib import Path

from regard.config import nearest
from regard.data import embedded
from regard.data.datasets import DATASETS, SPLIT_ALIASES, Dataset
from regard.errors import RegardError
from regard.io.files import cache_root


def data_folders() -> list[Path]:
    """Folders that hold datasets of the catalog, in the order they are searched."""
    own = os.environ.get("REGARD_DATA")
    return [*([Path(own)] if own else []), cache_root() / "data"]


def find_file(name: str) -> Path:
    """The file `name`, looked up in the working folder, then in $REGARD_DATA."""
    candidates = _candidates(name)
    for path in candidates:
        if path.is_dir():
            raise RegardError(f"{path} is a folder; give a file in it")
        if path.exists():
            return path
    looked = " and in ".join(dict.fromkeys(str(p.absolute().parent) for p in candidates))
    hint = (
        ""
        if os.environ.get("REGARD_DATA") or Path(name).is_absolute()
        else "; $REGARD_DATA is searched too when it is set"
    )
    raise RegardError(f"{name}: there is no such file (looked in {looked}{hint})")


def find_text_files(name: str) -> list[Path]:
    """The file `name`; or, where it is a folder, every .txt and .txt.gz in and below it, in order of names."""
    folder = next((path for path in _candidates(name) if path.is_dir()), None)
    if folder is None:
        return [find_file(name)]
    files = [path for path in sorted(folder.rglob("*")) if path.name.endswith((".txt", ".txt.gz")) and path.is_file()]
    if not files:
        raise RegardError(f"{folder}: there is no .txt file in this folder")
    return files


def _candidates(name: str) -> list[Path]:
    own = os.environ.get("REGARD_DATA")
    return [Path(name).expanduser(), *([Path(own) / name] if own else [])]


# --- datasets of the catalog -----------------------------------------------------------------


def find_set(name: str) -> Dataset:
    for known, entry in DATASETS.items():
        if known.lower() == name.lower():
            return entry
    raise RegardError(f"the catalog has no set {name}; {nearest(name, DATASETS)}")


def resolve_set(reference: str) -> tuple[Dataset, str]:
    """The dataset and split that `multi30k:val` means."""
    name, colon, alias = reference.partition(":")
    entry = find_set(name)
    split = SPLIT_ALIASES.get(alias, alias)
    if not colon or split not in entry.splits:
        known = ", ".join(entry.splits)
        raise RegardError(f"{reference}: write {entry.name}:SPLIT with one of the splits {known}")
    return entry, split


def set_folder(entry: Dataset) -> Path | None:
    """The folder that holds all files of the dataset, if there is one."""
    for root in data_folders():
        folder = root / entry.name
        if all(_existing(folder, name) for names in entry.splits.values() for name in names) and folder.is_dir():
            return folder
    return None


def _existing(folder: Path, name: str) -> Path | None:
    for path in (folder / name, folder / name.removesuffix(".gz"), folder / f"{name}.gz"):
        if path.is_file():
            return path
    return None


def set_files(reference: str, languages: Sequence[str] | None = None) -> list[Path]:
    """The files of a split; those of these languages alone where each language has its own."""
    entry, split = resolve_set(reference)
    if entry.layout == "embedded":
        return [embedded.FILE]
    return [_find_in_set(entry, name) for name in _file_names(entry, split, languages)]


def _file_names(entry: Dataset, split: str, languages: Sequence[str] | None) -> list[str]:
    names = list(entry.splits[split])
    if entry.layout != "lines" or languages is None:
        return names
    return [names[entry.languages.index(language)] for language in check_languages(entry, languages)]


def check_languages(entry: Dataset, languages: Sequence[str]) -> Sequence[str]:
    for language in languages:
        if language not in entry.languages:
            raise RegardError(f"{entry.name} has no text in {language}; it has {', '.join(entry.languages)}")
    return languages


def _find_in_set(entry: Dataset, name: str) -> Path:
    for root in data_folders():
        if (path := _existing(root / entry.name, name)) is not None:
            return path
    looked = " and ".join(str(root / entry.name) for root in data_folders())
    how = f"get it with `regard data get {entry.name}`" if entry.downloads else f"see {entry.homepage}"
    raise RegardError(
        f"{entry.name}: {name} is not on this machine (looked in {looked}); {how}, "
        "or set REGARD_DATA to the folder that holds the set"
    )
