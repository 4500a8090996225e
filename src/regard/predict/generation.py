"""Text generation: a language model continues a prompt, as a stream or at once, and scores given texts."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.data.documents import with_newline
from regard.decoding import Beam, DecodingConfig, GenerationRequest, RequestQueue, Symbols
from regard.errors import RegardError, require_list
from regard.examples.batching import each_batch
from regard.examples.document_encoder import DocumentEncoder
from regard.examples.recipe_like import RecipeLike
from regard.examples.windows import StridedWindows, TokenWindow
from regard.models.batch import RaggedRows, TextBatch, collate_texts
from regard.predict.base import Predictor
from regard.predict.options import GenerationOptions, checked, warn_caller
from regard.predict.text_stream import (
    Continuation,
    Ended,
    IncrementalDetokenizer,
    StreamedText,
    TextDelta,
    stream_texts,
)
from regard.reporting import Progress
from regard.text import Tokenizer

if TYPE_CHECKING:
    from regard.models.lm import LanguageModel
    from regard.models.lstm import LstmLanguageModel
    from regard.tasks.language_modelling import LanguageModellingConfig

LOGITS = {"cpu": 1 << 25, "cuda": 1 << 28}  # logits in memory at once when texts are scored


class TextGenerator(Predictor):
    """`regard.load(folder)` returns this for a model of the task lm."""

    def __init__(self, model: nn.Module, document_encoder: DocumentEncoder, recipe: RecipeLike) -> None:
        super().__init__(model, recipe)
        self.document_encoder, self.tokenizer = document_encoder, document_encoder.tokenizer
        t, end = self.tokenizer, document_encoder.end
        never = {t.pad, t.bos} - {end} if t.bos != t.eos else set()
        self.symbols = Symbols(t.bos, end, tuple(sorted(never)))

    @property
    def tokenizers(self) -> dict[str, Tokenizer]:
        return {"": self.tokenizer}

    @property
    def task(self) -> "LanguageModellingConfig":
        return cast("LanguageModellingConfig", self.recipe.task)

    @property
    def context(self) -> int:
        """Tokens of the context that the model was trained with: a block, and the memory before it."""
        learned = self.task.length + self.recipe.model.segment_memory
        return min(learned, self.longest or learned)

    @property
    def limit(self) -> int:
        """The context, past which a text is cut or read anew; 0 where layers see so far and no farther: there is none.

        (`ModelConfig.bounded_past`; caches then stay as they are, however long a text is.)
        """
        return 0 if self.recipe.model.bounded_past else self.context

    # --- generation --------------------------------------------------------------------------------------------

    def generate(
        self, prompt: str = "", count: int = 1, decoding: DecodingConfig | None = None, **options: object
    ) -> list[Continuation]:
        """So many continuations of a prompt, those of a beam best first; the options are those of `stream`."""
        options |= {"prompt": prompt, "count": count, "decoding": decoding}
        own = GenerationOptions.from_kwargs("generate", options)
        search = own.decoding_config(self.recipe.decoding)
        if isinstance(search, Beam):
            return self._beam(own, search)
        continuations = {delta.sample: delta.whole for delta in self._stream(own, search) if delta.whole}
        return [continuations[n] for n in range(count)]

    def stream(
        self, prompt: str = "", count: int = 1, decoding: DecodingConfig | None = None, **options: object
    ) -> Iterator[TextDelta]:
        """The same, piece by piece as they are generated. A stop string, and what follows it, is left out.

        Options (`GenerationOptions`): max_tokens, stop; temperature, top_k, top_p, min_p, repetition_penalty, seed;
        greedy (True) or beam (a size); without them `decoding`, or the recipe, says how. A prompt longer than the
        context keeps its last tokens, and `warn` gets a sentence; `strict` refuses it.
        """
        options |= {"prompt": prompt, "count": count, "decoding": decoding}
        own = GenerationOptions.from_kwargs("stream", options)
        return self._stream(own, own.decoding_config(self.recipe.decoding))

    def _stream(self, options: GenerationOptions, decoding: DecodingConfig) -> Iterator[TextDelta]:
        """Checks at once, then generates while the stream is read."""
        self._check(options)
        if isinstance(decoding, Beam):
            raise RegardError("a beam knows what it says only at its end; use generate, or sample or greedy search")
        if options.count > 1 and not decoding.samples:
            raise RegardError(
                f"greedy search writes one text, not {options.count}; draw them (a temperature), or use a beam"
            )
        self.model.eval()
        return stream_texts(
            self.engine, self.symbols, self._stream_requests(options, decoding), self.collate_prompts, self.limit
        )

    def stream_request(self, prompt: str, decoding: DecodingConfig, **options: object) -> StreamedText:
        """One text as a request that joins others (`ContinuousStreams`); options are those of `stream`."""
        own = GenerationOptions.from_kwargs("stream", options | {"prompt": prompt})
        self._check(own)
        return self._stream_requests(own, decoding)[0]

    def _stream_requests(self, options: GenerationOptions, decoding: DecodingConfig) -> list[StreamedText]:
        ids = self._prompt(options, self.limit)
        return [
            StreamedText(
                ids, GenerationRequest(options.max_tokens, n, prompt=tuple(ids)), decoding,
                IncrementalDetokenizer(self.document_encoder.decode, ids, options.stop),
            )
            for n in range(options.count)
        ]  # fmt: skip

    def _beam(self, options: GenerationOptions, decoding: Beam) -> list[Continuation]:
        self._check(options)
        if options.count > decoding.size:
            raise RegardError(
                f"a beam of {decoding.size} has no {options.count} best; raise the beam to {options.count}"
            )
        # a beam does not go past the context, where there is one
        ids = self._prompt(options, self.limit and max(1, self.limit // 2, self.limit - options.max_tokens))
        limit = min(options.max_tokens, max(1, self.limit - len(ids)) if self.limit else options.max_tokens)
        self.model.eval()
        queue = RequestQueue.of(self.collate_prompts([ids]), [limit])
        (hypotheses,) = self.engine.decode(queue, self.symbols, decoding, options.count)
        continuations = []
        for hypothesis in hypotheses:
            detokenizer = IncrementalDetokenizer(self.document_encoder.decode, ids, options.stop)
            for token in hypothesis.tokens:
                if not detokenizer.stopped:
                    detokenizer.add(token)
            how: Ended = "stop" if detokenizer.stopped else "limit" if len(hypothesis.tokens) >= limit else "end"
            continuations.append(Continuation(detokenizer.text, hypothesis.log_probability, how, hypothesis.tokens))
        return continuations

    @staticmethod
    def _check(options: GenerationOptions) -> None:
        if options.count < 1 or options.max_tokens < 1:
            raise RegardError("the number of texts, and that of tokens, must be at least 1")

    def collate_prompts(self, rows: Sequence[Sequence[int]]) -> TextBatch:
        return collate_texts(rows, self.tokenizer.pad).to(self.device)

    def blank_prompts(self, count: int, length: int) -> TextBatch:
        """So many empty prompts; what is read later has its room beside the output's."""
        return self.collate_prompts([[self.tokenizer.bos]] * count)

    def room(self, prompt: int, limit: int) -> int:
        """Positions of a prompt and its continuation."""
        return min(self.limit or prompt + limit, prompt + limit)

    def _prompt(self, options: GenerationOptions, most: int) -> list[int]:
        """The prompt's tokens; the last `most` where there are more, and that is not 0."""
        ids, t, warn = self.document_encoder.prompt(options.prompt), self.tokenizer, options.warn or warn_caller
        if t.unk != t.eos and (unknown := ids.count(t.unk)):  # GPT-2 has one mark for all
            warn(f"unknown to this model: {unknown:,} of the prompt's {len(ids):,} tokens")
        if len(ids) <= most or not most:
            return ids
        room = f"{self.context:,}"
        if most < self.context:
            room = f"{room} less the room for what a beam says, {most:,}"
        problem = f"the prompt has {len(ids):,} tokens, more than the context of {room}"
        if options.strict:
            raise RegardError(f"{problem}; shorten it, or let its last tokens be kept")
        warn(f"{problem}: its last ones are kept")
        return ids[-most:]

    # --- scores ------------------------------------------------------------------------------------------------

    @checked
    def score(self, documents: Sequence[str], window: StridedWindows | None = None) -> list[tuple[float, int]]:
        """For each text, as a document of its own: its log-probability and its tokens, ends of lines included."""
        require_list(documents, "score([text])")
        rows = self.document_encoder.encode_batch([with_newline(text) for text in documents])
        scores = negative_log_likelihoods(
            self.model, rows, window or self.task.sliding_window(self.recipe.model), self._ignored()
        )
        return [(-nll, count) for nll, count in scores]

    def rows(self, documents: Sequence[str]) -> list[np.ndarray]:
        """Documents as tokens; where only a mark stands between them, as one row."""
        rows = [np.array(row, dtype=np.int64) for row in self.document_encoder.encode_batch(documents)]
        return [np.concatenate(rows)] if self.task.boundaries == "marked" else rows

    def total(
        self, rows: Sequence[np.ndarray], window: StridedWindows, progress: Progress | None = None
    ) -> tuple[float, int]:
        """The negative log-likelihood of rows of tokens, and how many they are, what opens a document aside."""
        size = sum(map(len, rows))

        def report(done: int) -> None:
            if progress:
                progress("Measuring", done, size)

        scores = negative_log_likelihoods(self.model, rows, window, self._ignored(), report)
        return sum(nll for nll, _ in scores), sum(count for _, count in scores)

    def _ignored(self) -> int | None:
        """The token that opens a document, which is not predicted."""
        return self.tokenizer.bos if self.document_encoder.opens else None


# --- log-likelihoods ----------------------------------------------------------------------------------------------

Rows = Sequence[Sequence[int] | np.ndarray]


@torch.inference_mode()
def negative_log_likelihoods(
    model: nn.Module,
    rows: Rows,
    window: StridedWindows,
    ignored: int | None = None,
    report: Callable[[int], None] | None = None,
) -> list[tuple[float, int]]:
    """For each row the sum over its tokens but the first, and how many they are; the `ignored` one does not count.

    Every token counts once, in windows that may overlap. `report` receives the number of tokens that are done.
    """
    weight = next(model.parameters())
    entries = len(cast("LanguageModel | LstmLanguageModel", model).output.weight)
    budget = max(window.context, LOGITS.get(weight.device.type, 1 << 25) // entries)
    totals, counts = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64)
    chains = [list(window.windows(n, len(row))) for n, row in enumerate(rows)]
    if not window.memory:
        chains = [[w] for chain in chains for w in chain]

    def compute(some: list[Chain]) -> None:
        found, done = list[tuple[np.ndarray, np.ndarray]](), int(counts.sum())
        for logits, labels, owners in _chain_logits(model, some, rows, window.memory, ignored, weight.device):
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            nll = F.cross_entropy(logits, labels.to(weight.device), reduction="none")
            found.append((owners, nll.double().cpu().numpy()))
            done += len(owners)
            if report:
                report(done)
        for owners, nll_of in found:
            np.add.at(totals, owners, nll_of)
            np.add.at(counts, owners, 1)

    was_training = model.training
    model.eval()
    each_batch(_chain_batches(chains, budget), compute)
    model.train(was_training)
    return list(zip(totals.tolist(), counts.tolist(), strict=True))


Chain = list[TokenWindow]  # windows of a row in their order, each with the memory of those before


def _chain_batches(chains: list[Chain], budget: int) -> Iterator[list[Chain]]:
    """As many at once as the budget has room for. Like lengths are together; those that end first are the last."""
    chains = sorted(chains, key=lambda chain: (-len(chain), chain[0].begin - chain[0].end if chain else 0))
    start = 0
    while start < len(chains) and (longest := chains[start]):
        count = max(1, budget // (longest[0].end - longest[0].begin))
        yield chains[start : start + count]
        start += count


def _chain_logits(
    model: nn.Module, chains: list[Chain], rows: Rows, memory: int, ignored: int | None, device: torch.device
) -> Iterator[tuple[Tensor, Tensor, np.ndarray]]:
    """Logits [N, V], labels [N], and the row that each belongs to, window after window of each chain."""
    carry = cast("LanguageModel", model).empty_carry(len(chains), memory) if memory else {}
    for step in range(len(chains[0])):
        left = [chain[step] for chain in chains if step < len(chain)]
        batch, labels, owners = _windows_batch(left, rows, ignored)
        if memory:
            carry = {name: value[: len(left)] for name, value in carry.items()}
            logits, carry = model(batch.to(device), carry=carry)
            yield logits, labels, owners
        elif len(owners):
            yield model(batch.to(device)), labels, owners


def _windows_batch(
    windows: Sequence[TokenWindow], rows: Rows, ignored: int | None
) -> tuple[TextBatch, Tensor, np.ndarray]:
    """The windows as a batch, its labels, and the row that each of them belongs to."""
    ids, real = RaggedRows.of([rows[w.row][w.begin : w.end] for w in windows]).padded(0)
    targets = RaggedRows.of([rows[w.row][w.begin + 1 : w.end + 1] for w in windows]).padded(0)[0]
    counts = real & (np.arange(ids.shape[1]) >= np.array([w.skip for w in windows])[:, None])
    if ignored is not None:
        counts &= targets != ignored
    owners, labels = np.repeat([w.row for w in windows], counts.sum(1)), torch.from_numpy(targets[counts])
    positions = torch.from_numpy(np.flatnonzero(counts))
    padding = None if real.all() else torch.from_numpy(real)
    return TextBatch(torch.from_numpy(ids), padding, labels=labels, label_positions=positions), labels, owners
