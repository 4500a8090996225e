"""Normalisers: `entmax` as oracle, hidden places at exactly zero, and a hard choice that learns without bias."""

import entmax
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.nn.attention import AttentionConfig
from regard.nn.layout import AttentionContext, Layout
from regard.nn.multi_head import build_attention
from regard.nn.normalise import (
    EntmaxConfig,
    HardConfig,
    NormaliseConfig,
    ReinMax,
    Softmax,
    SoftmaxConfig,
    SparsemaxConfig,
)
from regard.nn.pattern import Full
from regard.nn.position import Position

SPARSE = [(SparsemaxConfig(), entmax.sparsemax), (EntmaxConfig(), entmax.entmax15)]
ALL = [SoftmaxConfig(), HardConfig(), SparsemaxConfig(), EntmaxConfig()]


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(SPARSE),
    st.integers(1, 40),
    st.sampled_from([0.01, 1.0, 5.0, 300.0]),
    st.booleans(),
    st.integers(0, 99),
)
def test_sparse_ones_are_entmaxs(pair, length, spread, ties, seed) -> None:
    choice, theirs = pair
    torch.manual_seed(seed)
    scores = torch.randn(3, 2, 4, length, dtype=torch.float64) * spread
    scores = scores.round() if ties else scores
    a, b = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    ours, expected = choice.build()(a, None), theirs(b, dim=-1)
    torch.testing.assert_close(ours, expected, atol=1e-12, rtol=1e-10)
    upstream = torch.randn_like(scores)
    ours.backward(upstream), expected.backward(upstream)
    torch.testing.assert_close(a.grad, b.grad, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("choice, _", SPARSE)
def test_gradients_of_sparse_ones(choice, _) -> None:
    torch.manual_seed(0)
    scores = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    allow = torch.rand(5, 7) < 0.7
    allow[0] = False
    normalise = choice.build()
    assert torch.autograd.gradcheck(lambda s: normalise(s, allow), (scores,))


def test_sparsemax_worked_by_hand() -> None:
    """(1, 0.5, −1): the support is the first two, τ = (1.5 − 1) / 2 = 0.25."""
    weights = SparsemaxConfig().build()(torch.tensor([1.0, 0.5, -1.0]), None)
    assert weights.tolist() == [0.75, 0.25, 0.0]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("choice", ALL)
def test_hidden_places_are_as_if_they_were_not_there(choice: NormaliseConfig, training: bool) -> None:
    """Weights of what is visible, zeros elsewhere; a row with nothing to see is zeros; gradients are numbers."""
    normalise = choice.build().train(training)
    g = np.random.default_rng(0)
    scores = torch.tensor(g.normal(size=(2, 3, 5, 6)) * 2, requires_grad=True)
    allow = torch.tensor(g.random((2, 1, 5, 6)) < 0.6)
    allow[0, 0, 0] = False
    torch.manual_seed(3)
    weights = normalise(scores, allow)
    hidden = ~allow.expand_as(weights)
    assert (weights[hidden] == 0).all()
    torch.testing.assert_close(weights.sum(-1), allow.any(-1).double().expand(2, 3, 5))
    if not isinstance(choice, HardConfig) or not training:
        for b, h, i in np.ndindex(2, 3, 5):
            seen = allow[b, 0, i]
            if seen.any():
                torch.testing.assert_close(weights[b, h, i][seen], normalise(scores[b, h, i][seen], None))
    if weights.requires_grad:
        (weights * torch.randn_like(weights)).sum().backward()
        assert torch.isfinite(scores.grad).all()
        assert (scores.grad[hidden] == 0).all()


@pytest.mark.parametrize("choice", ALL)
def test_low_precision(choice: NormaliseConfig) -> None:
    """Under bf16 autocast scores arrive in bf16; weights still sum to one and gradients come back in bf16."""
    torch.manual_seed(0)
    scores = torch.randn(2, 2, 4, 100).bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        weights = choice.build()(scores, torch.ones(2, 1, 4, 100, dtype=torch.bool))
        out = weights @ torch.randn(2, 2, 100, 3).bfloat16()
    torch.testing.assert_close(weights.float().sum(-1), torch.ones(2, 2, 4), atol=0.02, rtol=0)
    out.float().square().sum().backward()
    assert scores.grad.dtype == torch.bfloat16
    assert torch.isfinite(scores.grad).all()


# --- hard --------------------------------------------------------------------------------------------------------


def test_hard_is_the_best_place_and_draws_by_softmax_when_training() -> None:
    torch.manual_seed(0)
    scores = torch.tensor([1.0, 3.0, 2.0, 0.0])
    hard = HardConfig().build()
    assert hard.eval()(scores, None).tolist() == [0, 1, 0, 0]
    drawn = hard.train()(scores.expand(40_000, 4), None)
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(drawn.mean(0), scores.softmax(0), atol=0.01, rtol=0)


def expected_gradient(scores: Tensor, allow: Tensor, f) -> Tensor:
    """Of Σ_j p_j f(one-hot j): what drawing estimates."""
    scores = scores.clone().requires_grad_()
    weights = Softmax()(scores, allow)
    sum(weights[j] * f(place) for j, place in enumerate(torch.eye(len(scores), dtype=scores.dtype))).backward()
    return scores.grad


def mean_gradient(scores: Tensor, allow: Tensor, f) -> Tensor:
    """Σ_j p_j times the estimate where place j is drawn."""
    weights, total = Softmax()(scores, allow), torch.zeros_like(scores)
    for j, place in enumerate(torch.eye(len(scores), dtype=scores.dtype)):
        variable = scores.clone().requires_grad_()
        f(ReinMax.apply(variable, weights, place)).backward()
        total += weights[j] * variable.grad
    return total


@pytest.mark.parametrize("seed", range(5))
def test_drawing_has_the_gradient_of_the_expectation(seed: int) -> None:
    """Exactly where what follows is quadratic in the weights; a straight-through estimate is not."""
    g = torch.Generator().manual_seed(seed)
    scores, b = torch.randn(2, 6, generator=g, dtype=torch.float64)
    a = torch.randn(6, 6, generator=g, dtype=torch.float64)
    allow = torch.tensor([True, True, False, True, True, True])

    def f(w: Tensor) -> Tensor:
        return w @ a @ w + b @ w

    exact = expected_gradient(scores, allow, f)
    torch.testing.assert_close(mean_gradient(scores, allow, f), exact, atol=1e-12, rtol=1e-10)
    weights = Softmax()(scores, allow)
    places = torch.eye(6, dtype=torch.float64)
    slopes = [(a + a.T) @ place + b for place in places]
    straight = sum(w * weights * (s - weights @ s) for w, s in zip(weights, slopes, strict=True))
    assert (straight - exact).abs().max() > 0.01


class Lookup(nn.Module):
    """A query asks for the value that is stored beside its own key, among eight."""

    def __init__(self, normalise: NormaliseConfig, symbols: int = 20, values: int = 10, size: int = 32) -> None:
        super().__init__()
        self.symbols, self.values = symbols, values
        self.query, self.key = nn.Embedding(symbols, size), nn.Embedding(symbols, size)
        self.value, self.output = nn.Embedding(values, size), nn.Linear(size, values)
        self.attention = build_attention(AttentionConfig(normalise=normalise), size, 1, Position(), Full())

    def draw(self, rows: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        keys = torch.rand(rows, self.symbols).argsort(-1)[:, :8]
        values = torch.randint(self.values, (rows, 8))
        place = torch.randint(8, (rows, 1))
        return keys.gather(1, place), keys, values, values.gather(1, place)[:, 0]

    def forward(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        context = AttentionContext(Layout.of(1), Layout.of(8))
        return self.output(self.attention(self.query(query), self.key(keys) + self.value(values), context)[:, 0])

    def learn(self, steps: int) -> "Lookup":
        optimiser = torch.optim.Adam(self.parameters(), 3e-3)
        for _ in range(steps):
            *asked, answer = self.draw(128)
            optimiser.zero_grad()
            nn.functional.cross_entropy(self(*asked), answer).backward()
            optimiser.step()
        return self.eval()

    def accuracy(self) -> float:
        *asked, answer = self.draw(4000)
        return float((self(*asked).argmax(-1) == answer).float().mean())


@pytest.mark.parametrize("choice", [HardConfig(), SoftmaxConfig(), SparsemaxConfig(), EntmaxConfig()])
def test_a_task_whose_answer_is_one_place(choice: NormaliseConfig) -> None:
    torch.manual_seed(0)
    model = Lookup(choice)
    assert model.eval().accuracy() < 0.25
    assert model.train().learn(500).accuracy() >= 0.99


def test_a_hard_region_shares_the_weight_among_its_visible_places() -> None:
    region = HardConfig(width=3).build().eval()
    scores = torch.tensor([[1.0, 3.0, 2.0, 0.0], [9.0, 3.0, 2.0, 0.0], [1.0, 3.0, 2.0, 9.0]])
    shares = [[1 / 3, 1 / 3, 1 / 3, 0], [1 / 2, 1 / 2, 0, 0], [0, 0, 1 / 2, 1 / 2]]
    torch.testing.assert_close(region(scores, None), torch.tensor(shares))
    allow = torch.tensor([[True, True, False, False], [False] * 4, [True] * 4])
    shares = [[1 / 2, 1 / 2, 0, 0], [0, 0, 0, 0], [0, 0, 1 / 2, 1 / 2]]
    torch.testing.assert_close(region(scores, allow), torch.tensor(shares))
    with pytest.raises(ValueError, match="width must be odd"):
        HardConfig(width=2)


def test_the_gradient_of_a_region_is_on_average_that_of_the_expectation() -> None:
    torch.manual_seed(0)
    scores = torch.tensor([0.5, -0.3, 0.2, 0.0], dtype=torch.float64)
    values = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    exact, drawn = scores.clone().requires_grad_(), scores.expand(200_000, 4).clone().requires_grad_()
    means = torch.stack([values[max(j - 1, 0) : j + 2].mean() for j in range(4)])
    (exact.softmax(0) @ means).backward()
    (HardConfig(width=3).build().train()(drawn, None) @ values).sum().backward()
    assert drawn.grad is not None
    torch.testing.assert_close(drawn.grad.mean(0), exact.grad, atol=0.01, rtol=0)
