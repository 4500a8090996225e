"""Dialogue examples: pairs of history and reply for an encoder and a decoder, or one sequence for a language model.

A dialogue is <s>, then every turn, each ended by </s>. Both formats use the same prepared rows, as spans of them, and
have the same targets: every turn but the first, its </s> included, given those before it (or every turn, where the
task's settings say so). Knows no files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import numpy as np
import torch

from regard.data.batches import token_budget_batches
from regard.data.ragged import RaggedArray, RaggedSpans
from regard.examples.pairs import PairsView
from regard.examples.preparing import CorpusEncoder
from regard.examples.vocabulary import Vocabulary
from regard.examples.windows import StridedWindows
from regard.models.batch import PairBatch, RaggedRows, TextBatch, collate_sources, collate_texts
from regard.text import Tokenizer

VERSION = 1


class DialogueSettings(Protocol):
    """The settings of the task chat that decide what an example is."""

    @property
    def length(self) -> int: ...
    @property
    def history(self) -> int | None: ...
    @property
    def learn(self) -> str: ...


class DialogueEncoder(CorpusEncoder):
    """The encoder of dialogues whose turns are lines."""

    def __init__(self, tokenizer: Tokenizer, rules: str) -> None:
        super().__init__(tokenizer, f"turns {VERSION} {rules}")

    def encode_batch(self, collate_texts: Sequence[str]) -> list[list[int]]:
        t, dialogues = self.tokenizer, [text.split("\n") if text else [] for text in collate_texts]
        pieces = iter(t.encode_batch([turn for turns in dialogues for turn in turns]))
        return [[t.bos, *chain.from_iterable([*next(pieces), t.eos] for _ in turns)] for turns in dialogues]

    def encode_rows(self, dialogues: Sequence[str]) -> RaggedArray:
        packed = RaggedRows.of(self.encode_batch(dialogues))
        return RaggedArray(packed.flat, np.concatenate([[0], np.cumsum(packed.lengths)]))

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.detokenise(self.tokenizer.decode(ids))


@dataclass(frozen=True)
class TurnSpans:
    """The turns of all dialogues as spans of their flat ids, the </s> of each included."""

    row: np.ndarray  # [turns] which dialogue
    begin: np.ndarray
    end: np.ndarray
    first: np.ndarray  # the number of its dialogue's first turn

    @staticmethod
    def of(rows: RaggedArray, eos: int) -> "TurnSpans":
        end = np.flatnonzero(rows.flat == eos) + 1
        end = end[~np.isin(end - 1, rows.offsets[:-1])]  # GPT-2's one special token begins a dialogue, too
        row = np.searchsorted(rows.offsets, end - 1, side="right") - 1
        is_first = np.diff(row, prepend=-1) != 0
        begin = np.where(is_first, rows.offsets[row] + 1, np.roll(end, 1))
        return TurnSpans(row, begin, end, np.maximum.accumulate(np.where(is_first, np.arange(len(end)), 0)))

    @property
    def is_first(self) -> np.ndarray:
        return self.first == np.arange(len(self.first))


class Seq2SeqDialogues:
    """Sequence to sequence: the history is the source, the reply the target."""

    def __init__(self, task: DialogueSettings, tokenizer: Tokenizer) -> None:
        self.task, self.tokenizer = task, tokenizer
        self.vocabulary = Vocabulary(tokenizer, tokenizer, shared=True)

    def examples(self, rows: RaggedArray) -> "DialogueExamples":
        s, length = TurnSpans.of(rows, self.tokenizer.eos), self.task.length
        chosen = np.flatnonzero((~s.is_first | (self.task.learn == "all")) & (s.end - s.begin <= length))
        begin, end, is_first = s.begin[chosen], s.end[chosen], s.is_first[chosen]
        oldest = np.maximum(s.first[chosen], chosen - (self.task.history or len(s.row)))
        history = np.maximum(s.begin[oldest], begin - length)  # the last turns, the last </s> included
        source = RaggedSpans(rows.flat, history, begin - ~is_first)
        left = int((s.end - s.begin > length).sum())
        notice = f"{left:,} turns longer than task.length={length} are no replies to learn" if left else ""
        return DialogueExamples(s.row[chosen], RaggedSpans(rows.flat, begin, end - 1), notice, source=source)

    def view(self, examples: "DialogueExamples", chosen: np.ndarray) -> PairsView:
        return PairsView(self.vocabulary, examples.source, examples.target, chosen)

    def prompt(self, ids: list[int], limit: int) -> tuple[list[int], int]:
        """The source of a dialogue, and how many tokens its reply may have, at most `limit`."""
        return ids[1:-1][-(self.task.length - 1) :], min(limit, self.task.length - 1)

    def blank_prompt(self, length: int) -> list[int]:
        """The source of a dialogue of so many tokens, the end included, of no meaning."""
        return [self.tokenizer.eos] * (min(length, self.task.length) - 1)

    def room(self, prompt: int, limit: int) -> int:
        """Positions of a reply of so many tokens."""
        return min(limit + 1, self.task.length)

    def collate_prompts(self, prompts: Sequence[Sequence[int]]) -> PairBatch:
        return PairBatch(*collate_sources(RaggedRows.of(prompts), self.tokenizer.pad, self.tokenizer.eos))


class CausalLMDialogues:
    """A language model: the dialogue is one sequence, and only replies are targets."""

    def __init__(self, task: DialogueSettings, tokenizer: Tokenizer) -> None:
        self.task, self.tokenizer = task, tokenizer

    def examples(self, rows: RaggedArray) -> "DialogueExamples":
        """Dialogues longer than the length are several windows, in which each token is a target once."""
        s, length = TurnSpans.of(rows, self.tokenizer.eos), self.task.length
        first_target = np.asarray(rows.offsets[:-1]) + 1  # the first target of each dialogue
        if self.task.learn == "replies":
            first_target = first_target.copy()
            first_target[s.row[s.is_first]] = s.end[s.is_first]
        windows = np.stack([np.arange(len(rows)), rows.offsets[:-1], rows.offsets[1:], first_target], 1)
        long, window = np.flatnonzero(rows.lengths > length + 1), StridedWindows(length, max(1, length // 2))
        more = [
            (n, first + w.begin, first + w.end + 1, max(first_target[n], first + w.begin + w.skip + 1))
            for n, first in zip(long.tolist(), rows.offsets[long].tolist(), strict=True)
            for w in window.windows(n, int(rows.lengths[n]))
        ]
        windows = np.concatenate([np.delete(windows, long, 0), np.array(more, dtype=np.int64).reshape(-1, 4)])
        windows = windows[windows[:, 3] < windows[:, 2]]
        row, begin, end, first_target = windows[np.lexsort((windows[:, 1], windows[:, 0]))].T
        return DialogueExamples(row, RaggedSpans(rows.flat, begin, end), first_target=first_target)

    def view(self, examples: "DialogueExamples", chosen: np.ndarray) -> "DialogueView":
        return DialogueView(examples, chosen, self.tokenizer.pad)

    def prompt(self, ids: list[int], limit: int) -> tuple[list[int], int]:
        kept = max(self.task.length // 2, self.task.length - limit)
        return ids[-kept:], min(limit, self.task.length - kept)  # the same for all rows: prompt and reply fit together

    def blank_prompt(self, length: int) -> list[int]:
        """A dialogue that has not begun: what is read later has its room beside the reply's."""
        return [self.tokenizer.bos]

    def room(self, prompt: int, limit: int) -> int:
        """Positions of a prompt of so many tokens and its reply."""
        return min(prompt + limit, self.task.length)

    def collate_prompts(self, prompts: Sequence[Sequence[int]]) -> TextBatch:
        return collate_texts(prompts, self.tokenizer.pad)


DialogueFormat = Seq2SeqDialogues | CausalLMDialogues


def dialogue_format(task: DialogueSettings, model: str, tokenizer: Tokenizer) -> DialogueFormat:
    return (CausalLMDialogues if model == "lm" else Seq2SeqDialogues)(task, tokenizer)


@dataclass(frozen=True)
class DialogueExamples:
    """Examples in the order of the dialogues, as spans of their ids."""

    row: np.ndarray  # [examples] which dialogue
    target: RaggedSpans  # the reply without its </s>; or inputs and targets of a language model
    notice: str = ""
    source: RaggedSpans | None = None  # the history
    first_target: np.ndarray | None = None  # place of the first target in the flat ids

    def of_dialogues(self, rows: np.ndarray) -> np.ndarray:
        """The indices of the examples of these dialogues."""
        begins, ends = (np.searchsorted(self.row, rows, side=side) for side in ("left", "right"))  # type: ignore[call-overload]
        return RaggedSpans(np.arange(len(self.row)), begins, ends).take(np.arange(len(rows)))[0]


class DialogueView:
    """Whole dialogues, or windows of them, of like length together; what is no target is context."""

    def __init__(self, examples: DialogueExamples, chosen: np.ndarray, pad: int) -> None:
        self.examples, self.chosen, self.pad = examples, chosen, pad
        self.target_lengths = examples.target.lengths[chosen] - 1

    def plan(self, budget: int, seed: int, epoch: int) -> list[np.ndarray]:
        return token_budget_batches(None, self.target_lengths, budget, seed, epoch)

    def targets(self, indices: np.ndarray) -> int:
        chosen, e = self.chosen[indices], self.examples
        return int((e.target.ends[chosen] - e.first_target[chosen]).sum())  # type: ignore[index]

    def collate(self, indices: np.ndarray) -> TextBatch:
        chosen, e = self.chosen[indices], self.examples
        ids, real = RaggedRows(*e.target.take(chosen)).padded(self.pad)  # [B, T + 1]
        from_ = (e.first_target[chosen] - e.target.begins[chosen])[:, None]  # type: ignore[index]
        seen = np.ascontiguousarray(real[:, 1:])  # [B, T]
        learned = seen & (np.arange(1, ids.shape[1]) >= from_)
        return TextBatch(
            torch.from_numpy(np.ascontiguousarray(ids[:, :-1])),
            None if seen.all() else torch.from_numpy(seen),
            labels=torch.from_numpy(ids[:, 1:][learned]),
            label_positions=torch.from_numpy(np.flatnonzero(learned)),
            rows=tuple(e.row[chosen].tolist()),
        )
