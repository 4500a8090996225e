"""Beam search in which given phrases must appear, each somewhere, in any order (Post & Vilar 2018, vectorised).

A beginning is worth as many words as it has said of the phrases, its bank. The beam is shared out evenly: the best of
every bank come first, then the second best, … So a beginning that has said what it must is not pushed out by likelier
ones that have not. What could no longer say the rest within the limit is dropped, so all phrases always appear.
A phrase may have other ways to be said, none shorter; one of them is enough.
"""

from typing import Any

import torch
from torch import Tensor

from regard.decoding.beam import BeamSearch
from regard.decoding.best import best
from regard.decoding.contract import Asked, Symbols


def impossible(asked: Asked, symbols: Symbols) -> tuple[int, str] | None:
    """Which phrase of a sentence cannot be met, counted from 0, and why; None where all can."""
    room = asked.limit - len(asked.prefix)
    for n, phrase in enumerate(asked.phrases):
        if not phrase:
            return n, "it is empty"
        if {symbols.eos, *symbols.never} & set(phrase):
            return n, "it holds a word that may not be said"
        if len(phrase) > room:
            return n, f"it has {len(phrase)} words, and there is room for {max(room, 0)} after all others"
        room -= len(phrase)
    return None


class PhraseSearch(BeamSearch):
    def __init__(self, *given: Any, phrases: int, longest_phrase: int, **keys: Any) -> None:
        super().__init__(*given, **keys)
        count, device = len(self.done), self.done.device
        self.phrases = torch.full((count, phrases, longest_phrase), -1, device=device)  # [B, C, P]
        self.length = torch.zeros(count, phrases, dtype=torch.long, device=device)  # 0: no phrase
        self.more = torch.zeros_like(self.length)  # words beyond the shortest way to say the same
        self.same = torch.zeros(count, phrases, phrases, dtype=torch.bool, device=device)  # ways to say one phrase
        # [B, C, P + 1, P] whether the first j words of a phrase are the last of its first s
        self.border = torch.zeros(count, phrases, longest_phrase + 1, longest_phrase, dtype=torch.bool, device=device)
        self.come = torch.zeros(count, self.beams, phrases, dtype=torch.long, device=device)  # words said of each

    def begin(self, rows: Tensor, asked: list[Asked]) -> None:
        super().begin(rows, asked)
        phrases, length, more, same, border = (torch.zeros_like(x[: len(asked)], device="cpu") for x in self._own())
        phrases.fill_(-1)
        for n, each in enumerate(asked):
            ways = [(c, way) for c, said in enumerate(each.every()) for way in said]
            for w, (c, way) in enumerate(ways):
                length[n, w], more[n, w] = len(way), len(way) - len(each.phrases[c])
                same[n, w, : len(ways)] = torch.tensor([c == other for other, _ in ways])
                phrases[n, w, : len(way)] = torch.tensor(way)
                for s in range(len(way) + 1):
                    for j in range(min(s + 1, len(way))):
                        border[n, w, s, j] = way[:j] == way[s - j : s]
        for kept, new in zip(self._own(), (phrases, length, more, same, border), strict=True):
            kept[rows] = new.to(kept.device)
        self.come[rows] = 0

    def _own(self) -> tuple[Tensor, ...]:
        return self.phrases, self.length, self.more, self.same, self.border

    def reorder(self, index: Tensor) -> None:
        super().reorder(index)
        self.phrases, self.length, self.more, self.same, self.border = (x[index] for x in self._own())
        self.come = self.come[index]

    def take(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        token, beam = super().take(logits)
        self.come = self._after(beam, token.view_as(beam))
        return token, beam

    def _going_on(self, score: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
        on = ends.long().argsort(dim=-1, stable=True)[:, : self.beams]  # in the order in which they may
        return score.gather(1, on), on

    def _enough(self) -> Tensor:
        """With phrases also whether all that goes on is worse by now: what says a phrase too early ends first."""
        worse = self.score.amax(-1) / self.divisor[self.said] <= self.kept[:, -1]
        return super()._enough() & (worse | (self.length == 0).all(-1))

    def _after(self, beam: Tensor, word: Tensor) -> Tensor:
        """How much of each phrase has been said [B, N, C] once beams [B, N] have said words [B, N]."""
        come = self.come.gather(1, beam[..., None].expand(-1, -1, self.come.shape[-1]))  # [B, N, C]
        fits = self.phrases[:, None] == word[..., None, None]  # [B, N, C, P]
        row = torch.arange(len(beam), device=beam.device)[:, None, None]
        phrase = torch.arange(come.shape[-1], device=beam.device)
        fits = fits & self.border[row, phrase, come]
        grown = (fits * torch.arange(1, fits.shape[-1] + 1, device=beam.device)).amax(-1)
        length = self.length[:, None]
        grown = torch.where(come >= length, come, grown)
        met = (self.same[:, None] & (grown >= length)[..., None, :]).any(-1)  # [B, N, C] in one of its ways
        return torch.where(met, length, grown)

    @property
    def first_way(self) -> Tensor:
        """[B, C] True where no way to say the same stands before it."""
        return ~self.same.tril(-1).any(-1)

    def _left(self, come: Tensor) -> Tensor:
        """How many words must still come [B, N]: of what is begun, only the one that has come farthest counts."""
        length, more = self.length[:, None], self.more[:, None]
        open_ = come < length
        return (length * self.first_way[:, None] * open_).sum(-1) - ((come - more).clamp(min=0) * open_).amax(-1)

    def _best(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Continuations in the order in which they may go on: the likeliest, and the next words of all phrases."""
        size = self.beams
        must, only = (x[:, None, None] for x in self.forced.next(self.said))
        following = self._following()  # [B, size, C]
        wanted = torch.cat([only.expand(-1, size, 1), following.clamp(min=0)], -1)  # [B, size, 1 + C]
        found = best(logits, self.symbols, 2 * size, wanted.flatten(0, 1))
        likely, words, extra = (x.unflatten(0, (-1, size)) for x in (found.logp, found.words, found.wanted))
        named = torch.cat([words, following], -1)
        again = (named[..., None] == named[..., None, :]).tril(-1).any(-1) | (named < 0)
        free = torch.cat([likely, extra[..., 1:]], -1).masked_fill(again, -torch.inf)
        first = torch.arange(named.shape[-1], device=words.device) == 0
        logp = torch.where(must, extra[..., :1].masked_fill(~first, -torch.inf), free)
        return self._shared(logp, torch.where(must, only, named.clamp(min=0)))

    def _following(self) -> Tensor:
        """The next word of each phrase, for every beam [B, size, C]; -1 where it has been said."""
        at = self.come.minimum((self.length - 1).clamp(min=0)[:, None])  # [B, size, C]
        word = self.phrases[:, None].expand(-1, self.beams, -1, -1).gather(3, at[..., None])[..., 0]
        return word.masked_fill(self.come >= self.length[:, None], -1)

    def _shared(self, logp: Tensor, words: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The first 2·size of candidates [B, size, M]: by their rank within their bank, then by score."""
        total = (self.score[..., None] + logp.double()).flatten(1)  # [B, N]
        word = words.flatten(1)
        beam = torch.arange(self.beams, device=word.device).repeat_interleave(words.shape[-1]).expand_as(word)
        left = self._left(self._after(beam, word))
        ends = word == self.symbols.eos
        said = self.said[:, None] + (~ends).long()
        total = total.masked_fill((ends & (left > 0)) | (left > self.forced.limit[:, None] - said), -torch.inf)
        score, order = total.sort(dim=1, descending=True, stable=True)
        left, beam, word = left.gather(1, order), beam.gather(1, order), word.gather(1, order)
        rank = (left[..., None] == left[:, None]).tril(-1).sum(-1)  # how many of the same bank are better
        rank = rank.masked_fill(score == -torch.inf, score.shape[1])
        first = rank.argsort(dim=1, stable=True)[:, : 2 * self.beams]
        return score.gather(1, first), beam.gather(1, first), word.gather(1, first)
