"""The searches as functions over one batch."""

from typing import Any

from regard.decoding import Beam, Engine, Generator, Greedy, Hypothesis, RequestQueue, Sample, Symbols


def beam_search(
    model: Generator, batch: Any, limits: list[int], symbols: Symbols, config: Beam, nbest: int = 1, record: Any = None
) -> list[list[Hypothesis]]:
    """For every row of the batch, its `nbest` best sequences (at most `config.size`), best first."""
    return Engine(model).decode(RequestQueue.of(batch, limits), symbols, config, nbest, record)


def greedy_search(
    model: Generator, batch: Any, limits: list[int], symbols: Symbols, config: Greedy, record: Any = None
) -> list[Hypothesis]:
    """The likeliest next word, again and again."""
    return [found[0] for found in Engine(model).decode(RequestQueue.of(batch, limits), symbols, config, 1, record)]


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
    return [
        found[0] for found in Engine(model).decode(RequestQueue.of(batch, limits, keys), symbols, config, 1, record)
    ]
