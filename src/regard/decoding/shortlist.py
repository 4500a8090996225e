"""A lexical shortlist: which target pieces an output may have, by the pieces of its source. Knows no text and no model.

The output's product, the largest of a step, is then computed for those alone (Jean 2015; Junczys-Dowmunt 2018, 4.2).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from regard.decoding.config import Beam, DecodingConfig, Greedy
from regard.errors import RegardError
from regard.io.manifest import verified
from regard.io.tensors import read_tensors, write_tensors

FILE = "shortlist.safetensors"  # in a model's folder


@dataclass(frozen=True)
class Shortlist:
    always: np.ndarray  # [n] target pieces that every output may have: the special and the most frequent ones
    candidates: np.ndarray  # [source pieces, k] target pieces; −1: none

    def of(self, source: Sequence[int], others: Sequence[int] = ()) -> np.ndarray:
        """The target pieces for a source, and `others`, in their order."""
        own = self.candidates[np.asarray(source, dtype=np.int64)].ravel()
        return np.unique(np.concatenate([self.always, own[own >= 0], np.asarray(others, dtype=np.int64)]))

    @staticmethod
    def serves(decoding: DecodingConfig) -> bool:
        """Whether a search may leave words out: those that draw from all, or guess, compute all."""
        return type(decoding) in (Beam, Greedy)

    def save(self, path: Path) -> None:
        tensors = {name: torch.from_numpy(array.astype(np.int32)) for name, array in vars(self).items()}
        write_tensors(path, tensors)


def read_shortlist(folder: Path, source_entries: int, target_entries: int) -> Shortlist:
    """The shortlist of a model whose vocabularies have so many entries."""
    path = folder / FILE
    if not path.exists():
        raise RegardError(f"{folder} has no shortlist; write one: regard shortlist {folder}")
    with verified(folder, [FILE]):
        tensors = read_tensors(path)
        always, candidates = (tensors.get(name, torch.empty(0)).numpy() for name in ("always", "candidates"))
        fits = always.ndim == 1 and candidates.ndim == 2 and len(candidates) == source_entries
        for ids in (always, candidates):
            fits = fits and ids.dtype == np.int32 and -1 <= ids.min(initial=0) <= ids.max(initial=0) < target_entries
    if not fits or always.min(initial=0) < 0:
        raise RegardError(
            f"{path}: not a shortlist of this model's vocabularies; write it anew: regard shortlist {folder}"
        )
    return Shortlist(always.astype(np.int64), candidates.astype(np.int64))
