"""Public sets by name: where their files are on this machine, and their records. Downloads nothing."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.config import nearest
from regard.data import embedded
from regard.data.formats import LAYOUTS, PARALLEL
from regard.data.paths import data_folders
from regard.data.readers import Record
from regard.data.sets import ALIASES, SETS, Set
from regard.errors import RegardError


def lookup(name: str) -> Set:
    for known, entry in SETS.items():
        if known.lower() == name.lower():
            return entry
    raise RegardError(f"the catalog has no set {name}; {nearest(name, SETS)}")


def resolve(reference: str) -> tuple[Set, str]:
    """The set and split that `multi30k:val` means."""
    name, colon, given = reference.partition(":")
    entry = lookup(name)
    split = ALIASES.get(given, given)
    if not colon or split not in entry.splits:
        known = ", ".join(entry.splits)
        raise RegardError(f"{reference}: write {entry.name}:SPLIT with one of the splits {known}")
    return entry, split


def locate(entry: Set) -> Path | None:
    """The folder of the set that holds all its files, if there is one."""
    for root in data_folders():
        folder = root / entry.name
        if all(_present(folder, name) for names in entry.splits.values() for name in names) and folder.is_dir():
            return folder
    return None


def _present(folder: Path, name: str) -> Path | None:
    for path in (folder / name, folder / name.removesuffix(".gz"), folder / f"{name}.gz"):
        if path.is_file():
            return path
    return None


def files(reference: str, languages: Sequence[str] | None = None) -> list[Path]:
    """The files of a split; those of the given languages alone where each has its own."""
    entry, split = resolve(reference)
    if entry.layout == "embedded":
        return [embedded.FILE]
    return [_file(entry, name) for name in _names(entry, split, languages)]


def _names(entry: Set, split: str, languages: Sequence[str] | None) -> list[str]:
    names = list(entry.splits[split])
    if entry.layout != "lines" or languages is None:
        return names
    return [names[entry.languages.index(language)] for language in _known(entry, languages)]


def _known(entry: Set, languages: Sequence[str]) -> Sequence[str]:
    for language in languages:
        if language not in entry.languages:
            raise RegardError(f"{entry.name} has no text in {language}; it has {', '.join(entry.languages)}")
    return languages


def _file(entry: Set, name: str) -> Path:
    for root in data_folders():
        if (path := _present(root / entry.name, name)) is not None:
            return path
    looked = " and ".join(str(root / entry.name) for root in data_folders())
    how = f"get it with `regard data get {entry.name}`" if entry.fetch else f"see {entry.home}"
    raise RegardError(
        f"{entry.name}: {name} is not on this machine (looked in {looked}); {how}, "
        "or set REGARD_DATA to the folder that holds the set"
    )


def records(
    name: str, split: str, languages: Sequence[str] | None = None, counts: Counter[str] | None = None
) -> Iterator[dict[str, Any]]:
    """Every set as dictionaries; `number` is the line, or the place, of the record. Keys by layout:

    parallel: its languages; text: text; dialogue: turns; GLUE: sentence or sentence1, sentence2; label or
    score; conll: tokens, pos, chunks, tags, document; squad: id, title, context, question, answers; dream:
    id, dialogue, question, choices, answer; scitldr: id, title, source, target; tokenizers: id, token.
    """
    entry, split = resolve(f"{name}:{split}")
    paths = [_file(entry, name) for name in _names(entry, split, languages)]
    if languages is not None and entry.layout == "lines":  # a user may have two of three languages
        entry = replace(entry, languages=tuple(languages))
    return _sound(entry, split, paths, counts)


def _sound(entry: Set, split: str, paths: list[Path], counts: Counter[str] | None) -> Iterator[dict[str, Any]]:
    """The records; a file of another layout is the user's mistake, not a crash."""
    try:
        yield from LAYOUTS[entry.layout](entry, split, paths, counts)
    except (KeyError, TypeError, ValueError) as error:
        raise RegardError(f"{paths[0]}: not laid out as {entry.name} is ({error!r}); see {entry.home}") from None


def read(
    reference: str, fields: Sequence[str], languages: Sequence[str] | None = None, counts: Counter[str] | None = None
) -> Iterator[Record]:
    """A split as records of text: by language where it is parallel text, else by the keys in `fields`."""
    entry, split = resolve(reference)
    if entry.layout in PARALLEL:
        fields = _known(entry, languages or fields)
    items = records(entry.name, split, fields, counts)
    return (Record(item["number"], tuple(_text(entry, item, f) for f in fields)) for item in items)


def _text(entry: Set, item: dict[str, Any], key: str) -> str:
    if key not in item:
        raise RegardError(f"{entry.name} has no column {key}; {nearest(key, [k for k in item if k != 'number'])}")
    value = item[key]
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
