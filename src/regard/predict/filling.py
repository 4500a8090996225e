"""A BERT that fills gaps: the likeliest words for each [MASK] of a text."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

import torch

from regard.errors import RegardError, require_list
from regard.examples.batching import by_length
from regard.models.batch import collate_texts
from regard.models.bert import MaskedLM
from regard.predict.arguments import checked
from regard.predict.embedding import Embedder
from regard.reporting import Warn

MASK = "[MASK]"


class Guess(NamedTuple):
    word: str  # a piece that goes on with the word before it begins with ##
    probability: float


class Filler(Embedder):
    """`regard.load(folder)` gives one of these for a pretrained BERT; it embeds too."""

    @checked
    def fill(
        self, given: Sequence[str], top: int = 5, batch_tokens: int = 4096, before: int = 0, warn: Warn | None = None
    ) -> list[list[list[Guess]]]:
        """For each text, for each [MASK] in it, the likeliest words, best first; nothing for a text that has none.

        Gaps of one text are guessed each for itself. A text that is longer than the model has learned to read is cut to
        what stands around its gaps; where they lie too far apart it is refused, with its number (from `before` + 1 on),
        or, if there is somebody to `warn`, told of and left empty.
        """
        require_list(given, "fill([text])")
        if top < 1:
            raise RegardError(f"top must be at least 1, not {top}")
        rows = [self._row(line, number, warn) for number, line in enumerate(given, before + 1)]
        found: list[list[list[Guess]]] = [[] for _ in rows]
        self.model.eval()
        for numbers in by_length([len(row) for row in rows], batch_tokens):
            for number, guesses in zip(numbers, self._guesses([rows[n] for n in numbers], top), strict=True):
                found[number] = guesses
        return found

    def _row(self, line: str, number: int, warn: Warn | None) -> list[int]:
        """[CLS] … [SEP]; nothing where there is no gap that can be read."""
        t, mask, room = self.tokenizer, cast(int, self.tokenizer.mask), self.context - 2
        if MASK not in line:
            return []
        (ids,) = self.reader.encode([line], {MASK: mask})
        if len(ids) > room:
            first, last = ids.index(mask), len(ids) - ids[::-1].index(mask)
            if last - first > room:
                far = f"line {number}: its gaps lie {last - first} tokens apart; {room} can be read at once"
                if warn is None:
                    raise RegardError(far)
                warn(f"{far}, so it is left empty")
                return []
            begin = min(max(0, (first + last - room) // 2), len(ids) - room)
            ids = ids[begin : begin + room]
        return [t.bos, *ids, t.eos]

    def _guesses(self, rows: list[list[int]], top: int) -> Iterator[list[list[Guess]]]:
        batch = collate_texts(rows, self.tokenizer.pad)
        places = batch.ids.eq(cast(int, self.tokenizer.mask)).flatten().nonzero()[:, 0]
        model, moved = cast(MaskedLM, self.model), batch.to(self.device)
        with torch.inference_mode():
            hidden = model.body(moved)
            chances = model.words(hidden.flatten(0, 1)[places.to(self.device)]).float().softmax(-1)
            marks = sorted({*self.tokenizer.special.values()})
            chances[:, marks] = -1.0  # no words: they are never listed
            likeliest = chances.topk(min(top, chances.shape[1] - len(marks)))
        said = iter(
            [Guess(word, chance) for word, chance in zip(self.tokenizer.tokens(ids), values, strict=True)]
            for ids, values in zip(likeliest.indices.tolist(), likeliest.values.tolist(), strict=True)
        )
        for row in rows:
            yield [next(said) for i in row if i == self.tokenizer.mask]
