"""Pairs of texts, a source and its target: their scores, their metrics, and word alignments by recorded attention.

Translates nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import nearest
from regard.decoding import Symbols
from regard.errors import RegardError, require_list
from regard.evaluation import Metric, text_metrics
from regard.evaluation.metrics import own_metrics, perplexity
from regard.examples.batching import LESS_TOKENS, by_length, each_batch
from regard.examples.pairs import Heads, check_trees, piece_trees
from regard.examples.recipe_like import RecipeLike
from regard.examples.vocabulary import Vocabulary
from regard.models.batch import RaggedRows, collate_pairs
from regard.nn.layout import Tree
from regard.nn.record import AttentionRecorder
from regard.predict.base import Predictor
from regard.predict.options import checked
from regard.text import Tokenizer

if TYPE_CHECKING:
    from regard.predict.translation import Translation
    from regard.tasks.translation import TranslationConfig


class PairPredictor(Predictor):
    """A trained model that reads a source and its target, with the vocabularies of both."""

    def __init__(self, model: nn.Module, vocabulary: Vocabulary, recipe: RecipeLike) -> None:
        super().__init__(model, recipe)
        self.vocabulary = vocabulary
        target = vocabulary.target
        self.symbols = Symbols(target.bos, target.eos, (target.pad, target.bos))

    @property
    def tokenizers(self) -> dict[str, Tokenizer]:
        return {"source": self.vocabulary.source, "target": self.vocabulary.target}

    @property
    def languages(self) -> tuple[str, str]:
        """Of the source and the target."""
        return cast("TranslationConfig", self.recipe.task).languages

    def _tree(self, trees: Heads | None, ids: list[list[int]], rows: list[int]) -> Tree | None:
        if trees is None:
            return None
        return piece_trees([trees[row] for row in rows], [ids[row] for row in rows], self.vocabulary.source)

    # --- alignment ---------------------------------------------------------------------------------------------

    def named_attention(self, line: str, translation: "Translation") -> "dict[str, NamedWeights]":
        """The recorded attention of a translation by kind, with the tokens of its axes: layer, head, query, key."""
        if not translation.attention:
            raise RegardError('no attention was recorded; write nbest([line], 1, attention=["cross"])')
        v = self.vocabulary
        source = v.source.shown([*v.source.encode(line), v.source.eos])
        outputs = v.target.shown([*translation.tokens, v.target.eos])
        inputs = v.target.shown([v.target.bos, *translation.tokens])
        names = {"encoder": (source, source), "decoder": (inputs, inputs), "cross": (outputs, source)}
        named = {}
        for kind, weights in translation.attention.items():
            queries, keys = (list(side[:n]) for side, n in zip(names[kind], weights.shape[2:], strict=True))
            named[kind] = NamedWeights(weights.float().cpu().numpy(), queries, keys)
        return named

    def alignment(
        self, line: str, translation: "Translation", layer: int | None = None, heads: Sequence[int] | None = None
    ) -> list[tuple[int, int]]:
        """(source word, target word) pairs by attention to the source, which must have been recorded.

        Words are those of the text that the tokenizer works on, split at spaces. Layers and heads count from 1.
        """
        if not translation.attention or "cross" not in translation.attention:
            raise RegardError("no attention to the source was recorded; a model without it gives no alignments")
        v = self.vocabulary
        weights = select_heads(translation.attention["cross"], layer, heads)
        source = v.source.encode(line)[: weights.shape[1] - 1]  # the end stands last
        return align(weights, v.source.words(source), v.target.words(translation.tokens))

    @torch.inference_mode()
    def check_alignment(self, layer: int | None = None, heads: Sequence[int] | None = None) -> None:
        """Raise RegardError unless the model has such attention to the source: seen with an empty pair."""
        v, record = self.vocabulary, AttentionRecorder(("cross",))
        empty = collate_pairs(RaggedRows.of([[]]), RaggedRows.of([[]]), v.source, v.target)
        self.model(replace(empty, tree=self._tree([[]], [[]], [0])).to(self.device), record)
        layers = record.layers("cross")
        if not layers:
            raise RegardError(f"the model {self.recipe.model.kind} has no attention to the source to align by")
        select_heads(torch.stack(layers)[:, 0], layer, heads)

    # --- scores and metrics ------------------------------------------------------------------------------------

    @checked
    @torch.inference_mode()
    def score(
        self,
        examples: Sequence[tuple[str, str]],
        batch_tokens: int = 8192,
        trees: Sequence[Sequence[int]] | None = None,
        before: int = 0,
    ) -> list[tuple[float, int]]:
        """For each (source, target): the log-probability of that target, and its tokens, the end included."""
        require_list(examples, "score([(source, target)])", "pairs", nested=True)
        for n, pair in enumerate(examples, before + 1):
            if isinstance(pair, str) or len(pair) != 2:
                raise RegardError(f"pair {n} is not a source and a target; write score([(source, target)])")
        v = self.vocabulary
        source = v.source.encode_batch([s for s, _ in examples])
        target = v.target.encode_batch([t for _, t in examples])
        if trees is not None:
            check_trees(trees, source, v.source, before)
        scores: list[tuple[float, int]] = [(0.0, 0)] * len(examples)

        def compute(rows: list[int]) -> None:
            sides = RaggedRows.of([source[r] for r in rows]), RaggedRows.of([target[r] for r in rows])
            batch = replace(collate_pairs(*sides, v.source, v.target), tree=self._tree(trees, source, rows)).to(
                self.device
            )
            assert batch.labels is not None
            logits = self.model(batch)
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            nll = F.cross_entropy(logits, batch.labels, reduction="none")
            counts = [len(target[r]) + 1 for r in rows]
            for row, part, count in zip(rows, nll.double().split(counts), counts, strict=True):
                scores[row] = (-float(part.sum()), count)

        with self.eval_mode():
            lengths = [max(len(s), len(t)) + 1 for s, t in zip(source, target, strict=True)]
            each_batch(by_length(lengths, batch_tokens), compute, LESS_TOKENS)
        return scores

    def loss(
        self, examples: Sequence[tuple[str, str]], trees: Sequence[Sequence[int]] | None = None
    ) -> dict[str, float]:
        """Mean loss of a token, and perplexity, under teacher forcing; empty pairs do not count."""
        full = [n for n, (s, t) in enumerate(examples) if s.strip() and t.strip()]
        scored = self.score([examples[n] for n in full], trees=trees and [trees[n] for n in full])
        nll, count = -sum(s for s, _ in scored), sum(n for _, n in scored)
        return {"loss": nll / max(count, 1), "perplexity": perplexity(nll, count)}

    def metrics(
        self, outputs: Sequence[str], examples: Sequence[tuple[str, str]], full: bool = True
    ) -> dict[str, Metric]:
        """Text metrics of outputs in prepared form, as `evaluation` says: on that form, or on plain text."""
        settings = self.recipe.evaluation
        outputs, references = self.measured_form(outputs, examples)
        metrics = text_metrics(outputs, references, self.languages[1], settings.tokenise, full)
        return metrics | own_metrics(settings.metrics, outputs, references, [s for s, _ in examples])

    def measured_form(
        self, outputs: Sequence[str], examples: Sequence[tuple[str, str]]
    ) -> tuple[Sequence[str], list[str]]:
        """Outputs in prepared form, and their references, in the form that `evaluation.form` says."""
        target = self.vocabulary.target
        if self.recipe.evaluation.form == "prepared":
            return outputs, [target.normalise(t) for _, t in examples]
        return [target.detokenise(o, self.languages[1]) for o in outputs], [t for _, t in examples]


# --- recorded attention as data --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NamedWeights:
    """The weights of one role, with named axes: layer, head, query, key."""

    weights: np.ndarray  # [L, H, Q, K]
    queries: list[str]  # the tokens of the third axis
    keys: list[str]  # and of the fourth

    axes = ("layer", "head", "query", "key")

    def select(
        self, layer: int | None = None, head: int | None = None, query: str | None = None, key: str | None = None
    ) -> np.ndarray:
        """The weights at a layer, a head, and the first place of a token as query or key; other axes stay."""
        places = (layer, head, self._place(self.queries, query, "query"), self._place(self.keys, key, "key"))
        return self.weights[tuple(slice(None) if place is None else place for place in places)]

    @staticmethod
    def _place(tokens: list[str], token: str | None, axis: str) -> int | None:
        if token is None:
            return None
        if token not in tokens:
            raise RegardError(f"no {axis} is {token!r}; {nearest(token, dict.fromkeys(tokens))}")
        return tokens.index(token)

    def _repr_html_(self) -> str:
        """The mean over layers and heads as a table."""
        head = "".join(f"<th>{escape(token)}</th>" for token in self.keys)
        rows = "".join(
            f"<tr><th>{escape(token)}</th>"
            + "".join(f'<td style="background: rgba(70, 110, 200, {w:.3f})">{w:.2f}</td>' for w in row)
            + "</tr>"
            for token, row in zip(self.queries, self.weights.mean((0, 1)), strict=True)
        )
        return f"<table><caption>{' × '.join(self.axes)}: mean</caption><tr><th></th>{head}</tr>{rows}</table>"


def select_heads(cross: Tensor, layer: int | None, heads: Sequence[int] | None) -> Tensor:
    """The mean weights [T, S] of some heads of one layer, out of [layers, H, T, S]; layers and heads from 1.

    By default the layer before the last, which aligns best (Garg 2019), and all its heads.
    """
    layers, count = cross.shape[:2]
    layer = max(1, layers - 1) if layer is None else layer
    if not 1 <= layer <= layers:
        raise RegardError(f"there is no layer {layer} to align by; the model attends to the source in 1 to {layers}")
    missing = [head for head in heads or [] if not 1 <= head <= count]
    if missing:
        raise RegardError(f"there is no head {missing[0]}; the layer has heads 1 to {count}")
    indices = [head - 1 for head in heads] if heads else list(range(count))
    return cross[layer - 1, indices].mean(0)


def align(weights: Tensor, source_words: Sequence[int], target_words: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs (source word, target word), one for each target word, in order.

    `weights` [T, S] belong to pieces; the words say which word each piece is part of, −1 for none. The weights of a
    target word are summed over the pieces of both words.
    """
    if not any(w >= 0 for w in source_words) or not any(w >= 0 for w in target_words):
        return []
    by_source = _sum(weights[: len(target_words), : len(source_words)].T, source_words)  # [source words, T]
    by_word = _sum(by_source.T, target_words)  # [target words, source words]
    return [(source, target) for target, source in enumerate(by_word.argmax(-1).tolist())]


def _sum(rows: Tensor, words: Sequence[int]) -> Tensor:
    """Rows [N, M] of pieces added up by word."""
    index = torch.tensor(words, device=rows.device)
    total = torch.zeros(int(index.max()) + 1, rows.shape[1], dtype=torch.float64, device=rows.device)
    return total.index_add(0, index[index >= 0], rows[index >= 0].double())


def to_pharaoh(links: Sequence[tuple[int, int]]) -> str:
    """`0-0 1-2 …`: source word - target word, both from 0."""
    return " ".join(f"{source}-{target}" for source, target in links)
