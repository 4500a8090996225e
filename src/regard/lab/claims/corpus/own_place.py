"""C23: how much heads look at their own place, by their number; and whether W^O's parts tell which heads matter."""

import torch

from regard.lab.claim import Claim, Figure, Measurement, Points, PredictedRange, Setup
from regard.lab.corpus import PAD, WordEncoder, drawn, english, entries, masked, mean_loss
from regard.lab.tiny import fit
from regard.nn.multi_head import MultiHeadAttention
from regard.nn.record import LayerRecord

STEPS, SIZE, LAYERS, HEADS, TEST = 200, 48, 2, (1, 4, 8), 300


@torch.no_grad()
def own_mass(model: WordEncoder) -> float:
    """The weight of a word on itself, over all words, heads and layers."""
    ids = english("valid", TEST)
    records = [LayerRecord(keep_graph=False) for _ in model.layers]
    model.states(ids, records=records)
    own = torch.stack([record.weights[0].diagonal(dim1=-2, dim2=-1) for record in records])  # [L, S, H, N]
    return float(own.mean(2)[:, ids != PAD].mean())


@torch.no_grad()
def norms_and_costs(model: WordEncoder) -> tuple[torch.Tensor, torch.Tensor]:
    """Of every head the norm of its part of W^O, and by how much masked words get worse without it."""
    torch.manual_seed(0)
    test = masked(english("valid", TEST))
    before = mean_loss(model, *test)
    norms, costs = [], []
    for layer in model.layers:
        attention = layer.get_submodule("attention")
        assert isinstance(attention, MultiHeadAttention)
        parts = attention.output.weight.unflatten(1, (attention.heads, -1))  # [D, H, d_v]
        for head in range(attention.heads):
            kept = parts[:, head].clone()
            norms.append(float(kept.norm()))
            parts[:, head] = 0
            costs.append(mean_loss(model, *test) - before)
            parts[:, head] = kept
    return torch.tensor(norms), torch.tensor(costs)


def rank_correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    """Spearman's ρ."""
    ranks = torch.stack([each.argsort().argsort().double() for each in (a, b)])
    return float(torch.corrcoef(ranks)[0, 1])


def _measure(seed: int, setup: Setup) -> Measurement:
    rows, mass = english("train"), []
    for heads in HEADS:
        torch.manual_seed(seed)
        model = WordEncoder(entries(), SIZE, layers=LAYERS, heads=4 if setup.fault == "four heads for all" else heads)
        fit(model, lambda: masked(drawn(rows)), STEPS, 5e-3)
        mass.append((float(heads), own_mass(model)))
    norms, costs = norms_and_costs(model)
    found = dict(mass)
    numbers = {"own": found[1.0] - found[4.0], "norms": rank_correlation(norms, costs)}
    points: Points = sorted(zip(norms.tolist(), costs.tolist(), strict=True))
    return Measurement(numbers, {"own": {"": mass}, "norms": {"": [(float(n), c) for n, (_, c) in enumerate(points)]}})


CLAIM = Claim(
    id="C23",
    title="One head looks at itself",
    sentence="One head looks too much at its own place; several do not, and W^O weighs them.",
    source="notes 001",
    kind="screen",
    predictions=(
        PredictedRange(
            "own", "weight on one's own place with one head less that with four: at least 0.05", 0.05,
            setting="own place",
        ),
        PredictedRange(
            "norms", "rank correlation of the norm of a head's part of W^O and the cost of its ablation: at least 0.3",
            0.3, setting="W^O",
        ),
    ),
    measure=_measure,
    seconds=8.0,
    seeds=3,
    most_seeds=6,
    depends_on="Two layers of 48 that guess masked words of the embedded corpus; sixteen heads are ranked. The norm of "
    "a part of W^O is no measure of what goes through it: values differ in size too.",
    figures=(
        Figure("own", "weight of a word on its own place", "heads", "weight", True),
        Figure("norms", "cost of ablating a head, by the rank of its norm in W^O", "rank", "nats"),
    ),
    faults={"four heads for all": "every model has four heads"},
    why_not_on_text="it is about what heads do, which `regard look --ablate` and `--json` show of any model",
)  # fmt: skip
