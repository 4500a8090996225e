"""Chat: the reply to a history of turns, at once or as a stream; and the metrics of replies."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor, nn

from regard.decoding import Beam, DecodingConfig, GenerationRequest, Generator, Greedy, RequestQueue, Symbols
from regard.errors import RegardError, require_list
from regard.evaluation.metrics import Metric, distinct, own_metrics, perplexity, text_metrics
from regard.examples.batching import by_length, each_batch
from regard.examples.dialogues import DialogueEncoder, dialogue_format
from regard.examples.recipe_like import RecipeLike
from regard.models.batch import PairBatch, TextBatch
from regard.nn.record import AttentionRecorder
from regard.predict.base import Predictor
from regard.predict.options import ReplyOptions
from regard.predict.text_stream import IncrementalDetokenizer, StreamedText, stream_texts
from regard.reporting import Progress
from regard.text import Tokenizer

if TYPE_CHECKING:
    from regard.tasks.chat import ChatConfig


@dataclass(frozen=True)
class Reply:
    text: str
    log_probability: float  # of its tokens, and of its end
    tokens: list[int] = field(default_factory=list, repr=False)


class ChatPredictor(Predictor):
    """`regard.load(folder)` returns this for a model of the task chat."""

    limit = 0  # of a context: prompts are cut so that a reply fits behind them

    def __init__(self, model: nn.Module, dialogue_encoder: DialogueEncoder, recipe: RecipeLike) -> None:
        super().__init__(model, recipe)
        self.task = cast("ChatConfig", recipe.task)
        self.dialogue_encoder, self.tokenizer = dialogue_encoder, dialogue_encoder.tokenizer
        t = self.tokenizer
        self.form = dialogue_format(self.task, recipe.model.kind, t)
        self.symbols = Symbols(t.bos, t.eos, tuple({t.pad, t.bos} - {t.eos}))

    @property
    def tokenizers(self) -> dict[str, Tokenizer]:
        return {"": self.tokenizer}

    # --- replies -----------------------------------------------------------------------------------------------

    def reply(self, history: Sequence[str], **options: object) -> str:
        """The reply to these turns, of which the last is the other's; of a long history the end is read.

        Options (`ReplyOptions`): temperature, top_k, top_p, min_p, repetition_penalty, seed; greedy (True) or beam (a
        size); max_tokens; `decoding`, a whole search. Without them the recipe says how.
        """
        decoding = ReplyOptions.from_kwargs("reply", options).decoding_config(self.recipe.decoding)
        return self.replies([history], decoding, keys=[len(history)])[0].text

    def stream(self, history: Sequence[str], **options: object) -> Iterator[str]:
        """The same, piece by piece as it is generated; a beam gives it all at once."""
        decoding = ReplyOptions.from_kwargs("stream", options).decoding_config(self.recipe.decoding)
        if isinstance(decoding, Beam):
            return iter([self.replies([history], decoding)[0].text])
        request = self.stream_request(history, decoding)
        self.model.eval()
        deltas = stream_texts(self.engine, self.symbols, [request], self.collate_prompts)
        return (delta.text for delta in deltas if delta.text)

    def stream_request(self, history: Sequence[str], decoding: DecodingConfig) -> StreamedText:
        """The reply as a request that joins others (`ContinuousStreams`); only its own tokens are penalised."""
        prompt, limit = self.encode_history(history, decoding)
        detokenizer = IncrementalDetokenizer(self.dialogue_encoder.decode, [])
        request = GenerationRequest(limit, len(history), lookup=tuple(prompt))
        return StreamedText(prompt, request, decoding, detokenizer)

    def replies(
        self,
        histories: Sequence[Sequence[str]],
        decoding: DecodingConfig | None = None,
        keys: Sequence[int] | None = None,
        progress: Progress | None = None,
        batch_tokens: int = 32768,
    ) -> list[Reply]:
        """One for each history, in batches; keys name them, by which random draws are told apart."""
        decoding = decoding or self.recipe.decoding
        prompts = [self.encode_history(history, decoding) for history in histories]
        keys = list(range(len(prompts))) if keys is None else list(keys)
        replies: list[Reply] = [Reply("", 0.0)] * len(prompts)
        done, beams = 0, decoding.size if isinstance(decoding, Beam) else 1
        with self.eval_mode():
            for rows in by_length([len(ids) + limit for ids, limit in prompts], batch_tokens // beams):
                queue = RequestQueue(
                    lambda chosen, rows=rows: self.collate_prompts([prompts[rows[n]][0] for n in chosen]),  # type: ignore[misc]
                    [GenerationRequest(prompts[n][1], keys[n], lookup=tuple(prompts[n][0])) for n in rows],
                    len(rows),
                )
                for n, (best, *_) in zip(rows, self.engine.decode(queue, self.symbols, decoding), strict=True):
                    text = self.dialogue_encoder.decode(best.tokens).strip()
                    replies[n] = Reply(text, best.log_probability, best.tokens)
                done += len(rows)
                if progress:
                    progress("Replying", done, len(prompts))
        return replies

    def encode_history(self, history: Sequence[str], decoding: DecodingConfig) -> tuple[list[int], int]:
        """The tokens of a history that are read, and how many the reply may have."""
        require_list(history, "reply([text])", "turns")
        turns = [turn for text in history if (turn := self.task.reader.normalise_turn(text))]
        if not turns and self.task.learn == "replies":
            raise RegardError("nothing was said yet: this model has learned to reply, not to begin")
        ids = self.dialogue_encoder.encode_batch(["\n".join(turns[-(self.task.history or len(turns)) :])])[0]
        return self.form.prompt(ids, decoding.limit(self.task.length))

    def collate_prompts(self, prompts: Sequence[Sequence[int]]) -> PairBatch | TextBatch:
        return self.form.collate_prompts(prompts).to(self.device)

    def blank_prompts(self, count: int, length: int) -> PairBatch | TextBatch:
        """So many prompts of the shape in which others can take their slots."""
        return self.collate_prompts([self.form.blank_prompt(length)] * count)

    def room(self, prompt: int, limit: int) -> int:
        """Positions after such a blank prompt, for replies of so many tokens."""
        return self.form.room(prompt, limit)

    # --- attention ---------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def attention(self, history: Sequence[str], reply: str) -> tuple[list[str], list[str], Tensor]:
        """Pieces of the history, pieces of the reply, and the attention of these to those [T, S].

        The mean over layers and heads, of the weights of the history's words: marks are left out, rows sum to 1.
        """
        t, target = self.tokenizer, self.tokenizer.encode(self.task.reader.normalise_turn(reply))
        prompt, _ = self.encode_history(history, Greedy(max_ratio=0.0, max_extra=len(target) + 1))
        record, model = AttentionRecorder(("cross", "decoder")), cast(Generator, self.model)
        with self.eval_mode():
            batch = self.collate_prompts([prompt])
            state = model.start(batch, len(target) + 1, record)
            record.mark_prefill()
            tokens = torch.cat(
                [batch.first_tokens(t.bos), torch.tensor([target], dtype=torch.long, device=self.device)], 1
            )
            model.step(tokens, state)
        layers = record.layers("cross") or record.layers("decoder")
        if not layers:
            raise RegardError(f"the model {self.recipe.model.kind} has no attention to look at")
        weights = torch.stack(layers).mean((0, 2))[0].float().cpu()  # [Q, K]
        weights = weights[-tokens.shape[1] : -1, : len(prompt)]  # of the positions that predict the reply's words
        marks = [n for n, token in enumerate(prompt) if token in t.special.values() and token != t.unk]
        weights[:, marks] = 0.0
        return t.shown(prompt), t.shown(target), weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)

    # --- metrics -----------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def negative_log_likelihood(
        self, dialogues: Sequence[Sequence[str]], batch_tokens: int = 8192
    ) -> tuple[float, int]:
        """Of all that the task learns of these dialogues, and how many tokens that is."""
        examples = self.form.examples(self.dialogue_encoder.encode_rows(["\n".join(turns) for turns in dialogues]))
        view = self.form.view(examples, np.arange(len(examples.row)))
        total, count = 0.0, 0

        def compute(rows: np.ndarray) -> None:
            nonlocal total, count
            total += float(self.model(view.collate(rows).to(self.device), None, 0.0))
            count += view.targets(rows)

        with self.eval_mode():
            each_batch(view.plan(batch_tokens, 0, 0), compute)
        return total, count

    def metrics(
        self, dialogues: Sequence[Sequence[str]], decoding: DecodingConfig | None, progress: Progress | None = None
    ) -> dict[str, Metric]:
        """Loss and perplexity of a token of a reply; with a search, BLEU and diversity of the generated replies."""
        nll, count = self.negative_log_likelihood(dialogues)
        metrics = {
            "loss": Metric("loss", nll / max(count, 1)),
            "perplexity": Metric("perplexity", perplexity(nll, count)),
        }
        if decoding is None:
            return metrics
        pairs = [(turns[:n], turns[n]) for turns in dialogues for n in range(1, len(turns))]
        outputs = [reply.text for reply in self.replies([history for history, _ in pairs], decoding, progress=progress)]
        settings = self.task.language, self.recipe.evaluation.tokenise
        references, histories = [reply for _, reply in pairs], ["\n".join(history) for history, _ in pairs]
        metrics |= text_metrics(outputs, references, *settings, full=False) | distinct(outputs, *settings)
        return metrics | own_metrics(self.recipe.evaluation.metrics, outputs, references, histories)
