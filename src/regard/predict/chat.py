"""A model that talks: a history in, a reply out, at once or as it is being said; and how good its replies are."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np
import torch
from torch import Tensor, nn

from regard.decoding import Beam, DecodingConfig, Drawn, Engine, Feed, Generator, Greedy, Sample, Symbols, likeliest
from regard.decoding.stream import Stream
from regard.errors import RegardError, listed
from regard.evaluation.metrics import Metric, distinct, perplexity, text_metrics
from regard.examples.batching import by_length
from regard.examples.dialogues import DialogueEncoder, dialogue_format
from regard.examples.recipe_like import RecipeLike
from regard.nn.record import Record
from regard.predict.arguments import checked
from regard.predict.detokenizer import Speech
from regard.predict.options import SearchOptions, asked
from regard.reporting import Progress

if TYPE_CHECKING:
    from regard.tasks.chat import ChatConfig


@dataclass(frozen=True)
class Reply:
    text: str
    log_probability: float  # of its tokens, and of its end
    tokens: list[int] = field(default_factory=list, repr=False)


class ReplyOptions(SearchOptions, total=False):
    """What `reply` and `stream` may be told besides the history."""

    decoding: DecodingConfig | None  # a whole search
    max_tokens: int | None


class Talker:
    """`regard.load(folder)` gives one of these for a model of the task chat."""

    def __init__(self, model: nn.Module, turns: DialogueEncoder, recipe: RecipeLike) -> None:
        self.model, self.turns, self.recipe = model, turns, recipe
        self.task = cast("ChatConfig", recipe.task)
        t = self.tokenizer = turns.tokenizer
        self.form = dialogue_format(self.task, recipe.model.kind, t)
        self.symbols = Symbols(t.bos, t.eos, tuple({t.pad, t.bos} - {t.eos}))

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    # --- talking -----------------------------------------------------------------------------------------------

    @checked
    def reply(self, history: Sequence[str], **options: Unpack[ReplyOptions]) -> str:
        """What it says when these turns were said, the last of them by the other; of a long history the end is read.

        Options: temperature, top_k, top_p, min_p, repetition_penalty, seed; greedy (True) or beam (a size);
        max_tokens; `decoding`, a whole search. What is not said is as in the recipe.
        """
        return self.replies([history], self.search(**options), keys=[len(history)])[0].text

    @checked
    def stream(self, history: Sequence[str], **options: Unpack[ReplyOptions]) -> Iterator[str]:
        """The same, piece by piece as it is being said; a beam says it all at once."""
        decoding = self.search(**options)
        if isinstance(decoding, Beam):
            return iter([self.replies([history], decoding)[0].text])
        return self._stream(*self._prompt(history, decoding), decoding, len(history))

    def _stream(self, prompt: list[int], limit: int, decoding: DecodingConfig, key: int) -> Iterator[str]:
        choose: Any = likeliest
        if isinstance(decoding, Sample):  # as in `replies`, only the reply's own words become less likely
            nothing = torch.zeros(1, 0, dtype=torch.long, device=self.device)
            choose = Drawn(decoding, self.symbols, [key], limit, nothing)
        self.model.eval()
        context = len(prompt) + limit + 1  # it is read once
        model = cast(Generator, self.model)
        stream = Stream(model, self._read, [prompt], limit, context, self.symbols, choose)
        speech = Speech(self.turns.decode, [])
        for _, token, _ in stream:
            if piece := speech.add(token) if token != self.symbols.eos else "":
                yield piece
        yield speech.rest()

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
        prompts = [self._prompt(history, decoding) for history in histories]
        keys = list(range(len(prompts))) if keys is None else list(keys)
        found: list[Reply] = [Reply("", 0.0)] * len(prompts)
        engine, done, was_training = Engine(cast(Generator, self.model)), 0, self.model.training
        self.model.eval()
        width = decoding.size if isinstance(decoding, Beam) else 1
        for rows in by_length([len(ids) + limit for ids, limit in prompts], batch_tokens // width):
            feed = Feed.of(
                self._read([prompts[n][0] for n in rows]), [prompts[n][1] for n in rows], [keys[n] for n in rows]
            )
            for n, (best, *_) in zip(rows, engine.decode(feed, self.symbols, decoding), strict=True):
                found[n] = Reply(self.turns.decode(best.tokens).strip(), best.log_probability, best.tokens)
            done += len(rows)
            if progress:
                progress("Replying", done, len(prompts))
        self.model.train(was_training)
        return found

    def search(
        self,
        decoding: DecodingConfig | None = None,
        greedy: bool = False,
        beam: int | None = None,
        max_tokens: int | None = None,
        **drawn: Any,
    ) -> DecodingConfig:
        """The recipe's search, with what is said of it; one key of sampling is enough to sample."""
        base = decoding or self.recipe.decoding
        if max_tokens is not None:
            if max_tokens < 1:
                raise RegardError(f"max_tokens must be at least 1, not {max_tokens}")
            base = replace(base, max_ratio=0.0, max_extra=max_tokens)
        return asked(base, drawn, greedy, beam)

    def _prompt(self, history: Sequence[str], decoding: DecodingConfig) -> tuple[list[int], int]:
        """What is read of a history, and how many tokens may be said."""
        listed(history, "reply([text])", "turns")
        turns = [turn for text in history if (turn := self.task.reader.turn(text))]
        if not turns and self.task.learn == "replies":
            raise RegardError("nothing was said yet: this model has learned to reply, not to begin")
        ids = self.turns.encode_batch(["\n".join(turns[-(self.task.history or len(turns)) :])])[0]
        return self.form.prompt(ids, decoding.limit(self.task.length))

    def _read(self, prompts: list[list[int]]) -> Any:
        return self.form.collate_prompts(prompts).to(self.device)

    # --- looking -----------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def attention(self, history: Sequence[str], reply: str) -> tuple[list[str], list[str], Tensor]:
        """Pieces of the history, pieces of the reply, and how much each of these looked at each of those [T, S].

        The mean over layers and heads, of what goes to the words of the history: marks are left out, rows sum to 1.
        """
        t, said = self.tokenizer, self.tokenizer.encode(self.task.reader.turn(reply))
        prompt, _ = self._prompt(history, Greedy(max_ratio=0.0, max_extra=len(said) + 1))
        record, was_training = Record(("cross", "decoder")), self.model.training
        self.model.eval()
        batch = self.form.collate_prompts([prompt]).to(self.device)
        state = cast(Any, self.model).start(batch, len(said) + 1, record)
        record.begin()
        tokens = torch.cat([batch.first(t.bos), torch.tensor([said], dtype=torch.long, device=self.device)], 1)
        cast(Any, self.model).step(tokens, state)
        self.model.train(was_training)
        layers = record.layers("cross") or record.layers("decoder")
        if not layers:
            raise RegardError(f"the model {self.recipe.model.kind} has no attention to look at")
        weights = torch.stack(layers).mean((0, 2))[0].float().cpu()  # [Q, K]
        weights = weights[-tokens.shape[1] : -1, : len(prompt)]  # of the places that say the reply's words
        marks = [n for n, token in enumerate(prompt) if token in t.special.values() and token != t.unk]
        weights[:, marks] = 0.0
        return t.shown(prompt), t.shown(said), weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)


# --- measuring -----------------------------------------------------------------------------------------------------


@torch.inference_mode()
def forced(talker: Talker, dialogues: Sequence[Sequence[str]], batch_tokens: int = 8192) -> tuple[float, int]:
    """The negative log-likelihood of all that the task learns of these dialogues, and how many tokens that is."""
    examples = talker.form.examples(talker.turns.encode_rows(["\n".join(turns) for turns in dialogues]))
    view: Any = talker.form.view(examples, np.arange(len(examples.row)))
    model, was_training, total, count = talker.model, talker.model.training, 0.0, 0
    model.eval()
    for rows in view.plan(batch_tokens, 0, 0):
        total += float(model(view.collate(rows).to(talker.device), None, 0.0))
        count += view.targets(rows)
    model.train(was_training)
    return total, count


def measure(
    talker: Talker,
    dialogues: Sequence[Sequence[str]],
    decoding: DecodingConfig | None,
    progress: Progress | None = None,
) -> dict[str, Metric]:
    """Loss and perplexity of a token of a reply; with a search, BLEU of what is said in its place, and its variety."""
    nll, count = forced(talker, dialogues)
    found = {"loss": Metric("loss", nll / max(count, 1)), "perplexity": Metric("perplexity", perplexity(nll, count))}
    if decoding is None:
        return found
    given = [(turns[:n], turns[n]) for turns in dialogues for n in range(1, len(turns))]
    outputs = [reply.text for reply in talker.replies([history for history, _ in given], decoding, progress=progress)]
    asked = talker.task.language, talker.recipe.evaluation.tokenise
    found |= text_metrics(outputs, [reply for _, reply in given], *asked, full=False)
    return found | distinct(outputs, *asked)
