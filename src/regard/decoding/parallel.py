"""Parallel decoding, blockwise and speculative: a draft guesses tokens, one step of the model checks them all.

What is wrong is taken back: a row's position goes back, and what lies beyond is overwritten. Every size is fixed and
all is decided on the device, so that the step can be a CUDA graph; the host learns lengths later.
"""

from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.decoding.config import Blockwise, DecodingConfig, Sample, Speculative
from regard.decoding.contract import DecodingState, GenerationRequest, Generator, Symbols
from regard.decoding.drafts import BlockReader, Draft, Guesses, HeadsDraft, LayersDraft, ModelDraft, NgramDraft
from regard.decoding.ensemble import EnsembleState
from regard.decoding.logits_processors import (
    ForcedEos,
    draw_token,
    log_probabilities,
    sampling_distribution,
    top_tokens,
)
from regard.decoding.requests import SearchSpec
from regard.decoding.sampling import GreedyPicker, SamplingPicker, SingleSequenceSearch
from regard.decoding.slots import DecodingStep
from regard.errors import RegardError
from regard.models.state import DecoderState
from regard.reporting import Json

NO_LIMIT = 1 << 40
Checked = tuple[Tensor, Tensor, Tensor]  # a block [B, T], its log-probabilities [B, T], how many guesses are right [B]


class GreedyCheck(GreedyPicker):
    """Keeps guesses that are the likeliest token, or near it; the first that is not becomes the likeliest."""

    def __init__(self, symbols: Symbols, rule: str = "exact", number: int | None = None) -> None:
        super().__init__(symbols)
        self.rule, self.number = rule, number or 1

    def draw(self, logits: Tensor, place: Tensor) -> tuple[Tensor, Tensor | None]:
        """What a draft says by its logits [B, V], at places [B] of the output."""
        for token in self.symbols.suppressed:
            logits[:, token].fill_(-torch.inf)
        return logits.argmax(-1), None

    def check(self, logits: Tensor, guesses: Guesses, place: Tensor, forces: Tensor, only: Tensor) -> Checked:
        """By logits [B, T, V] of the places [B, T], at some of which a token is forced."""
        steps = logits.shape[1]
        guessed = F.pad(guesses.tokens, (0, 1))  # [B, T]
        named = torch.stack([only, guessed], -1).flatten(0, 1)
        best = top_tokens(logits.flatten(0, 1), self.symbols, self.number if self.rule == "top_k" else 1, named)
        likeliest, logp, extra = (x.unflatten(0, (-1, steps)) for x in (best.tokens, best.logp, best.extra))
        chosen = torch.where(forces, only, likeliest[..., 0])
        exact = guessed == chosen
        near = {"exact": lambda: exact, "top_k": lambda: (likeliest == guessed[..., None]).any(-1),
                "distance": lambda: (guessed - chosen).abs() <= self.number}[self.rule]()  # fmt: skip
        right = torch.where(forces, exact, near & (extra[..., 1] > -torch.inf))
        accepted, kept = _leading(right)
        unkept = torch.where(forces, extra[..., 0], logp[..., 0])
        return torch.where(kept, guessed, chosen), torch.where(kept, extra[..., 1], unkept), accepted


class SamplingCheck(SamplingPicker):
    """Keeps guess x with probability min(1, p(x)/q(x)); the first that is not kept is drawn from max(0, p − q).

    So tokens are distributed by p, whatever the draft's q is (Leviathan 2023, appendix A.1; Chen 2023, theorem 1). A
    token depends on the random numbers of its own place alone: for a draft's draw, for whether a guess is kept, and
    for the draw in place of one that is not.
    """

    draws = 3

    def draw(self, logits: Tensor, place: Tensor) -> tuple[Tensor, Tensor | None]:
        q = sampling_distribution(log_probabilities(logits, self.symbols), self.config)
        return draw_token(q, self.numbers_at(place)[:, 0]), q

    def check(self, logits: Tensor, guesses: Guesses, place: Tensor, forces: Tensor, only: Tensor) -> Checked:
        if self.seen.shape[1]:  # guesses of before that were not kept
            after = torch.arange(self.seen.shape[1], device=place.device) >= self.longest_prompt + place[:, :1]
            self.seen = self.seen.masked_fill(after, -1)
        tokens, logps, right, steps = [], [], [], logits.shape[1]
        for n in range(steps):
            logp, penalised = self.score(logits[:, n])
            p, numbers = sampling_distribution(penalised, self.config), self.numbers_at(place[:, n])
            if n < steps - 1:
                kept, token = self._keep(p, guesses, n, numbers)
                right.append(torch.where(forces[:, n], guesses.tokens[:, n] == only[:, n], kept))
            else:
                token = draw_token(p, numbers[:, 2])
            token = torch.where(forces[:, n], only[:, n], token)
            if self.seen.shape[1]:  # where it is not what was guessed, later places do not count
                self.seen = self.seen.scatter(1, self.longest_prompt + place[:, n : n + 1], token[:, None])
            tokens.append(token)
            logps.append(logp.gather(1, token[:, None])[:, 0])
        return torch.stack(tokens, 1), torch.stack(logps, 1), _leading(F.pad(torch.stack(right, 1), (0, 1)))[0]

    @staticmethod
    def _keep(p: Tensor, guesses: Guesses, n: int, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Whether guess n is kept [B], and the token at its place."""
        guess = guesses.tokens[:, n : n + 1]
        q = torch.zeros_like(p).scatter_(1, guess, 1.0)
        if guesses.probabilities is not None:
            q = guesses.probabilities[:, n]
        kept = numbers[:, 1:2] * q.gather(1, guess) < p.gather(1, guess)
        rest = (p - q).clamp(min=0)  # the residual
        other = draw_token(torch.where(rest.sum(-1, keepdim=True) > 0, rest, p), numbers[:, 2])
        return kept[:, 0], torch.where(kept, guess, other[:, None])[:, 0]


def _leading(right: Tensor) -> tuple[Tensor, Tensor]:
    """How many guesses are right before the first that is not [B], and which those are [B, T]; the last is none."""
    kept = right[:, :-1].long().cumprod(1)
    return kept.sum(1), F.pad(kept, (0, 1)).bool()


Check = GreedyCheck | SamplingCheck


class ParallelSearch(SingleSequenceSearch):
    """One hypothesis of each of B sequences, 1 to T tokens of it at each step."""

    picker: Check

    def __init__(
        self, check: Check, forced: ForcedEos, batch_size: int, longest: int, draft: Draft, tally: Tensor
    ) -> None:
        self.draft, self.width, self.tally = draft, draft.count + 1, tally
        super().__init__(check, forced, batch_size, longest + self.width)
        self.most = torch.full_like(self.generated, NO_LIMIT)  # tokens of the output until a row's context is full
        self.count = torch.zeros_like(self.generated)  # of the last step's tokens
        self.block = torch.zeros(batch_size, self.width, dtype=torch.long, device=self.done.device)  # they come first
        self.logp = torch.zeros(batch_size, self.width, dtype=torch.float64, device=self.done.device)  # up to each

    def begin(self, slots: Tensor, requests: list[GenerationRequest]) -> None:
        super().begin(slots, requests)
        self.most[slots] = NO_LIMIT
        self.draft.begin(slots, requests)

    def reorder(self, index: Tensor) -> None:
        super().reorder(index)
        self.most, self.count, self.block, self.logp = (
            x[index] for x in (self.most, self.count, self.block, self.logp)
        )
        self.draft.reorder(index)

    def places(self) -> Tensor:
        """Of the next T tokens in the output [B, T]."""
        return self.generated[:, None] + torch.arange(self.width, device=self.generated.device)

    def guess(self, tokens: Tensor, states: list[Any]) -> Guesses:
        """The draft's guesses, and forced tokens where there are any, which it reads as its own."""
        place = self.places()
        forces, only = self._forced(place[:, :-1])

        def draw(logits: Tensor, n: int) -> tuple[Tensor, Tensor | None]:
            token, probabilities = self.picker.draw(logits, place[:, n])
            return torch.where(forces[:, n], only[:, n], token), probabilities

        guesses = self.draft.guess(tokens, states, self.generated, draw)
        return Guesses(torch.where(forces, only, guesses.tokens), guesses.probabilities)

    def _forced(self, place: Tensor) -> tuple[Tensor, Tensor]:
        each = [self.forced.next(column) for column in place.unbind(1)]
        return torch.stack([forces for forces, _ in each], 1), torch.stack([only for _, only in each], 1)

    def check(self, logits: Tensor, guesses: Guesses) -> None:
        """Keep what is right by the logits [B, T, V], and one token more."""
        place, live, index = self.places(), ~self.done, torch.arange(self.width, device=self.done.device)
        self.block, logp, accepted = self.picker.check(logits, guesses, place, *self._forced(place))
        self.logp = self.log_probability[:, None] + logp.double().cumsum(1)
        ends = (self.block == self.picker.symbols.eos) & (index <= accepted[:, None])
        end = torch.where(ends, index, self.width).amin(1)  # where the first stands
        count = torch.minimum(torch.minimum(accepted, end) + 1, self.most - self.generated)
        ended = end < count
        self._tally(accepted, count, live)
        self.count = count * live
        last = (self.count - 1).clamp(min=0)[:, None]
        self.log_probability = torch.where(live, self.logp.gather(1, last)[:, 0], self.log_probability)
        self.tokens.scatter_(1, place, self.block)
        self.generated = self.generated + (self.count - ended.long()).clamp(min=0)
        self.done = self.done | (ended & live)

    def _tally(self, accepted: Tensor, count: Tensor, live: Tensor) -> None:
        """Count guesses that were kept, guesses that were looked at, and tokens of a step: 3 histograms [3, T + 1]."""
        looked = torch.where(count <= accepted, count, (accepted + 1).clamp(max=self.width - 1))
        for row, value in zip(self.tally, (torch.minimum(accepted, count), looked, count), strict=True):
            row.index_add_(0, value, live.long())

    def newest(self, tokens: Tensor) -> Tensor:
        absent = torch.arange(self.width, device=self.count.device) >= self.count[:, None]
        return torch.stack([self.block.masked_fill(absent, -1).double(), self.logp], -1)  # [B, T, 2]


@dataclass
class ParallelStep(DecodingStep):
    model: "ParallelModel"
    search: ParallelSearch

    @property
    def width(self) -> int:
        return self.search.width

    @property
    def states(self) -> list[DecoderState]:
        """The model's, and the draft's where it has one."""
        return cast(list[DecoderState], self.state.states if isinstance(self.state, EnsembleState) else [self.state])

    def advance(self) -> None:
        states = self.states
        guesses = self.search.guess(self.tokens, states)
        read, _ = self.model.model.read(torch.cat([self.tokens, guesses.tokens], 1), states[0])  # [B, T, D]
        place = self.search.places()
        self.search.check(self.model.model.output(read), guesses)
        block, count = self.search.block, self.search.count
        for positions in (state.cache_positions for state in states):
            positions.rollback(positions.position + (count - self.width), self.width)
        self.search.draft.observe(read, block, place, count)
        newest = block.gather(1, (count - 1).clamp(min=0)[:, None])
        self.tokens = torch.where(count[:, None] > 0, newest, self.tokens)

    def progress(self) -> Tensor:
        return torch.stack([self.search.done.long(), self.states[0].position])  # [2, B]

    def learn(self, progress: list[Any], delay: int) -> list[bool]:
        done, position = progress
        for state in self.states:
            state.cache_positions.know(position, delay * self.width)
        return [bool(each) for each in done]

    def limit_context(self, slots: list[int], counts: list[int]) -> None:
        rows = torch.tensor(slots, device=self.tokens.device)
        self.search.most[rows] = self.search.generated[rows] + torch.tensor(counts, device=self.tokens.device)


@dataclass(frozen=True)
class Acceptance:
    """How far guesses went, of all that an engine has decoded by one search."""

    steps: int  # of the model, counted for each sequence
    tokens: int  # that they gave, ends included
    looked: list[int]  # how often the guess at each place was looked at …
    kept: list[int]  # … and was kept

    @property
    def gain(self) -> float:
        """Tokens a step: how many times fewer steps than a token at each."""
        return self.tokens / max(1, self.steps)

    @property
    def accepted_length(self) -> float:
        """Guesses that a step keeps, in the mean."""
        return sum(self.kept) / max(1, self.steps)

    @property
    def by_position(self) -> list[float]:
        return [kept / max(1, looked) for kept, looked in zip(self.kept, self.looked, strict=True)]

    def json(self) -> Json:
        return {
            "steps": self.steps,
            "tokens": self.tokens,
            "gain": round(self.gain, 4),
            "accepted_length": round(self.accepted_length, 4),
            "acceptance_by_position": [round(share, 4) for share in self.by_position],
        }


class ParallelModel:
    """A model with what guesses for it, as a `Generator` whose state is both's."""

    def __init__(self, model: Generator, config: Speculative | Blockwise, draft: Generator | None) -> None:
        """`draft` is another model, where the search names one."""
        if not isinstance(model, BlockReader):
            raise RegardError(
                f"{config.kind} search takes back what was read, and needs one model with a KV cache: no ensemble, no "
                "recurrent or convolutional model; leave it out"
            )
        assert draft is None or isinstance(draft, BlockReader)
        if draft is not None and draft.longest is not None and draft.longest < (model.longest or NO_LIMIT):
            raise RegardError(
                f"the draft knows {draft.longest} positions, fewer than the model, so some texts are too long for it; "
                "give a draft that knows as many"
            )
        self.model, self.draft, self.config, self.tally = model, draft, config, torch.zeros(0)
        if isinstance(config, Blockwise) and model.proposals is None:
            raise RegardError(
                "this model has no proposal heads, which guess in blockwise search; "
                "regard tune RUN --proposals 4 --out RUN2 adds them"
            )
        self.width = config.tokens + 1 if isinstance(config, Speculative) else model.proposals.heads

    @property
    def longest(self) -> int | None:
        return self.model.longest

    def start(self, batch: Any, length: int, record: Any = None) -> DecodingState:
        """With room for the guesses of the last step too, whose positions a model need not know."""
        models = [self.model] if self.draft is None else [self.model, self.draft]
        states: list[DecoderState] = [model.start(batch, length + self.width - 1, bounded=False) for model in models]
        for n, (model, state) in enumerate(zip(models, states, strict=True)):
            if not state.rolls_back:
                raise RegardError(
                    f"{self.config.kind} search takes back what was read, and the {'draft' if n else 'model'} has a "
                    "recurrent decoder, which cannot; write search greedy, or a draft with attention"
                )
            state.cache_positions.known = model.longest
        return cast(DecodingState, states[0] if len(states) == 1 else EnsembleState(list[Any](states)))

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, DecodingState]:
        raise NotImplementedError  # `ParallelStep` reads blocks

    def build_search(self, spec: SearchSpec, batch_size: int, longest: int, device: torch.device) -> ParallelSearch:
        config, symbols, prompt = spec.config, spec.symbols, spec.longest_prompt
        if self.tally.device != device or not len(self.tally):
            self.tally = torch.zeros(3, self.width + 1, dtype=torch.long, device=device)
        rule = config.acceptance if isinstance(config, Blockwise) else ("exact", None)
        check: Check = GreedyCheck(symbols, *rule)
        if isinstance(config, Sample) and config.samples:
            check = SamplingCheck(config, symbols, batch_size, longest + self.width, prompt, device)
        draft = self._draft(config, batch_size, longest, max(spec.longest_lookup, prompt), device)
        return ParallelSearch(check, spec.forced(batch_size, device), batch_size, longest, draft, self.tally)

    def _draft(self, config: DecodingConfig, batch_size: int, longest: int, lookup: int, device: torch.device) -> Draft:
        count = self.width - 1
        if not isinstance(config, Speculative):
            return HeadsDraft(self.model, batch_size, device)
        if self.draft is not None:
            return ModelDraft(count, self.draft)
        if config.draft_layers is not None:
            return LayersDraft(count, self.model, config.draft_layers)
        return NgramDraft(count, batch_size, longest, lookup, device)

    def acceptance(self) -> Acceptance | None:
        if not len(self.tally):
            return None
        kept, looked, tokens = self.tally.tolist()
        reached = [[sum(row[n:]) for n in range(1, self.width)] for row in (kept, looked)]
        return Acceptance(sum(tokens), sum(n * count for n, count in enumerate(tokens)), reached[1], reached[0])
