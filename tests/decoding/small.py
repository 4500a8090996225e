"""Small models of every kind, sentences for them, and the plain beam search that others are compared with."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from regard.decoding import Beam, Hypothesis, RequestQueue, Symbols, length_penalty
from regard.decoding.contract import WHOLE_WORDS, GenerationRequest
from regard.decoding.logits_processors import log_probabilities
from regard.models.batch import PairBatch, RaggedRows, collate_sources
from tests.models import test_bytenet, test_conv, test_rnn, test_transformer

SYMBOLS = Symbols(bos=2, eos=3, suppressed=(0, 2))
ENTRIES = 40

MODELS: dict[str, Callable[[], Any]] = {
    "transformer": lambda: test_transformer.build(ENTRIES),
    "shaw": lambda: test_transformer.build(ENTRIES, position={"kind": "relative", "distance": 3}),
    "rotary, window": lambda: test_transformer.build(
        ENTRIES, position={"kind": "rotary"}, attention={"decoder": {"pattern": "window(3)"}}
    ),
    "alibi, pre-norm": lambda: test_transformer.build(ENTRIES, position={"kind": "alibi"}, residual="pre_norm"),
    "learned, compressed": lambda: test_transformer.build(
        ENTRIES,
        position={"kind": "learned", "length": 48},
        attention={"decoder": {"compress": {"kind": "strided_conv"}}, "cross": {"compress": {"kind": "strided_conv"}}},
    ),
    "additive, local": lambda: test_transformer.build(
        ENTRIES, attention={"cross": {"score": "additive", "pattern": "local_p(2)"}}
    ),
    "ssru": lambda: test_transformer.build(ENTRIES, decoder_self="ssru"),
    "average, one layer": lambda: test_transformer.build(ENTRIES, decoder_self="average", decoder_layers=1),
    "rnn, previous": lambda: test_rnn.build(ENTRIES, attends="previous"),
    "rnn, feeding": lambda: test_rnn.build(ENTRIES, attends="current", input_feeding=True, cell="lstm"),
    "conv": lambda: test_conv.build(ENTRIES),
    "bytenet": lambda: test_bytenet.build(ENTRIES),
}


def sentences(count: int, seed: int = 0, longest: int = 11) -> list[np.ndarray]:
    """Longest first."""
    g = np.random.default_rng(seed)
    rows = [g.integers(4, ENTRIES, n) for n in g.integers(1, longest + 1, count)]
    return sorted(rows, key=lambda row: -len(row))


def batch(rows: list[np.ndarray]) -> PairBatch:
    return PairBatch(*collate_sources(RaggedRows.of(rows), 0, 3))


def queue(rows: list[np.ndarray], slots: int, device: str = "cpu") -> RequestQueue:
    return RequestQueue(
        lambda chosen: batch([rows[n] for n in chosen]).to(device),
        [GenerationRequest(2 * len(row) + 5, n) for n, row in enumerate(rows)],
        slots,
        dummy_batch=lambda count, length: PairBatch(torch.full((count, length), 3, device=device), None),
        source_lengths=[len(row) + 1 for row in rows],
    )


def constrained(
    given: RequestQueue, prefixes: Any = (), phrases: Any = (), variants: Any = (), boundaries: Any = WHOLE_WORDS
) -> RequestQueue:
    """With these constraints, of each request in turn."""
    requests = given.requests
    for name, values in (("prefix", prefixes), ("phrases", phrases), ("variants", variants)):
        if values:
            requests = [replace(each, **{name: value}) for each, value in zip(requests, values, strict=True)]
    return replace(given, requests=requests, boundaries=boundaries)


def plain_beam(model: Any, given: PairBatch, limit: int, config: Beam, nbest: int = 1) -> list[Hypothesis]:
    """Beam search for one sentence, a hypothesis at a time; every one is read anew from its beginning."""
    going, ended = [((), 0.0)], []
    count = 0
    for step in range(limit + 1):
        options = []
        for words, score in going:
            state = model.start(given, limit + 2)
            logits, _ = model.step(torch.tensor([[SYMBOLS.bos, *words]]), state)
            logp = log_probabilities(logits[0, -1], SYMBOLS).tolist()
            said = range(len(logp)) if step < limit else [SYMBOLS.eos]
            options += [(score + logp[word], words, word) for word in said if logp[word] > -np.inf]
        options = sorted(options, key=lambda option: -option[0])[: 2 * config.size]
        for score, words, word in options[: config.size]:
            if word == SYMBOLS.eos:
                count += 1
                ended.append(Hypothesis(list(words), score / length_penalty(len(words) + 1, config), score))
        going = [((*words, word), score) for score, words, word in options if word != SYMBOLS.eos][: config.size]
        if count >= config.size or not going:
            break
    return sorted(ended, key=lambda h: -h.score)[:nbest]
