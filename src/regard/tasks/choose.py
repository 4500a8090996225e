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
from regard.data.config import Corpus
from regard.data.questions import ChoiceQuestion, read_multiple_choice
from regard.errors import RegardError, require_list
from regard.evaluation.labels import accuracy
from regard.examples.codec import Notes, Reader, Reading
from regard.examples.features import Unit, padded
from regard.models.batch import TextBatch
from regard.models.heads import MultipleChoice, MultipleChoiceBatch
from regard.predict.arguments import checked
from regard.reporting import Warn
from regard.tasks.finetuning import Finetuning, defaults


@dataclass(frozen=True)
class Chosen:
    index: int  # from 0
    text: str
    probabilities: list[float]  # of all options

    def json(self) -> dict[str, Any]:
        return {"index": self.index, "option": self.text, "probabilities": self.probabilities}


Asked = tuple[str, str, Sequence[str]]


class OptionChooser(Reader):
    """`regard.load(folder)` gives one of these for the task choose."""

    @checked
    def choose(self, asked: Sequence[Asked], warn: Warn | None = None, before: int = 0) -> list[Chosen]:
        """Which option is right, for each (text, question, options); messages count them from `before` + 1 on."""
        require_list(asked, "choose([(text, question, options)])", "questions", nested=True)
        for n, each in enumerate(asked, 1):
            if isinstance(each, str) or len(each) != 3 or isinstance(each[2], str):
                raise RegardError(f"question {before + n}: not a text, a question and a list of options")
        examples = [ChoiceQuestion(f"question {n}", text, question, tuple(options)) for n, (text, question, options)
                    in enumerate(asked, before + 1)]  # fmt: skip
        for example in examples:
            if len(example.options) < 2:
                raise RegardError(f"{example.where}: {len(example.options)} options; there must be two to choose from")
        return self.say(examples, warn)


@dataclass(frozen=True)
class ChooseConfig(Finetuning):
    """Of the options of a question the right one is chosen."""

    reads: ClassVar[type[Reader]] = OptionChooser
    metrics: ClassVar[dict[str, bool]] = {"accuracy": True, "loss": False}
    defaults: ClassVar[dict[str, Any]] = defaults("accuracy")

    kind: Literal["choose"] = "choose"
    batch: int = option(16, "questions of a micro-batch, with all their options")
    length: int = option(256, "pieces of a row, marks included; of a longer text the end is cut")

    def examples(self, corpus: Corpus) -> Iterator[ChoiceQuestion]:
        return read_multiple_choice(corpus)

    def words(self, example: ChoiceQuestion) -> Iterator[str]:
        return iter((example.context, example.question, *example.options))

    def build(self, body: Any, labels: Sequence[str]) -> nn.Module:
        return MultipleChoice(body, self.frozen)

    def units(self, examples: Sequence[ChoiceQuestion], reading: Reading, notes: Notes, learn: bool) -> list[Unit]:
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

    def rows(self, units: Sequence[Unit], reading: Reading) -> TextBatch:
        given = padded(units, reading.marks.pad)
        groups = torch.full((len(units), max(len(unit.rows) for unit in units)), -1)  # [Q, O]
        first = 0
        for n, unit in enumerate(units):
            groups[n, : len(unit.rows)] = torch.arange(first, first + len(unit.rows))
            first += len(unit.rows)
        owners = tuple(unit.owner for unit in units)
        return MultipleChoiceBatch(given.ids, given.real, segments=given.segments, rows=owners, groups=groups)

    def merge(
        self, example: ChoiceQuestion, units: Sequence[Unit], scores: Sequence[np.ndarray], reading: Reading
    ) -> Chosen:
        shares = torch.from_numpy(scores[0][: len(example.options)]).softmax(-1).tolist()
        best = int(np.argmax(shares))
        return Chosen(best, example.options[best], shares)

    def measure(self, examples: Sequence[ChoiceQuestion], said: Sequence[Chosen], reading: Reading) -> dict[str, Any]:
        return accuracy([int(example.answer or 0) for example in examples], [chosen.index for chosen in said])
