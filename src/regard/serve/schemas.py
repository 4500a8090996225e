"""What may be asked: the bodies of requests, and what a worker is given of each. Knows no HTTP and no model."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from regard.serve.settings import Refused

Texts = Annotated[str | list[str], Field(description="A text, or several.")]
Count = Annotated[int, Field(ge=1, le=16, strict=True)]  # true is no number


def clean(text: str) -> str:
    """A text as one line: what cannot be printed becomes a space."""
    return text if text.isprintable() else " ".join("".join(c if c.isprintable() else " " for c in text).split())


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    op: ClassVar[str]
    summary: ClassVar[str]
    given: ClassVar[set[str]] = {"model", "text", "stream"}  # fields that are no options

    model: str | None = Field(None, description="Its name; may be left out where only one can do it.")

    def to_items(self) -> list[Any]:
        """What is worked on, each by itself."""
        text = self.text  # type: ignore[attr-defined]
        return [clean(text)] if isinstance(text, str) else [clean(each) for each in text]

    def to_options(self) -> dict[str, Any]:
        """What is asked of all of them."""
        return self.model_dump(exclude=self.given, exclude_none=True)


class Translate(Asked):
    op = "translate"
    summary = "Translate texts; with nbest also alternatives, with alignments also which word is which."

    text: Texts
    beam: Count | None = Field(None, description="Beginnings that are kept; 1 is greedy. Default: as the recipe says.")
    nbest: Count | None = Field(None, description="Up to so many translations: the best, and alternatives that differ.")
    alignments: bool = Field(False, description="Also pairs of source and target words, numbered from 0.")


class Fill(Asked):
    op, summary = "fill", "The likeliest words for each [MASK] of a text."

    text: Texts
    top: int = Field(5, ge=1, le=100, strict=True, description="So many words for each gap.")


class Classify(Asked):
    op, summary = "classify", "Label texts, or pairs of texts. Give one of the two."
    given: ClassVar[set[str]] = {"model", "text", "pairs"}

    text: Texts | None = None
    pairs: list[tuple[str, str]] | None = None

    def to_items(self) -> list[Any]:
        if self.text is not None and self.pairs is not None:
            raise Refused(422, "invalid", "give text or pairs, not both")
        pairs = [(clean(one), clean(two)) for one, two in self.pairs or ()]
        return [*pairs, *(super().to_items() if self.text is not None else ())]


class Tag(Asked):
    op, summary = "tag", "Tag the words of texts, which stand between spaces."

    text: Texts


class Answer(Asked):
    op, summary = "answer", "Answer a question by a part of a text."
    given: ClassVar[set[str]] = {"model", "question", "context"}

    question: str
    context: str

    def to_items(self) -> list[Any]:
        return [(clean(self.question), self.context.replace("\0", " "))]  # answers are places in the context


class Choose(Asked):
    op, summary = "choose", "Choose the right one of some options."
    given: ClassVar[set[str]] = {"model", "question", "context", "options"}

    context: str
    question: str = ""
    options: list[str] = Field(min_length=2, max_length=32)

    def to_items(self) -> list[Any]:
        return [(clean(self.context), clean(self.question), [clean(option) for option in self.options])]


class Embed(Asked):
    op, summary = "embed", "Turn texts into vectors."

    text: Texts
    pooling: Literal["mean", "cls", "max", "pooler"] | None = Field(None, description="Default: as the task says.")
    normalise: bool | None = Field(None, description="Vectors of length 1. Default: as the task says.")


class Look(Asked):
    op, summary = "look", "The attention of a model to a text, and to a target where one is given."

    text: str
    target: str | None = None

    def to_items(self) -> list[Any]:
        return [self.text.replace("\0", " ")]  # tabs and line ends tell its parts apart, where a model reads several


class Story(Asked):
    temperature: float | None = Field(
        None, ge=0, le=100, strict=True, description="Below 1 sharpens; 0: always the likeliest word."
    )
    top_k: int | None = Field(
        None, ge=0, le=1_000_000, strict=True, description="Draw from the k likeliest words only."
    )
    top_p: float | None = Field(
        None, gt=0, le=1, strict=True, description="Draw from the likeliest with this much probability."
    )
    repetition_penalty: float | None = Field(
        None, gt=0, le=100, strict=True, description="Above 1: known words are less likely."
    )
    seed: int | None = Field(None, ge=0, lt=1 << 63, strict=True, description="The same seed writes the same text.")
    stream: bool = Field(False, description="Answer by server-sent events, as the text is written.")


class Generate(Story):
    op, summary = "generate", "Go on writing from a prompt; with stream, as server-sent events."
    given: ClassVar[set[str]] = {"model", "prompt", "stream"}

    prompt: str
    max_tokens: int = Field(256, ge=1, strict=True, description="The server may allow less.")
    stop: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(
        [], max_length=8, description="End before one of these."
    )

    def to_items(self) -> list[Any]:
        return [self.prompt.replace("\0", " ")]


class Turn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    role: Literal["user", "assistant"]
    text: str


class Chat(Story):
    op, summary = "chat", "Answer the last message of a conversation; with stream, as server-sent events."
    given: ClassVar[set[str]] = {"model", "messages", "stream"}

    max_tokens: int | None = Field(
        None, ge=1, strict=True, description="Default: as the recipe says; the server may allow less."
    )
    messages: list[Turn] = Field(min_length=1, max_length=256, description="Oldest first.")

    def to_items(self) -> list[Any]:
        if self.messages[-1].role != "user":
            raise Refused(422, "order", "the last message must be the user's")
        return [[clean(turn.text) for turn in self.messages]]


PLAIN: tuple[type[Asked], ...] = (Translate, Fill, Classify, Tag, Answer, Choose, Embed)
STORIES: tuple[type[Story], ...] = (Generate, Chat)
