"""What must come next, whatever the model thinks: the end at a sentence's limit, and before that its prefix."""

import torch
from torch import Tensor

from regard.decoding.contract import Asked


class Forced:
    """The end, when as many words have been said as may be."""

    def __init__(self, eos: int, sentences: int, device: torch.device) -> None:
        self.end = torch.full((sentences,), eos, device=device)
        self.limit = torch.zeros_like(self.end)

    def begin(self, rows: Tensor, asked: list[Asked]) -> None:
        self.limit[rows] = torch.tensor([each.limit for each in asked], device=rows.device)

    def reorder(self, index: Tensor) -> None:
        self.end, self.limit = self.end[index], self.limit[index]

    def next(self, said: Tensor) -> tuple[Tensor, Tensor]:
        """Where something must come [B], when so many words have been said, and the word [B] that it would be."""
        return said >= self.limit, self.end


class Prefixed(Forced):
    """Some sentences must also begin with given words."""

    def __init__(self, eos: int, sentences: int, device: torch.device, longest: int) -> None:
        super().__init__(eos, sentences, device)
        self.words = torch.full((sentences, longest + 1), -1, device=device)  # -1: free

    def begin(self, rows: Tensor, asked: list[Asked]) -> None:
        super().begin(rows, asked)
        width = self.words.shape[1]
        given = [[*each.prefix, *[-1] * (width - len(each.prefix))] for each in asked]
        self.words[rows] = torch.tensor(given, device=rows.device)

    def reorder(self, index: Tensor) -> None:
        super().reorder(index)
        self.words = self.words[index]

    def next(self, said: Tensor) -> tuple[Tensor, Tensor]:
        word = self.words.gather(1, said.clamp(max=self.words.shape[1] - 1)[:, None])[:, 0]
        full, end = super().next(said)
        return full | (word >= 0), torch.where(word >= 0, word, end)
