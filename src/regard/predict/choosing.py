"""Multiple choice with a fine-tuned model: the right one of a question's options."""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.data.questions import ChoiceQuestion
from regard.errors import RegardError, require_list
from regard.examples.long_text import Long, Shortened, long_json
from regard.predict.base import FinetunedPredictor
from regard.predict.options import checked
from regard.reporting import Warn

MultipleChoice = tuple[str, str, Sequence[str]]  # text, question, options


@dataclass(frozen=True)
class ChosenOption:
    index: int  # from 0
    text: str
    probabilities: list[float]  # of all options
    long: Shortened | None = None  # what was done with a text that was too long

    def json(self) -> dict[str, object]:
        own = {"index": self.index, "option": self.text, "probabilities": self.probabilities}
        return own | long_json(self.long)


class OptionChooser(FinetunedPredictor):
    """`regard.load(folder)` returns this for a model of the task choose."""

    @checked
    def choose(
        self, questions: Sequence[MultipleChoice], warn: Warn | None = None, before: int = 0, long: Long | None = None
    ) -> list[ChosenOption]:
        """The right option of each (text, question, options); messages count them from `before` + 1 on.

        `long` says what becomes of longer texts, if not the recipe.
        """
        require_list(questions, "choose([(text, question, options)])", "questions", nested=True)
        for n, each in enumerate(questions, 1):
            if isinstance(each, str) or len(each) != 3 or isinstance(each[2], str):
                raise RegardError(f"question {before + n}: not a text, a question and a list of options")
        examples = [
            ChoiceQuestion(f"question {n}", text, question, tuple(options))
            for n, (text, question, options) in enumerate(questions, before + 1)
        ]
        for example in examples:
            if len(example.options) < 2:
                raise RegardError(f"{example.where}: {len(example.options)} options; there must be two to choose from")
        return self.predict(examples, warn, long)
