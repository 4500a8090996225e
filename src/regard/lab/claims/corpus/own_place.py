"""C23: how much heads look at their own place, by their number; and whether W^O's parts tell which heads matter."""

import torch
from torch import Tensor

from regard.lab.claim import Claim, Figure, Measurement, Setup, lower_bound
from regard.lab.corpus import PAD, WordEncoder, english, masked, masked_encoder, mean_loss
from regard.lab.tiny import points
from regard.nn.multi_head import MultiHeadAttention

STEPS, SIZE, HEADS, TEST = 200, 48, (1, 4, 8), 300


@torch.no_grad()
def own_mass(model: WordEncoder) -> float:
    """The weight of a word on itself, over all words, heads and layers."""
    ids = english("valid", TEST)
    own = model.weights(ids).diagonal(dim1=-2, dim2=-1)  # [L, S, H, N]
    return float(own.mean(2)[:, ids != PAD].mean())


@torch.no_grad()
def norms_and_costs(model: WordEncoder) -> tuple[Tensor, Tensor]:
    """Of every head the norm of its part of W^O, and by how much masked words get worse without it."""
    torch.manual_seed(0)
    test = masked(english("valid", TEST))
    before = mean_loss(model, *test)
    norms, costs = [], []
    for attention in (each for each in model.modules() if isinstance(each, MultiHeadAttention)):
        parts = attention.output.weight.unflatten(1, (attention.heads, -1))  # [D, H, d_v]
        for head in range(attention.heads):
            kept = parts[:, head].clone()
            norms.append(float(kept.norm()))
            parts[:, head] = 0
            costs.append(mean_loss(model, *test) - before)
            parts[:, head] = kept
    return torch.tensor(norms), torch.tensor(costs)


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Spearman's ρ."""
    ranks = torch.stack([each.argsort().argsort().double() for each in (a, b)])
    return float(torch.corrcoef(ranks)[0, 1])


def _measure(seed: int, setup: Setup) -> Measurement:
    models = {heads: masked_encoder(seed, SIZE, STEPS, 4 if setup.fault else heads).model for heads in HEADS}
    mass = {heads: own_mass(model) for heads, model in models.items()}
    norms, costs = norms_and_costs(models[HEADS[-1]])
    numbers = {"own": mass[1] - mass[4], "norms": rank_correlation(norms, costs)}
    by_norm = costs[norms.argsort()].tolist()
    curves = {"own": points(HEADS, [*mass.values()]), "norms": points(range(len(by_norm)), by_norm)}
    return Measurement(numbers, {name: {"": line} for name, line in curves.items()})


CLAIM = Claim(
    title="One head looks at itself",
    sentence="One head looks too much at its own place; several do not, and W^O weighs them.",
    source="notes 001",
    predictions=(
        lower_bound("own", "weight on one's own place with one head less that with four", 0.05),
        lower_bound("norms", "rank correlation of the norm of a head's part of W^O and the cost of its ablation", 0.3),
    ),
    measure=_measure,
    seconds=8.0,
    seeds=(3, 6),
    depends_on="Two layers of 48 that guess masked words of the embedded corpus; sixteen heads are ranked. The norm of "
    "a part of W^O is no measure of what goes through it: values differ in size too.",
    figures=(
        Figure("own", "weight of a word on its own place", "heads", "weight", True),
        Figure("norms", "cost of ablating a head, by the rank of its norm in W^O", "rank", "nats"),
    ),
    faults={"four heads for all": "every model has four heads"},
    why_not_on_text="it is about what heads do, which `regard look --ablate` and `--json` show of any model",
)
