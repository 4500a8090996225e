"""Beam search in which given phrases must appear, each somewhere, in any order (Post & Vilar 2018, vectorised).

A beginning is worth as many words as it has said of the phrases, its bank. The beam is shared out evenly: the best of
every bank come first, then the second best, … So a beginning that has said what it must is not pushed out by likelier
ones that have not. What could no longer say the rest within the limit is dropped, so all phrases always appear.
A phrase may have other ways to be said, none shorter; one of them is enough. Where it is told which pieces are in one
word, a phrase neither begins nor ends inside a word: `HKatze` and `Katzen` do not hold `Katze`.
"""

from typing import Any

import torch
from torch import Tensor

from regard.decoding.beam import BeamSearch
from regard.decoding.best import best
from regard.decoding.contract import Asked, Seams, Symbols

OWN = ("phrases", "length", "more", "same", "border", "joins", "apart")  # what `PhraseSearch` is told of a sentence


def impossible(asked: Asked, symbols: Symbols, seams: Seams) -> tuple[int, str] | None:
    """Which phrase of a sentence cannot be met, counted from 0, and why; None where all can."""
    room = asked.limit - len(asked.prefix)
    gap, later = bool(asked.prefix) and asked.prefix[-1] in seams.open, _open(asked, seams)
    for n, phrase in enumerate(asked.phrases):
        if not phrase:
            return n, "it is empty"
        if {symbols.eos, *symbols.never} & set(phrase):
            return n, "it holds a word that may not be said"
        if phrase[0] in seams.joins:  # a word has to end before it
            room, gap = room - gap, later
        if len(phrase) > room:
            return n, f"it has {len(phrase)} words, and there is room for {max(room, 0)} after all others"
        room -= len(phrase)
    return None


def _open(asked: Asked, seams: Seams) -> bool:
    """Whether the word with which some phrase ends may go on."""
    return any(way[-1] in seams.open for said in asked.every() for way in said if way)


class PhraseSearch(BeamSearch):
    def __init__(self, *given: Any, phrases: int, longest_phrase: int, seams: Seams, **keys: Any) -> None:
        super().__init__(*given, **keys)
        self.seams = seams
        count, device = len(self.done), self.done.device
        self.phrases = torch.full((count, phrases, longest_phrase), -1, device=device)  # [B, C, P]
        self.length = torch.zeros(count, phrases, dtype=torch.long, device=device)  # 0: no phrase
        self.more = torch.zeros_like(self.length)  # words beyond the shortest way to say the same
        self.same = torch.zeros(count, phrases, phrases, dtype=torch.bool, device=device)  # ways to say one phrase
        # [B, C, P + 1, P] whether the first j words of a phrase are the last of its first s
        self.border = torch.zeros(count, phrases, longest_phrase + 1, longest_phrase, dtype=torch.bool, device=device)
        self.joins = torch.zeros(count, phrases, dtype=torch.bool, device=device)  # what is open has to end before it
        self.apart = torch.zeros_like(self.joins)  # the same, where a phrase of the sentence may leave a word open
        # words said of each; one more, once another word has come after it
        self.come = torch.zeros(count, self.beams, phrases, dtype=torch.long, device=device)
        self.amid = torch.zeros(count, self.beams, dtype=torch.bool, device=device)  # the last piece is open
        self.open_pieces, self.joining_pieces = (_marked(ids, device) for ids in (seams.open, seams.joins))
        self.ends = torch.tensor(sorted(seams.ends) or [self.symbols.eos], device=device)

    def begin(self, rows: Tensor, asked: list[Asked]) -> None:
        super().begin(rows, asked)
        new = {name: torch.zeros_like(getattr(self, name)[: len(asked)], device="cpu") for name in OWN}
        phrases, length, more, same, border, joins, apart = new.values()
        phrases.fill_(-1)
        for n, each in enumerate(asked):
            ways = [(c, way) for c, said in enumerate(each.every()) for way in said]
            open_ = _open(each, self.seams)
            for w, (c, way) in enumerate(ways):
                length[n, w], more[n, w] = len(way), len(way) - len(each.phrases[c])
                same[n, w, : len(ways)] = torch.tensor([c == other for other, _ in ways])
                phrases[n, w, : len(way)] = torch.tensor(way)
                joins[n, w] = way[0] in self.seams.joins
                apart[n, w] = joins[n, w] and open_
                for s in range(len(way) + 1):
                    for j in range(min(s + 1, len(way))):
                        begins = j in (0, s) or not self.seams.inside(way[s - j - 1], way[0])
                        border[n, w, s, j] = begins and way[:j] == way[s - j : s]
        for name in OWN:
            getattr(self, name)[rows] = new[name].to(rows.device)
        self.come[rows] = 0
        self.amid[rows] = False

    def reorder(self, index: Tensor) -> None:
        super().reorder(index)
        for name in (*OWN, "come", "amid"):
            setattr(self, name, getattr(self, name)[index])

    def take(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        token, beam = super().take(logits)
        word = token.view_as(beam)
        self.come, self.amid = self._after(beam, word), _among(self.open_pieces, word)
        return token, beam

    def _going_on(self, score: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
        on = ends.long().argsort(dim=-1, stable=True)[:, : self.beams]  # in the order in which they may
        return score.gather(1, on), on

    def _enough(self) -> Tensor:
        """With phrases also whether all that goes on is worse by now: what says a phrase too early ends first."""
        worse = self.score.amax(-1) / self.divisor[self.said] <= self.kept[:, -1]
        return super()._enough() & (worse | (self.length == 0).all(-1))

    def _after(self, beam: Tensor, word: Tensor) -> Tensor:
        """How much of each phrase has been said [B, N, C] once beams [B, N] have said words [B, N].

        What ends in a word that then goes on has not been said after all.
        """
        inside = (self.amid.gather(1, beam) & _among(self.joining_pieces, word))[..., None]  # [B, N, 1]
        come = self.come.gather(1, beam[..., None].expand(-1, -1, self.come.shape[-1]))  # [B, N, C]
        fits = self.phrases[:, None] == word[..., None, None]  # [B, N, C, P]
        row = torch.arange(len(beam), device=beam.device)[:, None, None]
        phrase = torch.arange(come.shape[-1], device=beam.device)
        fits = fits & self.border[row, phrase, come.clamp(max=fits.shape[-1])]
        fits[..., 0] &= ~inside
        grown = (fits * torch.arange(1, fits.shape[-1] + 1, device=beam.device)).amax(-1)
        length = self.length[:, None]
        return torch.where((come > length) | ((come == length) & ~inside), length + 1, grown)

    def _unsaid(self, come: Tensor) -> Tensor:
        """[B, N, C] True where a phrase has been said in none of its ways."""
        length = self.length[:, None]
        return (length > 0) & ~(self.same[:, None] & (come >= length)[..., None, :]).any(-1)

    @property
    def first_way(self) -> Tensor:
        """[B, C] True where no way to say the same stands before it."""
        return ~self.same.tril(-1).any(-1)

    def _left(self, come: Tensor, amid: Tensor) -> tuple[Tensor, Tensor]:
        """How many words of phrases must still come [B, N], and how many others, to end what may be open before them.

        Of what is begun, only the one that has come farthest counts.
        """
        unsaid = self._unsaid(come)
        wanted = unsaid & self.first_way[:, None]
        begun, which = ((come - self.more[:, None]).clamp(min=0) * unsaid).max(-1)
        apart, going = self.apart[:, None] & wanted, begun > 0
        ready = torch.where(going, self.apart.gather(1, which), apart.any(-1) & ~amid)  # one can come at once
        ended = (self.joins[:, None] & wanted).any(-1) & amid & ~going  # the word said last has to end
        return (self.length[:, None] * wanted).sum(-1) - begun, (apart.sum(-1) - ready.long()).maximum(ended.long())

    def _best(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Continuations in the order in which they may go on: the likeliest, and the next words of all phrases.

        Where a phrase may have to wait for the end of a word, the likeliest end is among them.
        """
        size = self.beams
        must, only = (x[:, None, None] for x in self.forced.next(self.said))
        following = torch.cat([self._following(), self._ending(logits)], -1)  # [B, size, C + 1]
        wanted = torch.cat([only.expand(-1, size, 1), following.clamp(min=0)], -1)  # [B, size, 1 + C + 1]
        found = best(logits, self.symbols, 2 * size, wanted.flatten(0, 1))
        likely, words, extra = (x.unflatten(0, (-1, size)) for x in (found.logp, found.words, found.wanted))
        named = torch.cat([words, following], -1)
        again = (named[..., None] == named[..., None, :]).tril(-1).any(-1) | (named < 0)
        free = torch.cat([likely, extra[..., 1:]], -1).masked_fill(again, -torch.inf)
        first = torch.arange(named.shape[-1], device=words.device) == 0
        logp = torch.where(must, extra[..., :1].masked_fill(~first, -torch.inf), free)
        return self._shared(logp, torch.where(must, only, named.clamp(min=0)))

    def _following(self) -> Tensor:
        """The next word of each phrase, for every beam [B, size, C]; -1 where it has been said, or has to wait."""
        at = self.come.minimum((self.length - 1).clamp(min=0)[:, None])  # [B, size, C]
        word = self.phrases[:, None].expand(-1, self.beams, -1, -1).gather(3, at[..., None])[..., 0]
        waits = (self.come == 0) & self.joins[:, None] & self.amid[..., None]
        return word.masked_fill(~self._unsaid(self.come) | waits, -1)

    def _ending(self, logits: Tensor) -> Tensor:
        """The likeliest piece that is not open, for every beam [B, size, 1]; -1 where the last is not."""
        fresh = ((self.come == self.length[:, None]) & (self.length > 0)[:, None]).any(-1)  # must not go on as one word
        ends = logits.index_select(1, self.ends).unflatten(0, (-1, self.beams))
        ends = ends.masked_fill(fresh[..., None] & _among(self.joining_pieces, self.ends), -torch.inf)
        return self.ends[ends.argmax(-1, keepdim=True)].masked_fill(~self.amid[..., None], -1)

    def _shared(self, logp: Tensor, words: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The first 2·size of candidates [B, size, M]: by their rank within their bank, then by score."""
        total = (self.score[..., None] + logp.double()).flatten(1)  # [B, N]
        word = words.flatten(1)
        beam = torch.arange(self.beams, device=word.device).repeat_interleave(words.shape[-1]).expand_as(word)
        left, others = self._left(self._after(beam, word), _among(self.open_pieces, word))
        ends = word == self.symbols.eos
        said = self.said[:, None] + (~ends).long()
        total = total.masked_fill((ends & (left > 0)) | (left + others > self.forced.limit[:, None] - said), -torch.inf)
        score, order = total.sort(dim=1, descending=True, stable=True)
        left, beam, word = left.gather(1, order), beam.gather(1, order), word.gather(1, order)
        rank = (left[..., None] == left[:, None]).tril(-1).sum(-1)  # how many of the same bank are better
        rank = rank.masked_fill(score == -torch.inf, score.shape[1])
        first = rank.argsort(dim=1, stable=True)[:, : 2 * self.beams]
        return score.gather(1, first), beam.gather(1, first), word.gather(1, first)


def _marked(ids: frozenset[int], device: torch.device) -> Tensor:
    """True at those ids; the last entry stands for all that come after them."""
    marked = torch.zeros(max(ids, default=-1) + 2, dtype=torch.bool)
    marked[sorted(ids)] = True
    return marked.to(device)


def _among(marked: Tensor, words: Tensor) -> Tensor:
    return marked[words.clamp(max=len(marked) - 1)]
