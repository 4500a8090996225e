"""C26: do heads find the dependency trees of the embedded corpus, better than the best fixed distance does?"""

from collections.abc import Callable

import torch
from torch import Tensor

from regard.data import embedded
from regard.lab.claim import Claim, Figure, Measurement, PredictedRange, Setup
from regard.lab.corpus import PAD, WordEncoder, drawn, english, entries, masked
from regard.lab.tiny import fit
from regard.models.batch import RaggedRows
from regard.nn.record import LayerRecord

STEPS, SIZE, LAYERS, HEADS, SENTENCES = 600, 48, 2, 4, 600
OFFSETS = (-3, -2, -1, 1, 2, 3)


def parents(split: embedded.Split) -> Tensor:
    """The place of every word's head, −1 at the root and at padding [S, N]."""
    rows = [[head - 1 for head in pair.heads] for pair in embedded.pairs(split)[:SENTENCES]]
    padded, real = RaggedRows.of(rows).padded(0)
    return torch.from_numpy(padded).masked_fill(~torch.from_numpy(real), -1)


@torch.no_grad()
def strongest(model: WordEncoder, split: embedded.Split) -> Tensor:
    """Where every head looks most, beside the word itself [heads of all layers, S, N]."""
    ids = english(split, SENTENCES)
    records = [LayerRecord(keep_graph=False) for _ in model.layers]
    model.states(ids, records=records)
    weights = torch.cat([record.weights[0] for record in records], 1).transpose(0, 1)  # [L·H, S, N, N]
    own = torch.eye(ids.shape[1], dtype=torch.bool)
    return weights.masked_fill(own | (ids == PAD)[:, None], -1.0).argmax(-1)


def agreement(looks: Tensor, heads: Tensor) -> Tensor:
    """The share of words whose head is where each of these looks [·]."""
    return ((looks == heads) & (heads >= 0)).double().sum((-2, -1)) / (heads >= 0).sum()


def _best(of: Callable[[embedded.Split], Tensor]) -> float:
    """Chosen on the validation sentences, measured on the test sentences."""
    best = int(agreement(of("valid"), parents("valid")).argmax())
    return float(agreement(of("test"), parents("test"))[best])


def _measure(seed: int, setup: Setup) -> Measurement:
    rows = english("train")
    model = WordEncoder(entries(), SIZE, layers=LAYERS, heads=HEADS)
    untrained = _best(lambda split: strongest(model, split))
    fit(model, lambda: masked(drawn(rows)), 1 if setup.fault == "an untrained model" else STEPS, 5e-3)
    head = _best(lambda split: strongest(model, split))

    def at_distance(split: embedded.Split) -> Tensor:
        places = torch.arange(english(split, SENTENCES).shape[1])
        return torch.stack([(places + offset).expand_as(parents(split)) for offset in OFFSETS])

    distance = _best(at_distance)
    found = agreement(strongest(model, "test"), parents("test")).tolist()
    curves = {
        "heads": [(float(n + 1), value) for n, value in enumerate(found)],
        "best distance": [(1.0, distance), (float(len(found)), distance)],
        "untrained, best": [(1.0, untrained), (float(len(found)), untrained)],
    }
    return Measurement({"gain": head - distance, "head": head}, {"agreement": curves})


CLAIM = Claim(
    id="C26",
    title="Syntax in heads",
    sentence="Self-attention finds syntax.",
    source="notes 003; Clark 2019; Voita 2019",
    kind="screen",
    predictions=(
        PredictedRange(
            "gain", "share of words whose head in the tree is where the best attention head looks most, less the same "
            "of the best fixed distance: at least 0.05", 0.05,
        ),
    ),
    measure=_measure,
    seconds=7.0,
    seeds=3,
    most_seeds=6,
    depends_on="Two layers of four heads that guess masked words, 600 steps; one attention head for all relations, "
    "chosen on other sentences. A baseline by distance is strong: most words stand beside their head. Single relations "
    "(an object, a determiner) may have a head of their own, which is not asked here.",
    figures=(Figure("agreement", "words whose head is looked at most", "attention head", "share"),),
    faults={"an untrained model": "one step of training"},
    why_not_on_text="it needs trees, which the embedded corpus has",
)  # fmt: skip
