"""Dialogues as ids, and what is learned from them: pairs of history and reply, or the whole as one sequence.

A dialogue is <s>, then every turn, each ended by </s>. Both ways read the same prepared rows, as spans of them, and
learn the same: every turn but the first, its </s> included, when those before it are read (or every turn, where the
task says so). Knows no files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from regard.data.batches import token_budget_batches
from regard.data.ragged import RaggedArray, RaggedSpans
from regard.examples.pairs import PairsView
from regard.examples.preparing import Encoder
from regard.examples.vocabulary import Vocabulary
from regard.examples.windows import Reach
from regard.models.batch import PairBatch, RaggedRows, TextBatch, collate_sources, collate_texts
from regard.text import Tokenizer

if TYPE_CHECKING:
    from regard.tasks.chat import ChatConfig

VERSION = 1


class Turns(Encoder):
    """What dialogues, their turns a line each, are encoded with."""

    def __init__(self, tokenizer: Tokenizer, rules: str) -> None:
        super().__init__(tokenizer, f"turns {VERSION} {rules}")

    def encode_batch(self, dialogues: Sequence[str]) -> list[list[int]]:
        t, cut = self.tokenizer, [dialogue.split("\n") if dialogue else [] for dialogue in dialogues]
        pieces = iter(t.encode_batch([turn for turns in cut for turn in turns]))
        return [[t.bos, *chain.from_iterable([*next(pieces), t.eos] for _ in turns)] for turns in cut]

    def rows(self, dialogues: Sequence[str]) -> RaggedArray:
        packed = RaggedRows.of(self.encode_batch(dialogues))
        return RaggedArray(packed.flat, np.concatenate([[0], np.cumsum(packed.lengths)]))

    def text(self, ids: Sequence[int]) -> str:
        return self.tokenizer.detokenise(self.tokenizer.decode(ids))


@dataclass(frozen=True)
class Spoken:
    """Where the turns of all dialogues stand in their flat ids, the </s> of each included."""

    row: np.ndarray  # [turns] which dialogue
    begin: np.ndarray
    end: np.ndarray
    first: np.ndarray  # the number of its dialogue's first turn

    @staticmethod
    def of(rows: RaggedArray, eos: int) -> "Spoken":
        end = np.flatnonzero(rows.flat == eos) + 1
        end = end[~np.isin(end - 1, rows.offsets[:-1])]  # GPT-2's mark opens a dialogue, too
        row = np.searchsorted(rows.offsets, end - 1, side="right") - 1
        opens = np.diff(row, prepend=-1) != 0
        begin = np.where(opens, rows.offsets[row] + 1, np.roll(end, 1))
        return Spoken(row, begin, end, np.maximum.accumulate(np.where(opens, np.arange(len(end)), 0)))

    @property
    def opens(self) -> np.ndarray:
        return self.first == np.arange(len(self.first))


class Paired:
    """Sequence to sequence: what was said last is read, the reply is said."""

    def __init__(self, task: "ChatConfig", tokenizer: Tokenizer) -> None:
        self.task, self.tokenizer = task, tokenizer
        self.vocabulary = Vocabulary(tokenizer, tokenizer, shared=True)

    def examples(self, rows: RaggedArray) -> "Examples":
        s, length = Spoken.of(rows, self.tokenizer.eos), self.task.length
        chosen = np.flatnonzero((~s.opens | (self.task.learn == "all")) & (s.end - s.begin <= length))
        begin, end, opens = s.begin[chosen], s.end[chosen], s.opens[chosen]
        oldest = np.maximum(s.first[chosen], chosen - (self.task.history or len(s.row)))
        read = np.maximum(s.begin[oldest], begin - length)  # the end of what was said, its last </s> included
        source = RaggedSpans(rows.flat, read, begin - ~opens)
        left = int((s.end - s.begin > length).sum())
        said = f"{left:,} turns longer than task.length={length} are no replies to learn" if left else ""
        return Examples(s.row[chosen], RaggedSpans(rows.flat, begin, end - 1), said, source=source)

    def view(self, examples: "Examples", chosen: np.ndarray) -> PairsView:
        return PairsView(self.vocabulary, examples.source, examples.target, chosen)

    def fixed(self, model: nn.Module, batch: PairBatch) -> PairBatch | None:
        takes = getattr(model, "takes_packed", None)
        return batch.fixed() if takes and takes(batch) else None

    def prompt(self, ids: list[int], limit: int) -> tuple[list[int], int]:
        """What is read of a dialogue, and how many tokens may be said when so many are asked for."""
        return ids[1:-1][-(self.task.length - 1) :], min(limit, self.task.length - 1)

    def read(self, prompts: list[list[int]]) -> PairBatch:
        return PairBatch(*collate_sources(RaggedRows.of(prompts), self.tokenizer.pad, self.tokenizer.eos))


class Continued:
    """A language model: the dialogue is one sequence, and only replies are learned."""

    def __init__(self, task: "ChatConfig", tokenizer: Tokenizer) -> None:
        self.task, self.tokenizer = task, tokenizer

    def examples(self, rows: RaggedArray) -> "Examples":
        """Dialogues longer than the length are several windows, in which each token is learned once."""
        s, length = Spoken.of(rows, self.tokenizer.eos), self.task.length
        learn = np.asarray(rows.offsets[:-1]) + 1  # the first token of each dialogue that is learned
        if self.task.learn == "replies":
            learn = learn.copy()
            learn[s.row[s.opens]] = s.end[s.opens]
        windows = np.stack([np.arange(len(rows)), rows.offsets[:-1], rows.offsets[1:], learn], 1)
        long, reach = np.flatnonzero(rows.lengths > length + 1), Reach(length, max(1, length // 2))
        more = [
            (n, first + w.begin, first + w.end + 1, max(learn[n], first + w.begin + w.skip + 1))
            for n, first in zip(long.tolist(), rows.offsets[long].tolist(), strict=True)
            for w in reach.windows(n, int(rows.lengths[n]))
        ]
        windows = np.concatenate([np.delete(windows, long, 0), np.array(more, dtype=np.int64).reshape(-1, 4)])
        windows = windows[windows[:, 3] < windows[:, 2]]
        row, begin, end, learn = windows[np.lexsort((windows[:, 1], windows[:, 0]))].T
        return Examples(row, RaggedSpans(rows.flat, begin, end), learn=learn)

    def view(self, examples: "Examples", chosen: np.ndarray) -> "DialoguesView":
        return DialoguesView(examples, chosen, self.tokenizer.pad)

    def fixed(self, model: nn.Module, batch: TextBatch) -> None:
        return None  # dialogues differ in how much of them is learned

    def prompt(self, ids: list[int], limit: int) -> tuple[list[int], int]:
        kept = max(self.task.length // 2, self.task.length - limit)
        return ids[-kept:], min(limit, self.task.length - kept)  # alike for all rows: together they fit

    def read(self, prompts: list[list[int]]) -> TextBatch:
        return collate_texts(prompts, self.tokenizer.pad)


Form = Paired | Continued


def form_of(task: "ChatConfig", model: str, tokenizer: Tokenizer) -> Form:
    return (Continued if model == "lm" else Paired)(task, tokenizer)


@dataclass(frozen=True)
class Examples:
    """What is learned from, in the order of the dialogues, as spans of their ids."""

    row: np.ndarray  # [examples] which dialogue
    target: RaggedSpans  # the reply without its </s>; or all that is read and said
    left_out: str = ""
    source: RaggedSpans | None = None  # the history
    learn: np.ndarray | None = None  # where in the flat ids the first token stands that is learned

    def of(self, rows: np.ndarray) -> np.ndarray:
        """The examples of these dialogues."""
        begins, ends = (np.searchsorted(self.row, rows, side=side) for side in ("left", "right"))  # type: ignore[call-overload]
        return RaggedSpans(np.arange(len(self.row)), begins, ends).take(np.arange(len(rows)))[0]


class DialoguesView:
    """Whole dialogues, or windows of them, of like length together; what is not learned is only read."""

    def __init__(self, examples: Examples, chosen: np.ndarray, pad: int) -> None:
        self.examples, self.chosen, self.pad = examples, chosen, pad
        self.target_lengths = examples.target.lengths[chosen] - 1

    def plan(self, budget: int, seed: int, epoch: int) -> list[np.ndarray]:
        return token_budget_batches(None, self.target_lengths, budget, seed, epoch)

    def targets(self, indices: np.ndarray) -> int:
        chosen, e = self.chosen[indices], self.examples
        return int((e.target.ends[chosen] - e.learn[chosen]).sum())  # type: ignore[index]

    def collate(self, indices: np.ndarray) -> TextBatch:
        chosen, e = self.chosen[indices], self.examples
        ids, real = RaggedRows(*e.target.take(chosen)).padded(self.pad)  # [B, T + 1]
        from_ = (e.learn[chosen] - e.target.begins[chosen])[:, None]  # type: ignore[index]
        seen = np.ascontiguousarray(real[:, 1:])  # [B, T]
        learned = seen & (np.arange(1, ids.shape[1]) >= from_)
        return TextBatch(
            torch.from_numpy(np.ascontiguousarray(ids[:, :-1])),
            None if seen.all() else torch.from_numpy(seen),
            labels=torch.from_numpy(ids[:, 1:][learned]),
            label_positions=torch.from_numpy(np.flatnonzero(learned)),
            rows=tuple(e.row[chosen].tolist()),
        )
