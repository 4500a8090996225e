"""Question answering with a fine-tuned model: the part of a text that answers a question."""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.data.questions import Question
from regard.errors import RegardError, require_list
from regard.examples.long_text import Long, Shortened, long_json
from regard.predict.base import FinetunedPredictor
from regard.predict.options import checked
from regard.reporting import Warn


@dataclass(frozen=True)
class Answer:
    text: str  # empty: the context does not say it
    start: int = 0  # context[start:end] is the text
    end: int = 0
    score: float = 0.0  # of its begin and its end, added
    probability: float = 0.0  # among all spans that were considered
    long: Shortened | None = None  # what was done with a text that was too long

    def json(self) -> dict[str, object]:
        return {
            "answer": self.text,
            "start": self.start,
            "end": self.end,
            "score": self.score,
            "probability": self.probability,
        } | long_json(self.long)


class QuestionAnswerer(FinetunedPredictor):
    """`regard.load(folder)` returns this for a model of the task answer."""

    @checked
    def answer(
        self, questions: Sequence[tuple[str, str]], warn: Warn | None = None, before: int = 0, long: Long | None = None
    ) -> list[Answer]:
        """The answers to pairs of a question and a text; an empty question or text has an empty one.

        Messages count the pairs from `before` + 1 on. `long` says what becomes of longer texts, if not the recipe.
        """
        require_list(questions, "answer([(question, text)])", "pairs", nested=True)
        for n, pair in enumerate(questions, 1):
            if isinstance(pair, str) or len(pair) != 2:
                raise RegardError(f"question {before + n}: not a pair of a question and a text")
        full = [bool(question.strip() and context.strip()) for question, context in questions]
        examples = [
            Question(f"question {before + n}", question, context, (), known=False)
            for n, (question, context) in enumerate(questions, 1)
            if full[n - 1]
        ]
        answers = iter(self.predict(examples, warn, long))
        return [next(answers) if there else Answer("") for there in full]
