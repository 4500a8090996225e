"""Translating with CTranslate2: a Translator like our own whose searches it does."""

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

from regard import folder
from regard.decoding import Beam, DecodingConfig, Sample, Symbols
from regard.device import pick_device
from regard.errors import RegardError
from regard.interop import ct2
from regard.interop.ct2_folder import cached, check_precision, names, places
from regard.tasks.batching import by_length
from regard.tasks.constraints import Constraints
from regard.tasks.translator import Options, Translation, Translator, languages_of
from regard.tasks.vocabulary import Vocabulary

if TYPE_CHECKING:
    from regard.recipe import Recipe

BATCH = {"cpu": 1024, "cuda": 1 << 20}  # padded source tokens at once, above which a CPU only gets slower


def load(run: Path, device: str = "auto", precision: str = "int8") -> "FastTranslator":
    """A translator like `regard.load`'s that searches with CTranslate2."""
    library = ct2.library()
    check_precision(precision)
    home = folder.home_of(run)
    recipe = folder.read_recipe(home)
    languages = languages_of(recipe, run)
    place = cached(run, precision)
    chosen = pick_device(device)
    inter, intra = threads()
    try:
        engine = library.Translator(
            str(place),
            device=chosen.type,
            device_index=chosen.index or 0,
            compute_type=precision,
            inter_threads=inter,
            intra_threads=intra,
        )
    except (RuntimeError, ValueError) as error:  # a device it does not have, a library of the GPU that is absent
        raise RegardError(f"CTranslate2 cannot open {place}: {str(error).splitlines()[0]}") from None
    return FastTranslator(Vocabulary.load(home / "tokenizer", languages), recipe, engine, run)


def threads() -> tuple[int, int]:
    """Workers, and threads of each: one for every core, since threads that share a batch mostly wait for each other."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    allowed = os.environ.get("OMP_NUM_THREADS", "")
    cores = min(cores, int(allowed)) if allowed.isdigit() and int(allowed) else cores
    return cores, 1


class FastTranslator(Translator):
    """A Translator whose searches CTranslate2 does. Scoring given pairs is done by our own model, loaded when asked."""

    def __init__(self, vocabulary: Vocabulary, recipe: "Recipe", engine: Any, run: Path) -> None:
        self.vocabulary, self.recipe, self.ct2, self.run = vocabulary, recipe, engine, run
        target = vocabulary.target
        self.symbols = Symbols(target.bos, target.eos, (target.pad, target.bos))
        self.source_names, self.target_names = names(vocabulary.source), names(target)
        self.ids = {name: i for i, name in enumerate(self.target_names)}
        self.rooms = ct2.rooms(recipe.model, places(recipe))  # type: ignore[arg-type]

    @cached_property
    def model(self) -> nn.Module:  # type: ignore[override]
        assert self.run is not None
        return folder.load(self.run, "cpu").model

    def together(self, others: Sequence[Translator]) -> Translator:
        raise RegardError("--engine ct2 translates with one model; for several (--with), use the own engine")

    def _each(
        self, lines: Sequence[str], count: int, decoding: DecodingConfig, options: Options, keys: Sequence[int]
    ) -> list[list[Translation]]:
        self._refuse(decoding, options)
        progress = options.get("progress")
        ids = self._encode(lines, options)
        self._check_room(ids, options.get("before", 0))
        found: list[list[Translation]] = [[] for _ in lines]
        asked = Constraints.of(options, options.get("before", 0), len(lines), self.vocabulary.target)
        search = (_PrefixSearch if any(d.prefix_ids for d in asked.demands) else _Search)(self, decoding, count)
        limits = [search.limit(len(row)) if row else 0 for row in ids]
        asked.check(limits, self.symbols)
        width = decoding.size if isinstance(decoding, Beam) else 1
        budget = max(1, min(options.get("batch_tokens", 4096) // width, BATCH[self.ct2.device]))
        batches = list(by_length([len(row) for row in ids], budget))
        given = [
            [Given(tuple(ids[row]), asked.demands[row].prefix_ids, limits[row]) for row in rows] for rows in batches
        ]
        running = [search.begin(sentences) for sentences in given]
        done = 0
        for rows, sentences, results in zip(batches, given, running, strict=True):
            for row, hypotheses in zip(rows, search.finish(sentences, results), strict=True):
                found[row] = [
                    Translation(self._text(words, options.get("form", "plain")), score, log_probability, words)
                    for words, score, log_probability in hypotheses
                ]
            done += len(rows)
            if progress:
                progress("Translating", done, len(lines))
        return found

    @staticmethod
    def _refuse(decoding: DecodingConfig, options: Options) -> None:
        if isinstance(decoding, Sample):
            raise RegardError("--engine ct2 searches; to draw words at random (--sample), use the own engine")
        if isinstance(decoding, Beam) and decoding.penalty != "power":
            raise RegardError(
                f"--engine ct2 divides by nᵅ (decoding.penalty: power), not as {decoding.penalty}; use the own engine"
            )
        if options.get("attention"):
            raise RegardError("--engine ct2 records no attention; for --alignments, use the own engine")
        if options.get("heads") is not None:
            raise RegardError("--engine ct2 reads no dependency trees; for --heads, use the own engine")
        if options.get("phrases"):
            raise RegardError("--engine ct2 cannot be given phrases; for --phrases, use the own engine")

    def _check_room(self, ids: list[list[int]], before: int) -> None:
        room = self.rooms["encoder"]
        for n, row in enumerate(ids):
            if room is not None and len(row) >= room:  # the end needs a place too
                raise RegardError(
                    f"line {before + n + 1} has {len(row):,} pieces, and the exported model has {room:,} places; "
                    "cut it (--long truncate), or use the own engine"
                )


class Given(NamedTuple):
    source: tuple[int, ...]
    prefix: tuple[int, ...]  # how its output must begin
    limit: int  # words that it may have


Found = tuple[list[int], float, float]  # words, score, log-probability


class _Search:
    """One way to search, as CTranslate2 is told it: the beam, the penalty, the ids that may not be said.

    Their search is ours: a sentence is done when as many hypotheses have ended as the beam is wide, and log p / nᵅ
    ranks them, where n counts the end; older versions count it only if it is returned. What may not be said gives its
    probability to the rest in theirs, which scores show in the third decimal.
    """

    def __init__(self, translator: FastTranslator, decoding: DecodingConfig, count: int) -> None:
        self.translator, self.decoding = translator, decoding
        self.power = decoding.length_penalty if isinstance(decoding, Beam) else 0.0
        self.options = {
            "beam_size": decoding.size if isinstance(decoding, Beam) else 1,
            "num_hypotheses": count,
            "length_penalty": self.power,
            "min_decoding_length": 0,  # by default nothing is never said
            "return_end_token": True,
            "return_scores": True,
            "suppress_sequences": [[translator.target_names[i]] for i in dict.fromkeys(translator.symbols.never)],
        }

    def limit(self, source: int) -> int:
        limit, room = self.decoding.limit(source), self.translator.rooms["decoder"]
        return limit if room is None else min(limit, room - 1)  # the start has a place too

    def begin(self, rows: list[Given]) -> list[Any]:
        """Give a batch to CTranslate2, which works on it from now on."""
        return self._begin([self._named(row.source, self.translator.source_names) for row in rows], None, rows)

    @staticmethod
    def _named(ids: Sequence[int], table: Sequence[str]) -> list[str]:
        return [table[i] for i in ids]

    def _begin(self, source: list[list[str]], prefixes: list[list[str]] | None, rows: list[Given]) -> list[Any]:
        most = max(row.limit for row in rows) + 1  # and the end
        return self.translator.ct2.translate_batch(
            source, prefixes, max_decoding_length=most, max_input_length=0, asynchronous=True, **self.options
        )

    def finish(self, rows: list[Given], results: list[Any]) -> list[list[Found]]:
        """What it found. Rows that went past their own limit, since another's was larger, are searched again."""
        found, most = [self._read(*each) for each in zip(rows, results, strict=True)], max(row.limit for row in rows)
        again: dict[int, list[int]] = {}  # by limit
        for n, row in enumerate(rows):
            if row.limit < most and any(len(words) == row.limit for words, _, _ in found[n]):
                again.setdefault(row.limit, []).append(n)
        running = [(chosen, self.begin([rows[n] for n in chosen])) for chosen in again.values()]
        for chosen, others in running:
            for n, result in zip(chosen, others, strict=True):
                found[n] = self._read(rows[n], result)
        return found

    def _read(self, row: Given, running: Any) -> list[Found]:
        """Words, cut at the limit, with their numbers."""
        result = running.result()
        found = [self._hypothesis(*pair) for pair in zip(result.hypotheses, result.scores, strict=True)]
        return [(words[: row.limit], score, total) for words, score, total in found]

    def _hypothesis(self, pieces: list[str], score: float) -> Found:
        ids = [self.translator.ids[piece] for piece in pieces]
        words = ids[:-1] if ids and ids[-1] == self.translator.symbols.eos else ids
        return words, score, score * len(ids) ** self.power


class _PrefixSearch(_Search):
    """Outputs that begin as given. Theirs leave the prefix out of the scores that they rank by: here it counts again.

    So all that a beam has found is asked for, without a length penalty, and ranked here as our own engine does.
    """

    def __init__(self, translator: FastTranslator, decoding: DecodingConfig, count: int) -> None:
        super().__init__(translator, decoding, count)
        self.count = count
        self.scored: dict[Given, Any] = {}  # the log-probabilities of the prefixes
        self.options |= {"length_penalty": 0, "num_hypotheses": self.options["beam_size"]}

    def begin(self, rows: list[Given]) -> list[Any]:
        source = [self._named(row.source, self.translator.source_names) for row in rows]
        begun = [self._named(row.prefix, self.translator.target_names) for row in rows]
        scored = self.translator.ct2.score_batch(source, begun, max_input_length=0, asynchronous=True)
        self.scored |= zip(rows, scored, strict=True)
        return self._begin(source, begun, rows)

    def _read(self, row: Given, running: Any) -> list[Found]:
        result, before = running.result(), sum(self.scored[row].result().log_probs[: len(row.prefix)])
        found = []
        for pieces, score in zip(result.hypotheses, result.scores, strict=True):
            words, _, _ = self._hypothesis(pieces, score)
            found.append((words[: row.limit], (score + before) / len(pieces) ** self.power, score + before))
        return sorted(found, key=lambda each: -each[1])[: self.count]
