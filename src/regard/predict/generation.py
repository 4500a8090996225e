"""A language model that writes: continues a prompt, as a stream or at once, and says how likely given texts are."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack, cast

import numpy as np
import torch
from torch import nn

from regard.data.documents import ended
from regard.decoding import Beam, DecodingConfig, Drawn, Engine, Feed, Generator, Sample, Stream, Symbols, likeliest
from regard.errors import RegardError, listed
from regard.examples.document_encoder import DocumentEncoder
from regard.examples.recipe_like import RecipeLike
from regard.examples.windows import SlidingWindow
from regard.models.texts import texts
from regard.predict.arguments import checked, warn_caller
from regard.predict.detokenizer import Speech
from regard.predict.likelihood import negative_log_likelihoods
from regard.predict.options import SearchOptions, asked
from regard.reporting import Progress, Warn

if TYPE_CHECKING:
    from regard.tasks.language_modelling import LanguageModellingConfig


@dataclass(frozen=True)
class Continuation:
    """What was written after a prompt."""

    text: str
    log_probability: float  # of its tokens, and of the end where it came to one
    ended: Literal["end", "stop", "limit"]  # by the model, by a stop string, or by the number of tokens
    tokens: list[int] = field(default_factory=list, repr=False)


class Piece(NamedTuple):
    sample: int
    text: str  # what is new
    whole: Continuation | None = None  # with the last piece of a sample


class Writer:
    """`regard.load(folder)` gives one of these for a language model."""

    def __init__(self, model: nn.Module, running: DocumentEncoder, recipe: RecipeLike) -> None:
        self.model, self.running, self.recipe = model, running, recipe
        self.tokenizer = running.tokenizer
        t, end = running.tokenizer, running.end
        silent = {t.pad, t.bos} - {end} if t.bos != t.eos else set()
        self.symbols = Symbols(t.bos, end, tuple(sorted(silent)))

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def task(self) -> "LanguageModellingConfig":
        return cast("LanguageModellingConfig", self.recipe.task)

    @property
    def context(self) -> int:
        """How many tokens it has learned to see."""
        return min(self.task.length, getattr(self.model, "longest", None) or self.task.length)

    # --- writing -----------------------------------------------------------------------------------------------

    @checked
    def generate(
        self,
        prompt: str = "",
        count: int = 1,
        decoding: DecodingConfig | None = None,
        max_tokens: int = 256,
        stop: Sequence[str] = (),
        strict: bool = False,
        warn: Warn | None = None,
        **search: Unpack[SearchOptions],
    ) -> list[Continuation]:
        """So many continuations of a prompt, those of a beam best first; the options are those of `stream`."""
        decoding = self.search(decoding, **search)
        if isinstance(decoding, Beam):
            return self._beam(prompt, count, decoding, max_tokens, stop, strict, warn)
        pieces = self.stream(prompt, count, decoding, max_tokens, stop, strict, warn)
        found = {piece.sample: piece.whole for piece in pieces if piece.whole}
        return [found[n] for n in range(count)]

    @checked
    def stream(
        self,
        prompt: str = "",
        count: int = 1,
        decoding: DecodingConfig | None = None,
        max_tokens: int = 256,
        stop: Sequence[str] = (),
        strict: bool = False,
        warn: Warn | None = None,
        **search: Unpack[SearchOptions],
    ) -> Iterator[Piece]:
        """The same, piece by piece as they are written. What follows a stop string, and the string, is not written.

        A prompt longer than the context keeps its last tokens, and `warn` is told; `strict` refuses it. `search`:
        temperature, top_k, top_p, min_p, repetition_penalty, seed; greedy (True) or beam (a size). What is not said is
        as in `decoding`, or in the recipe.
        """
        decoding = self.search(decoding, **search)
        self._check(count, max_tokens)
        if isinstance(decoding, Beam):
            raise RegardError("a beam knows what it says only at its end; use generate, or sample or greedy search")
        if count > 1 and not isinstance(decoding, Sample):
            raise RegardError(f"greedy search writes one text, not {count}; draw them (a temperature), or use a beam")
        ids = self._prompt(prompt, strict, warn)
        return self._stream(ids, count, decoding, max_tokens, stop)

    def search(
        self, decoding: DecodingConfig | None = None, greedy: bool = False, beam: int | None = None, **drawn: Any
    ) -> DecodingConfig:
        """The recipe's search, with what is said of it; one key of sampling is enough to sample."""
        return asked(decoding or self.recipe.decoding, drawn, greedy, beam)

    def _stream(
        self, ids: list[int], count: int, decoding: DecodingConfig, limit: int, stop: Sequence[str]
    ) -> Iterator[Piece]:
        prompts, choose = [ids] * count, likeliest
        if isinstance(decoding, Sample):
            read = torch.tensor(prompts, device=self.device)
            choose = Drawn(decoding, self.symbols, range(count), limit, read)  # type: ignore[assignment]
        self.model.eval()
        model, end = cast(Generator, self.model), self.symbols.eos
        stream = Stream(model, self._read, prompts, limit, self.context, self.symbols, choose)
        speeches, totals = [Speech(self.running.decode, ids, stop) for _ in prompts], [0.0] * count

        def whole(row: int, how: Literal["end", "stop", "limit"]) -> Continuation:
            return Continuation(speeches[row].text, totals[row], how, stream.histories[row][len(ids) :])

        for row, token, chance in stream:
            totals[row] += chance
            new = speeches[row].add(token) if token != end else speeches[row].rest()
            if token == end:
                stream.histories[row].pop()
                yield Piece(row, new, whole(row, "end"))
            elif speeches[row].stopped:
                stream.stop(row)
                yield Piece(row, new, whole(row, "stop"))
            elif new:
                yield Piece(row, new)
        for row in stream.live:
            yield Piece(row, speeches[row].rest(), whole(row, "limit"))

    def _beam(
        self,
        prompt: str,
        count: int,
        decoding: Beam,
        max_tokens: int,
        stop: Sequence[str],
        strict: bool,
        warn: Warn | None,
    ) -> list[Continuation]:
        self._check(count, max_tokens)
        if count > decoding.size:
            raise RegardError(f"a beam of {decoding.size} has no {count} best; raise the beam to {count}")
        kept = max(1, self.context // 2, self.context - max_tokens)  # a beam does not go past the context
        ids = self._prompt(prompt, strict, warn, kept)
        limit = min(max_tokens, max(1, self.context - len(ids)))
        self.model.eval()
        engine, feed = Engine(cast(Generator, self.model)), Feed.of(self._read([ids]), [limit])
        (found,) = engine.decode(feed, self.symbols, decoding, count)
        made = []
        for hypothesis in found:
            speech = Speech(self.running.decode, ids, stop)
            for token in hypothesis.tokens:
                if not speech.stopped:
                    speech.add(token)
            how: Any = "stop" if speech.stopped else "limit" if len(hypothesis.tokens) >= limit else "end"
            made.append(Continuation(speech.text, hypothesis.log_probability, how, hypothesis.tokens))
        return made

    @staticmethod
    def _check(count: int, max_tokens: int) -> None:
        if count < 1 or max_tokens < 1:
            raise RegardError("the number of texts, and that of tokens, must be at least 1")

    def _read(self, rows: list[list[int]]) -> Any:
        return texts(rows, self.tokenizer.pad).to(self.device)

    def _prompt(self, prompt: str, strict: bool, warn: Warn | None, kept: int | None = None) -> list[int]:
        """Its tokens, of which the last are kept where there are more than the context, or than `kept`."""
        ids, most = self.running.prompt(prompt), kept or self.context
        warn = warn or warn_caller
        t = self.tokenizer
        if t.unk != t.eos and (strange := ids.count(t.unk)):  # GPT-2 has one mark for all
            warn(f"unknown to this model: {strange:,} of the prompt's {len(ids):,} tokens")
        if len(ids) <= most:
            return ids
        room = "" if most == self.context else f" less the room for what a beam says, {most:,}"
        said = f"the prompt has {len(ids):,} tokens, more than the context of {self.context:,}{room}"
        if strict:
            raise RegardError(f"{said}; shorten it, or let its last tokens be kept")
        warn(f"{said}: its last ones are kept")
        return ids[-most:]

    # --- scoring -----------------------------------------------------------------------------------------------

    @checked
    def score(self, given: Sequence[str], window: SlidingWindow | None = None) -> list[tuple[float, int]]:
        """For each text, as a document of its own: its log-probability and its tokens, ends of lines included."""
        listed(given, "score([text])")
        rows = self.running.encode_batch([ended(text) for text in given])
        found = negative_log_likelihoods(self.model, rows, window or self.task.sliding_window(), self._never())
        return [(-nll, count) for nll, count in found]

    def rows(self, documents: Sequence[str]) -> list[np.ndarray]:
        """Documents as tokens; where only a mark stands between them, as one row."""
        rows = [np.array(row, dtype=np.int64) for row in self.running.encode_batch(documents)]
        return [np.concatenate(rows)] if self.task.boundaries == "marked" else rows

    def total(
        self, rows: Sequence[np.ndarray], window: SlidingWindow, progress: Progress | None = None
    ) -> tuple[float, int]:
        """The negative log-likelihood of rows of tokens, and how many they are, what opens a document aside."""
        size = sum(map(len, rows))

        def told(done: int) -> None:
            if progress:
                progress("Measuring", done, size)

        found = negative_log_likelihoods(self.model, rows, window, self._never(), told)
        return sum(nll for nll, _ in found), sum(count for _, count in found)

    def _never(self) -> int | None:
        """What opens a document is not said by anyone."""
        return self.tokenizer.bos if self.running.opens else None
