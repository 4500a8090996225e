"""C26: do heads find dependency trees, better than the best fixed distance does?

The trees are those of the embedded corpus, or of a CoNLL-U file: its first four fifths are learned from, by their words
alone, the next tenth chooses heads and distances, the last measures them.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from regard.data import embedded
from regard.data.annotations import read_treebank
from regard.errors import RegardError
from regard.lab.claim import Claim, Figure, Measurement, Setup, lower_bound
from regard.lab.corpus import PAD, REST, UNKNOWN, WordEncoder, english, entries, masked_encoder, padded
from regard.lab.tiny import points

STEPS, SIZE, LAYERS, HEADS, SENTENCES = 600, 48, 2, 4, 600
OFFSETS = (-3, -2, -1, 1, 2, 3)
LONGEST, FEWEST = 60, 50  # words of a sentence that is read, sentences of a file


@dataclass(frozen=True)
class Side:
    """Sentences, and the place of every word's head, −1 at the root and at padding, both [S, N]."""

    ids: Tensor
    parents: Tensor


@dataclass(frozen=True)
class Treebank:
    words: int
    train: Tensor
    valid: Side
    test: Side


def embedded_trees() -> Treebank:
    def side(split: embedded.Split) -> Side:
        parents = [[head - 1 for head in pair.heads] for pair in embedded.pairs(split)[:SENTENCES]]
        return Side(english(split, SENTENCES), padded(parents, -1))

    return Treebank(entries(), english("train"), side("valid"), side("test"))


def trees_of(path: Path) -> Treebank:
    """Of a CoNLL-U file; words that stand once in what is learned from are unknown."""
    sentences = [(words, parents) for words, parents in read_treebank(path) if len(words) <= LONGEST]
    if len(sentences) < FEWEST:
        raise RegardError(f"{path}: {len(sentences)} sentences of at most {LONGEST} words; {FEWEST} are needed")
    tenth = len(sentences) // 10
    train, valid, test = sentences[: -2 * tenth], sentences[-2 * tenth : -tenth], sentences[-tenth:]
    seen = Counter(word.lower() for words, _ in train for word in words)
    known = {word: REST + n for n, word in enumerate(sorted(word for word, count in seen.items() if count > 1))}

    def side(part: list[tuple[list[str], list[int]]]) -> Side:
        ids = [[known.get(word.lower(), UNKNOWN) for word in words] for words, _ in part]
        return Side(padded(ids), padded([[head - 1 for head in parents] for _, parents in part], -1))

    return Treebank(REST + len(known), side(train).ids, side(valid), side(test))


@torch.no_grad()
def strongest(model: WordEncoder, ids: Tensor) -> Tensor:
    """Where every head looks most, beside the word itself [heads of all layers, S, N]."""
    weights = model.weights(ids).transpose(1, 2).flatten(0, 1)  # [L·H, S, N, N]
    own = torch.eye(ids.shape[1], dtype=torch.bool)
    return weights.masked_fill(own | (ids == PAD)[:, None], -1.0).argmax(-1)


def at_distances(ids: Tensor) -> Tensor:
    places = torch.arange(ids.shape[1])
    return torch.stack([(places + offset).expand_as(ids) for offset in OFFSETS])


def agreement(looks: Tensor, parents: Tensor) -> Tensor:
    """The share of words whose head is where each of these looks [·]."""
    return ((looks == parents) & (parents >= 0)).double().sum((-2, -1)) / (parents >= 0).sum()


def _measure(seed: int, setup: Setup) -> Measurement:
    bank = trees_of(Path(setup.trees)) if setup.trees else embedded_trees()

    def best(looks: Callable[[Tensor], Tensor]) -> float:
        """Chosen on the validation sentences, measured on the test sentences."""
        chosen = int(agreement(looks(bank.valid.ids), bank.valid.parents).argmax())
        return float(agreement(looks(bank.test.ids), bank.test.parents)[chosen])

    def encoder(steps: int) -> WordEncoder:
        model: WordEncoder = masked_encoder(seed, SIZE, steps, HEADS, text=(bank.train, bank.words)).model
        return model

    fresh, trained = encoder(0), encoder(1 if setup.fault else STEPS)
    untrained, head = (best(lambda ids: strongest(model, ids)) for model in (fresh, trained))  # noqa: B023
    distance = best(at_distances)
    found = agreement(strongest(trained, bank.test.ids), bank.test.parents).tolist()
    ends = (1, len(found))
    curves = {
        "heads": points(range(1, len(found) + 1), found),
        "best distance": points(ends, (distance, distance)),
        "untrained, best": points(ends, (untrained, untrained)),
    }
    return Measurement({"gain": head - distance, "head": head}, {"agreement": curves})


CLAIM = Claim(
    title="Syntax in heads",
    sentence="Self-attention finds syntax.",
    source="notes 003; Clark 2019; Voita 2019",
    predictions=(
        lower_bound("gain",
                "share of words whose head in the tree is where the best attention head looks most, less the "
                 "same of the best fixed distance", 0.05),
    ),
    measure=_measure,
    seconds=7.0,
    seeds=(3, 6),
    depends_on="Two layers of four heads that guess masked words, 600 steps; one attention head for all relations, "
    "chosen on other sentences. A baseline by distance is strong: most words stand beside their head. Single relations "
    "(an object, a determiner) may have a head of their own, which is not asked here.",
    figures=(Figure("agreement", "words whose head is looked at most", "attention head", "share"),),
    faults={"an untrained model": "one step of training"},
    why_not_on_text="it needs trees: those of the embedded corpus, or of a CoNLL-U file (--trees)",
)  # fmt: skip
