"""Scores against numpy loops; how they begin; and every score with every normaliser in a Transformer, step by step."""

import math

import numpy as np
import pytest
import torch

from regard import config
from regard.errors import RegardError
from regard.models.batch import PairBatch, RaggedRows, collate_pairs
from regard.models.transformer import TransformerConfig
from regard.nn.score import (
    AdditiveConfig,
    ConcatConfig,
    CosineConfig,
    DotConfig,
    GeneralConfig,
    ScaledDotConfig,
    ScoreConfig,
)
from regard.nn.sizes import Sizes
from tests.models.promises import MARKS, batch, rows_move
from tests.models.test_transformer import build

HEADS, D_Q, D_K, SIZE = 2, 5, 4, 3


def general(q, k, p, h):
    return q @ p["weight"][h] @ k


def additive(q, k, p, h):
    return p["vector"][h, 0] @ np.tanh(p["query"][h] @ q + p["key"][h] @ k)


def concat(q, k, p, h):
    return p["vector"][h, 0] @ np.tanh(p["weight"][h] @ np.concatenate([q, k]))


FORMULAS = [
    (DotConfig(), D_K, lambda q, k, p, h: q @ k),
    (DotConfig(init="compensated"), D_K, lambda q, k, p, h: q @ k),
    (ScaledDotConfig(), D_K, lambda q, k, p, h: q @ k / math.sqrt(D_K)),
    (GeneralConfig(), D_Q, general),
    (AdditiveConfig(), D_Q, additive),
    (AdditiveConfig(size=SIZE), D_K, additive),
    (ConcatConfig(), D_K, concat),
    (ConcatConfig(size=SIZE), D_Q, concat),
    (CosineConfig(), D_K, lambda q, k, p, h: q @ k / (math.sqrt(q @ q) * math.sqrt(k @ k))),
    (CosineConfig(scale=7), D_K, lambda q, k, p, h: 7 * (q @ k) / (math.sqrt(q @ q) * math.sqrt(k @ k))),
]


def random_score(choice: ScoreConfig, d_q: int) -> torch.nn.Module:
    score = choice.build(Sizes(HEADS * D_K, HEADS, D_K, 6), None if d_q == D_K else d_q).double()
    with torch.no_grad():
        for parameter in score.parameters():
            parameter.normal_()
    return score


@pytest.mark.parametrize("choice, d_q, formula", FORMULAS)
def test_scores_are_their_formulas(choice, d_q, formula) -> None:
    g = np.random.default_rng(0)
    q, k = g.normal(size=(3, HEADS, 5, d_q)), g.normal(size=(3, HEADS, 6, D_K))
    score = random_score(choice, d_q)
    parameters = {name: p.detach().numpy() for name, p in score.named_parameters()}
    prepared = score.keys(torch.tensor(k))
    assert prepared.shape == (3, HEADS, 6, score.key_size)
    ours = score(torch.tensor(q), prepared).detach().numpy()
    for b, h, i, j in np.ndindex(ours.shape):
        assert ours[b, h, i, j] == pytest.approx(formula(q[b, h, i], k[b, h, j], parameters, h), abs=1e-12)
    if score.scale is not None:  # what a fast kernel would compute
        np.testing.assert_allclose(ours, score.scale * (q @ prepared.detach().numpy().swapaxes(2, 3)), atol=1e-12)


@pytest.mark.parametrize("choice, d_q, _", FORMULAS)
def test_gradients_of_scores(choice, d_q, _) -> None:
    torch.manual_seed(0)
    score = random_score(choice, d_q)
    q = torch.randn(1, HEADS, 3, d_q, dtype=torch.float64, requires_grad=True)
    k = torch.randn(1, HEADS, 2, D_K, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda q, k, *_: score(q, score.keys(k)), (q, k, *score.parameters()))


@pytest.mark.parametrize("choice", [DotConfig(), ScaledDotConfig(), CosineConfig()])
def test_products_need_one_size(choice) -> None:
    with pytest.raises(ValueError, match=r"one size, not 5 and 4; general"):
        choice.build(Sizes.of(8, 2), 5)
    assert choice.build(Sizes.of(8, 2), 4).key_size == 4


def test_cosine_of_nothing_is_nothing() -> None:
    score = CosineConfig().build(Sizes.of(8, 2))
    q, k = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 4)
    q[:, :, 1], k[:, :, 2] = 0, 0
    q.requires_grad_(), k.requires_grad_()
    scores = score(q, score.keys(k))
    assert (scores[:, :, 1] == 0).all()
    assert (scores[..., 2] == 0).all()
    assert scores.detach().abs().max() <= 1 + 1e-6
    scores.square().sum().backward()
    assert torch.isfinite(q.grad).all()
    assert torch.isfinite(k.grad).all()
    assert (q.grad[:, :, 1] == 0).all()


@pytest.mark.parametrize("keys", [{"kind": "cosine", "scale": 0}, {"kind": "additive", "size": 0}, "bilinear"])
def test_impossible_scores_are_refused(keys) -> None:
    with pytest.raises(RegardError, match=r"scale must be above 0|size must be at least 1|known: dot, scaled_dot"):
        build(attention={"score": keys})


# --- how they begin ----------------------------------------------------------------------------------------------


def variance(score: object, **keys: object) -> float:
    """Of the scores that a first attention layer gives to inputs of variance 1."""
    layer = build(size=256, heads=2, attention={"score": score}, **keys).encoder[0].attention
    x = torch.randn(40, 30, 256, dtype=torch.float64)
    with torch.no_grad():
        q, (k, _) = layer._split(layer.query(x)), layer.project_kv(x)
        return float(layer.score(q, layer.prepare_keys(k)).var())


@pytest.mark.parametrize("init, expected", [("xavier", 1.0), ("normal", (512 * 0.02**2) ** 2)])
def test_how_large_scores_of_base_begin(init: str, expected: float) -> None:
    """docs/mechanisms.md says so: 1.0 and 0.042."""
    torch.manual_seed(0)
    layer = (
        config.parse_config(TransformerConfig, {"preset": "base", "init": init, "layers": 1})
        .build(9, 9)
        .encoder[0]
        .attention
    )
    x = torch.randn(8, 100, 512)
    with torch.no_grad():
        q, (k, _) = layer._split(layer.query(x)), layer.project_kv(x)
        assert float(layer.score(q, layer.prepare_keys(k)).var()) == pytest.approx(expected, rel=0.1)


def test_compensated_begins_as_the_scaled_product_does() -> None:
    """T5's unscaled score: the query projection carries 1/√d_k, so that variance is 1 and not d_k = 128."""
    plain, scaled, compensated = (
        variance(score) for score in ("dot", "scaled_dot", {"kind": "dot", "init": "compensated"})
    )
    assert compensated == pytest.approx(scaled, rel=1e-6)
    assert scaled == pytest.approx(1, rel=0.15)
    assert plain == pytest.approx(128, rel=0.15)


@pytest.mark.parametrize("init", ["xavier", "normal"])
def test_general_begins_as_the_scaled_product_does(init) -> None:
    model, scaled = build(init=init, attention={"score": "general"}), build(init=init)
    scaled.load_state_dict(model.state_dict(), strict=False)
    b = batch([(4, 3), (2, 5)])
    torch.testing.assert_close(model(b), scaled(b))


@pytest.mark.parametrize("init", ["xavier", "normal"])
def test_perceptrons_begin_by_xavier_head_by_head(init) -> None:
    score = build(init=init, size=256, heads=4, attention={"score": "additive"}).decoder[0].cross.score
    joint = build(init=init, size=256, heads=4, attention={"score": "concat"}).decoder[0].cross.score
    for parameter, fans in ((score.query, 128), (score.key, 128), (score.vector, 65), (joint.weight, 192)):
        for head in parameter.detach():
            assert float(head.abs().max()) == pytest.approx(math.sqrt(6 / fans), rel=0.06)


# --- in a model --------------------------------------------------------------------------------------------------

SCORES = [
    "dot",
    {"kind": "dot", "init": "compensated"},
    "scaled_dot",
    "general",
    "additive",
    {"kind": "additive", "size": 7},
    {"kind": "concat", "size": 3},
    "cosine",
]
NORMALISERS = ["softmax", "hard", "sparsemax", "entmax"]


def alone(b: PairBatch, row: int) -> PairBatch:
    """One sentence of a batch without its padding."""
    source = b.source[row] if b.source_real is None else b.source[row][b.source_real[row]]
    target = b.target[row][b.target_real[row]]
    return collate_pairs(RaggedRows.of([source[:-1].tolist()]), RaggedRows.of([target[1:].tolist()]), MARKS, MARKS)


def stepwise(model: torch.nn.Module, b: PairBatch, prompt: int = 2) -> torch.Tensor:
    """What the model says when it reads a prompt at once and then token by token."""
    with torch.no_grad():
        state = model.start(b, b.target.shape[1])
        outs = []
        for tokens in (b.target[:, :prompt], *b.target[:, prompt:].split(1, 1)):
            out, state = model.step(tokens, state)
            outs.append(out)
    return torch.cat(outs, 1).flatten(0, 1)[b.label_positions]


def same_alone_and_stepwise(model: torch.nn.Module) -> None:
    """Rows of different lengths: as in one pass, and each as if it were alone."""
    b = batch([(3, 2), (9, 8), (1, 1), (6, 5)], seed=4)
    with torch.no_grad():
        parallel = model(b)
        assert torch.isfinite(parallel).all()
        torch.testing.assert_close(stepwise(model, b), parallel, atol=1e-9, rtol=1e-9)
        for row, expected in enumerate(parallel.split([3, 9, 2, 6])):
            torch.testing.assert_close(model(alone(b, row)), expected, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("normalise", NORMALISERS)
@pytest.mark.parametrize("score", SCORES, ids=str)
def test_step_by_step_and_alone(score, normalise) -> None:
    model = build(attention={"score": score, "normalise": normalise, "d_k": 6, "d_v": 3})
    same_alone_and_stepwise(model)
    rows_move(model)


@pytest.mark.parametrize("normalise", NORMALISERS)
@pytest.mark.parametrize("score", SCORES, ids=str)
def test_all_parameters_learn(score, normalise) -> None:
    """Gradients reach every parameter and are numbers, also where rows are padded."""
    torch.manual_seed(0)
    small = {"layers": 1, "size": 16, "inner": 24, "heads": 2, "dropout": 0.1, "init": "xavier"}
    model = config.parse_config(
        TransformerConfig, {**small, "attention": {"score": score, "normalise": normalise, "dropout": 0.1}}
    ).build(30, 30)
    b = batch([(3, 2), (9, 8), (6, 5)], seed=4)
    torch.nn.functional.cross_entropy(model(b), b.labels).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().max() > 0, name
