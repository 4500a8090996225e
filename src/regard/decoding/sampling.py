"""Greedy search and sampling: one sequence a request, all of it in tensors. Knows no model: `select` takes logits."""

import torch
from torch import Tensor

from regard.decoding.config import Sample
from regard.decoding.contract import AttentionRecord, GenerationRequest, Hypothesis, Symbols
from regard.decoding.logits_processors import (
    ForcedEos,
    log_probabilities,
    penalise_repetition,
    random_numbers,
    rows_to_host,
    sample_tokens,
    top_tokens,
)


class GreedyPicker:
    """Picks the most likely token of each slot."""

    columns: Tensor | None = None  # tokens that logits are of; None: all

    def __init__(self, symbols: Symbols) -> None:
        self.symbols = symbols

    def begin(self, slots: Tensor, requests: list[GenerationRequest]) -> None: ...

    def reorder(self, index: Tensor) -> None: ...

    def pick(self, logits: Tensor, generated: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens [B] by logits [B, V] after `generated` [B] ones, their log-probabilities, and those of others [B]."""
        best = top_tokens(logits, self.symbols, 1, other[:, None], self.columns)
        return best.tokens[:, 0], best.logp[:, 0], best.extra[:, 0]


class SamplingPicker(GreedyPicker):
    """Samples a token of each slot; the random numbers depend on the request, not on the slot."""

    draws = 1  # random numbers for each place of the output

    def __init__(
        self, config: Sample, symbols: Symbols, batch_size: int, longest: int, longest_prompt: int, device: torch.device
    ) -> None:
        super().__init__(symbols)
        self.config, self.longest_prompt = config, longest_prompt
        self.numbers = torch.zeros(batch_size, longest + 1, self.draws, dtype=torch.float64, device=device)
        width = 0 if config.repetition_penalty == 1 else longest_prompt + longest + 1
        self.seen = torch.full((batch_size, width), -1, device=device)  # the prompt, then what was sampled; -1: none

    def begin(self, slots: Tensor, requests: list[GenerationRequest]) -> None:
        keys = [(self.config.seed if each.seed is None else each.seed, each.key) for each in requests]
        numbers = random_numbers(keys, self.numbers[0].numel()).unflatten(1, (-1, self.draws))
        self.numbers[slots] = numbers.to(slots.device)
        if width := self.seen.shape[1]:
            prompts = [each.prompt[-self.longest_prompt :] if self.longest_prompt else () for each in requests]
            seen = [[*prompt, *[-1] * (width - len(prompt))] for prompt in prompts]
            self.seen[slots] = torch.tensor(seen, device=slots.device)

    def reorder(self, index: Tensor) -> None:
        self.numbers, self.seen = self.numbers[index], self.seen[index]

    def numbers_at(self, place: Tensor) -> Tensor:
        """The random numbers [B, draws] for places [B] of the output."""
        return self.numbers.gather(1, place[:, None, None].expand(-1, 1, self.draws))[:, 0]

    def score(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities [B, V] as the model says, and under the repetition penalty."""
        logp = log_probabilities(logits, self.symbols)
        if not self.seen.shape[1]:
            return logp, logp
        penalised = penalise_repetition(logits, self.seen, self.config.repetition_penalty)
        return logp, log_probabilities(penalised, self.symbols)

    def pick(self, logits: Tensor, generated: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logp, penalised = self.score(logits)
        tokens = sample_tokens(penalised, self.config, self.numbers_at(generated)[:, 0])
        if self.seen.shape[1]:
            self.seen.scatter_(1, self.longest_prompt + generated[:, None], tokens[:, None])
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

    def use_columns(self, columns: Tensor | None) -> None:
        self.picker.columns = columns

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

    def newest(self, tokens: Tensor) -> Tensor:
        """The tokens of the last step, which are read next [B, 1], with the log-probability up to each [B, 1, 2]."""
        return torch.stack([tokens.double(), self.log_probability[:, None]], -1)

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
