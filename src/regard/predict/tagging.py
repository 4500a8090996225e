"""Tagging with a fine-tuned model: a tag for each word of a sentence, and the entities that BIO tags mean."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from regard.data.tagged import TaggedSentence
from regard.errors import require_list
from regard.examples.long_text import Long, Shortened, long_json
from regard.predict.base import FinetunedPredictor
from regard.predict.options import checked
from regard.reporting import Warn


class Entity(NamedTuple):
    type: str
    text: str  # its words with spaces between them
    begin: int  # first word, from 0
    end: int  # after the last


@dataclass(frozen=True)
class Tags:
    words: list[str]
    tags: list[str]
    probabilities: list[float]  # of each tag
    long: Shortened | None = None  # what was done with a sentence that was too long

    @property
    def entities(self) -> list[Entity]:
        """The spans of BIO tags; an I- that continues nothing begins an entity, as in conlleval."""
        entities: list[Entity] = []
        for n, tag in enumerate(self.tags):
            mark, _, kind = tag.partition("-")
            continues = mark == "I" and n > 0 and self.tags[n - 1][2:] == kind
            if continues and entities:
                begin = entities.pop().begin
                entities.append(Entity(kind, " ".join(self.words[begin : n + 1]), begin, n + 1))
            elif mark in ("B", "I") and kind:
                entities.append(Entity(kind, self.words[n], n, n + 1))
        return entities

    def json(self) -> dict[str, object]:
        entities = [entity._asdict() for entity in self.entities]
        own = {"words": self.words, "tags": self.tags, "probabilities": self.probabilities, "entities": entities}
        return own | long_json(self.long)


class WordTagger(FinetunedPredictor):
    """`regard.load(folder)` returns this for a model of the task tag."""

    @checked
    def tag(
        self,
        sentences: Sequence[str | Sequence[str]],
        warn: Warn | None = None,
        before: int = 0,
        long: Long | None = None,
    ) -> list[Tags]:
        """The tags of each sentence: a list of words, or a text whose words are what stands between spaces.

        Messages count the sentences from `before` + 1 on. `long` says what becomes of longer ones, if not the recipe.
        """
        require_list(sentences, "tag([sentence])", "sentences", nested=True)
        words = [text.split() if isinstance(text, str) else list(text) for text in sentences]
        examples = [TaggedSentence(f"sentence {n}", row, []) for n, row in enumerate(words, before + 1)]
        return self.predict(examples, warn, long)
