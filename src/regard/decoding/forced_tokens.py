"""Forced tokens, whatever the model's scores: the end at a sequence's limit, and before that its prefix."""

import torch
from torch import Tensor

from regard.decoding.contract import GenerationRequest


class ForcedEos:
    """The end, when as many tokens have been generated as may be."""

    def __init__(self, eos: int, batch_size: int, device: torch.device) -> None:
        self.eos = torch.full((batch_size,), eos, device=device)
        self.limit = torch.zeros_like(self.eos)

    def begin(self, slots: Tensor, requests: list[GenerationRequest]) -> None:
        self.limit[slots] = torch.tensor([request.limit for request in requests], device=slots.device)

    def reorder(self, index: Tensor) -> None:
        self.eos, self.limit = self.eos[index], self.limit[index]

    def next(self, generated: Tensor) -> tuple[Tensor, Tensor]:
        """Where a token is forced [B], after so many generated ones [B], and the token [B] that it would be."""
        return generated >= self.limit, self.eos


class ForcedPrefix(ForcedEos):
    """The prefix of each sequence that has one, and the end."""

    def __init__(self, eos: int, batch_size: int, device: torch.device, longest: int) -> None:
        super().__init__(eos, batch_size, device)
        self.prefix = torch.full((batch_size, longest + 1), -1, device=device)  # -1: free

    def begin(self, slots: Tensor, requests: list[GenerationRequest]) -> None:
        super().begin(slots, requests)
        width = self.prefix.shape[1]
        padded = [[*request.prefix, *[-1] * (width - len(request.prefix))] for request in requests]
        self.prefix[slots] = torch.tensor(padded, device=slots.device)

    def reorder(self, index: Tensor) -> None:
        super().reorder(index)
        self.prefix = self.prefix[index]

    def next(self, generated: Tensor) -> tuple[Tensor, Tensor]:
        token = self.prefix.gather(1, generated.clamp(max=self.prefix.shape[1] - 1)[:, None])[:, 0]
        full, eos = super().next(generated)
        return full | (token >= 0), torch.where(token >= 0, token, eos)
