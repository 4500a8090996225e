"""Multiple choice: a text, a question and its options in, which option is right out.

Each option is a row, text [SEP] question option, and gets one score; a softmax over the options of a question is what
is learned. What does not fit is cut from the end of the text, so that every option is read whole.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import nn

from regard.config import option
from regard.data.choices import Choice, choices
from regard.data.config import Corpus
from regard.evaluation.labels import accuracy
from regard.examples.codec import Notes, Reading
from regard.examples.features import Unit, padded
from regard.models.heads import Chooser, Options
from regard.models.texts import Texts
from regard.predict.choosing import ChosenOption, OptionChooser
from regard.tasks.finetuning import Finetuning, defaults


@dataclass(frozen=True)
class ChooseConfig(Finetuning):
    """Of the options of a question the right one is chosen."""

    reads: ClassVar[type[OptionChooser]] = OptionChooser
    metrics: ClassVar[dict[str, bool]] = {"accuracy": True, "loss": False}
    defaults: ClassVar[dict[str, Any]] = defaults("accuracy")

    kind: Literal["choose"] = "choose"
    batch: int = option(16, "questions of a micro-batch, with all their options")
    length: int = option(256, "pieces of a row, marks included; of a longer text the end is cut")

    def examples(self, corpus: Corpus) -> Iterator[Choice]:
        return choices(corpus)

    def words(self, example: Choice) -> Iterator[str]:
        return iter((example.context, example.question, *example.options))

    def build(self, body: Any, labels: Sequence[str]) -> nn.Module:
        return Chooser(body, self.frozen)

    def units(self, examples: Sequence[Choice], reading: Reading, notes: Notes, learn: bool) -> list[Unit]:
        encode = reading.tokenizer.encode_batch
        contexts = encode([example.context for example in examples])
        endings = iter(encode([f"{e.question} {o}".strip() for e in examples for o in e.options]))
        room, units = self.length - 3, []
        for owner, (example, context) in enumerate(zip(examples, contexts, strict=True)):
            sides = [next(endings) for _ in example.options]
            longest = max(map(len, sides))
            if longest + len(context) > room:
                notes.add(f"texts are longer than task.length={self.length} pieces and are cut", example.where)
            if longest > room:
                notes.add("options are longer than a row and are cut", example.where)
            rows = tuple(reading.marks.row(context[: max(0, room - len(s))], s[:room]) for s in sides)
            units.append(Unit(rows, owner, example.answer))
        return units

    def rows(self, units: Sequence[Unit], reading: Reading) -> Texts:
        given = padded(units, reading.marks.pad)
        groups = torch.full((len(units), max(len(unit.rows) for unit in units)), -1)  # [Q, O]
        first = 0
        for n, unit in enumerate(units):
            groups[n, : len(unit.rows)] = torch.arange(first, first + len(unit.rows))
            first += len(unit.rows)
        owners = tuple(unit.owner for unit in units)
        return Options(given.ids, given.real, segments=given.segments, rows=owners, groups=groups)

    def merge(
        self, example: Choice, units: Sequence[Unit], scores: Sequence[np.ndarray], reading: Reading
    ) -> ChosenOption:
        shares = torch.from_numpy(scores[0][: len(example.options)]).softmax(-1).tolist()
        best = int(np.argmax(shares))
        return ChosenOption(best, example.options[best], shares)

    def measure(self, examples: Sequence[Choice], said: Sequence[ChosenOption], reading: Reading) -> dict[str, Any]:
        return accuracy([int(example.answer or 0) for example in examples], [chosen.index for chosen in said])
