"""How a fine-tuned model reads: examples to rows, scores to what is said of each. Knows no kind of example.

What differs between tasks is asked of their settings (tasks/finetuning.py).
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from torch import nn

from regard.data.config import Corpus
from regard.errors import RegardError
from regard.examples.features import Marks, Unit, read
from regard.examples.preparing import TOKENIZER
from regard.examples.recipe_like import RecipeLike
from regard.models.texts import Texts
from regard.reporting import Progress, Warn
from regard.text import Tokenizer

if TYPE_CHECKING:
    from regard.tasks.finetuning import Finetuning

LABELS = "labels.json"


class Notes:
    """What was dropped or cut on the way, as sentences with how often and where."""

    SHOWN = 20

    def __init__(self) -> None:
        self.places: dict[str, list[str]] = {}

    def add(self, what: str, where: str) -> None:
        """`what` begins with a plural in s: "texts are cut", which of one says "text is cut"."""
        self.places.setdefault(what, []).append(where)

    def sentences(self) -> list[str]:
        found = []
        for what, places in self.places.items():
            if len(places) == 1:
                first, _, rest = what.partition(" ")
                what = f"{first.removesuffix('s')} {rest.replace('are ', 'is ').replace('have ', 'has ')}"
            more = len(places) - self.SHOWN
            shown = _together(places[: self.SHOWN]) + (f"; and {more:,} more" if more > 0 else "")
            found.append(f"{len(places):,} {what} ({shown})")
        return found


def _together(places: Sequence[str]) -> str:
    """Places `FILE, line 3` of which those of one file stand together: `FILE, line 3, 5, 8`."""
    by_file: dict[str, list[str]] = {}
    for place in places:
        file, _, number = place.rpartition(" ")
        by_file.setdefault(file, []).append(number)
    return "; ".join(f"{file} {', '.join(numbers)}".strip() for file, numbers in by_file.items())


class Reading:
    """How a task's examples become rows: its settings, vocabulary and labels, and how many texts an example has."""

    def __init__(self, settings: "Finetuning", tokenizer: Tokenizer, labels: list[str], texts: int = 0) -> None:
        self.settings, self.tokenizer, self.labels, self.marks = settings, tokenizer, labels, Marks(tokenizer)
        self.texts = texts  # 0: nobody knows, or it means nothing
        self.number = {label: n for n, label in enumerate(labels)}

    def known(self, label: str, where: str) -> int:
        if label not in self.number:
            shown = ", ".join(self.labels[:12]) + (", …" if len(self.labels) > 12 else "")
            raise RegardError(f"{where}: the label {label!r} was never seen in training, which has {shown}")
        return self.number[label]

    def units(self, examples: Sequence[Any], notes: Notes | None = None, learn: bool = False) -> list[Unit]:
        return self.settings.units(examples, self, Notes() if notes is None else notes, learn)

    def collate(self, units: Sequence[Unit]) -> Texts:
        return self.settings.collate(units, self)

    def say(
        self, model: nn.Module, examples: Sequence[Any], progress: Progress | None = None, notes: Notes | None = None
    ) -> tuple[list[Any], float | None]:
        """What the model says of every example, and its mean loss where the answers are known; None: nowhere."""
        units = self.units(examples, notes)
        told = (lambda n: progress("Measuring", n, len(units))) if progress else None
        scores, loss, measured = read(model, units, self.collate, told)
        by_owner: list[list[int]] = [[] for _ in examples]
        for n, unit in enumerate(units):
            by_owner[unit.owner].append(n)
        said = [
            self.settings.merge(example, [units[n] for n in own], [scores[n] for n in own], self)
            for example, own in zip(examples, by_owner, strict=True)
        ]
        targets = sum(map(self.settings.count, measured))
        return said, loss / targets if targets else None

    def save(self, folder: Path) -> None:
        self.tokenizer.save(folder / TOKENIZER)
        if self.labels or self.texts:
            folder.mkdir(parents=True, exist_ok=True)
            about = {"labels": self.labels} | ({"texts": self.texts} if self.texts else {})
            text = json.dumps(about, ensure_ascii=False, indent=1)
            (folder / LABELS).write_text(text + "\n", encoding="utf-8")

    @staticmethod
    def load(settings: "Finetuning", home: Path) -> "Reading":
        labels: list[str] = []
        texts, path = 0, home / LABELS
        if path.exists():
            try:
                found = json.loads(path.read_text(encoding="utf-8"))
                labels, texts = [str(label) for label in found["labels"]], int(found.get("texts", 0))
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                raise RegardError(f"{path}: damaged ({error!r})") from None
        return Reading(settings, Tokenizer.load(home / TOKENIZER), labels, texts)


class Reader:
    """A trained model of a fine-tuning task. Subclasses add what users do with it."""

    def __init__(self, model: nn.Module, reading: Reading, recipe: RecipeLike) -> None:
        self.model, self.reading, self.recipe = model, reading, recipe
        self.tokenizer, self.labels = reading.tokenizer, reading.labels

    def say(self, examples: Sequence[Any], warn: Warn | None = None) -> list[Any]:
        notes = Notes()
        said = self.reading.say(self.model, examples, notes=notes)[0]
        for sentence in notes.sentences() if warn else []:
            cast(Any, warn)(sentence)
        return said

    def measure(self, corpora: Sequence[Corpus], progress: Progress | None = None) -> dict[str, Any]:
        notes, settings = Notes(), self.reading.settings
        examples = settings.all(corpora)
        said, loss = self.reading.say(self.model, examples, progress, notes)
        measured = {} if loss is None else {"loss": {"value": loss}}
        return {
            "data": [corpus.name for corpus in corpora],
            "examples": len(examples),
            "metrics": settings.measure(examples, said, self.reading) | measured,
            "notes": notes.sentences(),
        }
