"""Translating with CTranslate2: a Translator like our own whose searches CTranslate2 does."""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from regard import api
from regard.decoding import Beam, DecodingConfig, Symbols
from regard.decoding.shortlist import read_shortlist
from regard.device import pick_device
from regard.errors import RegardError
from regard.examples.batching import slot_groups
from regard.examples.long_text import LongConfig, Shortened
from regard.examples.vocabulary import Vocabulary
from regard.interop.ct2 import (
    cached_export,
    check_precision,
    ctranslate2_module,
    position_limits,
    vocabulary_map_reason,
)
from regard.interop.tokenizers_file import token_strings
from regard.io import run_folder as folder
from regard.io.manifest import SETUP, verified
from regard.predict.constraints import Constraints
from regard.predict.options import TranslationOptions
from regard.predict.translation import Translation, Translator, task_languages
from regard.recipe import read_recipe

if TYPE_CHECKING:
    from regard.recipe import Recipe

BATCH_TOKENS = {"cpu": 512, "cuda": 1 << 20}  # padded tokens at once, above which a CPU only gets slower
NO_ATTENTION = "--engine ct2 records no attention; for --alignments, use the own engine"
DETOKENIZED = 64  # lines at once


def load_ct2(run: Path, device: str = "auto", precision: str = "int8", shortlist: bool = False) -> "CT2Translator":
    """A translator like `regard.load`'s that searches with CTranslate2; with `shortlist` among a model's candidates."""
    ctranslate2 = ctranslate2_module()
    check_precision(precision)
    home = folder.run_folder_of(run)
    with verified(home, SETUP):
        recipe = read_recipe(home)
        languages = task_languages(recipe, run)
        vocabulary = Vocabulary.load(home / "tokenizer", languages)
    if shortlist:
        read_shortlist(home, vocabulary.source.size, vocabulary.target.size)
        if reason := vocabulary_map_reason(token_strings(vocabulary)):
            raise RegardError(f"--shortlist cannot be used by CTranslate2: {reason}; use the own engine")
    export = cached_export(run, precision)
    torch_device = pick_device(device)
    try:
        engine = ctranslate2.Translator(
            str(export),
            device=torch_device.type,
            device_index=torch_device.index or 0,
            compute_type=precision,
            inter_threads=worker_count(),
            intra_threads=1,
            max_queued_batches=-1,  # no limit: submitting never blocks
        )
    except (RuntimeError, ValueError) as error:  # a device it does not have, a library of the GPU that is absent
        raise RegardError(f"CTranslate2 cannot open {export}: {str(error).splitlines()[0]}") from None
    translator = CT2Translator(vocabulary, recipe, engine, run)
    translator.uses_vmap = shortlist
    return translator


def worker_count() -> int:
    """One for every core, of one thread each, since threads that share a batch mostly wait for each other."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    allowed = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(allowed)) if allowed.isdigit() and int(allowed) else cores


class CT2Translator(Translator):
    """A Translator whose searches CTranslate2 does. Pairs are scored by our own model, which is loaded when needed."""

    uses_vmap = False  # whether the vocabulary is restricted to the candidates of each batch (`regard shortlist`)

    def __init__(self, vocabulary: Vocabulary, recipe: "Recipe", engine: Any, run: Path) -> None:
        self.vocabulary, self.recipe, self.ct2, self.run = vocabulary, recipe, engine, run
        target = vocabulary.target
        self.symbols = Symbols(target.bos, target.eos, (target.pad, target.bos))
        self.source_tokens, self.target_tokens = token_strings(vocabulary)
        self.target_ids = {token: i for i, token in enumerate(self.target_tokens)}
        self.position_limits = position_limits(recipe)

    @cached_property
    def model(self) -> nn.Module:  # type: ignore[override]
        assert self.run is not None
        return api.load(self.run, "cpu").model

    def ensemble(self, others: Sequence[Translator]) -> Translator:
        raise RegardError("--engine ct2 translates with one model; for several (--with), use the own engine")

    def check_alignment(self, layer: int | None = None, heads: Sequence[int] | None = None) -> None:
        raise RegardError(NO_ATTENTION)

    def _encode(
        self, lines: Sequence[str], options: TranslationOptions, long: LongConfig, shortened: dict[int, Shortened]
    ) -> list[list[int]]:
        if options.trees is not None:
            raise RegardError("--engine ct2 reads no dependency trees; for --trees, use the own engine")
        return super()._encode(lines, options, long, shortened)

    def _decode(
        self, ids: list[list[int]], count: int, decoding: DecodingConfig, options: TranslationOptions,
        keys: Sequence[int],
    ) -> list[list[Translation]]:  # fmt: skip
        self._refuse(decoding, options)
        progress = options.progress
        search = self._prepare(ids, count, decoding, options)
        translations: list[list[Translation]] = [[] for _ in ids]
        done, submitted = 0, [(rows, search.submit(rows)) for rows in search.batches()]
        for batch, futures in submitted:
            for start in range(0, len(batch), DETOKENIZED):  # while others are computed
                rows = batch[start : start + DETOKENIZED]
                nbest = search.finish(rows, futures[start : start + DETOKENIZED], search.limits[batch[0]])
                texts = iter(self.detokenise([tokens for each in nbest for tokens, _, _ in each], options.form))
                for row, each in zip(rows, nbest, strict=True):
                    translations[row] = [Translation(next(texts), score, total, ids) for ids, score, total in each]
                done += len(rows)
                if progress:
                    progress("Translating", done, len(ids))
        return translations

    def _prepare(
        self, ids: list[list[int]], count: int, decoding: DecodingConfig, options: TranslationOptions
    ) -> "_Search":
        self._check_length(ids, options.before)
        constraints = Constraints.of(options, len(ids), self.vocabulary.target)
        kind = _PrefixSearch if any(options.prefixes or ()) else _Search
        search = kind(self, decoding, count, options, ids, [line.prefix_ids for line in constraints.lines])
        constraints.check(search.limits, self.symbols)
        return search

    @staticmethod
    def _refuse(decoding: DecodingConfig, options: TranslationOptions) -> None:
        if decoding.samples:
            raise RegardError("--engine ct2 searches; to draw words at random (--sample), use the own engine")
        if decoding.parallel:
            raise RegardError(f"--engine ct2 decodes token by token; for {decoding.kind} search, use the own engine")
        if isinstance(decoding, Beam) and decoding.penalty != "power":
            raise RegardError(
                f"--engine ct2 divides by nᵅ (decoding.penalty: power), not as {decoding.penalty}; use the own engine"
            )
        if options.attention:
            raise RegardError(NO_ATTENTION)
        if options.phrases:
            raise RegardError("--engine ct2 cannot be given phrases; for --phrases, use the own engine")

    def _check_length(self, ids: list[list[int]], before: int) -> None:
        limit = self.position_limits["encoder"]
        for n, row in enumerate(ids):
            if limit is not None and len(row) >= limit:  # </s> needs a position too
                raise RegardError(
                    f"line {before + n + 1} has {len(row):,} pieces, and the exported model has {limit:,} positions; "
                    "cut it (--long truncate), or use the own engine"
                )


Scored = tuple[list[int], float, float]  # token ids, score, log-probability
Future = Any  # AsyncTranslationResult or AsyncScoringResult of CTranslate2, which has no types


class _Search:
    """The search of some lines as arguments of CTranslate2: beam, length penalty, suppressed tokens.

    CTranslate2 searches as we do: a sentence is done when as many hypotheses have ended as the beam is wide, and
    log p / nᵅ ranks them, where n counts </s>; older versions count it only if it is returned. Suppressed tokens give
    their probability to the rest there, which scores show in the third decimal. Greedy search is faster without scores.
    """

    def __init__(
        self,
        translator: CT2Translator,
        decoding: DecodingConfig,
        count: int,
        options: TranslationOptions,
        sources: list[list[int]],
        prefixes: list[tuple[int, ...]],
    ) -> None:
        self.translator, self.sources, self.prefixes = translator, sources, prefixes
        self.lengths = list(map(len, sources))
        limits = {length: self._limit(decoding, length) for length in set(self.lengths)}
        self.limits = [limits[length] for length in self.lengths]  # the most tokens of each output
        self.scores = options.scores
        width, self.power = (decoding.size, decoding.length_penalty) if isinstance(decoding, Beam) else (1, 0.0)
        most = BATCH_TOKENS[translator.ct2.device] // (2 if width > 1 else 1)
        self.batch = max(1, min(options.batch_tokens // width, most))
        self.sizes = {"max_batch_size": self.batch, "batch_type": "tokens", "max_input_length": 0}
        self.truncates = width == 1 and not self.scores  # greedy search finds the same tokens whatever the limit is
        self.options = {
            "beam_size": width,
            "num_hypotheses": count,
            "length_penalty": self.power,
            "min_decoding_length": 0,  # by default no output is empty
            "return_end_token": True,
            "return_scores": self.scores,
            "use_vmap": translator.uses_vmap,
            "suppress_sequences": [[translator.target_tokens[i]] for i in dict.fromkeys(translator.symbols.suppressed)],
        }

    def _limit(self, decoding: DecodingConfig, length: int) -> int:
        limit, positions = decoding.limit(length) if length else 0, self.translator.position_limits["decoder"]
        return limit if positions is None else min(limit, positions - 1)  # the start token has a position too

    def batches(self) -> Iterator[list[int]]:
        """Rows that are not empty, longest first, in batches of similar limits."""
        return (rows for rows, _ in slot_groups(self.lengths, self.batch))

    def submit(self, rows: list[int]) -> list[Future]:
        """Give rows, longest first, to CTranslate2, which computes them in the background."""
        return self._submit(rows, self._source_tokens(rows), None)

    def _source_tokens(self, rows: list[int]) -> list[list[str]]:
        tokens, eos = self.translator.source_tokens, self.translator.vocabulary.source.eos
        return [[tokens[i] for i in (*self.sources[row], eos)] for row in rows]

    def _submit(self, rows: list[int], sources: list[list[str]], prefixes: list[list[str]] | None) -> list[Future]:
        limit = self.limits[rows[0]] + 1  # and </s>
        return self.translator.ct2.translate_batch(
            sources, prefixes, max_decoding_length=limit, asynchronous=True, **self.sizes, **self.options
        )

    def finish(self, rows: list[int], futures: list[Future], batch_limit: int) -> list[list[Scored]]:
        """Results. Rows that went past their own limit, since the batch's was larger, are searched again."""
        limits, results = self.limits, list(map(self._result, rows, futures))
        again: dict[int, list[int]] = {}  # by limit
        for n, row in enumerate([] if self.truncates else rows):
            if limits[row] < batch_limit and any(len(tokens) == limits[row] for tokens, _, _ in results[n]):
                again.setdefault(limits[row], []).append(n)
        submitted = [(numbers, self.submit([rows[n] for n in numbers])) for numbers in again.values()]
        for numbers, others in submitted:
            for n, future in zip(numbers, others, strict=True):
                results[n] = self._result(rows[n], future)
        return results

    def _result(self, row: int, future: Future) -> list[Scored]:
        """Token ids, cut at the limit, with their scores."""
        result, limit = future.result(), self.limits[row]
        hypotheses = result.hypotheses  # made anew at every access
        scores = result.scores if self.scores else [math.nan] * len(hypotheses)
        return [
            (self._token_ids(tokens, limit), score, score * len(tokens) ** self.power)
            for tokens, score in zip(hypotheses, scores, strict=True)
        ]

    def _token_ids(self, tokens: list[str], limit: int) -> list[int]:
        ids = [self.translator.target_ids[token] for token in tokens]
        return ids[: min(limit, len(ids) - (ids[-1:] == [self.translator.symbols.eos]))]


class _PrefixSearch(_Search):
    """A search with given prefixes. CTranslate2 leaves the prefix out of the scores that it ranks by: here it counts.

    So all hypotheses of a beam are asked for, without a length penalty, and ranked here as our own engine does.
    """

    def __init__(
        self,
        translator: CT2Translator,
        decoding: DecodingConfig,
        count: int,
        options: TranslationOptions,
        sources: list[list[int]],
        prefixes: list[tuple[int, ...]],
    ) -> None:
        super().__init__(translator, decoding, count, replace(options, scores=True), sources, prefixes)
        self.count = count
        self.prefix_scores: dict[int, Future] = {}  # log-probabilities of the prefixes
        self.options |= {"length_penalty": 0, "num_hypotheses": self.options["beam_size"]}

    def submit(self, rows: list[int]) -> list[Future]:
        tokens, sources = self.translator.target_tokens, self._source_tokens(rows)
        prefixes = [[tokens[i] for i in self.prefixes[row]] for row in rows]
        scores = self.translator.ct2.score_batch(sources, prefixes, asynchronous=True, **self.sizes)
        self.prefix_scores |= zip(rows, scores, strict=True)
        return self._submit(rows, sources, prefixes)

    def _result(self, row: int, future: Future) -> list[Scored]:
        prefix, limit = self.prefixes[row], self.limits[row]
        result, prefix_score = future.result(), sum(self.prefix_scores[row].result().log_probs[: len(prefix)])
        results = [
            (self._token_ids(tokens, limit), (score + prefix_score) / len(tokens) ** self.power, score + prefix_score)
            for tokens, score in zip(result.hypotheses, result.scores, strict=True)
        ]
        return sorted(results, key=lambda each: -each[1])[: self.count]
