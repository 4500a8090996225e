"""A model that translates: text in, text out, in batches by length with the order restored. Also scores given pairs."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from torch import nn

from regard.decoding import Beam, DecodingConfig, Greedy, Hypothesis, Symbols, beam_search, greedy_search, sample
from regard.errors import RegardError
from regard.evaluation import Metric, text_metrics
from regard.evaluation.metrics import perplexity
from regard.models.batch import Packed, Pairs, pairs, sources
from regard.tasks.contract import Progress
from regard.tasks.vocabulary import Vocabulary

if TYPE_CHECKING:
    from regard.recipe import Recipe

Form = Literal[
    "plain", "prepared"
]  # text for people, or as the tokenizer's own stage left it (Moses tokens, lower case)
Long = Literal["truncate", "refuse", "translate"]
Warn = Callable[[str], None]


@dataclass(frozen=True)
class Translation:
    text: str
    score: float  # under the length penalty
    log_probability: float


class Translator:
    """`regard.load(folder)` gives one of these."""

    def __init__(self, model: nn.Module, vocabulary: Vocabulary, recipe: "Recipe") -> None:
        self.model, self.vocabulary, self.recipe = model, vocabulary, recipe
        self.symbols = Symbols(
            vocabulary.target.bos, vocabulary.target.eos, (vocabulary.target.pad, vocabulary.target.bos)
        )

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    # --- translating -------------------------------------------------------------------------------------------

    def translate(
        self,
        lines: Sequence[str],
        decoding: DecodingConfig | None = None,
        form: Form = "plain",
        batch_tokens: int = 4096,
        long: Long = "truncate",
        warn: Warn | None = None,
        progress: Progress | None = None,
    ) -> list[str]:
        """One output for each line, in order; an empty line gives an empty line."""
        found = self.nbest(lines, 1, decoding, form, batch_tokens, long, warn, progress)
        return [options[0].text if options else "" for options in found]

    def nbest(
        self,
        lines: Sequence[str],
        count: int,
        decoding: DecodingConfig | None = None,
        form: Form = "plain",
        batch_tokens: int = 4096,
        long: Long = "truncate",
        warn: Warn | None = None,
        progress: Progress | None = None,
        before: int = 0,
    ) -> list[list[Translation]]:
        """For each line its best translations, best first; none for an empty line.

        `warn` is told how many lines were cut (else a Python warning is given). `before` is how many lines of the text
        came earlier: messages count them, and samples are drawn as if all had been given at once.
        """
        if isinstance(lines, str):
            raise RegardError("translate takes a list of sentences, not one string; write translate([text])")
        decoding = decoding or self.recipe.decoding
        if isinstance(decoding, Beam) and count > decoding.size:
            raise RegardError(f"a beam of {decoding.size} has no {count} best; raise the beam to {count}")
        if isinstance(decoding, Greedy) and count > 1:
            raise RegardError(
                f"greedy search gives one output, not {count}; use a beam of at least {count} (--beam {count})"
            )
        ids = self._encode(lines, long, warn or (lambda sentence: warnings.warn(sentence, stacklevel=4)), before)
        found: list[list[Translation]] = [[] for _ in lines]
        width = decoding.size if isinstance(decoding, Beam) else count
        done = 0
        was_training = self.model.training
        self.model.eval()
        for rows in by_length([len(row) for row in ids], max(1, batch_tokens // width)):
            source, real = sources(
                Packed.of([ids[row] for row in rows]), self.vocabulary.source.pad, self.vocabulary.source.eos
            )
            batch = Pairs(source, real).to(self.device)
            keys, lengths = [before + row for row in rows], [len(ids[row]) for row in rows]
            for row, hypotheses in zip(rows, self._search(batch, keys, lengths, decoding, count), strict=True):
                found[row] = [Translation(self._text(h.tokens, form), h.score, h.log_probability) for h in hypotheses]
            done += len(rows)
            if progress:
                progress("Translating", done, len(lines))
        self.model.train(was_training)
        return found

    def _search(
        self, batch: Pairs, keys: list[int], lengths: list[int], decoding: DecodingConfig, count: int
    ) -> list[list[Hypothesis]]:
        limits = [decoding.limit(length) for length in lengths]
        if isinstance(decoding, Beam):
            return beam_search(self.model, batch, limits, self.symbols, decoding, count)  # type: ignore[arg-type]
        if isinstance(decoding, Greedy):
            return [[h] for h in greedy_search(self.model, batch, limits, self.symbols, decoding)]  # type: ignore[arg-type]
        draws = [
            sample(self.model, batch, limits, self.symbols, decoding, [key * count + n for key in keys])  # type: ignore[arg-type]
            for n in range(count)
        ]
        return [sorted(options, key=lambda h: -h.score) for options in zip(*draws, strict=True)]

    def _encode(self, lines: Sequence[str], long: Long, warn: Warn, before: int) -> list[list[int]]:
        limit = self.recipe.data.filters.max_length
        ids = self.vocabulary.source.encode_batch(list(lines))
        over = [n for n, row in enumerate(ids) if len(row) > limit]
        if over and long == "refuse":
            raise RegardError(
                f"line {before + over[0] + 1} has {len(ids[over[0]])} pieces; the model was trained on at most {limit}"
            )
        if over and long == "truncate":
            for n in over:
                ids[n] = ids[n][:limit]
            warn(f"{len(over)} line(s) longer than {limit} pieces were cut, first line {before + over[0] + 1}")
        return ids

    def _text(self, tokens: list[int], form: Form) -> str:
        text = self.vocabulary.target.decode(tokens)
        return self.vocabulary.target.detokenise(text, self.recipe.task.target) if form == "plain" else text

    # --- scoring -----------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def score(self, given: Sequence[tuple[str, str]], batch_tokens: int = 8192) -> list[tuple[float, int]]:
        """For each (source, target): the log-probability of saying exactly that, and its tokens, the end included."""
        v = self.vocabulary
        source = v.source.encode_batch([s for s, _ in given])
        target = v.target.encode_batch([t for _, t in given])
        result: list[tuple[float, int]] = [(0.0, 0)] * len(given)
        was_training = self.model.training
        self.model.eval()
        for rows in by_length([max(len(s), len(t)) + 1 for s, t in zip(source, target, strict=True)], batch_tokens):
            given_rows = Packed.of([source[r] for r in rows]), Packed.of([target[r] for r in rows])
            batch = pairs(*given_rows, v.source, v.target).to(self.device)
            assert batch.labels is not None
            logits = self.model(batch)
            nll = F.cross_entropy(
                logits.to(torch.promote_types(logits.dtype, torch.float32)), batch.labels, reduction="none"
            )
            counts = [len(target[r]) + 1 for r in rows]
            for row, part, count in zip(rows, nll.double().split(counts), counts, strict=True):
                result[row] = (-float(part.sum()), count)
        self.model.train(was_training)
        return result

    def forced(self, given: Sequence[tuple[str, str]]) -> dict[str, float]:
        """Mean loss of a token, and perplexity, with the right words before it given; empty pairs do not count."""
        scored = self.score([(s, t) for s, t in given if s.strip() and t.strip()])
        nll, count = -sum(s for s, _ in scored), sum(n for _, n in scored)
        return {"loss": nll / max(count, 1), "perplexity": perplexity(nll, count)}

    # --- measuring ---------------------------------------------------------------------------------------------

    def measure(self, outputs: Sequence[str], given: Sequence[tuple[str, str]], full: bool = True) -> dict[str, Metric]:
        """Text metrics of outputs in prepared form, as `evaluation` says: on that form, or on plain text."""
        settings, target = self.recipe.evaluation, self.vocabulary.target
        if settings.form == "prepared":
            references = [target.normalise(t) for _, t in given]
        else:
            references = [t for _, t in given]
            outputs = [target.detokenise(o, self.recipe.task.target) for o in outputs]
        return text_metrics(outputs, references, self.recipe.task.target, settings.tokenise, full)


def by_length(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Rows in batches of like length, longest first, within a budget of padded tokens; empty rows are left out."""
    order = sorted((n for n in range(len(lengths)) if lengths[n]), key=lambda n: -lengths[n])
    start = 0
    while start < len(order):
        rows = max(1, budget // (lengths[order[start]] + 1))
        yield order[start : start + rows]
        start += rows
