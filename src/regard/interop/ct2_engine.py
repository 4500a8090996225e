"""Translating with CTranslate2: a Translator like our own whose searches it does."""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from regard import api
from regard.decoding import Beam, DecodingConfig, Sample, Symbols
from regard.device import pick_device
from regard.errors import RegardError
from regard.examples.batching import slot_groups
from regard.examples.vocabulary import Vocabulary
from regard.interop import ct2
from regard.interop.ct2_folder import cached, check_precision, places
from regard.interop.tokenizers_file import spellings
from regard.io import run_folder as folder
from regard.predict.constraints import Constraints
from regard.predict.options import TranslationOptions
from regard.predict.translation import Translation, Translator, task_languages
from regard.recipe import read_recipe

if TYPE_CHECKING:
    from regard.recipe import Recipe

BATCH = {"cpu": 512, "cuda": 1 << 20}  # padded tokens at once, above which a CPU only gets slower
BLIND = "--engine ct2 records no attention; for --alignments, use the own engine"
STRETCH = 64  # lines that become text together


def load(run: Path, device: str = "auto", precision: str = "int8") -> "FastTranslator":
    """A translator like `regard.load`'s that searches with CTranslate2."""
    library = ct2.library()
    check_precision(precision)
    home = folder.home_of(run)
    recipe = read_recipe(home)
    languages = task_languages(recipe, run)
    place = cached(run, precision)
    chosen = pick_device(device)
    try:
        engine = library.Translator(
            str(place),
            device=chosen.type,
            device_index=chosen.index or 0,
            compute_type=precision,
            inter_threads=workers(),
            intra_threads=1,
            max_queued_batches=-1,  # nobody waits to hand them over
        )
    except (RuntimeError, ValueError) as error:  # a device it does not have, a library of the GPU that is absent
        raise RegardError(f"CTranslate2 cannot open {place}: {str(error).splitlines()[0]}") from None
    return FastTranslator(Vocabulary.load(home / "tokenizer", languages), recipe, engine, run)


def workers() -> int:
    """One for every core, of one thread each, since threads that share a batch mostly wait for each other."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    allowed = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(allowed)) if allowed.isdigit() and int(allowed) else cores


class FastTranslator(Translator):
    """A Translator whose searches CTranslate2 does. Scoring given pairs is done by our own model, loaded when asked."""

    def __init__(self, vocabulary: Vocabulary, recipe: "Recipe", engine: Any, run: Path) -> None:
        self.vocabulary, self.recipe, self.ct2, self.run = vocabulary, recipe, engine, run
        target = vocabulary.target
        self.symbols = Symbols(target.bos, target.eos, (target.pad, target.bos))
        self.source_names, self.target_names = spellings(vocabulary)
        self.ids = {name: i for i, name in enumerate(self.target_names)}
        self.rooms = ct2.rooms(recipe.model, places(recipe))  # type: ignore[arg-type]

    @cached_property
    def model(self) -> nn.Module:  # type: ignore[override]
        assert self.run is not None
        return api.load(self.run, "cpu").model

    def ensemble(self, others: Sequence[Translator]) -> Translator:
        raise RegardError("--engine ct2 translates with one model; for several (--with), use the own engine")

    def check_alignment(self, layer: int | None = None, heads: Sequence[int] | None = None) -> None:
        raise RegardError(BLIND)

    def _decode(
        self, lines: Sequence[str], count: int, decoding: DecodingConfig, options: TranslationOptions,
        keys: Sequence[int],
    ) -> list[list[Translation]]:  # fmt: skip
        self._refuse(decoding, options)
        progress = options.progress
        search = self._prepare(lines, count, decoding, options)
        found: list[list[Translation]] = [[] for _ in lines]
        done, running = 0, [(rows, search.begin(rows)) for rows in search.rows()]
        for rows, results in running:
            for some in range(0, len(rows), STRETCH):  # made text of while others are computed
                now = rows[some : some + STRETCH]
                hypotheses = search.finish(now, results[some : some + STRETCH], search.limits[rows[0]])
                texts = iter(self.detokenize([words for each in hypotheses for words, _, _ in each], options.form))
                for row, each in zip(now, hypotheses, strict=True):
                    found[row] = [Translation(next(texts), score, total, words) for words, score, total in each]
                done += len(now)
                if progress:
                    progress("Translating", done, len(lines))
        return found

    def _prepare(
        self, lines: Sequence[str], count: int, decoding: DecodingConfig, options: TranslationOptions
    ) -> "_Search":
        ids = self._encode(lines, options)
        self._check_room(ids, options.before)
        constraints = Constraints.of(options, len(lines), self.vocabulary.target)
        kind = _PrefixSearch if any(options.prefixes or ()) else _Search
        search = kind(self, decoding, count, options, ids, [line.prefix_ids for line in constraints.lines])
        constraints.check(search.limits, self.symbols)
        return search

    @staticmethod
    def _refuse(decoding: DecodingConfig, options: TranslationOptions) -> None:
        if isinstance(decoding, Sample):
            raise RegardError("--engine ct2 searches; to draw words at random (--sample), use the own engine")
        if isinstance(decoding, Beam) and decoding.penalty != "power":
            raise RegardError(
                f"--engine ct2 divides by nᵅ (decoding.penalty: power), not as {decoding.penalty}; use the own engine"
            )
        if options.attention:
            raise RegardError(BLIND)
        if options.trees is not None:
            raise RegardError("--engine ct2 reads no dependency trees; for --trees, use the own engine")
        if options.phrases:
            raise RegardError("--engine ct2 cannot be given phrases; for --phrases, use the own engine")

    def _check_room(self, ids: list[list[int]], before: int) -> None:
        room = self.rooms["encoder"]
        for n, row in enumerate(ids):
            if room is not None and len(row) >= room:  # the end needs a place too
                raise RegardError(
                    f"line {before + n + 1} has {len(row):,} pieces, and the exported model has {room:,} places; "
                    "cut it (--long truncate), or use the own engine"
                )


Found = tuple[list[int], float, float]  # words, score, log-probability


class _Search:
    """One way to search some lines, as CTranslate2 is told it: the beam, the penalty, the ids that may not be said.

    Their search is ours: a sentence is done when as many hypotheses have ended as the beam is wide, and log p / nᵅ
    ranks them, where n counts the end; older versions count it only if it is returned. What may not be said gives its
    probability to the rest in theirs, which scores show in the third decimal. Greedy search is faster without scores.
    """

    def __init__(
        self,
        translator: FastTranslator,
        decoding: DecodingConfig,
        count: int,
        options: TranslationOptions,
        sources: list[list[int]],
        prefixes: list[tuple[int, ...]],
    ) -> None:
        self.translator, self.sources, self.prefixes = translator, sources, prefixes
        self.lengths = list(map(len, sources))
        limits = {length: self._limit(decoding, length) for length in set(self.lengths)}
        self.limits = [limits[length] for length in self.lengths]  # how many words each output may have
        self.scores = options.scores
        width, self.power = (decoding.size, decoding.length_penalty) if isinstance(decoding, Beam) else (1, 0.0)
        most = BATCH[translator.ct2.device] // (2 if width > 1 else 1)
        self.batch = max(1, min(options.batch_tokens // width, most))
        self.sizes = {"max_batch_size": self.batch, "batch_type": "tokens", "max_input_length": 0}
        self.cuts = width == 1 and not self.scores  # greedy search says the same words whatever the limit is
        self.options = {
            "beam_size": width,
            "num_hypotheses": count,
            "length_penalty": self.power,
            "min_decoding_length": 0,  # by default nothing is never said
            "return_end_token": True,
            "return_scores": self.scores,
            "suppress_sequences": [[translator.target_names[i]] for i in dict.fromkeys(translator.symbols.never)],
        }

    def _limit(self, decoding: DecodingConfig, length: int) -> int:
        limit, room = decoding.limit(length) if length else 0, self.translator.rooms["decoder"]
        return limit if room is None else min(limit, room - 1)  # the start has a place too

    def rows(self) -> Iterator[list[int]]:
        """Those that are not empty, longest first, those together whose limits are much alike."""
        return (rows for rows, _ in slot_groups(self.lengths, self.batch))

    def begin(self, rows: list[int]) -> list[Any]:
        """Give rows, longest first, to CTranslate2, which works on them from now on."""
        return self._begin(rows, self._sources(rows), None)

    def _sources(self, rows: list[int]) -> list[list[str]]:
        names, end = self.translator.source_names, self.translator.vocabulary.source.eos
        return [[names[i] for i in (*self.sources[row], end)] for row in rows]

    def _begin(self, rows: list[int], sources: list[list[str]], prefixes: list[list[str]] | None) -> list[Any]:
        most = self.limits[rows[0]] + 1  # and the end
        return self.translator.ct2.translate_batch(
            sources, prefixes, max_decoding_length=most, asynchronous=True, **self.sizes, **self.options
        )

    def finish(self, rows: list[int], results: list[Any], most: int) -> list[list[Found]]:
        """What it found. Rows that went past their own limit, since another's was larger, are searched again."""
        limits, found = self.limits, list(map(self._read, rows, results))
        again: dict[int, list[int]] = {}  # by limit
        for n, row in enumerate([] if self.cuts else rows):
            if limits[row] < most and any(len(words) == limits[row] for words, _, _ in found[n]):
                again.setdefault(limits[row], []).append(n)
        running = [(chosen, self.begin([rows[n] for n in chosen])) for chosen in again.values()]
        for chosen, others in running:
            for n, result in zip(chosen, others, strict=True):
                found[n] = self._read(rows[n], result)
        return found

    def _read(self, row: int, running: Any) -> list[Found]:
        """Words, cut at the limit, with their numbers."""
        result, limit = running.result(), self.limits[row]
        hypotheses = result.hypotheses  # made anew whenever it is looked at
        scores = result.scores if self.scores else [math.nan] * len(hypotheses)
        return [
            (self._words(pieces, limit), score, score * len(pieces) ** self.power)
            for pieces, score in zip(hypotheses, scores, strict=True)
        ]

    def _words(self, pieces: list[str], limit: int) -> list[int]:
        ids = [self.translator.ids[piece] for piece in pieces]
        return ids[: min(limit, len(ids) - (ids[-1:] == [self.translator.symbols.eos]))]


class _PrefixSearch(_Search):
    """Outputs that begin as given. Theirs leave the prefix out of the scores that they rank by: here it counts again.

    So all that a beam has found is asked for, without a length penalty, and ranked here as our own engine does.
    """

    def __init__(
        self, translator: FastTranslator, decoding: DecodingConfig, count: int, options: TranslationOptions, *given: Any
    ) -> None:
        super().__init__(translator, decoding, count, replace(options, scores=True), *given)
        self.count = count
        self.scored: dict[int, Any] = {}  # the log-probabilities of the prefixes
        self.options |= {"length_penalty": 0, "num_hypotheses": self.options["beam_size"]}

    def begin(self, rows: list[int]) -> list[Any]:
        names, sources = self.translator.target_names, self._sources(rows)
        begun = [[names[i] for i in self.prefixes[row]] for row in rows]
        scored = self.translator.ct2.score_batch(sources, begun, asynchronous=True, **self.sizes)
        self.scored |= zip(rows, scored, strict=True)
        return self._begin(rows, sources, begun)

    def _read(self, row: int, running: Any) -> list[Found]:
        prefix, limit = self.prefixes[row], self.limits[row]
        result, before = running.result(), sum(self.scored[row].result().log_probs[: len(prefix)])
        found = [
            (self._words(pieces, limit), (score + before) / len(pieces) ** self.power, score + before)
            for pieces, score in zip(result.hypotheses, result.scores, strict=True)
        ]
        return sorted(found, key=lambda each: -each[1])[: self.count]
