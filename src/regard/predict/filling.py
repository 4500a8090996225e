"""Mask filling: the likeliest words for each [MASK] of a text, by a BERT."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

import torch

from regard.errors import RegardError, require_list
from regard.examples.batching import LESS_TOKENS, by_length, each_batch
from regard.examples.long_text import Extract, Long, LongConfig, LongText, Refuse, Segments, Shortened
from regard.models.batch import collate_texts
from regard.models.bert import MaskedLM
from regard.predict.embedding import TextEmbedder
from regard.predict.options import checked
from regard.reporting import Warn

MASK = "[MASK]"


class MaskPrediction(NamedTuple):
    word: str  # a piece that goes on with the word before it begins with ##
    probability: float


class MaskFiller(TextEmbedder):
    """`regard.load(folder)` returns this for a model of the task pretraining; it embeds too."""

    @checked
    def fill(
        self,
        lines: Sequence[str],
        top: int = 5,
        batch_tokens: int = 4096,
        before: int = 0,
        warn: Warn | None = None,
        long: Long | None = None,
        shortened: dict[int, Shortened] | None = None,
    ) -> list[list[list[MaskPrediction]]]:
        """For each text, for each [MASK] in it, the likeliest words, best first; nothing for a text that has none.

        The masks of a text are predicted independently. A text that is longer than the model was trained to read is cut
        to what stands around its masks; where they lie too far apart it is refused, with its number (from `before` + 1
        on), or, with `warn`, left empty with a warning. With `long="segments"` each mask is read in what stands around
        it; `long` may be refuse and none, too. `shortened` receives what was done with long texts, by index.
        """
        require_list(lines, "fill([text])")
        if top < 1:
            raise RegardError(f"top must be at least 1, not {top}")
        chosen = self.long(long)
        if isinstance(chosen, Extract):
            raise RegardError("gaps are filled by what stands around them; long is truncate, segments, refuse or none")
        done = {} if shortened is None else shortened
        rows = [(n, row) for n in range(len(lines)) for row in self._gaps(lines, n, before, chosen, warn, done)]
        if warn:
            self._say_long(done, len(lines), warn)
        best: list[list[list[MaskPrediction]]] = [[] for _ in rows]

        def compute(indices: list[int]) -> None:
            for n, gaps in zip(indices, self._predict([rows[n][1][0] for n in indices], top), strict=True):
                best[n] = gaps

        with self.eval_mode():
            each_batch(by_length([len(row) for _, (row, _) in rows], batch_tokens), compute, LESS_TOKENS)
        predictions: list[list[list[MaskPrediction]]] = [[] for _ in lines]
        for (n, (_, only)), gaps in zip(rows, best, strict=True):
            predictions[n] += gaps if only is None else [gaps[only]]
        return predictions

    def _gaps(
        self, lines: Sequence[str], n: int, before: int, long: LongConfig, warn: Warn | None, done: dict[int, Shortened]
    ) -> list[tuple[list[int], int | None]]:
        """The rows of a line that are read, each with the one of its masks that it is read for; None: for all."""
        t, mask, room = self.tokenizer, cast(int, self.tokenizer.mask), self.context - 2
        line, number = lines[n], before + n + 1
        if MASK not in line:
            return []
        (ids,) = self.sentence_encoder.encode([line], {MASK: mask})
        if len(ids) > room and isinstance(long, Refuse):
            long.rows(LongText(f"line {number}", len(ids)), room, 0)
        if len(ids) <= room or not isinstance(long, Segments):
            row = self._row(ids, number, warn) if long.kind == "truncate" else [t.bos, *ids, t.eos]
            if len(ids) > room:
                done[n] = Shortened(long.kind, len(ids), len(ids) - max(0, len(row) - 2))
            return [(row, None)] if row else []
        rows = list[tuple[list[int], int | None]]()
        read = set[int]()
        for place in [n for n, i in enumerate(ids) if i == mask]:
            begin = min(max(0, place - room // 2), len(ids) - room)
            rows.append(([t.bos, *ids[begin : begin + room], t.eos], ids[begin:place].count(mask)))
            read |= set(range(begin, begin + room))
        done[n] = Shortened(long.kind, len(ids), len(ids) - len(read), len(rows))
        return rows

    def _row(self, ids: list[int], number: int, warn: Warn | None) -> list[int]:
        """[CLS] … [SEP]; nothing where the masks lie too far apart."""
        t, mask, room = self.tokenizer, cast(int, self.tokenizer.mask), self.context - 2
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

    def _predict(self, rows: list[list[int]], top: int) -> Iterator[list[list[MaskPrediction]]]:
        batch = collate_texts(rows, self.tokenizer.pad)
        masks = batch.ids.eq(cast(int, self.tokenizer.mask)).flatten().nonzero()[:, 0]
        model = cast(MaskedLM, self.model)
        with torch.inference_mode():
            hidden = model.body(batch.to(self.device))
            probabilities = model.words(hidden.flatten(0, 1)[masks.to(self.device)]).float().softmax(-1)
            special = sorted({*self.tokenizer.special.values()})
            probabilities[:, special] = -1.0  # no words: they are never listed
            best = probabilities.topk(min(top, probabilities.shape[1] - len(special)))
        predictions = iter(
            [MaskPrediction(word, p) for word, p in zip(self.tokenizer.tokens(ids), values, strict=True)]
            for ids, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        )
        for row in rows:
            yield [next(predictions) for i in row if i == self.tokenizer.mask]
