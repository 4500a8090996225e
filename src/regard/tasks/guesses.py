"""How well masked words are guessed, and whether segments follow each other: sums over batches, and what they mean."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F

from regard.models.bert import MaskedLanguage
from regard.models.texts import Texts
from regard.tasks.contract import Progress


@dataclass
class Guesses:
    loss: float = 0.0  # of masked words, summed
    right: int = 0
    places: int = 0
    gaps_right: int = 0  # of the places that read [MASK]: elsewhere a word may be known by copying it
    gaps: int = 0
    labels: list[np.ndarray] = field(default_factory=list)
    next_loss: float = 0.0  # of rows, summed
    next_right: int = 0
    rows: int = 0
    judged: int = 0  # rows of which it was asked whether the second segment follows

    def metrics(self) -> dict[str, float]:
        """Means; accuracies in percent. The unigram's: always saying the most frequent of the masked words."""
        most = np.bincount(np.concatenate(self.labels)).max() if self.places else 0
        places, judged = max(self.places, 1), max(self.judged, 1)
        words = {
            "masked_loss": self.loss / places,
            "masked_accuracy": 100 * self.right / places,
            "gap_accuracy": 100 * self.gaps_right / max(self.gaps, 1),
            "unigram_accuracy": 100 * float(most) / places,
        }
        if not self.judged:
            return {"loss": words["masked_loss"]} | words
        follows = {"next_loss": self.next_loss / judged, "next_accuracy": 100 * self.next_right / judged}
        return {"loss": words["masked_loss"] + follows["next_loss"]} | words | follows


@torch.inference_mode()
def guesses(model: MaskedLanguage, batches: Sequence[Texts], mask: int, progress: Progress | None = None) -> Guesses:
    """`mask` is what a gap reads."""
    found, device = Guesses(), next(model.parameters()).device
    was_training = model.training
    model.eval()
    for n, batch in enumerate(batches, 1):
        moved = batch.to(device)
        assert moved.labels is not None
        assert batch.labels is not None
        words, follows = model.scores(moved)
        found.loss += float(F.cross_entropy(words.float(), moved.labels, reduction="sum"))
        right, gap = words.argmax(-1) == moved.labels, moved.ids.flatten()[moved.places] == mask
        found.right += int(right.sum())
        found.gaps_right += int((right & gap).sum())
        found.gaps += int(gap.sum())
        found.places += len(batch.labels)
        found.labels.append(batch.labels.numpy())
        found.rows += len(batch.ids)
        if follows is not None and moved.classes is not None:
            found.next_loss += float(F.cross_entropy(follows.float(), moved.classes, reduction="sum"))
            found.next_right += int((follows.argmax(-1) == moved.classes).sum())
            found.judged += len(batch.ids)
        if progress:
            progress("Measuring", n, len(batches))
    model.train(was_training)
    return found
