import hashlib
from collections.abc import Sequence


class Words:
    """A tokenizer for tests: a piece is a word, its id a hash of it."""

    def __init__(self, size: int = 1000) -> None:
        self.size = size
        self.calls = 0

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        self.calls += 1
        return [[self.id(word) for word in text.split()] for text in texts]

    def id(self, word: str) -> int:
        return int(hashlib.md5(word.encode()).hexdigest(), 16) % self.size

    @property
    def fingerprint(self) -> str:
        return f"words {self.size}"
