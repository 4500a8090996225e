"""Schemas of the API: bodies of requests and of responses. Knows no HTTP library and no model."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from regard.serve.messages import Item, RequestOptions, Result
from regard.serve.settings import RequestError

Texts = Annotated[str | list[str], Field(description="A text, or several.")]
MIN_TEMPERATURE = 0.001  # scores divided by less are not finite
MAX_INT = (1 << 31) - 1
Overlap = Annotated[int, Field(ge=0, le=MAX_INT, strict=True)]  # of segments, in tokens
Count = Annotated[int, Field(ge=1, le=16, strict=True)]  # true is no number


def _no_tiny_temperature(value: float | None) -> float | None:
    if value is not None and 0 < value < MIN_TEMPERATURE:
        raise ValueError(f"it is 0, or at least {MIN_TEMPERATURE}")
    return value


def one_line(text: str) -> str:
    """A text as one line: characters that cannot be printed become spaces."""
    return text if text.isprintable() else " ".join("".join(c if c.isprintable() else " " for c in text).split())


def text_items(texts: str | list[str]) -> list[str]:
    return [one_line(text) for text in ([texts] if isinstance(texts, str) else texts)]


class Request(BaseModel):
    """What all requests have in common: an operation of a model, items, and options for all of them."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    op: ClassVar[str]
    summary: ClassVar[str]
    not_options: ClassVar[set[str]] = {"model", "text", "stream"}

    model: str | None = Field(None, description="Its name; may be left out where only one can do it.")

    def to_items(self) -> Sequence[Item]:
        raise NotImplementedError

    def to_options(self) -> RequestOptions:
        return cast(RequestOptions, self.model_dump(exclude=self.not_options, exclude_none=True))


class TextRequest(Request):
    """A request for one text or several."""

    text: Texts

    def to_items(self) -> Sequence[Item]:
        return text_items(self.text)


class LongTextRequest(Request):
    """A request whose texts may be longer than the model reads."""

    long: str | dict[str, str | Overlap] | None = Field(
        None,
        description="What becomes of a text that is too long: truncate, extract, segments, refuse or none, or such a "
        "kind with its keys. Default: as the recipe says; translations are of segments.",
    )


class TranslateRequest(TextRequest, LongTextRequest):
    op = "translate"
    summary = "Translate texts; with nbest also alternatives, with alignments also which word is which."

    beam: Count | None = Field(None, description="Beginnings that are kept; 1 is greedy. Default: as the recipe says.")
    nbest: Count | None = Field(None, description="Up to so many translations: the best, and alternatives that differ.")
    alignments: bool = Field(False, description="Also pairs of source and target words, numbered from 0.")


class FillRequest(TextRequest, LongTextRequest):
    op, summary = "fill", "The likeliest words for each [MASK] of a text."

    top: int = Field(5, ge=1, le=100, strict=True, description="So many words for each gap.")


class ClassifyRequest(LongTextRequest):
    op, summary = "classify", "Label texts, or pairs of texts. Give one of the two."
    not_options: ClassVar[set[str]] = {"model", "text", "pairs"}

    text: Texts | None = None
    pairs: list[tuple[str, str]] | None = None

    def to_items(self) -> Sequence[Item]:
        if self.text is not None and self.pairs is not None:
            raise RequestError(422, "invalid", "give text or pairs, not both")
        pairs = [(one_line(one), one_line(two)) for one, two in self.pairs or ()]
        return [*pairs, *(text_items(self.text) if self.text is not None else ())]


class TagRequest(TextRequest, LongTextRequest):
    op, summary = "tag", "Tag the words of texts, which stand between spaces."


class AnswerRequest(LongTextRequest):
    op, summary = "answer", "Answer a question by a part of a text."
    not_options: ClassVar[set[str]] = {"model", "question", "context"}

    question: str
    context: str

    def to_items(self) -> Sequence[Item]:
        return [(one_line(self.question), self.context.replace("\0", " "))]  # answers are places in the context


class ChooseRequest(LongTextRequest):
    op, summary = "choose", "Choose the right one of some options."
    not_options: ClassVar[set[str]] = {"model", "question", "context", "options"}

    context: str
    question: str = ""
    options: list[str] = Field(min_length=2, max_length=32)

    def to_items(self) -> Sequence[Item]:
        return [(one_line(self.context), one_line(self.question), [one_line(option) for option in self.options])]


class EmbedRequest(TextRequest, LongTextRequest):
    op, summary = "embed", "Turn texts into vectors."

    pooling: Literal["mean", "cls", "max", "pooler"] | None = Field(None, description="Default: as the task says.")
    normalise: bool | None = Field(None, description="Vectors of length 1. Default: as the task says.")


class LookRequest(Request):
    op, summary = "look", "The attention of a model to a text, and to a target where one is given."

    text: str
    target: str | None = None
    ablate: list[Annotated[str, Field(max_length=40)]] = Field(
        default_factory=list,
        max_length=400,
        description="Heads that are switched off, as encoder.1.3: layer 1, head 3.",
    )
    referent: str | None = Field(
        None, max_length=200, description="Where the guided route leads, as it=goat. Default: guessed."
    )

    def to_items(self) -> Sequence[Item]:
        return [self.text.replace("\0", " ")]  # tabs and line ends tell its parts apart, where a model reads several


class SamplingRequest(Request):
    """A request for generated text."""

    temperature: Annotated[float | None, AfterValidator(_no_tiny_temperature)] = Field(
        None, ge=0, le=100, strict=True, description="Below 1 sharpens; 0: always the likeliest word."
    )
    top_k: int | None = Field(
        None, ge=0, le=1_000_000, strict=True, description="Draw from the k likeliest words only."
    )
    top_p: float | None = Field(
        None, ge=1e-6, le=1, strict=True, description="Draw from the likeliest with this much probability."
    )
    repetition_penalty: float | None = Field(
        None, ge=0.01, le=100, strict=True, description="Above 1: known words are less likely."
    )
    seed: int | None = Field(None, ge=0, lt=1 << 63, strict=True, description="The same seed writes the same text.")
    stream: bool = Field(False, description="Answer by server-sent events, as the text is written.")


class GenerateRequest(SamplingRequest):
    op, summary = "generate", "Go on writing from a prompt; with stream, as server-sent events."
    not_options: ClassVar[set[str]] = {"model", "prompt", "stream"}

    prompt: str
    max_tokens: int = Field(256, ge=1, le=MAX_INT, strict=True, description="The server may allow less.")
    stop: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(
        [], max_length=8, description="End before one of these."
    )

    def to_items(self) -> Sequence[Item]:
        return [self.prompt.replace("\0", " ")]


class ChatMessage(BaseModel):
    model_config = ConfigDict(extra="forbid")
    role: Literal["user", "assistant"]
    text: str


class ChatRequest(SamplingRequest):
    op, summary = "chat", "Answer the last message of a conversation; with stream, as server-sent events."
    not_options: ClassVar[set[str]] = {"model", "messages", "stream"}

    max_tokens: int | None = Field(
        None, ge=1, le=MAX_INT, strict=True, description="Default: as the recipe says; the server may allow less."
    )
    messages: list[ChatMessage] = Field(min_length=1, max_length=256, description="Oldest first.")

    def to_items(self) -> Sequence[Item]:
        if self.messages[-1].role != "user":
            raise RequestError(422, "order", "the last message must be the user's")
        return [[one_line(message.text) for message in self.messages]]


BATCHED: tuple[type[Request], ...] = (
    TranslateRequest,
    FillRequest,
    ClassifyRequest,
    TagRequest,
    AnswerRequest,
    ChooseRequest,
    EmbedRequest,
)
STREAMED: tuple[type[SamplingRequest], ...] = (GenerateRequest, ChatRequest)


# --- responses ------------------------------------------------------------------------------------------------------


class ResultsResponse(BaseModel):
    model: str
    results: list[Result]


class TextResponse(BaseModel):
    model: str
    text: str
    reason: str


class ErrorDetail(BaseModel):
    message: str
    code: str


class ErrorResponse(BaseModel):
    error: ErrorDetail
