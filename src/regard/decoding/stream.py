"""Tokens as they are said, one step of all rows after the other. Takes any model with `start` and `step`, and no text.

Rows begin with prompts of equal length. Where the context is full, a row goes on from the last half of it, which is
read anew: what is said may be longer than what the model sees.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.decoding.contract import Generator, Symbols, log_probabilities

Choose = Callable[[Tensor, Tensor, Tensor, int], Tensor]  # (logits [B, V], logp [B, V], rows [B], step) -> tokens [B]


class Said(NamedTuple):
    row: int
    token: int
    log_probability: float


class Stream:
    def __init__(
        self,
        model: Generator,
        read: Callable[[list[list[int]]], Any],
        prompts: Sequence[Sequence[int]],
        limit: int,
        context: int,
        symbols: Symbols,
        choose: Choose,
    ) -> None:
        """At most `limit` tokens a row, each of which sees at most `context`; `read` makes a batch of rows."""
        self.model, self.read, self.limit, self.context, self.symbols = model, read, limit, context, symbols
        self.choose, self.histories = choose, [list(prompt) for prompt in prompts]
        self.live = list(range(len(prompts)))  # the rows that go on

    def stop(self, row: int) -> None:
        """Nothing more is wanted of this row."""
        self.live = [other for other in self.live if other != row]

    def __iter__(self) -> Iterator[Said]:
        """What each row says, the end included; a row that has ended says nothing more."""
        step, kept = 0, self.context
        while self.live and step < self.limit:
            room = min(self.context - min(kept, len(self.histories[self.live[0]])) + 1, self.limit - step)
            for tokens in self._section(kept, room, step):
                for row, token, logp in tokens:
                    self.histories[row].append(token)
                    if token == self.symbols.eos:
                        self.stop(row)
                    yield Said(row, token, logp)
                step += 1
            kept = max(1, self.context // 2)

    def _section(self, kept: int, room: int, step: int) -> Iterator[list[tuple[int, int, float]]]:
        """As many steps as there is room for behind the last `kept` tokens of every row."""
        rows = list(self.live)
        with torch.inference_mode():
            batch = self.read([self.histories[row][-kept:] for row in rows])
            state, last = self.model.start(batch, room), batch.first_tokens(self.symbols.bos)  # [B, 1]
        for number in range(step, step + room):
            with torch.inference_mode():
                logits, state = self.model.step(last, state)
                logp = log_probabilities(logits[:, -1], self.symbols)
                token = self.choose(logits[:, -1], logp, torch.tensor(rows, device=logp.device), number)
                chances = logp.gather(-1, token[:, None])[:, 0].tolist()
            yield list(zip(rows, token.tolist(), chances, strict=True))
            alive = [n for n, row in enumerate(rows) if row in self.live]
            if not alive:
                return
            with torch.inference_mode():
                if len(alive) < len(rows):
                    index = torch.tensor(alive, device=token.device)
                    state.reorder(index)
                    rows, token = [rows[n] for n in alive], token[index]
                last = token[:, None]
