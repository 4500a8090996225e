"""A model that translates: text in, text out, in batches by length with the order restored. Also scores given pairs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack, cast, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.accel.inference_weights import inference_weights
from regard.decoding import Beam, DecodingConfig, Engine, Feed, Generator, Greedy, Hypothesis, Sample, Symbols
from regard.decoding.engine import quiet
from regard.errors import RegardError, listed
from regard.evaluation import Metric, text_metrics
from regard.evaluation.metrics import perplexity
from regard.examples.batching import batches, by_length, slot_groups
from regard.examples.pairs import Heads, check_trees, piece_trees
from regard.examples.recipe_like import RecipeLike
from regard.examples.vocabulary import Vocabulary
from regard.models.batch import Packed, Pairs, pairs, sources
from regard.nn.dispatch import autocast_dtype
from regard.nn.layout import Tree
from regard.nn.record import Record
from regard.predict.alignment import align, chosen
from regard.predict.arguments import checked, warn_caller
from regard.predict.constraints import Asking, Constraints
from regard.predict.ensemble import Joint, check_alike, shortest
from regard.predict.long_text import Segments
from regard.predict.options import TranslationSearch, translating
from regard.predict.unknown import sentence as unknown_sentence
from regard.predict.unknown import unknown_lines
from regard.reporting import Progress, Warn

if TYPE_CHECKING:
    from regard.tasks.translation import TranslationConfig

# Text for people, or as the tokenizer's own stage left it (Moses tokens, lower case).
Form = Literal["plain", "prepared"]
Long = Literal["truncate", "refuse", "translate", "segment"]
Place = Literal["encoder", "decoder", "cross"]
PRECISIONS: dict[str, torch.dtype | None] = {"float32": None, "bf16": torch.bfloat16}  # None: as the weights are


@dataclass(slots=True)  # not frozen: such are made five times as fast, and there is one for each line
class Translation:
    text: str
    score: float  # under the length penalty
    log_probability: float
    tokens: list[int] = field(default_factory=list, repr=False)  # the pieces of the text
    attention: dict[str, Tensor] | None = field(default=None, repr=False)  # by place [layers, H, T, K], where asked for


class Options(Asking, TranslationSearch, total=False):
    """What `translate` and `nbest` may be told besides the lines."""

    form: Form
    batch_tokens: int  # padded tokens computed at once
    long: Long  # what becomes of a line longer than the model knows
    warn: Warn | None  # told how many lines were cut; by default a Python warning is given
    progress: Progress | None
    before: int  # lines of the text that came earlier: messages count them, samples are drawn as if all came at once
    scores: bool  # whether they are looked at (true); else an engine to which they are work may leave them out, as NaN
    attention: Sequence[Place]  # places whose weights are recorded: encoder, decoder, cross
    unknown: list[int] | None  # takes the numbers of lines that are mostly unknown; without it, `warn` is told of them
    heads: Heads | None  # for each line the head of each word in its dependency tree, for structural positions


class Translator:
    """`regard.load(folder)` gives one of these."""

    precision = "float32"  # of decoding; scores of given text are always computed as the weights are
    run: Path | None = None  # where it was loaded from

    def __init__(self, model: nn.Module, vocabulary: Vocabulary, recipe: RecipeLike) -> None:
        self.model, self.vocabulary, self.recipe = model, vocabulary, recipe
        self._engine: tuple[object, Engine] | None = None
        self.symbols = Symbols(
            vocabulary.target.bos, vocabulary.target.eos, (vocabulary.target.pad, vocabulary.target.bos)
        )

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def engine(self) -> Engine:
        """What decodes; made anew when weights have changed, as they do between two validations."""
        if self.precision not in PRECISIONS:
            raise RegardError(f"precision is {self.precision!r}; write {' or '.join(PRECISIONS)}")
        weights = ((p.data_ptr(), p._version) for p in self.model.parameters())
        now = self.precision, autocast_dtype(self.device), *weights
        if self._engine is None or self._engine[0] != now:
            self._engine = None  # what it holds goes before more is made
            model = inference_weights(self.model, PRECISIONS[self.precision])
            self._engine = now, Engine(cast(Generator, model))
        return self._engine[1]

    @property
    def languages(self) -> tuple[str, str]:
        """Of the source and the target."""
        return cast("TranslationConfig", self.recipe.task).languages

    def together(self, others: Sequence["Translator"]) -> "Translator":
        """This model and others of the same vocabularies as one: at every word the mean of what they think."""
        check_alike(self, others)
        every = [self, *others]
        made = Translator(
            Joint([each.model for each in every]), self.vocabulary, shortest([each.recipe for each in every])
        )
        made.precision, made.run = self.precision, self.run
        return made

    # --- translating -------------------------------------------------------------------------------------------

    @overload
    def translate(
        self, lines: Sequence[str], decoding: DecodingConfig | None = None, **options: Unpack[Options]
    ) -> list[str]: ...

    @overload
    def translate(
        self, lines: Sequence[str], decoding: DecodingConfig | None = None, *, nbest: int, **options: Unpack[Options]
    ) -> list[list[str]]: ...

    @checked
    def translate(
        self,
        lines: Sequence[str],
        decoding: DecodingConfig | None = None,
        *,
        nbest: int | None = None,
        **options: Unpack[Options],
    ) -> list[str] | list[list[str]]:
        """One output for each line, in order; an empty line gives an empty line. With `nbest`, a list for each line.

        `beam` is the size of the beam, 1 for greedy search; `sample=True` draws words. Else the recipe says how.
        """
        options["scores"] = False
        found = self.nbest(lines, 1 if nbest is None else nbest, decoding, **options)
        if nbest is not None:
            return [[each.text for each in best] for best in found]
        return [best[0].text if best else "" for best in found]

    @checked
    def nbest(
        self, lines: Sequence[str], count: int, decoding: DecodingConfig | None = None, **options: Unpack[Options]
    ) -> list[list[Translation]]:
        """For each line its best translations, best first; none for an empty line. The recipe says how to search.

        Of a beam no text is given twice, so there may be fewer than asked for; a wider beam finds more.
        """
        listed(lines, "translate([text])", "sentences")
        asked = [key for key in TranslationSearch.__annotations__ if options.get(key) not in (None, False)]
        if decoding and asked:
            raise RegardError(f"decoding is a whole search; leave out {asked[0]}, or decoding")
        decoding = decoding or translating(self.recipe.decoding, options, bool(options.get("phrases")), count)
        self._check(decoding, count, bool(options.get("phrases")))
        options["warn"] = warn = options.get("warn") or warn_caller
        before = options.get("before", 0)
        searched, unknown = spare(decoding, count), options.get("unknown")
        strange: list[int] = []
        options["unknown"] = strange
        if options.get("long") != "segment":
            found = self._each(lines, searched, decoding, options, range(before, before + len(lines)))
        else:
            parts = self.segments(lines)
            found = self._each(parts.lines, searched, decoding, parts.options(options), parts.keys(before))
            found, strange = parts.joined(found, decoding), sorted({parts.order[n][0] for n in strange})
        numbers = [before + n + 1 for n in strange]
        if unknown is not None:
            unknown += numbers
        elif numbers:
            warn(unknown_sentence(numbers))
        return [different(each, decoding, count) for each in found]

    def segments(self, lines: Sequence[str]) -> Segments:
        """Those lines, the long ones in parts that the model knows."""
        encode, limit = self.vocabulary.source.encode_batch, self.recipe.data.filters.max_length
        return Segments(lines, limit, lambda texts: [len(row) for row in encode(list(texts))], self.languages[1])

    def _each(
        self, lines: Sequence[str], count: int, decoding: DecodingConfig, options: Options, keys: Sequence[int]
    ) -> list[list[Translation]]:
        """The same, each line by itself; keys name the lines, by which random draws are told apart."""
        progress, heads = options.get("progress"), options.get("heads")
        ids = self._encode(lines, options)
        limits = [self._limit(decoding, len(row)) for row in ids]
        asked = Constraints.of(options, options.get("before", 0), len(lines), self.vocabulary.target)
        asked.check([limit if row else 0 for limit, row in zip(limits, ids, strict=True)], self.symbols)
        found: list[list[Translation]] = [[] for _ in lines]
        width = decoding.size if isinstance(decoding, Beam) else 1
        budget, places = max(1, options.get("batch_tokens", 4096) // width), tuple(options.get("attention", ()))
        done = 0

        def told(more: int) -> None:
            nonlocal done
            done += more
            if progress:
                progress("Translating", done, len(lines))

        was_training = self.model.training
        self.model.eval()
        # what is recorded cannot be refilled: such lines go batch by batch
        for rows, room in (batches if places else slot_groups)([len(row) for row in ids], budget):
            feed = asked.added(self._feed(ids, rows, room, [limits[row] for row in rows], heads), rows)
            searched = self._search(feed, [keys[row] for row in rows], decoding, count, places, told)
            for row, hypotheses in zip(rows, searched, strict=True):
                found[row] = [self._translation(h, len(ids[row]) + 1, options) for h in hypotheses]
        self.model.train(was_training)
        return found

    def _limit(self, decoding: DecodingConfig, source: int) -> int:
        """How many pieces the output of so many may have."""
        limit, longest = decoding.limit(source), getattr(self.model, "longest", None)  # a table of positions ends there
        return limit if longest is None else min(limit, longest - 1)

    def _feed(self, ids: list[list[int]], rows: list[int], room: int, limits: list[int], heads: Heads | None) -> Feed:
        """Those lines, longest first, `room` at once."""
        marks, device = self.vocabulary.source, self.device

        def read(chosen: list[int]) -> Pairs:
            now = [rows[n] for n in chosen]
            source, real = sources(Packed.of([ids[row] for row in now]), marks.pad, marks.eos)
            return Pairs(source, real, tree=self._tree(heads, ids, now)).to(device)

        return Feed(read, limits, room, blank=self.blank, lengths=[len(ids[row]) + 1 for row in rows])

    def blank(self, count: int, length: int) -> Pairs:
        """So many sources of so many words, of no meaning."""
        return Pairs(torch.full((count, length), self.vocabulary.source.eos, device=self.device), None)

    @staticmethod
    def _check(decoding: DecodingConfig, count: int, phrases: bool) -> None:
        if count < 1:
            raise RegardError(f"of the best translations at least 1 is given, not {count}")
        if phrases and not isinstance(decoding, Beam):
            raise RegardError("phrases that must appear need a beam search; use a beam of 5 or so (--beam 5)")
        if isinstance(decoding, Beam) and count > decoding.size:
            raise RegardError(f"a beam of {decoding.size} has no {count} best; raise the beam to {count}")
        if isinstance(decoding, Greedy) and count > 1:
            raise RegardError(
                f"greedy search gives one output, not {count}; use a beam of at least {count} (--beam {count})"
            )

    def _translation(self, h: Hypothesis, source: int, options: Options) -> Translation:
        attention = h.attention and {
            place: weights if place == "decoder" else weights[..., :source]  # without the batch's padding
            for place, weights in h.attention.items()
        }
        if attention and "encoder" in attention:
            attention["encoder"] = attention["encoder"][..., :source, :]
        (text,) = self._texts([h.tokens], options.get("form", "plain"))
        return Translation(text, h.score, h.log_probability, h.tokens, attention)

    def _search(
        self,
        feed: Feed,
        keys: list[int],
        decoding: DecodingConfig,
        count: int,
        places: tuple[str, ...],
        told: Callable[[int], None],
    ) -> list[list[Hypothesis]]:
        draws = []
        for n in range(count if isinstance(decoding, Sample) else 1):
            now = replace(feed, keys=[key * count + n for key in keys], told=told if n == 0 else quiet)
            record = Record(places) if places else None
            draws.append(self.engine.decode(now, self.symbols, decoding, count, record))
        return [sorted(chain(*found), key=lambda h: -h.score) for found in zip(*draws, strict=True)]

    def alignment(
        self, line: str, translation: Translation, layer: int | None = None, heads: Sequence[int] | None = None
    ) -> list[tuple[int, int]]:
        """(source word, target word) pairs by attention to the source, which must have been recorded.

        Words are those of the text that the tokenizer works on, split at spaces. Layers and heads count from 1.
        """
        if not translation.attention or "cross" not in translation.attention:
            raise RegardError("no attention to the source was recorded; a model without it gives no alignments")
        v = self.vocabulary
        weights = chosen(translation.attention["cross"], layer, heads)
        source = v.source.encode(line)[: weights.shape[1] - 1]  # the end stands last
        return align(weights, v.source.words(source), v.target.words(translation.tokens))

    @torch.inference_mode()
    def check_alignment(self, layer: int | None = None, heads: Sequence[int] | None = None) -> None:
        """Raise RegardError unless the model attends to the source there: asked of an empty pair, before others."""
        v, record = self.vocabulary, Record(("cross",))
        empty = pairs(Packed.of([[]]), Packed.of([[]]), v.source, v.target)
        self.model(replace(empty, tree=self._tree([[]], [[]], [0])).to(self.device), record)
        found = record.layers("cross")
        if not found:
            raise RegardError(f"the model {self.recipe.model.kind} has no attention to the source to align by")
        chosen(torch.stack(found)[:, 0], layer, heads)

    def _encode(self, lines: Sequence[str], options: Options) -> list[list[int]]:
        limit, before = self.recipe.data.filters.max_length, options.get("before", 0)
        long, heads, warn = options.get("long", "truncate"), options.get("heads"), options.get("warn") or warn_caller
        ids = self.vocabulary.source.encode_batch(list(lines))
        if heads is not None:
            check_trees(heads, ids, self.vocabulary.source, before)
        if (unknown := options.get("unknown")) is not None:
            unknown += unknown_lines(lines, ids, self.vocabulary.source)
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

    def _tree(self, heads: Heads | None, ids: list[list[int]], rows: list[int]) -> Tree | None:
        if heads is None:
            return None
        return piece_trees([heads[row] for row in rows], [ids[row] for row in rows], self.vocabulary.source)

    def _texts(self, rows: Sequence[Sequence[int]], form: Form) -> list[str]:
        target, language = self.vocabulary.target, self.languages[1]
        texts = target.decode_batch(rows)
        return [target.detokenise(text, language) for text in texts] if form == "plain" else texts

    # --- scoring -----------------------------------------------------------------------------------------------

    @checked
    @torch.inference_mode()
    def score(
        self, given: Sequence[tuple[str, str]], batch_tokens: int = 8192, heads: Heads | None = None, before: int = 0
    ) -> list[tuple[float, int]]:
        """For each (source, target): the log-probability of saying exactly that, and its tokens, the end included."""
        listed(given, "score([(source, target)])", "pairs", nested=True)
        for n, pair in enumerate(given, before + 1):
            if isinstance(pair, str) or len(pair) != 2:
                raise RegardError(f"pair {n} is not a source and a target; write score([(source, target)])")
        v = self.vocabulary
        source = v.source.encode_batch([s for s, _ in given])
        target = v.target.encode_batch([t for _, t in given])
        if heads is not None:
            check_trees(heads, source, v.source, before)
        result: list[tuple[float, int]] = [(0.0, 0)] * len(given)
        was_training = self.model.training
        self.model.eval()
        for rows in by_length([max(len(s), len(t)) + 1 for s, t in zip(source, target, strict=True)], batch_tokens):
            sides = Packed.of([source[r] for r in rows]), Packed.of([target[r] for r in rows])
            batch = replace(pairs(*sides, v.source, v.target), tree=self._tree(heads, source, rows)).to(self.device)
            assert batch.labels is not None
            logits = self.model(batch)
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            nll = F.cross_entropy(logits, batch.labels, reduction="none")
            counts = [len(target[r]) + 1 for r in rows]
            for row, part, count in zip(rows, nll.double().split(counts), counts, strict=True):
                result[row] = (-float(part.sum()), count)
        self.model.train(was_training)
        return result

    def forced(self, given: Sequence[tuple[str, str]], heads: Heads | None = None) -> dict[str, float]:
        """Mean loss of a token, and perplexity, with the right words before it given; empty pairs do not count."""
        full = [n for n, (s, t) in enumerate(given) if s.strip() and t.strip()]
        scored = self.score([given[n] for n in full], heads=heads and [heads[n] for n in full])
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
            outputs = [target.detokenise(o, self.languages[1]) for o in outputs]
        return text_metrics(outputs, references, self.languages[1], settings.tokenise, full)


def spare(decoding: DecodingConfig, count: int) -> int:
    """How many hypotheses to ask for: of a beam all where several are wanted, since two may be the same text."""
    return decoding.size if isinstance(decoding, Beam) and count > 1 else count


def different(found: list[Translation], decoding: DecodingConfig, count: int) -> list[Translation]:
    """The best of a beam whose texts differ: of one text in two ways of cutting, the likelier. Draws are kept."""
    if not isinstance(decoding, Beam) or count == 1:
        return found
    best: dict[str, Translation] = {}
    for each in found:
        best.setdefault(each.text, each)
    return list(best.values())[:count]


def languages_of(recipe: RecipeLike, run: Path) -> tuple[str, str]:
    """Of a run that translates; others are refused."""
    if recipe.task.kind != "translation":
        raise RegardError(f"{run}: a model of the task {recipe.task.kind}, not of translation")
    return cast("TranslationConfig", recipe.task).languages
