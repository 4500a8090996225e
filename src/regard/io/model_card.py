"""The card of a model: README.md in its folder, YAML between two lines `---` and then text, as Hugging Face's cards.

What is read of it is the title, the terms and examples. It is words about the model: a folder needs none, and nothing
that is computed depends on it.
"""

import hashlib
import os
import sys
from dataclasses import dataclass, fields
from pathlib import Path

import yaml

from regard.errors import RegardError
from regard.io.files import cache_root, read_text

CARD = "README.md"
MAX_BYTES = 1 << 18


@dataclass(frozen=True)
class ModelCard:
    """The head of a card, and its text."""

    title: str = ""
    command: str = ""  # such as translate
    examples: tuple[str, ...] = ()  # texts for that command
    output: str = ""  # what comes of the first, where it is always the same
    terms: str = ""  # of the text that it was trained on
    noncommercial: bool = False
    base: str = ""  # the model that it is a change of, where its folder has no whole weights
    text: str = ""


def read_card(folder: Path) -> ModelCard | None:
    """The card of a model's folder; None where there is none, or a README.md without a head."""
    path = folder / CARD
    if not path.is_file():
        return None
    parts = read_text(path, limit=MAX_BYTES).split("---\n", 2)
    if len(parts) < 3 or parts[0]:
        return None
    try:
        head = yaml.safe_load(parts[1])
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):  # such as a date that is none
        head = None
    if not isinstance(head, dict):
        raise RegardError(f"{path}: its head, between the lines ---, is not YAML of keys and values")
    if isinstance(head.get("examples"), list):
        head["examples"] = tuple(str(each) for each in head["examples"] if isinstance(each, str | int | float))
    known = {field.name: type(field.default) for field in fields(ModelCard) if field.name != "text"}
    values = {name: head[name] for name, kind in known.items() if isinstance(head.get(name), kind)}
    return ModelCard(**values, text=parts[2].lstrip("\n"))


def show_terms(folder: Path) -> None:
    """Says on stderr, the first time that a model is used, that its terms are non-commercial."""
    try:
        card = read_card(folder)
    except RegardError:  # whoever shows the card says so
        return
    if card is None or not card.noncommercial or not _first_use(folder, card):
        return
    sentence = f"for non-commercial use only ({card.terms}); its card: {folder / CARD}"
    print(f"regard: {folder.name}: {sentence}", file=sys.stderr)


def _first_use(folder: Path, card: ModelCard) -> bool:
    """Whether this user has not been told yet; a mark in the cache remembers it, where there can be one."""
    digest = hashlib.sha256(f"{folder.name}\n{card.terms}".encode()).hexdigest()[:16]
    mark = cache_root() / "terms" / f"{folder.name}-{digest}"
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    except FileExistsError:
        return False
    except OSError:
        pass
    return True
