"""Language modelling: running text in, a model that says what comes next."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from regard.config import option
from regard.data.config import Corpus
from regard.data.documents import COLUMN, Extent, Form, documents, documents_of
from regard.data.places import cache_root
from regard.data.prepared import Prepared, prepare
from regard.data.readers import Record, apart, files, read
from regard.errors import RegardError
from regard.evaluation.metrics import perplexity
from regard.models.texts import Texts, block
from regard.nn.attention import slow_paths
from regard.tasks.contract import Carry, Progress
from regard.tasks.options import split_of
from regard.tasks.running import Running
from regard.tasks.vocabulary import single
from regard.tasks.windows import Reach
from regard.tasks.writer import Writer
from regard.text import Tokenizer

if TYPE_CHECKING:
    from regard.recipe import Recipe


@dataclass(frozen=True)
class LanguageModellingConfig:
    """Running text: every next token is said when those before it are read."""

    models: ClassVar[tuple[str, ...]] = ("lm",)
    metrics: ClassVar[dict[str, bool]] = dict.fromkeys(
        ("perplexity", "loss", "word_perplexity", "bits_per_character"), False
    )
    defaults: ClassVar[dict[str, Any]] = {
        "data": {
            "filters": {"max_length": 1_000_000_000, "duplicates": False}
        },  # a document may be long, or come again
        "text": {"kind": "byte_bpe"},
        "model": {"kind": "lm"},
        "training": {"goal": "perplexity", "label_smoothing": 0.0},
        "decoding": {"kind": "sample"},
    }
    asks: ClassVar[tuple[str, ...]] = ("text", "context", "stride")

    kind: Literal["lm"] = "lm"
    language: str = option("en", "of the text, as a code; it picks the Moses rules")
    documents: Form = option("blank", "what a document is: each line, what stands between blank lines, or a whole file")
    boundaries: Literal["kept", "marked"] = option(
        "kept", "between documents: none sees another, or only a mark stands between them"
    )
    length: int = option(256, "tokens of a block, the context it learns with")
    context: int | None = option(None, "tokens of a window when it is measured; none: as length")
    stride: int | None = option(
        None,
        "tokens from window to window when a finished model is measured; less is slower and sees more; none: context",
    )

    def __post_init__(self) -> None:
        for name in ("length", "context", "stride"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        self.reach()

    @property
    def title(self) -> str:
        return f"{self.kind} {self.language}"

    def reach(self, context: int | None = None, stride: int | None = None) -> Reach:
        """How a finished model is measured, or as asked for."""
        seen = context or self.context or self.length
        return Reach(seen, stride or (seen if context or self.stride is None else self.stride))

    def check(self, recipe: "Recipe") -> None:
        for key in ("dropout", "alpha"):
            if getattr(recipe.text, key, 0.0):
                raise ValueError(f"text.{key} draws pieces anew for every epoch, which the task lm does not; write 0")
        try:
            cast(Any, recipe.model).check(max(self.length, self.context or 0))
        except ValueError as error:
            raise ValueError(f"model.{error}" if str(error).startswith("position.") else f"model: {error}") from None

    # --- from files to a task or a trained model ---------------------------------------------------------------

    def open(self, recipe: "Recipe", home: Path) -> Writer:
        running = Running(Tokenizer.load(home / "tokenizer" / "tokenizer.json"), self.documents)
        return Writer(cast(Any, recipe.model).build(running.size), running, recipe)

    def prepare(self, recipe: "Recipe", home: Path | None, progress: Progress) -> "LanguageModellingTask":
        for corpus in [*recipe.data.train, *recipe.data.valid, *recipe.data.test]:
            files(corpus)  # all must be there before hours are spent on some
        if home is not None:
            tokenizer = Tokenizer.load(home / "tokenizer" / "tokenizer.json")
        else:
            tokenizer = single(recipe, lambda: self._lines(recipe, progress), self.language, f"lm {self.documents}")
        running = Running(tokenizer, self.documents)
        prepared = prepare(
            recipe.data.train,
            {"text": running},
            recipe.data.filters,
            Path(recipe.data.cache) if recipe.data.cache else cache_root() / "prepared",
            progress=lambda n: progress("Preparing documents", n, 0),
            reader=lambda corpus, names, languages, counts: documents_of(corpus, self.documents, languages, counts),
        )
        return LanguageModellingTask(recipe, running, prepared)

    def _lines(self, recipe: "Recipe", progress: Progress) -> Iterator[str]:
        """The text that a vocabulary is learned from; ends of lines are part of it, unless they end documents."""
        end = "" if self.documents == "line" else "\n"
        for corpus in chain.from_iterable(map(apart, recipe.data.train)):
            for count, record in enumerate(read(corpus, COLUMN), 1):
                if count % 10_000 == 0:
                    progress("Reading lines for the vocabulary", count, 0)
                yield record.fields[0] + end

    def evaluate(
        self, made: Writer, split: str | None, given: Mapping[str, Any], progress: Progress | None = None
    ) -> dict[str, Any]:
        text = given.get("text")
        corpora = [Corpus(path=str(text))] if text else split_of(made.recipe, split, "give --text FILE")
        try:
            reach = self.reach(given.get("context"), given.get("stride"))
        except ValueError as error:
            raise RegardError(f"--{error}") from None
        room = getattr(made.model, "longest", None)
        if room is not None and reach.context > room:
            raise RegardError(f"--context is {reach.context}, but the model can tell only {room} places apart")
        return measure(made, corpora, reach, progress)


class LanguageModellingTask:
    def __init__(self, recipe: "Recipe", running: Running, prepared: Prepared) -> None:
        self.recipe, self.running, self.prepared = recipe, running, prepared
        self.settings = cast(LanguageModellingConfig, recipe.task)
        self.fingerprint = prepared.fingerprint
        self.smoothing = recipe.training.label_smoothing
        self.goal: str = recipe.training.goal
        self.higher_is_better = self.settings.metrics[self.goal]
        self.valid = read_documents(recipe.data.valid, self.settings.documents, recipe.training.validation.lines)
        self.streams = Streams(prepared, self.settings.length)

    def report(self) -> list[str]:
        tokens = len(self.streams.flat)
        return [*self.prepared.report_lines(), f"{tokens:,} tokens, a vocabulary of {self.running.size:,}"]

    def build_model(self) -> nn.Module:
        return cast(Any, self.recipe.model).build(self.running.size)  # type: ignore[no-any-return]

    def notes(self, model: nn.Module) -> list[str]:
        return slow_paths(model)

    def view(self, seed: int, epoch: int) -> "BlocksView":
        mark = self.running.tokenizer.bos if self.settings.boundaries == "kept" else None
        return BlocksView(self.streams, self.streams.starts(seed, epoch), mark)

    def loss(self, model: nn.Module, batch: Texts, carry: Carry) -> tuple[Tensor, Carry]:
        return model(batch, None, self.smoothing), carry

    def fixed(self, model: nn.Module, batch: Texts) -> Texts | None:
        return batch.fixed() if batch.document is None else None

    def describe(self, batch: Texts) -> str:
        row = int(np.searchsorted(self.streams.offsets, batch.rows[0], side="right")) - 1
        name = self.recipe.data.train[int(self.prepared.corpus[row])].name
        return f"{len(batch.rows)} blocks, first from the document at line {self.prepared.number[row]} of {name}"

    def writer(self, model: nn.Module) -> Writer:
        return Writer(model, self.running, self.recipe)

    def validate(self, model: nn.Module, device: torch.device, progress: Progress | None = None) -> dict[str, float]:
        """In windows side by side, which is quick; a finished model is measured with the task's stride."""
        if not self.valid:
            return {}
        context = self.settings.reach().context
        return metrics(self.writer(model), self.valid, Reach(context, context), progress)[0]

    def measure(self, model: nn.Module, split: str, progress: Progress | None = None) -> dict[str, Any]:
        corpora = getattr(self.recipe.data, split)
        return measure(self.writer(model), corpora, self.settings.reach(), progress) if corpora else {}

    def save(self, folder: Path) -> None:
        self.running.tokenizer.save(folder / "tokenizer" / "tokenizer.json")


# --- blocks --------------------------------------------------------------------------------------------------------


class Streams:
    """All documents of a corpus end to end, corpus after corpus, as they are prepared: blocks are cut from them."""

    def __init__(self, prepared: Prepared, length: int) -> None:
        column = prepared.columns["text"]
        self.flat, self.offsets, self.length, self.weights = column.flat, column.offsets, length, prepared.weights
        ends = np.searchsorted(prepared.corpus, np.arange(len(self.weights)), side="right")
        edges = self.offsets[[0, *ends.tolist()]].tolist()
        self.parts = list(pairwise(edges))  # of `flat`, one a corpus
        if not any(end - begin > length for begin, end in self.parts):
            most = max(end - begin for begin, end in self.parts)
            raise RegardError(f"the text has {most:,} tokens, too few for a block of task.length={length}; lower it")

    def starts(self, seed: int, epoch: int) -> np.ndarray:
        """Where the blocks of an epoch begin: side by side from a random place on, for a corpus of weight w w times."""
        random = np.random.default_rng([seed, epoch])
        found = []
        for (begin, end), weight in zip(self.parts, self.weights, strict=True):
            room = end - begin - self.length  # of the last block's first token, and the token after it
            for share in [1.0] * int(weight) + [weight - int(weight)] if room > 0 else []:
                first = begin + random.integers(min(self.length, room))
                blocks = np.arange(first, begin + room, self.length)
                found.append(random.permutation(blocks)[: round(share * len(blocks))])
        starts = np.concatenate(found)
        if not len(starts):
            raise RegardError("the weights of the corpora leave no block for an epoch; raise a weight")
        return starts


class BlocksView:
    """The blocks of one epoch. Every place is learned from, so that all batches are alike in shape."""

    def __init__(self, streams: Streams, starts: np.ndarray, mark: int | None) -> None:
        self.streams, self.starts, self.mark = streams, starts, mark

    def plan(self, budget: int, seed: int, epoch: int) -> list[np.ndarray]:
        rows = max(1, budget // self.streams.length)
        order = np.random.default_rng([seed, epoch, 1]).permutation(len(self.starts))
        return [order[n : n + rows] for n in range(0, len(order), rows)]

    def targets(self, indices: np.ndarray) -> int:
        return len(indices) * self.streams.length

    def collate(self, indices: np.ndarray) -> Texts:
        starts = self.starts[indices]
        ids = self.streams.flat[starts[:, None] + np.arange(self.streams.length + 1)].astype(np.int64)  # [B, T + 1]
        batch = block(ids, names=tuple(starts.tolist()))
        if self.mark is None or not (ids[:, 1:-1] == self.mark).any():
            return batch
        # What a document's last place says is the mark of the next, which is learned at once: it costs nothing.
        return replace(batch, document=torch.from_numpy(np.cumsum(ids[:, :-1] == self.mark, axis=1)))


# --- measuring -----------------------------------------------------------------------------------------------------


def read_documents(corpora: Sequence[Corpus], form: Form, lines: int = 0) -> list[str]:
    """The documents of a validation or test set, of its first so many lines."""
    found: list[str] = []
    for corpus in corpora:
        for part in apart(corpus):
            kept: Iterator[Record] = islice(read(part, COLUMN), lines or None)
            found += [record.fields[0] for record in documents(kept, form) if record.fields[0].strip()]
    if corpora and not found:
        raise RegardError(f"{', '.join(c.name for c in corpora)}: no text to measure on")
    return found


def metrics(
    writer: Writer, texts: Sequence[str], reach: Reach, progress: Progress | None = None
) -> tuple[dict[str, float], int, Extent]:
    """Loss and perplexity of a token, of a word and of a character; how many tokens, and how much text there was."""
    nll, tokens = writer.total(texts, reach, progress)
    extent = Extent.of(texts)
    return (
        {
            "loss": nll / max(tokens, 1),
            "perplexity": perplexity(nll, tokens),
            "word_perplexity": perplexity(nll, extent.words),
            "bits_per_character": nll / max(extent.characters, 1) / float(np.log(2)),
        },
        tokens,
        extent,
    )


def measure(
    writer: Writer, corpora: Sequence[Corpus], reach: Reach, progress: Progress | None = None
) -> dict[str, Any]:
    """The report of a finished model, which says how far it could see."""
    task = cast(LanguageModellingConfig, writer.recipe.task)
    texts = read_documents(corpora, task.documents)
    found, tokens, extent = metrics(writer, texts, reach, progress)
    how = f"context:{reach.context}|stride:{reach.stride}|boundaries:{task.boundaries}"
    signatures = {
        "perplexity": f"{how}|tokens:{tokens}",
        "word_perplexity": f"{how}|words:{extent.words}, with ends of lines",
        "bits_per_character": f"{how}|characters:{extent.characters}",
    }
    entries = {
        name: {"value": value} | ({"signature": signatures[name]} if name in signatures else {})
        for name, value in found.items()
    }
    return {
        "data": [corpus.name for corpus in corpora],
        "tokens": tokens,
        "words": extent.words,
        "characters": extent.characters,
        "documents": len(texts),
        "context": reach.context,
        "stride": reach.stride,
        "metrics": entries,
        "notes": [],
    }
