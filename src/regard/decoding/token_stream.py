"""Streams of tokens, one step of all rows after the other. Takes any model with `start` and `step`; knows no text.

Rows begin with prompts of equal length. Where the context is full, a row continues from the last half of it, which is
read anew: the output may be longer than what the model sees.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.decoding.contract import Generator, InputBatch, Symbols
from regard.decoding.scores import log_probabilities

PickTokens = Callable[[Tensor, Tensor, Tensor, int], Tensor]  # (logits [B, V], logp [B, V], rows [B], step): tokens [B]


class StreamedToken(NamedTuple):
    row: int
    token: int
    log_probability: float


class TokenStream:
    def __init__(
        self,
        model: Generator,
        collate: Callable[[list[list[int]]], InputBatch],
        prompts: Sequence[Sequence[int]],
        limit: int,
        context: int,
        symbols: Symbols,
        pick: PickTokens,
    ) -> None:
        """At most `limit` tokens a row, each of which sees at most `context`; `collate` makes a batch of rows."""
        self.model, self.collate, self.limit, self.context, self.symbols = model, collate, limit, context, symbols
        self.pick, self.histories = pick, [list(prompt) for prompt in prompts]
        self.active = list(range(len(prompts)))  # the rows that have not ended

    def stop(self, row: int) -> None:
        """End this row."""
        self.active = [other for other in self.active if other != row]

    def __iter__(self) -> Iterator[StreamedToken]:
        """The tokens of each row, the end included."""
        step, kept = 0, self.context
        while self.active and step < self.limit:
            room = min(self.context - min(kept, len(self.histories[self.active[0]])) + 1, self.limit - step)
            for tokens in self._section(kept, room, step):
                for streamed in tokens:
                    self.histories[streamed.row].append(streamed.token)
                    if streamed.token == self.symbols.eos:
                        self.stop(streamed.row)
                    yield streamed
                step += 1
            kept = max(1, self.context // 2)

    def _section(self, kept: int, room: int, step: int) -> Iterator[list[StreamedToken]]:
        """As many steps as there is room for behind the last `kept` tokens of every row."""
        rows = list(self.active)
        with torch.inference_mode():
            batch = self.collate([self.histories[row][-kept:] for row in rows])
            state, last = self.model.start(batch, room), batch.first_tokens(self.symbols.bos)  # [B, 1]
        for number in range(step, step + room):
            with torch.inference_mode():
                logits, state = self.model.step(last, state)
                logp = log_probabilities(logits[:, -1], self.symbols)
                tokens = self.pick(logits[:, -1], logp, torch.tensor(rows, device=logp.device), number)
                chances = logp.gather(-1, tokens[:, None])[:, 0].tolist()
            yield [StreamedToken(*each) for each in zip(rows, tokens.tolist(), chances, strict=True)]
            active = [n for n, row in enumerate(rows) if row in self.active]
            if not active:
                return
            with torch.inference_mode():
                if len(active) < len(rows):
                    index = torch.tensor(active, device=tokens.device)
                    state.reorder(index)
                    rows, tokens = [rows[n] for n in active], tokens[index]
                last = tokens[:, None]
