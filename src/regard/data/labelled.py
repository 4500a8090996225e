"""Texts, or pairs of texts, with a label: GLUE's sets, and own .tsv, .csv and .jsonl files."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from regard.data.config import Corpus
from regard.data.items import Item, items
from regard.errors import RegardError

TEXTS = (("sentence1", "sentence2"), ("text1", "text2"), ("premise", "hypothesis"), ("sentence",), ("text",))
LABELS = ("label", "score")


class Labelled(NamedTuple):
    where: str
    texts: tuple[str, ...]  # one or two
    label: str
    known: bool = True  # false: it is asked


def labelled(corpus: Corpus) -> Iterator[Labelled]:
    """`columns` name the texts and, last, the label; without them, the usual names are looked for."""
    keys: list[Any] | None = list(corpus.columns) if corpus.columns else None
    for item in items(corpus):
        keys = keys or _usual(item)
        if not 2 <= len(keys) <= 3:
            raise RegardError(f"{corpus.name}: columns name one or two texts and the label, not {len(keys)} columns")
        yield Labelled(item.where, tuple(item.text(key) for key in keys[:-1]), item.text(keys[-1]).strip())


def _usual(item: Item) -> list[str]:
    texts = next((names for names in TEXTS if all(name in item.values for name in names)), None)
    label = next((name for name in LABELS if name in item.values), None)
    if texts is None or label is None:
        known = ", ".join(str(key) for key in item.values if key != "number")
        raise RegardError(
            f"{item.where}: which columns are the text and the label? There are {known}; "
            "write columns: [TEXT, LABEL] or [TEXT, TEXT, LABEL] beside path, by name or number"
        )
    return [*texts, label]
