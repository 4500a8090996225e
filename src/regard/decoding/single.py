"""One sequence a row: greedy choice and sampling."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.decoding.config import Greedy, Sample
from regard.decoding.contract import Generator, Hypothesis, Symbols, log_probabilities
from regard.decoding.shape import Drawn, likeliest

Choose = Callable[[Tensor, Tensor, Tensor, int], Tensor]  # (logits [B, V], logp [B, V], rows [B], step) -> tokens [B]


def greedy_search(
    model: Generator, batch: Any, limits: list[int], symbols: Symbols, config: Greedy, record: Any = None
) -> list[Hypothesis]:
    """The likeliest next word, again and again."""
    return _generate(model, batch, limits, symbols, likeliest, record)


def sample(
    model: Generator,
    batch: Any,
    limits: list[int],
    symbols: Symbols,
    config: Sample,
    keys: list[int] | None = None,
    record: Any = None,
) -> list[Hypothesis]:
    """Draw each word. Row r has a stream of its own, keyed by (seed, keys[r]), so that batching changes nothing."""
    keys = keys if keys is not None else list(range(len(limits)))
    read = getattr(batch, "ids", torch.empty(len(limits), 0, dtype=torch.long, device=batch.device))  # of a prompt
    return _generate(model, batch, limits, symbols, Drawn(config, symbols, keys, max(limits), read), record)


@torch.inference_mode()
def _generate(
    model: Generator, batch: Any, limits: list[int], symbols: Symbols, choose: Choose, record: Any
) -> list[Hypothesis]:
    state = model.start(batch, max(limits) + 1, record)
    device = batch.device
    rows = torch.arange(len(limits), device=device)  # which sentence each live row is
    limit = torch.tensor(limits, device=device)
    last = batch.first(symbols.bos)  # [B, 1]
    said: list[list[int]] = [[] for _ in limits]
    seen: list[dict[str, Tensor] | None] = [None for _ in limits]
    total = torch.zeros(len(limits), dtype=torch.float64, device=device)
    for step in range(max(limits) + 1):
        logits, state = model.step(last, state)
        logp = log_probabilities(logits[:, -1], symbols)
        token = choose(logits[:, -1], logp, rows, step)
        token = torch.where(limit[rows] <= step, symbols.eos, token)  # the limit is reached: end here
        total[rows] += logp.gather(-1, token[:, None])[:, 0].double()
        for at, (row, word) in enumerate(zip(rows.tolist(), token.tolist(), strict=True)):
            if word != symbols.eos:
                said[row].append(word)
            elif record is not None:
                seen[row] = record.row(at)
        alive = (token != symbols.eos).nonzero()[:, 0]
        if not len(alive):
            break
        if len(alive) < len(rows):
            state.reorder(alive)
            rows, token = rows[alive], token[alive]
        last = token[:, None]
    return [Hypothesis(*made) for made in zip(said, total.tolist(), total.tolist(), seen, strict=True)]
