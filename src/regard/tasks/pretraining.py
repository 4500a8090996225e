"""BERT's pretraining: masked language modelling, and whether two segments of a document follow each other."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import ClassVar, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from regard.config import at_least, choice, option
from regard.data.config import Corpus
from regard.data.documents import DocumentForm
from regard.data.prepared import PreparedCorpus, epoch_rows
from regard.examples.document_encoder import SentenceEncoder
from regard.examples.long_text import LongConfig, Truncate
from regard.examples.masked_lm import MaskedLMView
from regard.examples.masking import Masker, Masking
from regard.examples.preparing import TOKENIZER, prepare_documents, tokenizer_for, training_lines
from regard.examples.recipe_like import RecipeLike
from regard.examples.segments import SegmentExamples, SegmentPairs, SegmentsConfig, SentenceIndex
from regard.examples.vocabulary import load_or_train_tokenizer
from regard.models.bert import BertConfig, MaskedLM, TextBatch
from regard.nn import dispatch
from regard.predict.filling import MaskFiller
from regard.predict.options import EvaluateOptions, Pooling, text_corpora
from regard.reporting import Json, Progress
from regard.tasks.contract import EncodedTask, TaskConfig
from regard.tasks.mlm_metrics import HeldOutDocuments, count_predictions, evaluate_masked_lm
from regard.tasks.recipe_checks import check_lengths, check_no_sampling
from regard.text import Tokenizer


@choice("pretraining")
class PretrainingConfig(TaskConfig):
    """Documents: masked words are predicted, and whether a segment follows another (Devlin 2019, 3.1)."""

    models: ClassVar[tuple[str, ...]] = ("bert",)
    metrics: ClassVar[dict[str, bool]] = {
        "loss": False,
        "masked_loss": False,
        "masked_accuracy": True,
        "gap_accuracy": True,
        "next_loss": False,
        "next_accuracy": True,
    }
    defaults: ClassVar[Json] = {
        "data": {"filters": {"max_length": 1_000_000_000, "duplicates": False}},  # a document may be long
        "text": {"kind": "bert"},
        "model": {"kind": "bert"},
        "training": {"goal": "loss", "label_smoothing": 0.0},
        "decoding": {"kind": "greedy"},
    }
    evaluate_options: ClassVar[tuple[str, ...]] = ("text",)

    language: str = option("en", "of the text, as a code; it picks the Moses rules")
    documents: DocumentForm = option(
        "blank", "what a document is: each line, what stands between blank lines, a Wikipedia article, or a whole file"
    )
    sentences: Literal["rules-1", "lines"] = option(
        "rules-1", "how a line is cut into sentences: by our rules for Latin and Chinese script, or not at all"
    )
    unknown: str = option("<unk>", "a word of the text that stands for one that was left out; empty: none does")
    length: int = option(128, "places of an example, [CLS] and [SEP] included")
    examples: SegmentsConfig = option(
        SegmentPairs, "two segments that may follow each other, or one and masked words alone"
    )
    masking: Masking = option(Masking, "which words are guessed")
    long: LongConfig = option(Truncate, "what `regard embed` and `fill` do with longer texts (docs/long-text.md)")
    pooling: Pooling = option("mean", "how `regard embed` makes one vector of a text, unless an option says otherwise")

    def __post_init__(self) -> None:
        at_least(self, 8, "length")

    @property
    def title(self) -> str:
        return f"{self.kind} {self.language}"

    @property
    def room(self) -> int:
        """Tokens of an example that are text."""
        return self.length - self.examples.special_tokens

    @property
    def signature(self) -> str:
        """What a measure depends on."""
        return f"length:{self.length}|{self.examples.kind}|sentences:{self.sentences}|masks:{self.masking}"

    def check(self, recipe: RecipeLike) -> None:
        if recipe.text.kind == "sentencepiece":
            raise ValueError(
                "text.kind sentencepiece has no [MASK]; learn a vocabulary (text.kind=bert), or take BERT's own"
            )
        if self.masking.unit == "words" and recipe.text.kind in ("bpe", "char"):
            raise ValueError(
                f"task.masking.unit words needs pieces that show where a word begins, not text.kind {recipe.text.kind}"
            )
        check_no_sampling(recipe)
        check_lengths(recipe, self.length)
        if self.examples.next_sentence and cast(BertConfig, recipe.model).segments < 2:
            raise ValueError("model.segments must be 2 where a second segment is read (task.examples is pairs)")
        if not self.examples.next_sentence and recipe.training.goal.startswith("next_"):
            raise ValueError(f"training.goal is {recipe.training.goal}, which task.examples=single does not learn")

    # --- from files to a task or a trained model ---------------------------------------------------------------

    def build(self, recipe: RecipeLike, entries: int) -> MaskedLM:
        model = cast(BertConfig, recipe.model)
        return model.pretraining(entries) if self.examples.next_sentence else model.masked(entries)

    def view(
        self,
        index: SentenceIndex,
        examples: SegmentExamples,
        masker: Masker,
        tokenizer: Tokenizer,
        key: tuple[int, int],
    ) -> MaskedLMView:
        return MaskedLMView(index, examples, self.examples, masker, tokenizer, self.length, key)

    def encoder(self, tokenizer: Tokenizer) -> SentenceEncoder:
        return SentenceEncoder(tokenizer, self.documents, self.sentences, self.unknown)

    def load_predictor(self, recipe: RecipeLike, home: Path) -> MaskFiller:
        encoder = self.encoder(Tokenizer.load(home / TOKENIZER))
        return MaskFiller(self.build(recipe, encoder.size), encoder, recipe)

    def prepare(self, recipe: RecipeLike, home: Path | None, progress: Progress) -> "PretrainingTask":
        def train() -> Tokenizer:
            specials = () if recipe.text.kind == "bert" else ("<mask>",)
            lines = lambda: (self._known(line) for line in training_lines(recipe, progress))  # noqa: E731
            return load_or_train_tokenizer(recipe, lines, self.language, f"pretraining {self.unknown}", specials)

        encoder = self.encoder(tokenizer_for(recipe, home, train))
        return PretrainingTask(recipe, encoder, prepare_documents(recipe, encoder, self.documents, progress))

    def _known(self, line: str) -> str:
        return line.replace(self.unknown, " ") if self.unknown else line

    def evaluate(
        self, predictor: MaskFiller, split: str | None, options: EvaluateOptions, progress: Progress | None = None
    ) -> Json:
        corpora = text_corpora(predictor.recipe, split, options.get("text"))
        return evaluate_masked_lm(
            cast(MaskedLM, predictor.model),
            HeldOutDocuments(predictor.recipe, predictor.sentence_encoder, corpora),
            progress,
        )


class PretrainingTask(EncodedTask):
    def __init__(self, recipe: RecipeLike, encoder: SentenceEncoder, prepared: PreparedCorpus) -> None:
        super().__init__(recipe, prepared, encoder)
        self.encoder = encoder
        self.settings = cast(PretrainingConfig, recipe.task)
        tokenizer = encoder.tokenizer
        self.index = SentenceIndex(prepared.columns["text"], tokenizer.eos, self.settings.room // 2)
        self.settings.examples.check(self.index)
        self.masker = Masker(self.settings.masking, tokenizer)
        corpora, lines = recipe.data.valid, recipe.training.validation.lines
        self.valid = HeldOutDocuments(recipe, encoder, corpora, lines) if corpora else None

    def report(self) -> list[str]:
        sentences = f"{len(self.index):,} documents of {self.index.sentences:,} sentences ({self.settings.sentences})"
        alone = (
            f"; {self.index.single_sentence_documents:,} of one sentence, which nothing follows"
            if self.index.single_sentence_documents
            else ""
        )
        return [
            *self.report_lines(),
            f"{sentences}{alone}",
            f"{len(self.index.flat) - self.index.sentences:,} tokens, a vocabulary of {self.encoder.size:,}",
        ]

    def build_model(self) -> nn.Module:
        return self.settings.build(self.recipe, self.encoder.size)

    def view(self, seed: int, epoch: int) -> "MaskedLMView":
        rng, settings = Random(f"{seed} {epoch}"), self.settings
        documents = epoch_rows(self.prepared, seed, epoch)
        examples = settings.examples.make(self.index, documents, settings.room, rng)
        return settings.view(self.index, examples, self.masker, self.encoder.tokenizer, (seed, epoch))

    def static_batch(self, model: nn.Module, batch: TextBatch) -> TextBatch | None:
        """Rows of one length, and room for all masks that they may have: shapes that come again."""
        assert batch.labels is not None
        assert batch.label_positions is not None
        usable = dispatch.usable(next(model.parameters()))  # labels that fill a shape are known to our kernels alone
        if not (usable and cast(MaskedLM, model).body.capturable):
            return None
        most = int(self.settings.masking.count(np.array([self.settings.room]))[0]) * len(batch.ids)
        spare = most - len(batch.label_positions)
        return replace(
            batch.fixed(),
            real=torch.ones_like(batch.ids, dtype=torch.bool) if batch.real is None else batch.real,
            labels=F.pad(batch.labels, (0, spare), value=-1),
            label_positions=F.pad(batch.label_positions, (0, spare)),
        )

    def describe(self, batch: TextBatch) -> str:
        return f"{len(batch.rows)} examples, first from the document at {self.origin(batch.rows[0])}"

    def validate(self, model: nn.Module, device: torch.device, progress: Progress | None = None) -> dict[str, float]:
        if self.valid is None:
            return {}
        return count_predictions(cast(MaskedLM, model), self.valid.batches, self.valid.mask, progress).metrics()

    def evaluate_corpora(self, model: nn.Module, corpora: Sequence[Corpus], progress: Progress | None = None) -> Json:
        return evaluate_masked_lm(cast(MaskedLM, model), HeldOutDocuments(self.recipe, self.encoder, corpora), progress)
