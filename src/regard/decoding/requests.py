"""Requests that wait to be decoded, and the search that they ask for. Knows no model."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain

import torch

from regard.accel.decoding_graph import bucket
from regard.decoding.beam import BeamSearch
from regard.decoding.config import Beam, DecodingConfig, Sample, Speculative
from regard.decoding.constrained_beam import ConstrainedBeamSearch, unsatisfiable
from regard.decoding.contract import WHOLE_WORDS, GenerationRequest, InputBatch, Search, Symbols, WordBoundaries
from regard.decoding.logits_processors import ForcedEos, ForcedPrefix
from regard.decoding.sampling import GreedyPicker, SamplingPicker, SingleSequenceSearch
from regard.errors import RegardError

Collate = Callable[[list[int]], InputBatch]  # a batch of requests, by their ids


def no_callback(count: int) -> None:
    """Ignores how many requests are done."""


@dataclass
class RequestQueue:
    """Requests that wait, longest first; their ids are their numbers in the queue."""

    collate: Collate
    requests: list[GenerationRequest]
    slots: int  # how many are decoded at once
    dummy_batch: Callable[[int, int], InputBatch] | None = None  # a batch of a given number and length
    source_lengths: list[int] = field(default_factory=list)  # of each, where `dummy_batch` is given
    on_done: Callable[[int], None] = no_callback  # receives how many more are done
    boundaries: WordBoundaries = WHOLE_WORDS  # phrases are not met inside a word
    whole: bool = False  # whether `collate` knows one batch alone, so that all its requests begin together

    @staticmethod
    def of(batch: InputBatch, limits: list[int], keys: list[int] | None = None) -> "RequestQueue":
        """One batch, all of it at once."""
        requests = [GenerationRequest(limit, keys[n] if keys else n) for n, limit in enumerate(limits)]
        return RequestQueue(lambda rows: batch, requests, len(requests), whole=True)


@dataclass(frozen=True)
class SearchSpec:
    """How to search, and room for constraints; batches in fixed storage serve the same spec again."""

    symbols: Symbols
    config: DecodingConfig
    nbest: int = 1
    longest_prefix: int = 0
    phrases: int = 0  # the most that a request has, all variants counted
    longest_phrase: int = 0
    boundaries: WordBoundaries = WHOLE_WORDS
    longest_prompt: int = 0  # of those that a repetition penalty counts
    longest_lookup: int = 0  # of those among which a draft of n-grams looks

    @staticmethod
    def of(queue: RequestQueue, symbols: Symbols, config: DecodingConfig, nbest: int = 1) -> "SearchSpec":
        """For these requests; an error names what cannot be done."""
        for n, request in enumerate(queue.requests):
            prefix = request.prefix
            if len(prefix) > request.limit or {symbols.eos, *symbols.suppressed} & set(prefix):
                tokens = " ".join(map(str, prefix))
                raise RegardError(
                    f"sentence {n + 1} cannot begin with the tokens {tokens}; its limit is {request.limit}"
                )
            if bad := unsatisfiable(request, symbols, queue.boundaries):
                tokens = " ".join(map(str, request.phrases[bad[0]]))
                raise RegardError(f"phrase {bad[0] + 1} of sentence {n + 1} (tokens {tokens}) cannot appear: {bad[1]}")
        phrases = [list(chain.from_iterable(request.phrase_variants())) for request in queue.requests]
        if any(phrases) and not isinstance(config, Beam):
            raise RegardError("phrases that must appear need a beam search")
        longest_prefix, count = max(len(request.prefix) for request in queue.requests), max(map(len, phrases))
        longest_phrase = max(map(len, chain.from_iterable(phrases)), default=0)
        longest_prompt = max(len(request.prompt) for request in queue.requests)
        lookup = 0
        if isinstance(config, Speculative) and config.draft == "ngrams":
            lookup = bucket(max(len(request.lookup or request.prompt) for request in queue.requests))
        return SearchSpec(
            symbols, config, nbest, longest_prefix, count, longest_phrase, queue.boundaries, longest_prompt, lookup
        )

    def build(self, batch_size: int, longest: int, device: torch.device) -> Search:
        config, symbols = self.config, self.symbols
        if search := config.build_search(self, batch_size, longest, device):
            return search
        forced = self.forced(batch_size, device)
        if isinstance(config, Beam):
            if not self.phrases:
                return BeamSearch(config, symbols, forced, batch_size, longest, self.nbest)
            constraints = self.phrases, self.longest_phrase, self.boundaries
            return ConstrainedBeamSearch(config, symbols, forced, batch_size, longest, self.nbest, *constraints)
        picker = GreedyPicker(symbols)
        if isinstance(config, Sample):
            picker = SamplingPicker(config, symbols, batch_size, longest, self.longest_prompt, device)
        return SingleSequenceSearch(picker, forced, batch_size, longest)

    def forced(self, batch_size: int, device: torch.device) -> ForcedEos:
        eos = self.symbols.eos
        if self.longest_prefix:
            return ForcedPrefix(eos, batch_size, device, self.longest_prefix)
        return ForcedEos(eos, batch_size, device)
