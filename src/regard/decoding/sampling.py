"""Greedy search and sampling: one sequence a request, all of it in tensors. Knows no model: `select` takes logits."""

from collections.abc import Iterable

import torch
from torch import Tensor

from regard.decoding.config import Sample
from regard.decoding.contract import AttentionRecord, GenerationRequest, Hypothesis, Symbols
from regard.decoding.forced_tokens import ForcedEos
from regard.decoding.logits_processors import RepetitionPenalty, random_numbers, sample_tokens
from regard.decoding.scores import log_probabilities, rows_to_host, top_tokens


def greedy_token(logits: Tensor, logp: Tensor, rows: Tensor, step: int) -> Tensor:
    """The most likely token of each row [B]."""
    return logp.argmax(-1)


class TokenSampler:
    """Samples tokens. Row r has random numbers of its own [B, steps], keyed by (seed, keys[r])."""

    def __init__(self, config: Sample, symbols: Symbols, numbers: Tensor, prompts: Tensor) -> None:
        """`prompts` [B, T] are the tokens that the rows have read; the repetition penalty counts them."""
        self.config, self.symbols, self.numbers, self.prompts = config, symbols, numbers, prompts
        self.penalty: RepetitionPenalty | None = None  # made by the first step, which knows the vocabulary

    @staticmethod
    def of(config: Sample, symbols: Symbols, keys: Iterable[int], longest: int, prompts: Tensor) -> "TokenSampler":
        """For at most `longest` tokens a row, and the end."""
        numbers = random_numbers(config.seed, keys, longest + 1).to(prompts.device)
        return TokenSampler(config, symbols, numbers, prompts)

    def __call__(self, logits: Tensor, logp: Tensor, rows: Tensor, step: int | Tensor) -> Tensor:
        """The tokens [B] of these rows at a step, or each at its own, by logits [B, V] and log-probabilities."""
        if self.config.repetition_penalty != 1 and self.penalty is None:
            self.penalty = RepetitionPenalty(self.config.repetition_penalty, self.prompts, logits.shape[-1])
        if self.penalty is not None:
            logp = log_probabilities(self.penalty.apply(logits, rows), self.symbols)
        tokens = sample_tokens(logp, self.config, self.numbers[rows, step])
        if self.penalty is not None:
            self.penalty.add(rows, tokens)
        return tokens


class GreedyPicker:
    """Picks the most likely token of each slot."""

    def __init__(self, symbols: Symbols) -> None:
        self.symbols = symbols

    def begin(self, slots: Tensor, requests: list[GenerationRequest]) -> None: ...

    def reorder(self, index: Tensor) -> None: ...

    def pick(self, logits: Tensor, generated: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens [B] by logits [B, V] after `generated` [B] ones, their log-probabilities, and those of others [B]."""
        best = top_tokens(logits, self.symbols, 1, other[:, None])
        return best.tokens[:, 0], best.logp[:, 0], best.extra[:, 0]


class SamplingPicker(GreedyPicker):
    """Samples a token of each slot; the random numbers depend on the request, not on the slot."""

    def __init__(self, config: Sample, symbols: Symbols, batch_size: int, longest: int, device: torch.device) -> None:
        super().__init__(symbols)
        numbers = torch.zeros(batch_size, longest + 1, dtype=torch.float64, device=device)
        self.sampler = TokenSampler(
            config, symbols, numbers, torch.zeros(batch_size, 0, dtype=torch.long, device=device)
        )

    def begin(self, slots: Tensor, requests: list[GenerationRequest]) -> None:
        sampler = self.sampler
        numbers = random_numbers(sampler.config.seed, (each.key for each in requests), sampler.numbers.shape[1])
        sampler.numbers[slots] = numbers.to(slots.device)
        if sampler.penalty is not None:
            sampler.penalty.reset(slots)

    def reorder(self, index: Tensor) -> None:
        sampler = self.sampler
        sampler.numbers, sampler.prompts = sampler.numbers[index], sampler.prompts[index]
        if sampler.penalty is not None:
            sampler.penalty.reorder(index)

    def pick(self, logits: Tensor, generated: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logp = log_probabilities(logits, self.symbols)
        tokens = self.sampler(logits, logp, torch.arange(len(logits), device=logits.device), generated)
        both = logp.gather(-1, torch.stack([tokens, other], -1))
        return tokens, both[:, 0], both[:, 1]


class SingleSequenceSearch:
    """One hypothesis of each of B sequences, by a picker; done at its end or at its limit."""

    beams = 1

    def __init__(self, picker: GreedyPicker, forced: ForcedEos, batch_size: int, longest: int) -> None:
        self.picker, self.forced = picker, forced
        device = forced.limit.device
        self.done = torch.ones(batch_size, dtype=torch.bool, device=device)
        self.generated = torch.zeros(batch_size, dtype=torch.long, device=device)  # how many tokens
        self.tokens = torch.zeros(batch_size, longest + 1, dtype=torch.long, device=device)
        self.log_probability = torch.zeros(batch_size, dtype=torch.float64, device=device)

    def begin(self, slots: Tensor, requests: list[GenerationRequest]) -> None:
        self.done[slots], self.generated[slots], self.log_probability[slots] = False, 0, 0.0
        self.forced.begin(slots, requests)
        self.picker.begin(slots, requests)

    def select(self, logits: Tensor) -> tuple[Tensor, None]:
        forces, only = self.forced.next(self.generated)
        token, logp, forced_logp = self.picker.pick(logits, self.generated, only)
        token, logp = torch.where(forces, only, token), torch.where(forces, forced_logp, logp)
        self.log_probability = self.log_probability + logp.masked_fill(self.done, 0.0)
        self.done = self.done | (token == self.picker.symbols.eos)
        self.tokens.scatter_(1, self.generated[:, None], token[:, None])  # if it is done, beyond its end
        self.generated = self.generated + ~self.done
        return token, None

    def reorder(self, index: Tensor) -> None:
        self.done, self.generated = self.done[index], self.generated[index]
        self.tokens, self.log_probability = self.tokens[index], self.log_probability[index]
        self.picker.reorder(index)
        self.forced.reorder(index)

    def hypotheses(self, slots: list[int], record: AttentionRecord | None) -> list[list[Hypothesis]]:
        fetched = rows_to_host(slots, self.tokens, self.generated, self.log_probability)
        results = []
        for slot, tokens, length, logp in zip(slots, *(x.tolist() for x in fetched), strict=True):
            attention = None if record is None else record.trace([slot] * (length + 1))
            results.append([Hypothesis(tokens[:length], logp, logp, attention)])
        return results
