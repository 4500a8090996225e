"""The blocks of the Transformer and how they are chosen: each against numpy or torch, and all of them step by step."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from regard import config, recipe
from regard.errors import RegardError
from regard.models.lm import LanguageModelConfig
from regard.models.transformer import TransformerConfig
from regard.nn.attention import AttentionConfig
from regard.nn.dropout import Dropout, RowDropout
from regard.nn.feed_forward import feed_forward
from regard.nn.layers import EncoderLayer, NoResidual, PostNorm, PreNorm
from regard.nn.layout import AttentionContext, Layout
from regard.nn.multi_head import MultiHeadAttention, SharedQueryKey, build_attention
from regard.nn.norm import BatchNorm, LayerNorm
from regard.nn.pattern import Padding
from regard.nn.position import Position
from regard.nn.record import LayerRecord
from tests.models.test_transformer import batch, build


def numpy_of(module: torch.nn.Linear) -> tuple[np.ndarray, np.ndarray]:
    return module.weight.detach().numpy(), module.bias.detach().numpy()


def test_free_head_sizes_by_a_numpy_loop() -> None:
    """d_k = 3, d_v = 5 and three heads in a model of size 8, which three does not divide."""
    torch.manual_seed(0)
    layer = build_attention(AttentionConfig(d_k=3, d_v=5), 8, 3, Position(), Padding()).double()
    x = np.random.default_rng(0).normal(size=(4, 8))
    context = AttentionContext(Layout.of(4), Layout.of(4))
    out = layer(torch.tensor(x)[None], torch.tensor(x)[None], context)[0].detach().numpy()
    (wq, bq), (wkv, bkv), (wo, bo) = map(numpy_of, (layer.query, layer.key_value, layer.output))
    q, k, v = x @ wq.T + bq, x @ wkv[:9].T + bkv[:9], x @ wkv[9:].T + bkv[9:]
    heads = []
    for h in range(3):
        scores = q[:, 3 * h : 3 * h + 3] @ k[:, 3 * h : 3 * h + 3].T / math.sqrt(3)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        heads.append(weights @ v[:, 5 * h : 5 * h + 5])
    np.testing.assert_allclose(out, np.concatenate(heads, -1) @ wo.T + bo, atol=1e-12)


def test_shared_query_and_key_give_symmetric_scores() -> None:
    torch.manual_seed(0)
    made: dict[str, MultiHeadAttention] = {
        kind: build_attention(AttentionConfig(projection=kind), 8, 2, Position(), Padding()).double()  # type: ignore[arg-type]
        for kind in ("shared", "separate")
    }
    assert isinstance(made["shared"], SharedQueryKey)
    x = torch.randn(1, 5, 8, dtype=torch.float64)
    symmetric = {}
    for kind, layer in made.items():
        k, _ = layer.project_kv(x)
        q = layer.query(x).unflatten(-1, (2, 4)).transpose(1, 2)
        scores = layer.score(q, k)
        symmetric[kind] = torch.allclose(scores, scores.transpose(-1, -2))
    assert symmetric == {"shared": True, "separate": False}


GATES = {
    "relu": lambda a: np.maximum(a, 0),
    "gelu": lambda a: a * 0.5 * (1 + np.vectorize(math.erf)(a / math.sqrt(2))),
    "gelu_tanh": lambda a: 0.5 * a * (1 + np.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3))),
    "swish": lambda a: a / (1 + np.exp(-a)),
}


@pytest.mark.parametrize("activation", [*GATES, "swiglu"])
def test_feed_forward_by_the_formula(activation: str) -> None:
    torch.manual_seed(0)
    network = feed_forward(6, 4, activation).double()
    x = np.random.default_rng(1).normal(size=(3, 6))
    (w1, b1), (w2, b2) = numpy_of(network.expand), numpy_of(network.contract)
    inner = x @ w1.T + b1
    if activation == "swiglu":
        inner = GATES["swish"](inner[:, :4]) * inner[:, 4:]
    else:
        inner = GATES[activation](inner)
    np.testing.assert_allclose(network(torch.tensor(x)).detach().numpy(), inner @ w2.T + b2, atol=1e-12)


@pytest.mark.parametrize("dropout", [Dropout(0.4), RowDropout(0.4)], ids=str)
def test_dropout_inside_sub_layers(dropout: Dropout) -> None:
    """Between the products of the network, and on queries, keys and values before they meet."""
    torch.manual_seed(0)
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    network = feed_forward(8, 6, "relu", dropout).double()
    layer = build_attention(AttentionConfig(), 8, 2, Position(), Padding()).double()
    context = AttentionContext(Layout.of(5), Layout.of(5))

    def seeded(function: Callable[[], Any]) -> Any:
        torch.manual_seed(1)
        return function()

    inner = seeded(lambda: dropout(network.expand(x).relu()))
    torch.testing.assert_close(seeded(lambda: network(x)), network.contract(inner))
    layer.inner_dropout = dropout
    parts = seeded(lambda: (dropout(layer.query(x)), dropout(layer.key_value(x))))
    q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in torch.cat(parts, -1).chunk(3, -1))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    torch.testing.assert_close(seeded(lambda: layer(x, x, context)), layer.output(out))
    shared = build_attention(AttentionConfig(projection="shared"), 8, 2, Position(), Padding()).double()
    shared.inner_dropout = dropout
    q, v = seeded(lambda: (dropout(shared.query(x)), dropout(shared.key_value(x))))
    q, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in (q, v))
    out = torch.nn.functional.scaled_dot_product_attention(q, q, v).transpose(1, 2).flatten(2)
    torch.testing.assert_close(seeded(lambda: shared(x, x, context)), shared.output(out))  # one draw for both
    network.eval(), layer.eval()
    torch.testing.assert_close(network(x), network.contract(network.expand(x).relu()))


def test_dropout_inside_is_a_models_choice() -> None:
    config = LanguageModelConfig(layers=2, size=8, inner=16, heads=2, dropout=0.1, inner_dropout=0.2, dropped="row")
    for layer in config.build(20).layers:
        assert isinstance(layer, EncoderLayer)
        assert layer.feed_forward is not None
        inside = (layer.attention.inner_dropout, layer.feed_forward.dropout)
        assert all(isinstance(m, RowDropout) and m.p == 0.2 for m in inside)
        assert all(isinstance(r.dropout, RowDropout) and r.dropout.p == 0.1 for r in layer.residuals)


def test_batch_norm_is_torchs_over_real_places() -> None:
    torch.manual_seed(0)
    ours, theirs = BatchNorm(4).double(), torch.nn.BatchNorm1d(4).double()
    x = torch.randn(3, 5, 4, dtype=torch.float64)
    real = torch.arange(5) < torch.tensor([5, 2, 3])[:, None]
    torch.testing.assert_close(ours(x, real)[real], theirs(x[real]))
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    ours.eval(), theirs.eval()
    torch.testing.assert_close(ours(x, real)[real], theirs(x[real]))


@pytest.mark.parametrize("kind", [PostNorm, PreNorm, NoResidual])
def test_residuals_by_the_formula(kind: type) -> None:
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    norm = LayerNorm(4).double()
    plain = torch.nn.functional.layer_norm
    f = torch.sin
    expected = {PostNorm: plain(x + f(x), (4,)), PreNorm: x + f(plain(x, (4,))), NoResidual: plain(f(x), (4,))}[kind]
    torch.testing.assert_close(kind(norm, Dropout(0.0))(x, f), expected)


BLOCKS: list[dict[str, Any]] = [
    {"norm": "batch"},
    {"residual": "none"},
    {"feed_forward": "none"},
    {"feed_forward": "none", "residual": "pre_norm"},
    {"activation": "swiglu"},
    {"attention": {"projection": "shared"}},
    {"attention": {"d_k": 3, "d_v": 5}},
    {"attention": {"score": ["dot", "additive"], "normalise": ["softmax", "sparsemax", "entmax"]}},
    {"position": ["rotary", "none"]},
    {"position": {"encoder": "alibi", "decoder": "t5"}},
]


@pytest.mark.parametrize("keys", BLOCKS, ids=str)
def test_step_by_step_and_alone(keys: dict[str, Any]) -> None:
    """Every block decodes as it computes in parallel, and padding changes nothing."""
    model = build(**keys)
    for module in model.modules():  # running averages that are neither 0 nor 1
        if isinstance(module, BatchNorm):
            module.running_mean.normal_(), module.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
    b = batch([(5, 6), (3, 4)])
    whole = model(b)
    state = model.start(b, 8)
    assert b.target is not None
    steps = torch.cat([model.step(b.target[:, t : t + 1], state)[0] for t in range(b.target.shape[1])], 1)
    torch.testing.assert_close(steps.flatten(0, 1)[b.label_positions], whole, atol=1e-9, rtol=1e-9)
    alone = model(batch([(5, 6)]))
    torch.testing.assert_close(alone, whole[: len(alone)], atol=1e-9, rtol=1e-9)


def test_lists_are_tiled_over_the_layers() -> None:
    model = build(layers=3, decoder_layers=2, attention={"score": ["dot", "additive"]}, position=["rotary", "none"])
    names = [[type(layer.attention.score).__name__ for layer in side] for side in (model.encoder, model.decoder)]
    assert names == [["DotScore", "AdditiveScore", "DotScore"], ["DotScore", "AdditiveScore"]]
    assert [type(layer.attention.position).__name__ for layer in model.encoder] == ["Rotary", "Position", "Rotary"]


def test_places_choose_separately() -> None:
    model = build(attention={"score": "dot", "cross": {"score": "cosine"}, "decoder": {"normalise": "sparsemax"}})
    first = model.decoder[0]
    assert type(model.encoder[0].attention.score).__name__ == type(first.attention.score).__name__ == "DotScore"
    assert type(first.cross.score).__name__ == "CosineScore"
    assert type(first.attention.normalise).__name__ == "Sparsemax"
    assert type(first.cross.normalise).__name__ == "Softmax"


WRONG = [
    (["model.heads=3"], "3 heads do not divide the size 128"),
    (["model.size=129", "model.heads=3"], "is odd"),
    (["model.position=rotary", "model.attention.d_k=7"], "odd"),
    (["model.attention.compress={kind: linformer, length: 300}"], "linformer"),
    (["model.attention.encoder.compress={kind: linformer, length: 100}"], "100"),
    (["model.position={kind: learned, length: 64}"], "shorter than the longest input of 257"),
    (["model.position=structural"], "structural positions belong to the encoder, not the decoder"),
    (["model.attention.pattern=window(0)"], "window"),
    (["model.attention.pattern=window(-3)"], "window"),
    (
        ["model.attention.pattern=window(3) | globl(2)"],
        r"globl is not a pattern; did you mean global\? \(character 13\)",
    ),
    (["model.attention.pattern=window(3"], r"'\)' is missing \(character 9\)"),
    (["model.attention.pattern=window"], r"needs a number"),
    (["model.attention.encoder.pattern=local_p(3)"], "belongs to cross"),
    (["model.attention.encoder.pattern=random(9, 64)"], "random"),
    (["model.attention.score=[]"], "empty list"),
    (["model.attention.dropout=1"], r"dropout must be in \[0, 1\)"),
]


@pytest.mark.parametrize("overrides, part", WRONG, ids=lambda value: value[0] if isinstance(value, list) else "")
def test_impossible_combinations_are_refused_with_the_reason(overrides: list[str], part: str) -> None:
    with pytest.raises(RegardError, match=part) as raised:
        recipe.load_recipe("quickstart", overrides)
    assert "command line" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_recording_beside_every_choice_changes_nothing() -> None:
    for keys in ({}, {"score": "additive"}, {"normalise": "entmax"}, {"pattern": "window(1)"}):
        choices = config.parse_config(AttentionConfig, keys)
        layer = build_attention(choices, 8, 2, Position(), Padding()).double()
        real = torch.tensor([[True] * 4, [True, True, False, False]])
        context = AttentionContext(Layout.of(4, real), Layout.of(4, real))
        x = torch.randn(2, 4, 8, dtype=torch.float64)
        seen = LayerRecord(keep_graph=False)
        assert torch.equal(layer(x, x, context), layer(x, x, context, record=seen))
        assert (seen.weights[0][1, :, :, 2:] == 0).all()
        torch.testing.assert_close(seen.weights[0].sum(-1)[0], torch.ones(2, 4, dtype=torch.float64))


def test_presets_still_parse_with_every_choice_beside_them() -> None:
    made = config.parse_config(TransformerConfig, {"preset": "tiny", "position": "rotary", "activation": "swiglu"})
    assert (made.layers, made.size, made.activation) == (4, 128, "swiglu")
