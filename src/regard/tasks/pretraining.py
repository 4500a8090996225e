"""BERT's pretraining: documents in, a model that fills gaps and tells whether two segments follow each other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import option
from regard.data.config import Corpus
from regard.data.documents import COLUMN, Form, documents, documents_of
from regard.data.places import cache_root
from regard.data.prepared import Prepared, prepare, weighted_index
from regard.data.ragged import Rows
from regard.data.readers import apart, files, read
from regard.errors import RegardError
from regard.models.bert import BertConfig, MaskedLanguage
from regard.models.texts import Texts
from regard.nn import kernels
from regard.nn.attention import slow_paths
from regard.tasks.contract import Carry, Progress
from regard.tasks.embedder import Pooling
from regard.tasks.filler import Filler
from regard.tasks.fit import fits
from regard.tasks.guesses import guesses
from regard.tasks.masking import Masking, Masks
from regard.tasks.options import split_of
from regard.tasks.segments import Book, Examples, ExamplesConfig, Pairs
from regard.tasks.sentences import Sentences
from regard.tasks.vocabulary import single
from regard.text import Tokenizer

if TYPE_CHECKING:
    from regard.recipe import Recipe

METRICS = {"loss": False, "masked_loss": False, "masked_accuracy": True, "next_loss": False, "next_accuracy": True}


@dataclass(frozen=True)
class PretrainingConfig:
    """Documents: masked words are guessed, and whether a segment follows another (Devlin 2019, 3.1)."""

    models: ClassVar[tuple[str, ...]] = ("bert",)
    metrics: ClassVar[dict[str, bool]] = METRICS
    defaults: ClassVar[dict[str, Any]] = {
        "data": {"filters": {"max_length": 1_000_000_000, "duplicates": False}},  # a document may be long
        "text": {"kind": "bert"},
        "model": {"kind": "bert"},
        "training": {"goal": "loss", "label_smoothing": 0.0},
        "decoding": {"kind": "greedy"},
    }
    asks: ClassVar[tuple[str, ...]] = ("text",)

    kind: Literal["pretraining"] = "pretraining"
    language: str = option("en", "of the text, as a code; it picks the Moses rules")
    documents: Form = option(
        "blank", "what a document is: each line, what stands between blank lines, a Wikipedia article, or a whole file"
    )
    sentences: Literal["rules-1", "lines"] = option(
        "rules-1", "how a line is cut into sentences: by our rules for Latin and Chinese script, or not at all"
    )
    unknown: str = option("<unk>", "a word of the text that stands for one that was left out; empty: none does")
    length: int = option(128, "places of an example, [CLS] and [SEP] included")
    examples: ExamplesConfig = option(Pairs, "two segments that may follow each other, or one and masked words alone")
    masking: Masking = option(Masking, "which words are guessed")
    pooling: Pooling = option("mean", "how `regard embed` makes one vector of a text, unless it is told")

    def __post_init__(self) -> None:
        if self.length < 8:
            raise ValueError(f"length must be at least 8, not {self.length}")

    @property
    def title(self) -> str:
        return f"{self.kind} {self.language}"

    @property
    def room(self) -> int:
        """Tokens of an example that are text."""
        return self.length - self.examples.marks

    @property
    def signature(self) -> str:
        """What a measure depends on."""
        return f"length:{self.length}|{self.examples.kind}|sentences:{self.sentences}|masks:{self.masking}"

    def check(self, recipe: "Recipe") -> None:
        if recipe.text.kind == "sentencepiece":
            raise ValueError(
                "text.kind sentencepiece has no [MASK]; learn a vocabulary (text.kind=bert), or take BERT's own"
            )
        if self.masking.unit == "words" and recipe.text.kind in ("bpe", "char"):
            raise ValueError(
                f"task.masking.unit words needs pieces that show where a word begins, not text.kind {recipe.text.kind}"
            )
        for key in ("dropout", "alpha"):
            if getattr(recipe.text, key, 0.0):
                raise ValueError(f"text.{key} draws pieces anew for every epoch, which pretraining does not; write 0")
        fits(recipe, self.length)
        if self.examples.follows and cast(BertConfig, recipe.model).segments < 2:
            raise ValueError("model.segments must be 2 where a second segment is read (task.examples is pairs)")
        if not self.examples.follows and recipe.training.goal.startswith("next_"):
            raise ValueError(f"training.goal is {recipe.training.goal}, which task.examples=single does not learn")

    # --- from files to a task or a trained model ---------------------------------------------------------------

    def build(self, recipe: "Recipe", entries: int) -> MaskedLanguage:
        model = cast(BertConfig, recipe.model)
        return model.pretraining(entries) if self.examples.follows else model.masked(entries)

    def reader(self, tokenizer: Tokenizer) -> Sentences:
        return Sentences(tokenizer, self.documents, self.sentences, self.unknown)

    def open(self, recipe: "Recipe", home: Path) -> Filler:
        reader = self.reader(Tokenizer.load(home / "tokenizer" / "tokenizer.json"))
        return Filler(self.build(recipe, reader.size), reader, recipe)

    def prepare(self, recipe: "Recipe", home: Path | None, progress: Progress) -> "PretrainingTask":
        for corpus in [*recipe.data.train, *recipe.data.valid, *recipe.data.test]:
            files(corpus)  # all must be there before hours are spent on some
        if home is not None:
            tokenizer = Tokenizer.load(home / "tokenizer" / "tokenizer.json")
        else:
            how = f"pretraining {self.unknown}"
            specials = () if recipe.text.kind == "bert" else ("<mask>",)
            tokenizer = single(recipe, lambda: self._lines(recipe, progress), self.language, how, specials)
        reader = self.reader(tokenizer)
        prepared = prepare(
            recipe.data.train,
            {"text": reader},
            recipe.data.filters,
            Path(recipe.data.cache) if recipe.data.cache else cache_root() / "prepared",
            progress=lambda n: progress("Preparing documents", n, 0),
            reader=lambda corpus, names, languages, counts: documents_of(corpus, self.documents, languages, counts),
        )
        return PretrainingTask(recipe, reader, prepared)

    def _lines(self, recipe: "Recipe", progress: Progress) -> Iterator[str]:
        """The text that a vocabulary is learned from."""
        for corpus in chain.from_iterable(map(apart, recipe.data.train)):
            for count, record in enumerate(read(corpus, COLUMN), 1):
                if count % 10_000 == 0:
                    progress("Reading lines for the vocabulary", count, 0)
                line = record.fields[0]
                yield line.replace(self.unknown, " ") if self.unknown else line

    def evaluate(
        self, made: Filler, split: str | None, given: Mapping[str, Any], progress: Progress | None = None
    ) -> dict[str, Any]:
        text = given.get("text")
        corpora = [Corpus(path=str(text))] if text else split_of(made.recipe, split, "give --text FILE")
        return measure(cast(MaskedLanguage, made.model), HeldOut(made.recipe, made.reader, corpora), progress)


class PretrainingTask:
    def __init__(self, recipe: "Recipe", reader: Sentences, prepared: Prepared) -> None:
        self.recipe, self.reader, self.prepared = recipe, reader, prepared
        self.settings = cast(PretrainingConfig, recipe.task)
        self.fingerprint = prepared.fingerprint
        self.smoothing = recipe.training.label_smoothing
        self.goal: str = recipe.training.goal
        self.higher_is_better = self.settings.metrics[self.goal]
        tokenizer = reader.tokenizer
        self.book = Book(prepared.columns["text"], tokenizer.eos, self.settings.room // 2)
        self.settings.examples.check(self.book)
        self.masks = Masks(self.settings.masking, tokenizer)
        corpora, lines = recipe.data.valid, recipe.training.validation.lines
        self.valid = HeldOut(recipe, reader, corpora, lines) if corpora else None

    def report(self) -> list[str]:
        sentences = f"{len(self.book):,} documents of {self.book.sentences:,} sentences ({self.settings.sentences})"
        alone = f"; {self.book.alone:,} of one sentence, which nothing follows" if self.book.alone else ""
        return [
            *self.prepared.report_lines(),
            f"{sentences}{alone}",
            f"{len(self.book.flat) - self.book.sentences:,} tokens, a vocabulary of {self.reader.size:,}",
        ]

    def build_model(self) -> nn.Module:
        return self.settings.build(self.recipe, self.reader.size)

    def notes(self, model: nn.Module) -> list[str]:
        return slow_paths(model)

    def view(self, seed: int, epoch: int) -> "ExamplesView":
        draw = Random(f"{seed} {epoch}")
        chosen = weighted_index(self.prepared, seed, epoch)
        made = self.settings.examples.make(self.book, chosen, self.settings.room, draw)
        return ExamplesView(self.book, made, self.masks, self.reader.tokenizer, self.settings, (seed, epoch))

    def loss(self, model: nn.Module, batch: Texts, carry: Carry) -> tuple[Tensor, Carry]:
        return model(batch, None, self.smoothing), carry

    def fixed(self, model: nn.Module, batch: Texts) -> Texts | None:
        """Rows of one length, and room for all masks that they may have: shapes that come again."""
        assert batch.labels is not None
        assert batch.places is not None
        if not kernels.usable(next(model.parameters())):  # labels that fill a shape are known to our kernels alone
            return None
        most = int(self.settings.masking.count(np.array([self.settings.room]))[0]) * len(batch.ids)
        spare = most - len(batch.places)
        return replace(
            batch.fixed(),
            real=torch.ones_like(batch.ids, dtype=torch.bool) if batch.real is None else batch.real,
            labels=F.pad(batch.labels, (0, spare), value=-1),
            places=F.pad(batch.places, (0, spare)),
        )

    def describe(self, batch: Texts) -> str:
        row = batch.rows[0]
        name = self.recipe.data.train[int(self.prepared.corpus[row])].name
        return f"{len(batch.rows)} examples, first from the document at line {self.prepared.number[row]} of {name}"

    def validate(self, model: nn.Module, device: torch.device, progress: Progress | None = None) -> dict[str, float]:
        return guesses(cast(MaskedLanguage, model), self.valid.batches, progress).metrics() if self.valid else {}

    def measure(self, model: nn.Module, split: str, progress: Progress | None = None) -> dict[str, Any]:
        corpora = getattr(self.recipe.data, split)
        if not corpora:
            return {}
        return measure(cast(MaskedLanguage, model), HeldOut(self.recipe, self.reader, corpora), progress)

    def save(self, folder: Path) -> None:
        self.reader.tokenizer.save(folder / "tokenizer" / "tokenizer.json")


# --- examples ------------------------------------------------------------------------------------------------------


class ExamplesView:
    """The examples of one epoch, all padded to one length; masks are drawn when a batch is made."""

    def __init__(
        self,
        book: Book,
        examples: Examples,
        masks: Masks,
        tokenizer: Tokenizer,
        settings: PretrainingConfig,
        key: tuple[int, int],
    ) -> None:
        self.book, self.examples, self.masks, self.tokenizer = book, examples, masks, tokenizer
        self.settings, self.key = settings, key

    def plan(self, budget: int, seed: int, epoch: int) -> list[np.ndarray]:
        rows = max(1, budget // self.settings.length)
        order = np.random.default_rng([seed, epoch, 1]).permutation(len(self.examples))
        return [order[n : n + rows] for n in range(0, len(order), rows)]

    def targets(self, indices: np.ndarray) -> int:
        """Less are masked only where a row has hardly a word that is known."""
        return int(self.settings.masking.count(self.examples.keep[indices].sum(1)).sum())

    def collate(self, indices: np.ndarray) -> Texts:
        ids, segments, real = self._rows(indices)
        words = self.examples.keep[indices].sum(1)
        read, places, labels = self.masks(ids, words, self.key, indices)
        follows = self.settings.examples.follows
        return Texts(
            torch.from_numpy(read),
            None if real.all() else torch.from_numpy(real),
            segments=torch.from_numpy(segments) if follows else None,
            labels=torch.from_numpy(labels),
            places=torch.from_numpy(places),
            classes=torch.from_numpy(self.examples.apart[indices]) if follows else None,
            rows=tuple(self.examples.document[indices].tolist()),
        )

    def _rows(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """[CLS] a [SEP], or [CLS] a [SEP] b [SEP]: ids, which segment and whether it is real, each [B, T]."""
        shape, t, e = (len(indices), self.settings.length), self.tokenizer, self.examples
        ids, segments = np.full(shape, t.pad, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        real = np.zeros(shape, dtype=bool)
        for row, index in enumerate(indices.tolist()):
            ids[row, 0], place = t.bos, 1
            for side in range(self.settings.examples.marks - 1):
                begin, end = e.span[index, side]
                said = self.book.ids(begin, end, e.skip[index, side], e.keep[index, side])
                ids[row, place : place + len(said)] = said
                ids[row, place + len(said)] = t.eos
                segments[row, place : place + len(said) + 1] = side
                place += len(said) + 1
            real[row, :place] = True
        return ids, segments, real


# --- measuring -----------------------------------------------------------------------------------------------------


class HeldOut:
    """Documents that are measured on, with pairs and masks that the seed alone decides."""

    ROWS = 32

    def __init__(self, recipe: "Recipe", reader: Sentences, corpora: Sequence[Corpus], lines: int = 0) -> None:
        self.recipe, self.reader, self.corpora = recipe, reader, corpora
        self.settings, self.lines = cast(PretrainingConfig, recipe.task), lines

    @cached_property
    def book(self) -> Book:
        parts = [part for corpus in self.corpora for part in apart(corpus)]
        records = (islice(read(part, COLUMN), self.lines or None) for part in parts)
        texts = [r.fields[0] for kept in records for r in documents(kept, self.settings.documents)]
        rows = [np.array(row) for row in self.reader.encode_batch(texts) if row]
        names = ", ".join(corpus.name for corpus in self.corpora)
        if not rows:
            raise RegardError(f"{names}: no text to measure on")
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
        book = Book(Rows(np.concatenate(rows), offsets), self.reader.tokenizer.eos, self.settings.room // 2)
        try:
            self.settings.examples.check(book)
        except RegardError as error:
            raise RegardError(f"{names}: {error}") from None
        return book

    @cached_property
    def batches(self) -> list[Texts]:
        seed, settings = self.recipe.seed, self.settings
        made = settings.examples.make(self.book, np.arange(len(self.book)), settings.room, Random(f"{seed}"))
        masks = Masks(settings.masking, self.reader.tokenizer)
        view = ExamplesView(self.book, made, masks, self.reader.tokenizer, settings, (seed, 0))
        order = np.arange(len(made))
        return [view.collate(order[n : n + self.ROWS]) for n in range(0, len(order), self.ROWS)]


def measure(model: MaskedLanguage, held_out: HeldOut, progress: Progress | None = None) -> dict[str, Any]:
    """The report of a model on documents it has not learned from."""
    found = guesses(model, held_out.batches, progress)
    signature = f"{held_out.settings.signature}|seed:{held_out.recipe.seed}"
    counted = {
        "masked_accuracy": f"places:{found.places}",
        "unigram_accuracy": f"places:{found.places}|always the most frequent of these",
        "next_accuracy": f"pairs:{found.judged}",
    }
    entries = {
        name: {"value": value} | ({"signature": f"{signature}|{counted[name]}"} if name in counted else {})
        for name, value in found.metrics().items()
    }
    return {
        "data": [corpus.name for corpus in held_out.corpora],
        "documents": len(held_out.book),
        "examples": found.rows,
        "metrics": entries,
        "notes": [],
    }
