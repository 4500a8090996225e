"""Translation: text in, text out, in batches by length with the order restored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, cast, overload

import numpy as np
import torch
from torch import Tensor

from regard.decoding import Beam, DecodingConfig, Hypothesis, RequestQueue
from regard.decoding.shortlist import Shortlist, read_shortlist
from regard.errors import RegardError, require_list
from regard.examples.batching import batches, slot_groups
from regard.examples.long_text import (
    Extract,
    Long,
    LongConfig,
    ReadWhole,
    Refuse,
    Segments,
    Shortened,
    Truncate,
    shorten,
    to_long,
)
from regard.examples.pairs import Heads, check_trees
from regard.examples.recipe_like import RecipeLike
from regard.models.batch import PairBatch, RaggedRows, collate_pairs, collate_sources
from regard.models.transformer import Transformer
from regard.nn.record import AttentionRecorder
from regard.predict.constraints import Constraints
from regard.predict.ensemble import EnsembleModel, check_same_vocabularies, ensemble_recipe, same_vocabulary
from regard.predict.long_text import LineSegments, attention_received
from regard.predict.options import Form, TranslationOptions, check_arguments, warn_caller
from regard.predict.pairs import PairPredictor
from regard.reporting import Warn
from regard.text.coverage import unknown_lines, unknown_lines_warning

if TYPE_CHECKING:
    from regard.tasks.translation import TranslationConfig

LONG_LINES = {  # what is said of lines that are too long
    "truncate": "were cut", "extract": "were read in whole passages", "segments": "were translated in segments",
}  # fmt: skip


@dataclass(slots=True)  # not frozen: such are made five times as fast, and there is one for each line
class Translation:
    text: str
    score: float  # under the length penalty
    log_probability: float
    tokens: list[int] = field(default_factory=list, repr=False)  # the pieces of the text
    attention: dict[str, Tensor] | None = field(default=None, repr=False)  # by kind [layers, H, T, K], if recorded
    long: Shortened | None = field(default=None, repr=False)  # what was done with a line that was too long

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.text)} <small>score {self.score:.3f}</small></p>"


class Translator(PairPredictor):
    """`regard.load(folder)` returns this for a model of the task translation.

    Translations are decoded in `precision`; scores of given pairs are always computed as the weights are.
    """

    packs_weights = True
    shortlist: Shortlist | None = None  # which target pieces are computed; None: all

    @cached_property
    def one_vocabulary(self) -> bool:
        """Whether source and target have the same ids: a piece of the source may stand in the output."""
        return same_vocabulary(self.vocabulary.source, self.vocabulary.target)

    def ensemble(self, others: Sequence["Translator"]) -> "Translator":
        """This model and others of the same vocabularies as one: the mean of their log-probabilities at every word."""
        check_same_vocabularies(self, others)
        if self.shortlist is not None:
            raise RegardError("a shortlist is for one model; leave out --shortlist, or the other models")
        members = [self, *others]
        model = EnsembleModel([member.model for member in members])
        translator = Translator(model, self.vocabulary, ensemble_recipe([member.recipe for member in members]))
        translator.precision, translator.run = self.precision, self.run
        return translator

    def use_shortlist(self, folder: Path) -> None:
        """Compute logits of the target pieces alone that the shortlist in a model's folder allows."""
        if not isinstance(self.model, Transformer) or self.device.type != "cpu":
            raise RegardError(
                f"a shortlist is for a transformer on a CPU, and this is a model of the kind {self.recipe.model.kind} "
                f"on {self.device}; leave out --shortlist"
            )
        self.shortlist = read_shortlist(folder, self.vocabulary.source.size, self.vocabulary.target.size)

    def candidates(
        self, decoding: DecodingConfig, source: Sequence[int], prefix: Sequence[int] = ()
    ) -> np.ndarray | None:
        """The target pieces that are computed for a source; None: all, as those who draw from them need."""
        if self.shortlist is None or not self.fuse or not Shortlist.serves(decoding):
            return None
        return self.shortlist.of(source, prefix)

    # --- translation -------------------------------------------------------------------------------------------

    @overload
    def translate(
        self, lines: Sequence[str], decoding: DecodingConfig | None = None, *, nbest: None = None, **options: object
    ) -> list[str]: ...

    @overload
    def translate(
        self, lines: Sequence[str], decoding: DecodingConfig | None = None, *, nbest: int, **options: object
    ) -> list[list[str]]: ...

    def translate(
        self,
        lines: Sequence[str],
        decoding: DecodingConfig | None = None,
        *,
        nbest: int | None = None,
        **options: object,
    ) -> list[str] | list[list[str]]:
        """One output for each line, in order; an empty line gives an empty line. With `nbest`, a list for each line.

        `beam` is the size of the beam, 1 for greedy search; `sample=True` draws words. Else the recipe says how. All
        options: `TranslationOptions`.
        """
        options |= {"decoding": decoding, "scores": False} | ({} if nbest is None else {"nbest": nbest})
        translations = self.translations(lines, TranslationOptions.from_kwargs("translate", options))
        if nbest is not None:
            return [[each.text for each in best] for best in translations]
        return [best[0].text if best else "" for best in translations]

    def nbest(
        self, lines: Sequence[str], count: int, decoding: DecodingConfig | None = None, **options: object
    ) -> list[list[Translation]]:
        """For each line its best translations, best first; none for an empty line. The options are `translate`'s.

        Of a beam no text is given twice, so there may be fewer than asked for; a wider beam finds more.
        """
        check_arguments("nbest", [("count", count)], {"count": int})
        options |= {"decoding": decoding, "nbest": count}
        return self.translations(lines, TranslationOptions.from_kwargs("nbest", options))

    def translations(self, lines: Sequence[str], options: TranslationOptions) -> list[list[Translation]]:
        """What `nbest` returns, for options that are checked."""
        require_list(lines, "translate([text])", "sentences")
        decoding, before = options.chosen_search(self.recipe.decoding), options.before
        self.check_search(decoding, options.nbest, bool(options.phrases))
        unknown: list[int] = []
        count, warn = hypotheses_per_line(decoding, options.nbest), options.warn or warn_caller
        own = replace(options, unknown=unknown, warn=warn)
        long = self._long(options.long)
        if isinstance(long, Segments):
            parts = self.segments(lines)
            shortened = parts.shortened
            own, keys = parts.options(own), parts.keys(before)
            ids = self._encode(parts.texts, own, ReadWhole(), {})
            translations = parts.join(self._decode(ids, count, decoding, own, keys), decoding)
            unknown = sorted({parts.order[n][0] for n in unknown})
        else:
            shortened = {}
            ids = self._encode(lines, own, long, shortened)
            translations = self._decode(ids, count, decoding, own, range(before, before + len(lines)))
        self._report_long(shortened, before, options.warn)
        for n, done in shortened.items():
            for each in translations[n]:
                each.long = done
        numbers = [before + n + 1 for n in unknown]
        if options.unknown is not None:
            options.unknown.extend(numbers)
        elif numbers:
            warn(unknown_lines_warning(numbers))
        return [distinct_texts(each, decoding, options.nbest) for each in translations]

    def _long(self, long: Long | None) -> LongConfig:
        """What becomes of long lines, as the recipe says where nothing is given."""
        chosen = to_long(long, cast("TranslationConfig", self.recipe.task).long)
        if isinstance(chosen, Segments) and (chosen.overlap or chosen.pool != "mean"):
            raise RegardError("segments of a line are translated one by one; leave out overlap and pool")
        return chosen

    def _report_long(self, shortened: Mapping[int, Shortened], before: int, warn: Warn | None) -> None:
        """Says what was dropped; as a Python warning only where something was."""
        said = [n for n in sorted(shortened) if shortened[n].kind in LONG_LINES]
        if said:
            dropped, tokens = (sum(vars(shortened[n])[name] for n in said) for name in ("dropped", "tokens"))
            warn = warn or (warn_caller if dropped else lambda sentence: None)
            limit, what = self.recipe.data.filters.max_length, LONG_LINES[shortened[said[0]].kind]
            warn(
                f"{len(said)} line(s) longer than {limit} pieces {what}, first line {before + said[0] + 1}; "
                f"{dropped:,} of {tokens:,} pieces were dropped"
            )

    @staticmethod
    def check_search(decoding: DecodingConfig, nbest: int, phrases: bool) -> None:
        if nbest < 1:
            raise RegardError(f"of the best translations at least 1 is given, not {nbest}")
        if phrases and not isinstance(decoding, Beam):
            raise RegardError("phrases that must appear need a beam search; use a beam of 5 or so (--beam 5)")
        if isinstance(decoding, Beam) and nbest > decoding.size:
            raise RegardError(f"a beam of {decoding.size} has no {nbest} best; raise the beam to {nbest}")
        if nbest > 1 and not isinstance(decoding, Beam) and not decoding.samples:
            raise RegardError(
                f"{decoding.kind} search gives one output, not {nbest}; use a beam of at least {nbest} (--beam {nbest})"
            )

    def segments(self, lines: Sequence[str]) -> LineSegments:
        """Those lines, the long ones in parts that the model knows."""
        encode, limit = self.vocabulary.source.encode_batch, self.recipe.data.filters.max_length
        return LineSegments(lines, limit, lambda texts: [len(row) for row in encode(list(texts))], self.languages[1])

    def _decode(
        self, ids: list[list[int]], count: int, decoding: DecodingConfig, options: TranslationOptions,
        keys: Sequence[int],
    ) -> list[list[Translation]]:  # fmt: skip
        """So many hypotheses of each line, as text; keys name the lines, by which random draws are told apart."""
        limits = [self.output_limit(decoding, len(row)) for row in ids]
        constraints = Constraints.of(options, len(ids), self.vocabulary.target)
        constraints.check([limit if row else 0 for limit, row in zip(limits, ids, strict=True)], self.symbols)
        translations: list[list[Translation]] = [[] for _ in ids]
        budget = max(1, options.batch_tokens // (decoding.size if isinstance(decoding, Beam) else 1))
        draws, done = count if decoding.samples else 1, 0  # of each line

        def report(finished: int) -> None:
            nonlocal done
            done += finished
            if options.progress:
                options.progress("Translating", done // draws, len(ids))

        with self.eval_mode():
            # slots that record attention cannot be refilled: such lines go batch by batch
            for rows, slots in (batches if options.attention else slot_groups)([len(row) for row in ids], budget):
                drawn = [row for row in rows for _ in range(draws)]
                requests = [
                    constraints.request(row, limits[row], keys[row] * count + n % draws) for n, row in enumerate(drawn)
                ]
                if self.one_vocabulary:
                    requests = [
                        replace(each, lookup=tuple(ids[row])) for each, row in zip(requests, drawn, strict=True)
                    ]
                if self.shortlist is not None and not options.attention and not options.phrases:
                    requests = [
                        replace(each, candidates=self.candidates(decoding, ids[row], each.prefix))
                        for row, each in zip(drawn, requests, strict=True)
                    ]
                queue = RequestQueue(
                    partial(self._sources, ids, options.trees, drawn), requests,
                    slots * draws if options.attention else slots, self.blank,
                    [len(ids[row]) + 1 for row in rows], report, constraints.word_boundaries,
                )  # fmt: skip
                record = AttentionRecorder(tuple(options.attention)) if options.attention else None
                for row, hypotheses in zip(
                    drawn, self.engine.decode(queue, self.symbols, decoding, count, record), strict=True
                ):
                    source = len(ids[row]) + 1
                    translations[row] += [self.to_translation(each, source, options.form) for each in hypotheses]
        return [sorted(best, key=lambda each: -each.score) for best in translations]

    def _encode(
        self, lines: Sequence[str], options: TranslationOptions, long: LongConfig, shortened: dict[int, Shortened]
    ) -> list[list[int]]:
        """The pieces of each line that are read; `shortened` receives what was done with long ones."""
        limit, before, encode = self.recipe.data.filters.max_length, options.before, self.vocabulary.source.encode_batch
        ids = self.vocabulary.source.encode_batch(list(lines))
        if options.trees is not None:
            check_trees(options.trees, ids, self.vocabulary.source, before)
        if options.unknown is not None:
            options.unknown.extend(unknown_lines(lines, ids, self.vocabulary.source))
        over = [n for n, row in enumerate(ids) if len(row) > limit]
        if over and isinstance(long, Refuse):
            raise RegardError(
                f"line {before + over[0] + 1} has {len(ids[over[0]])} pieces; the model was trained on at most {limit}"
            )
        for n in over:
            for name in ("attention", "trees") if isinstance(long, Extract | Truncate) and long != Truncate() else ():
                if vars(options)[name]:
                    raise RegardError(
                        f"a line that is read in part has no {name} as a whole; truncate to the head, or refuse"
                    )
            where, importance = f"line {before + n + 1}", self._importance
            rows, done = shorten(long, lines[n], ids[n], limit, encode, where, importance=importance)
            ids[n] = rows[0]
            shortened |= {n: done} if done else {}
        return ids

    def _importance(self, passages: Sequence[list[int]]) -> np.ndarray:
        """Of passages of a source, by the attention that their tokens receive in the encoder."""
        v = self.vocabulary

        def read(ids: list[int], record: AttentionRecorder) -> int:
            if not isinstance(self.model, Transformer):
                return 0
            batch = collate_pairs(RaggedRows.of([ids]), RaggedRows.of([[]]), v.source, v.target)
            self.model.encode(batch.to(self.device), record)
            return 0

        with self.eval_mode():
            return attention_received(read, passages, self.recipe.data.filters.max_length)

    def output_limit(self, decoding: DecodingConfig, source: int) -> int:
        """How many pieces the output of so many may have."""
        limit, longest = decoding.limit(source), self.longest  # a table of positions ends there
        return limit if longest is None else min(limit, longest - 1)

    def _sources(self, ids: list[list[int]], trees: Heads | None, lines: list[int], chosen: list[int]) -> PairBatch:
        """The batch of those chosen among some lines."""
        rows, tokenizer = [lines[n] for n in chosen], self.vocabulary.source
        source, real = collate_sources(RaggedRows.of([ids[row] for row in rows]), tokenizer.pad, tokenizer.eos)
        return PairBatch(source, real, tree=self._tree(trees, ids, rows)).to(self.device)

    def blank(self, count: int, length: int) -> PairBatch:
        """A batch of so many sources of so many pieces, of no meaning."""
        return PairBatch(torch.full((count, length), self.vocabulary.source.eos, device=self.device), None)

    def to_translation(self, hypothesis: Hypothesis, source: int = 0, form: Form = "plain") -> Translation:
        """A hypothesis as text; attention is cut to `source` pieces, without the batch's padding."""
        attention = hypothesis.attention and {
            kind: weights if kind == "decoder" else weights[..., :source]
            for kind, weights in hypothesis.attention.items()
        }
        if attention and "encoder" in attention:
            attention["encoder"] = attention["encoder"][..., :source, :]
        (text,) = self.detokenise([hypothesis.tokens], form)
        return Translation(text, hypothesis.score, hypothesis.log_probability, hypothesis.tokens, attention)

    def detokenise(self, rows: Sequence[Sequence[int]], form: Form) -> list[str]:
        """Rows of pieces as text."""
        target, language = self.vocabulary.target, self.languages[1]
        texts = target.decode_batch(rows)
        return [target.detokenise(text, language) for text in texts] if form == "plain" else texts


def hypotheses_per_line(decoding: DecodingConfig, nbest: int) -> int:
    """How many hypotheses to search for: all of a beam where several are wanted, since two may be the same text."""
    return decoding.size if isinstance(decoding, Beam) and nbest > 1 else nbest


def distinct_texts(translations: list[Translation], decoding: DecodingConfig, nbest: int) -> list[Translation]:
    """The best of a beam whose texts differ: of two segmentations of one text the likelier. Samples are kept."""
    if not isinstance(decoding, Beam) or nbest == 1:
        return translations
    best: dict[str, Translation] = {}
    for each in translations:
        best.setdefault(each.text, each)
    return list(best.values())[:nbest]


def task_languages(recipe: RecipeLike, run: Path) -> tuple[str, str]:
    """Source and target language of a run that translates; others are refused."""
    if recipe.task.kind != "translation":
        raise RegardError(f"{run}: a model of the task {recipe.task.kind}, not of translation")
    return cast("TranslationConfig", recipe.task).languages
