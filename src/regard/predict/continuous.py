"""A Translator whose texts come when they come: they join those that are being translated. Knows no requests."""

from collections.abc import Sequence

import torch

from regard.accel.decoding_graph import bucket
from regard.decoding import DecodingConfig
from regard.decoding.continuous import Open
from regard.decoding.engine import Wish
from regard.models.batch import PairBatch
from regard.predict.translation import Translation, Translator, spare

SMALLEST = 32  # words that the first places have room for
KEPT = 8  # lanes that are kept open, for other lengths and other searches
Done = list[tuple[int, list[Translation]]]


class OpenTranslator:
    def __init__(self, translator: Translator, places: int = 64) -> None:
        self.translator, self.places = translator, places
        self.lanes: dict[tuple[int, DecodingConfig, int], Open] = {}
        self.ready: Done = []  # texts without words
        translator.model.eval()

    def add(self, keys: Sequence[int], texts: Sequence[str], decoding: DecodingConfig, count: int = 1) -> list[int]:
        """Take texts, of which each is to have `count` translations; gives back the keys of those that are too long."""
        t = self.translator
        t._check(decoding, count, False)
        long, limit = [], t.recipe.data.filters.max_length
        for key, ids in zip(keys, t.vocabulary.source.encode_batch(list(texts)), strict=True):
            if len(ids) > limit:
                long.append(key)
            elif ids:
                self._lane(len(ids) + 1, decoding, count).add(key, ids, t._limit(decoding, len(ids)))
            else:
                self.ready.append((key, []))
        return long

    def drop(self, keys: set[int]) -> None:
        self.ready = [each for each in self.ready if each[0] not in keys]
        for lane in self.lanes.values():
            lane.drop(keys)

    @property
    def busy(self) -> bool:
        return bool(self.ready) or any(lane.busy for lane in self.lanes.values())

    @property
    def waiting(self) -> int:
        """How many texts wait for a place."""
        return sum(len(lane.waiting) for lane in self.lanes.values())

    @property
    def rows(self) -> int:
        return sum(lane.rows for lane in self.lanes.values())

    def step(self) -> Done:
        """A word more of every text; those that are done, with all that was searched for (see `different`)."""
        done, self.ready = self.ready, []
        for lane in list(self.lanes.values()):
            for key, found in lane.step() if lane.busy else ():
                done.append((key, [self.translator._translation(h, 0, {}) for h in found]))
        return done

    def _lane(self, words: int, decoding: DecodingConfig, count: int) -> Open:
        """The lane for texts of this length; it has room for up to twice as many words."""
        t, room = self.translator, bucket(words, SMALLEST)
        key = room, decoding, count
        if key not in self.lanes:
            idle = [name for name, lane in self.lanes.items() if not lane.busy]
            for name in idle[: max(0, len(self.lanes) - KEPT + 1)]:
                del self.lanes[name]
            made = Open(t.engine, Wish(t.symbols, decoding, spare(decoding, count)), self._read, t.blank, room,
                        t._limit(decoding, room), max(1, self.places * SMALLEST // room))  # fmt: skip
            self.lanes[key] = made
        self.lanes[key] = lane = self.lanes.pop(key)  # the last to be given up
        return lane

    def _read(self, rows: list[list[int]]) -> PairBatch:
        """Padded in lists: for the few that join at a time that is sooner done than in arrays."""
        marks, device = self.translator.vocabulary.source, self.translator.device
        longest = max(map(len, rows))
        source = torch.tensor([[*row, marks.eos, *[marks.pad] * (longest - len(row))] for row in rows], device=device)
        lengths = torch.tensor([len(row) + 1 for row in rows], device=device)
        real = torch.arange(longest + 1, device=device) < lengths[:, None]  # [B, S]
        return PairBatch(source, None if min(map(len, rows)) == longest else real)
