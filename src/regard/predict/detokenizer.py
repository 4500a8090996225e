"""Text as it is being said: what can be shown already, and whether something that ends it has come."""

from collections.abc import Callable, Sequence

MOST, KEPT = 512, 64  # tokens that are spelled again with every new one; so many stay when they become too many


class Speech:
    """Tokens of one row become text, piece by piece.

    A piece is held back while it may be half a character or the beginning of a stop string. `text` has all of it.
    """

    def __init__(self, spell: Callable[[Sequence[int]], str], prompt: Sequence[int], stops: Sequence[str] = ()) -> None:
        stops = [stops] if isinstance(stops, str) else stops
        self.spell, self.tokens, self.stops = spell, list(prompt), [stop for stop in stops if stop]
        self.before = len(spell(self.tokens))  # characters that are read, or were shown before
        self.past, self.text, self.shown, self.stopped = "", "", 0, False

    def add(self, token: int) -> str:
        """What can be shown after one more token."""
        if len(self.tokens) > MOST and self.shown == len(self.text):
            self.past, self.tokens = self.text, self.tokens[-KEPT:]
            self.before = len(self.spell(self.tokens))
        self.tokens.append(token)
        self.text = self.past + self.spell(self.tokens)[self.before :]
        found = [place for stop in self.stops if (place := self.text.find(stop)) >= 0]
        if found:
            self.text, self.stopped = self.text[: min(found)], True
            return self.rest()
        sure = self.text.rstrip("\ufffd")  # a character of which only some bytes have come
        return self._show(len(sure) - max((_overlap(sure, stop) for stop in self.stops), default=0))

    def rest(self) -> str:
        """What is left when nothing more comes."""
        return self._show(len(self.text))

    def _show(self, end: int) -> str:
        piece, self.shown = self.text[self.shown : end], max(self.shown, end)
        return piece


def _overlap(text: str, stop: str) -> int:
    """How many of the last characters may be the beginning of a stop string."""
    sizes = range(min(len(stop) - 1, len(text)), 0, -1)
    return next((size for size in sizes if text.endswith(stop[:size])), 0)
