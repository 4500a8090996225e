"""Heads of an attention: grouped keys against repeated ones, normalised queries and keys against numpy, cache sizes."""

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.models.transformer import TransformerConfig
from regard.nn.attention import AttentionConfig
from regard.nn.layout import AttentionContext, Layout
from regard.nn.multi_head import MultiHeadAttention, build_attention
from regard.nn.normalise import HardConfig
from regard.nn.pattern import Causal, Padding
from regard.nn.position import NoPositionConfig, RotaryConfig
from tests.models.test_transformer import batch, build

SIZE, HEADS = 16, 4


def layer(rotary: bool = False, **choices: object) -> MultiHeadAttention:
    config = AttentionConfig(**choices)  # type: ignore[arg-type]
    position = (RotaryConfig() if rotary else NoPositionConfig()).build(config.sizes(SIZE, HEADS), "decoder")
    torch.manual_seed(0)
    made = build_attention(config, SIZE, HEADS, position, Causal() & Padding()).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return made


def output(attention: MultiHeadAttention, x: Tensor) -> Tensor:
    layout = Layout.of(x.shape[1])
    return attention(x, x, AttentionContext(layout, layout))


def repeated(grouped: MultiHeadAttention, part: Tensor, times: int) -> Tensor:
    """Rows of keys, then of values, each head as often as it has heads of queries."""
    s = grouped.sizes
    keys, values = part.split([s.kv_heads * s.d_k, s.kv_heads * s.d_v])
    sides = [side.unflatten(0, (s.kv_heads, -1)).repeat_interleave(times, 0).flatten(0, 1) for side in (keys, values)]
    return torch.cat(sides)


@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("rotary", [False, True])
def test_grouped_keys_are_repeated_heads(kv_heads: int, rotary: bool) -> None:
    grouped, full = layer(rotary, kv_heads=kv_heads), layer(rotary)
    assert grouped.key_value.out_features == full.key_value.out_features * kv_heads // HEADS
    with torch.no_grad():
        for name in ("query", "output"):
            getattr(full, name).load_state_dict(getattr(grouped, name).state_dict())
        full.key_value.weight.copy_(repeated(grouped, grouped.key_value.weight, HEADS // kv_heads))
        full.key_value.bias.copy_(repeated(grouped, grouped.key_value.bias, HEADS // kv_heads))
    x = torch.randn(2, 5, SIZE, dtype=torch.float64)
    torch.testing.assert_close(output(grouped, x), output(full, x))
    for made in (grouped, full):
        output(made, x).square().sum().backward()
    s = full.sizes
    ours, theirs = grouped.key_value.weight.grad, full.key_value.weight.grad
    assert ours is not None
    assert theirs is not None
    sides = theirs.split([s.heads * s.d_k, s.heads * s.d_v])
    summed = [side.unflatten(0, (kv_heads, HEADS // kv_heads, -1)).sum(1).flatten(0, 1) for side in sides]
    torch.testing.assert_close(ours, torch.cat(summed))


def test_normalised_queries_and_keys_by_numpy() -> None:
    made = layer(qk_norm=True)
    x = torch.randn(1, 4, SIZE, dtype=torch.float64)
    w = {name: parameter.detach().numpy() for name, parameter in made.named_parameters()}
    rows = x[0].numpy()
    q = (rows @ w["query.weight"].T + w["query.bias"]).reshape(4, HEADS, 4)
    k, v = np.split(rows @ w["key_value.weight"].T + w["key_value.bias"], 2, axis=-1)
    k, v = k.reshape(4, HEADS, 4), v.reshape(4, HEADS, 4)
    q, k = (
        part / np.sqrt((part**2).mean(-1, keepdims=True) + 1e-6) * w[f"{name}_norm.weight"]
        for name, part in (("query", q), ("key", k))
    )
    out = np.zeros((4, HEADS, 4))
    for i in range(4):
        for h in range(HEADS):
            scores = np.exp(k[: i + 1, h] @ q[i, h] / 2)
            out[i, h] = (scores / scores.sum()) @ v[: i + 1, h]
    expected = out.reshape(4, SIZE) @ w["output.weight"].T + w["output.bias"]
    np.testing.assert_allclose(output(made, x)[0].detach().numpy(), expected)


def test_the_cache_has_the_heads_of_the_keys() -> None:
    choices = {"decoder": {"heads": 4, "kv_heads": 1}, "cross": {"heads": 8, "kv_heads": 2}}
    model, usual = build(attention=choices), build(attention={"decoder": {"heads": 4}, "cross": {"heads": 8}})
    given = batch([(5, 4), (3, 4)])
    states = [each.start(given, 9) for each in (model, usual)]
    for (own, source), (full, full_source) in zip(states[0].layers, states[1].layers, strict=True):
        assert own.keys.numel() * 4 == full.keys.numel()
        assert own.values.numel() * 4 == full.values.numel()
        assert source.keys.numel() * 4 == full_source.keys.numel()


@pytest.mark.parametrize(
    "choices",
    [
        {"cross": {"heads": 8}, "decoder": {"heads": 1}},
        {"heads": 4, "kv_heads": 2, "encoder": {"kv_heads": 1}},
        {"qk_norm": True},
    ],
    ids=["heads", "grouped", "normalised"],
)
def test_step_by_step_is_all_at_once(choices: dict[str, object]) -> None:
    model, given = build(attention=choices).eval(), batch([(5, 4), (3, 4)])
    state = model.start(given, 9)
    assert given.target is not None
    steps = []
    for token in given.target.split(1, 1):
        logits, state = model.step(token, state)
        steps.append(logits[:, 0])
    whole = model(given)
    torch.testing.assert_close(torch.stack(steps, 1).flatten(0, 1)[given.label_positions], whole)


def test_a_hard_region_of_beams_sees_each_beams_own_past_in_order() -> None:
    """Beams share storage, where neighbours are other beams' keys."""
    model, given = build(attention={"normalise": {"kind": "hard", "width": 3}}).eval(), batch([(5, 4), (3, 4)])
    assert given.target is not None
    state = model.start(given, 9)
    state.expand_beams(2)
    steps = []
    for token in given.target.split(1, 1):
        logits, state = model.step(token.repeat_interleave(2, 0), state)
        steps.append(logits[:, 0])
    for beam in (0, 1):
        found = torch.stack(steps, 1)[beam::2].flatten(0, 1)[given.label_positions]
        torch.testing.assert_close(found, model(given))


def test_a_hard_region_is_not_computed_by_blocks() -> None:
    made = layer(normalise=HardConfig(width=3), pattern="window(8)").eval()
    output(made, torch.randn(1, 600, SIZE, dtype=torch.float64))
    assert made.path.startswith("plain")
    assert "neighbours" in made.path or "HardRegion" in made.path


def test_the_usual_attention_has_the_weights_it_had() -> None:
    names = {"query.weight", "query.bias", "key_value.weight", "key_value.bias", "output.weight", "output.bias"}
    assert set(layer().state_dict()) == names
    assert set(layer(qk_norm=True).state_dict()) == names | {"query_norm.weight", "key_norm.weight"}


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [
        ({"kv_heads": 3}, "kv_heads is 3, which does not divide the 4 heads"),
        ({"kv_heads": 2, "projection": "shared"}, "kv_heads needs projection: separate"),
        ({"kv_heads": 2, "score": "general"}, "kv_heads needs score: scaled_dot or dot; general"),
        ({"kv_heads": 2, "compress": "linformer"}, "kv_heads needs compress: none; linformer"),
        ({"cross": {"heads": 3}}, "3 heads do not divide the size 16"),
        ({"heads": 0}, "heads must be at least 1"),
    ],
)
def test_what_does_not_go_together(choices: dict[str, object], sentence: str) -> None:
    from regard.config import parse_config
    from regard.errors import RegardError

    with pytest.raises(RegardError, match=sentence):
        parse_config(TransformerConfig, {"size": SIZE, "heads": HEADS, "attention": choices})
