"""Translation: the target of a sentence pair is learned, given the source."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from regard.config import choice, option
from regard.data.config import Corpus
from regard.data.prepared import PreparedCorpus, epoch_rows
from regard.data.ragged import RaggedArray
from regard.data.readers import corpus_files
from regard.decoding import DecodingConfig
from regard.errors import RegardError
from regard.examples.leads import LeadExamples, Leads
from regard.examples.long_text import LongConfig, Refuse, Truncate
from regard.examples.pairs import COLUMNS, PairsView, packed_batch, read_heads, read_pairs
from regard.examples.preparing import prepare_training_data, training_lines
from regard.examples.recipe_like import RecipeLike
from regard.examples.vocabulary import Vocabulary, load_or_train_tokenizer
from regard.models.batch import PairBatch
from regard.models.decoders.pairs import DecoderOnly
from regard.nn.record import AttentionRecorder
from regard.predict.options import EvaluateOptions, split_corpora, with_beam
from regard.predict.translation import Translator
from regard.reporting import Json, Progress
from regard.tasks.contract import Carry, PreparedTask, TaskConfig
from regard.tasks.guided_alignment import GuidedAlignment
from regard.tasks.recipe_checks import check_leads, check_translation


@choice("translation")
class TranslationConfig(TaskConfig):
    """Pairs of sentences: the second is predicted from the first."""

    has_text_output: ClassVar[bool] = True
    models: ClassVar[tuple[str, ...]] = ("transformer", "rnn", "conv", "bytenet", "decoder_only")
    metrics: ClassVar[dict[str, bool]] = {
        "bleu": True, "chrf": True, "ter": False, "exact_match": True, "loss": False, "perplexity": False,
    }  # fmt: skip
    defaults: ClassVar[Json] = {}  # those of the sections themselves
    evaluate_options: ClassVar[tuple[str, ...]] = ("source", "reference", "trees", "beam")

    source: str = option("en", "language of the source, as a code")
    target: str = option("de", "language of the target; it picks BLEU's tokeniser")
    long: LongConfig = option(
        Truncate, "what becomes of a line longer than data.filters.max_length when translating (docs/long-text.md)"
    )
    guide: GuidedAlignment | None = option(
        None, "teach attention to the source by the alignments given with the corpora"
    )

    leads: Leads | None = option(
        None, "corpora are articles: title and passages are the source, the first paragraph is the target"
    )

    @property
    def languages(self) -> tuple[str, str]:
        return self.source, self.target

    @property
    def title(self) -> str:
        return f"{self.kind} {self.source}→{self.target}"

    def check(self, recipe: RecipeLike) -> None:
        if self.leads is not None:
            check_leads(recipe, self.languages, self.guide)
            self.leads.check(self.long, recipe.data.filters.max_length)
        check_translation(recipe, self.guide)

    def load_predictor(self, recipe: RecipeLike, home: Path) -> Translator:
        vocabulary = Vocabulary.load(home / "tokenizer", self.languages)
        model = recipe.model.build(vocabulary.source.size, vocabulary.target.size)
        return Translator(model, vocabulary, recipe)

    def prepare(self, recipe: RecipeLike, home: Path | None, progress: Progress) -> "TranslationTask":
        """Tokenizers, those of `home` or else trained, and the training data in its prepared form."""
        languages = self.languages if self.leads is None else None
        for corpus in [*recipe.data.train, *recipe.data.valid, *recipe.data.test]:
            corpus_files(corpus, languages)  # all must be there before hours are spent on some
        if home is not None:
            vocabulary = Vocabulary.load(home / "tokenizer", self.languages)
        elif self.leads is not None:
            lines = lambda: training_lines(recipe, progress)  # noqa: E731
            vocabulary = Vocabulary.of(load_or_train_tokenizer(recipe, lines, self.source, "leads"), self.languages)
        else:
            vocabulary = Vocabulary.train(recipe, self.languages, progress)
        if self.leads is not None:
            column = {"text": vocabulary.source}
            prepared = prepare_training_data(recipe, column, "paragraphs", progress, keep_text=True)
            return TranslationTask(recipe, vocabulary, prepared)
        read_heads(
            recipe.data.test, self.languages, vocabulary.source
        )  # a mistake in it is an error now, not in the end
        sides, keep_text = dict(zip(COLUMNS, vocabulary, strict=True)), vocabulary.samples
        prepared = prepare_training_data(
            recipe, sides, "lines", progress, keep_text=keep_text, languages=self.languages
        )
        return TranslationTask(recipe, vocabulary, prepared)

    def read_pairs(self, corpora: Sequence[Corpus], vocabulary: Vocabulary, longest: int) -> list[tuple[str, str]]:
        """The pairs of a validation or test set."""
        if self.leads is None or any(corpus.source is not None for corpus in corpora):
            return read_pairs(corpora, self.languages)
        return self.leads.pairs(corpora, vocabulary.source, longest, self.long)

    def evaluate(
        self, predictor: Translator, split: str | None, options: EvaluateOptions, progress: Progress | None = None
    ) -> Json:
        corpora, source, reference, trees = [], *(options.get(key) for key in ("source", "reference", "trees"))
        if (source is None) != (reference is None):
            raise RegardError("--source and --reference belong together")
        if trees is not None and source is None:
            raise RegardError("--trees belongs to --source; the recipe names the CoNLL-U files of its own data")
        if source is not None:
            corpora = [Corpus(source=str(source), target=str(reference), heads=str(trees) if trees else None)]
        else:
            corpora = split_corpora(predictor.recipe, split, "give --source and --reference")
        return evaluate_translation(
            predictor, corpora, progress, with_beam(predictor.recipe.decoding, options.get("beam"))
        )


class TranslationTask(PreparedTask):
    def __init__(self, recipe: RecipeLike, vocabulary: Vocabulary, prepared: PreparedCorpus) -> None:
        super().__init__(recipe, prepared)
        self.vocabulary, self.settings = vocabulary, cast(TranslationConfig, recipe.task)
        longest = recipe.data.filters.max_length
        self.valid = self.settings.read_pairs(recipe.data.valid, vocabulary, longest)
        leads = self.settings.leads
        self.leads = LeadExamples(prepared, leads, longest, self.settings.long) if leads else None
        self.valid_trees = read_heads(recipe.data.valid, self.languages, vocabulary.source)
        self._sampled = _SampledSegmentation(vocabulary, prepared, longest) if vocabulary.samples else None

    @property
    def languages(self) -> tuple[str, str]:
        return self.settings.languages

    def report(self) -> list[str]:
        encoded = self.vocabulary.source.encode_batch([s for s, _ in self.valid])
        cut = sum(len(ids) > self.recipe.data.filters.max_length for ids in encoded)
        if cut and isinstance(self.settings.long, Refuse):
            raise RegardError(f"validation data: {cut:,} source lines are too long, which task.long refuses")
        truncated = isinstance(self.settings.long, Truncate)
        cut_lines = [f"validation data: {cut:,} source lines are cut when translated"] if cut and truncated else []
        articles = [f"{len(self.leads.articles):,} articles"] if self.leads else []
        return self.vocabulary.notes() + self.prepared.report_lines() + articles + cut_lines

    def build_model(self) -> nn.Module:
        return self.recipe.model.build(self.vocabulary.source.size, self.vocabulary.target.size)

    def initial_weights(self, model: nn.Module, tensors: Mapping[str, Tensor], origin: object) -> Mapping[str, Tensor]:
        """Those of the run; a language model is the body of a decoder alone."""
        if isinstance(model, DecoderOnly) and not any(name.startswith("body.") for name in tensors):
            tensors = {f"body.{name}": tensor for name, tensor in tensors.items()}
        return super().initial_weights(model, tensors, origin)

    def view(self, seed: int, epoch: int) -> "PairsView":
        if self.leads is not None:
            return self.leads.view(self.vocabulary, seed, epoch)
        rows = epoch_rows(self.prepared, seed, epoch)
        columns: Mapping[str, RaggedArray] = self._sampled.draw(seed, epoch) if self._sampled else self.prepared.columns
        return PairsView(self.vocabulary, columns["source"], columns["target"], rows, self.prepared.annotations)

    def loss(self, model: nn.Module, batch: PairBatch, carry: Carry) -> tuple[Tensor, Carry]:
        guide = self.settings.guide if batch.links is not None and len(batch.links) else None
        record = AttentionRecorder(("cross",), keep_graph=True) if guide else None
        loss = model(batch, record, self.smoothing)
        if guide and record and batch.links is not None:
            loss = loss + guide.weight * guide.loss(record, batch.links)
        return loss, carry

    def static_batch(self, model: nn.Module, batch: PairBatch) -> PairBatch | None:
        return packed_batch(model, batch) if batch.links is None else None

    def describe(self, batch: PairBatch) -> str:
        return f"{len(batch.rows)} pairs, first {', '.join(map(self.origin, batch.rows[:3]))}"

    def translator(self, model: nn.Module) -> Translator:
        return Translator(model, self.vocabulary, self.recipe)

    def validate(self, model: nn.Module, device: torch.device, progress: Progress | None = None) -> dict[str, float]:
        """Loss and perplexity under teacher forcing, then the text metrics of translations."""
        if not self.valid:
            return {}
        settings = self.recipe.training.validation
        pairs, trees = self.valid[: settings.lines or None], self.valid_trees
        trees = trees and trees[: settings.lines or None]
        translator = self.translator(model)
        result = translator.loss(pairs, trees)
        if settings.decode:
            sources, quiet = [s for s, _ in pairs], lambda message: None  # the report has said what is cut
            outputs = translator.translate(
                sources, settings.decoding, form="prepared", progress=progress, warn=quiet, trees=trees
            )
            full = self.goal not in ("bleu", "loss", "perplexity")
            metrics = translator.metrics(outputs, pairs, full)
            result |= {name: metric.value for name, metric in metrics.items()}
        return result

    def evaluate_corpora(self, model: nn.Module, corpora: Sequence[Corpus], progress: Progress | None = None) -> Json:
        return evaluate_translation(self.translator(model), corpora, progress)

    def save(self, folder: Path) -> None:
        self.vocabulary.save(folder / "tokenizer")


def held_out_pairs(translator: Translator, corpora: Sequence[Corpus]) -> list[tuple[str, str]]:
    """The pairs of a validation or test set, as the model's task reads them."""
    task, longest = cast(TranslationConfig, translator.recipe.task), translator.recipe.data.filters.max_length
    return task.read_pairs(corpora, translator.vocabulary, longest)


def evaluate_translation(
    translator: Translator,
    corpora: Sequence[Corpus],
    progress: Progress | None = None,
    decoding: DecodingConfig | None = None,
) -> Json:
    """Every metric of translating these corpora, as JSON; for the embedded corpus, also the accuracy of pronouns."""
    languages = translator.languages
    pairs = held_out_pairs(translator, corpora)
    trees = read_heads(corpora, languages, translator.vocabulary.source)
    notes: list[str] = []
    outputs = translator.translate(
        [s for s, _ in pairs], decoding, form="prepared", progress=progress, warn=notes.append, trees=trees
    )
    result: Json = {name: metric.json() for name, metric in translator.metrics(outputs, pairs).items()}
    result |= {name: {"value": value} for name, value in translator.loss(pairs, trees).items()}
    if all((corpus.set or "").startswith("embedded:") for corpus in corpora):
        result["pronouns"] = {"value": _pronouns(corpora, outputs)}
    return {"data": [corpus.name for corpus in corpora], "lines": len(pairs), "metrics": result, "notes": notes}


def _pronouns(corpora: Sequence[Corpus], outputs: Sequence[str]) -> float:
    """Percentage of the recorded pronouns whose German form is right."""
    from regard.data.embedded import pairs, pronouns_right

    known = [pair for corpus in corpora for pair in pairs(str(corpus.set).partition(":")[2])]  # type: ignore[arg-type]
    counts = [pronouns_right(pair, output) for pair, output in zip(known, outputs, strict=True)]
    return round(100 * sum(right for right, _ in counts) / max(1, sum(total for _, total in counts)), 4)


class _SampledSegmentation:
    """Segmentations sampled for every epoch (BPE-dropout, Unigram sampling): a function of (seed, epoch)."""

    def __init__(self, vocabulary: Vocabulary, prepared: PreparedCorpus, longest: int) -> None:
        self.parts, self.longest = {}, longest
        for name, tokenizer in zip(COLUMNS, vocabulary, strict=True):
            sampler = tokenizer.sampler()
            self.parts[name] = (sampler, sampler.prepare(prepared.text[name]))

    def draw(self, seed: int, epoch: int) -> dict[str, RaggedArray]:
        """A drawn segmentation can be longer than the plain one, so it is cut to the longest allowed again."""
        return {
            name: RaggedArray(*sampler.encode_ragged(corpus, seed, epoch)).truncate(self.longest)
            for name, (sampler, corpus) in self.parts.items()
        }
