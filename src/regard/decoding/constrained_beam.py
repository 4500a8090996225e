"""Constrained beam search: given phrases must appear, each somewhere, in any order (Post & Vilar 2018, vectorised).

A hypothesis is in the bank of its number of matched phrase tokens. The beam is shared out evenly: the best of every
bank come first, then the second best, … So a hypothesis that has met its constraints is not pushed out by likelier ones
that have not. One that could no longer meet the rest within the limit is dropped, so all phrases always appear.
A phrase may have variants, none shorter; one of them is enough. Where word boundaries are known, a phrase neither
begins nor ends inside a word: `HKatze` and `Katzen` do not hold `Katze`.
"""

import torch
from torch import Tensor

from regard.decoding.beam import BeamSearch
from regard.decoding.config import Beam
from regard.decoding.contract import GenerationRequest, Symbols, WordBoundaries
from regard.decoding.logits_processors import ForcedEos, top_tokens

REQUEST_FIELDS = ("phrases", "length", "extra", "same", "border", "needs_boundary", "may_wait")


def unsatisfiable(request: GenerationRequest, symbols: Symbols, boundaries: WordBoundaries) -> tuple[int, str] | None:
    """Which phrase of a request cannot be met, counted from 0, and why; None where all can."""
    room = request.limit - len(request.prefix)
    gap, later = (
        bool(request.prefix) and request.prefix[-1] in boundaries.unfinished,
        _ends_unfinished(request, boundaries),
    )
    for n, phrase in enumerate(request.phrases):
        if not phrase:
            return n, "it is empty"
        if {symbols.eos, *symbols.suppressed} & set(phrase):
            return n, "it holds a piece that is never generated"
        if phrase[0] in boundaries.continuations:  # a word has to end before it
            room, gap = room - gap, later
        if len(phrase) > room:
            return n, f"it has {len(phrase)} pieces, and there is room for {max(room, 0)} after all others"
        room -= len(phrase)
    return None


def _ends_unfinished(request: GenerationRequest, boundaries: WordBoundaries) -> bool:
    """Whether the last word of some phrase may continue."""
    return any(ids[-1] in boundaries.unfinished for variants in request.phrase_variants() for ids in variants if ids)


class ConstrainedBeamSearch(BeamSearch):
    def __init__(
        self,
        config: Beam,
        symbols: Symbols,
        forced: ForcedEos,
        batch_size: int,
        longest: int,
        nbest: int,
        phrases: int,
        longest_phrase: int,
        boundaries: WordBoundaries,
    ) -> None:
        """At most `phrases` a request, all variants counted."""
        super().__init__(config, symbols, forced, batch_size, longest, nbest)
        self.boundaries = boundaries
        device = self.done.device

        def flags(*shape: int) -> Tensor:
            return torch.zeros(batch_size, *shape, dtype=torch.bool, device=device)

        self.phrases = torch.full((batch_size, phrases, longest_phrase), -1, device=device)  # [B, C, P]
        self.length = torch.zeros(batch_size, phrases, dtype=torch.long, device=device)  # 0: no phrase
        self.extra = torch.zeros_like(self.length)  # tokens beyond the shortest variant of the same phrase
        self.same = flags(phrases, phrases)  # variants of one phrase
        # [B, C, P + 1, P] whether the first j tokens of a phrase are the last of its first s
        self.border = flags(phrases, longest_phrase + 1, longest_phrase)
        self.needs_boundary = flags(phrases)  # an unfinished word has to end before it
        self.may_wait = flags(phrases)  # the same, where a phrase of the request may leave a word unfinished
        # matched tokens of each phrase; one more, once another word has come after it
        self.matched = torch.zeros(batch_size, self.beams, phrases, dtype=torch.long, device=device)
        self.in_word = flags(self.beams)  # the last piece is unfinished
        self.unfinished = _mask(boundaries.unfinished, device)
        self.continuations = _mask(boundaries.continuations, device)
        self.final = torch.tensor(sorted(boundaries.final) or [self.symbols.eos], device=device)

    def begin(self, slots: Tensor, requests: list[GenerationRequest]) -> None:
        super().begin(slots, requests)
        mine = vars(self)
        new = {name: torch.zeros_like(mine[name][: len(requests)], device="cpu") for name in REQUEST_FIELDS}
        phrases, length, extra, same, border, needs_boundary, may_wait = new.values()
        phrases.fill_(-1)
        for n, request in enumerate(requests):
            every = [(c, ids) for c, variants in enumerate(request.phrase_variants()) for ids in variants]
            unfinished = _ends_unfinished(request, self.boundaries)
            for v, (c, ids) in enumerate(every):
                length[n, v], extra[n, v] = len(ids), len(ids) - len(request.phrases[c])
                same[n, v, : len(every)] = torch.tensor([c == other for other, _ in every])
                phrases[n, v, : len(ids)] = torch.tensor(ids)
                needs_boundary[n, v] = ids[0] in self.boundaries.continuations
                may_wait[n, v] = needs_boundary[n, v] and unfinished
                for s in range(len(ids) + 1):
                    for j in range(min(s + 1, len(ids))):
                        begins = j in (0, s) or not self.boundaries.inside_word(ids[s - j - 1], ids[0])
                        border[n, v, s, j] = begins and ids[:j] == ids[s - j : s]
        for name in REQUEST_FIELDS:
            mine[name][slots] = new[name].to(slots.device)
        self.matched[slots] = 0
        self.in_word[slots] = False

    def reorder(self, index: Tensor) -> None:
        super().reorder(index)
        mine = vars(self)
        for name in (*REQUEST_FIELDS, "matched", "in_word"):
            mine[name] = mine[name][index]

    def select(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        flat, beam = super().select(logits)
        token = flat.view_as(beam)
        self.matched, self.in_word = self._matched_after(beam, token), _among(self.unfinished, token)
        return flat, beam

    def _unfinished(self, score: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
        order = ends.long().argsort(dim=-1, stable=True)[:, : self.beams]  # candidates are in the order of the banks
        return score.gather(1, order), order

    def _enough(self) -> Tensor:
        """With phrases also whether all beams are worse by now: what meets a phrase too early ends first."""
        worse = self.score.amax(-1) / self.penalty[self.generated] <= self.finished_score[:, -1]
        return super()._enough() & (worse | (self.length == 0).all(-1))

    def _matched_after(self, beam: Tensor, token: Tensor) -> Tensor:
        """Matched tokens of each phrase [B, N, C] once beams [B, N] continue with tokens [B, N].

        A phrase whose last word then continues has not been met after all.
        """
        inside = (self.in_word.gather(1, beam) & _among(self.continuations, token))[..., None]  # [B, N, 1]
        matched = self.matched.gather(1, beam[..., None].expand(-1, -1, self.matched.shape[-1]))  # [B, N, C]
        fits = self.phrases[:, None] == token[..., None, None]  # [B, N, C, P]
        row = torch.arange(len(beam), device=beam.device)[:, None, None]
        phrase = torch.arange(matched.shape[-1], device=beam.device)
        fits = fits & self.border[row, phrase, matched.clamp(max=fits.shape[-1])]
        fits[..., 0] &= ~inside
        grown = (fits * torch.arange(1, fits.shape[-1] + 1, device=beam.device)).amax(-1)
        length = self.length[:, None]
        return torch.where((matched > length) | ((matched == length) & ~inside), length + 1, grown)

    def _unmet(self, matched: Tensor) -> Tensor:
        """[B, N, C] True where no variant of a phrase has been met."""
        length = self.length[:, None]
        return (length > 0) & ~(self.same[:, None] & (matched >= length)[..., None, :]).any(-1)

    def _missing(self, matched: Tensor, in_word: Tensor) -> tuple[Tensor, Tensor]:
        """How many tokens of phrases are missing [B, N], and how many others, to end unfinished words before them.

        Of the phrases that are begun, only the one with the most matched tokens counts.
        """
        unmet = self._unmet(matched)
        first_variant = ~self.same.tril(-1).any(-1)  # [B, C]
        needed = unmet & first_variant[:, None]
        begun, which = ((matched - self.extra[:, None]).clamp(min=0) * unmet).max(-1)
        waiting, inside = self.may_wait[:, None] & needed, begun > 0
        ready = torch.where(inside, self.may_wait.gather(1, which), waiting.any(-1) & ~in_word)  # one can begin now
        ended = (self.needs_boundary[:, None] & needed).any(-1) & in_word & ~inside  # the last word has to end
        return (self.length[:, None] * needed).sum(-1) - begun, (waiting.sum(-1) - ready.long()).maximum(ended.long())

    def _candidates(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Continuations in the order of the banks: the most likely tokens, and the next tokens of all phrases.

        Where a phrase may have to wait for the end of a word, the most likely final piece is among them.
        """
        size = self.beams
        forces, only = (x[:, None, None] for x in self.forced.next(self.generated))
        following = torch.cat([self._next_tokens(), self._final_piece(logits)], -1)  # [B, size, C + 1]
        named = torch.cat([only.expand(-1, size, 1), following.clamp(min=0)], -1)  # [B, size, 1 + C + 1]
        best = top_tokens(logits, self.symbols, 2 * size, named.flatten(0, 1))
        likely, likely_tokens, extra = (x.unflatten(0, (-1, size)) for x in (best.logp, best.tokens, best.extra))
        tokens = torch.cat([likely_tokens, following], -1)
        repeated = (tokens[..., None] == tokens[..., None, :]).tril(-1).any(-1) | (tokens < 0)
        free = torch.cat([likely, extra[..., 1:]], -1).masked_fill(repeated, -torch.inf)
        first = torch.arange(tokens.shape[-1], device=tokens.device) == 0
        logp = torch.where(forces, extra[..., :1].masked_fill(~first, -torch.inf), free)
        return self._by_bank(logp, torch.where(forces, only, tokens.clamp(min=0)))

    def _next_tokens(self) -> Tensor:
        """The next token of each phrase, for every beam [B, size, C]; -1 where it has been met, or has to wait."""
        at = self.matched.minimum((self.length - 1).clamp(min=0)[:, None])  # [B, size, C]
        token = self.phrases[:, None].expand(-1, self.beams, -1, -1).gather(3, at[..., None])[..., 0]
        waits = (self.matched == 0) & self.needs_boundary[:, None] & self.in_word[..., None]
        return token.masked_fill(~self._unmet(self.matched) | waits, -1)

    def _final_piece(self, logits: Tensor) -> Tensor:
        """The most likely piece that ends a word, for every beam [B, size, 1]; -1 where none is unfinished."""
        just_met = ((self.matched == self.length[:, None]) & (self.length > 0)[:, None]).any(
            -1
        )  # must not be continued
        scores = logits.index_select(1, self.final).unflatten(0, (-1, self.beams))
        scores = scores.masked_fill(just_met[..., None] & _among(self.continuations, self.final), -torch.inf)
        return self.final[scores.argmax(-1, keepdim=True)].masked_fill(~self.in_word[..., None], -1)

    def _by_bank(self, logp: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The first 2·size of candidates [B, size, M]: by their rank within their bank, then by score."""
        total = (self.score[..., None] + logp.double()).flatten(1)  # [B, N]
        token = tokens.flatten(1)
        beam = torch.arange(self.beams, device=token.device).repeat_interleave(tokens.shape[-1]).expand_as(token)
        missing, others = self._missing(self._matched_after(beam, token), _among(self.unfinished, token))
        ends = token == self.symbols.eos
        room = self.forced.limit[:, None] - (self.generated[:, None] + (~ends).long())
        total = total.masked_fill((ends & (missing > 0)) | (missing + others > room), -torch.inf)
        score, order = total.sort(dim=1, descending=True, stable=True)
        missing, beam, token = missing.gather(1, order), beam.gather(1, order), token.gather(1, order)
        rank = (missing[..., None] == missing[:, None]).tril(-1).sum(-1)  # how many of the same bank are better
        rank = rank.masked_fill(score == -torch.inf, score.shape[1])
        first = rank.argsort(dim=1, stable=True)[:, : 2 * self.beams]
        return score.gather(1, first), beam.gather(1, first), token.gather(1, first)


def _mask(ids: frozenset[int], device: torch.device) -> Tensor:
    """True at those ids; the last entry stands for all that come after them."""
    mask = torch.zeros(max(ids, default=-1) + 2, dtype=torch.bool)
    mask[sorted(ids)] = True
    return mask.to(device)


def _among(mask: Tensor, tokens: Tensor) -> Tensor:
    return mask[tokens.clamp(max=len(mask) - 1)]
