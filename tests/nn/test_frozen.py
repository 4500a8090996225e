"""Weights laid out for decoding: the same numbers, in another layout or precision, and the model itself untouched."""

import pytest
import torch
from torch import nn

from regard.accel.fused_step import fused
from regard.accel.inference_weights import PACKS, OneDnnLinear, inference_weights
from tests.models.test_transformer import batch, build


@pytest.mark.parametrize("rows", [1, 2, 50, 130])
@pytest.mark.parametrize("width", [24, 9000])
def test_products(rows: int, width: int) -> None:
    if not PACKS:
        pytest.skip("this torch has no oneDNN")
    linear = nn.Linear(16, width)
    x = torch.randn(rows, 3, 16)[:, 1:2]
    torch.testing.assert_close(OneDnnLinear(linear.weight, linear.bias)(x), linear(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype, off", [(None, 1e-4), (torch.bfloat16, 0.2)])
def test_steps_of_a_frozen_model(dtype, off: float) -> None:
    model = build().float()
    before = {name: p.clone() for name, p in model.state_dict().items()}
    fast = inference_weights(model, dtype)
    given = batch([(5, 4), (3, 4)])
    with torch.inference_mode():
        found, expected = (m.step(given.target, m.start(given, 8))[0].float() for m in (fast, model))
    torch.testing.assert_close(found, expected, atol=off, rtol=off)
    assert fast.source_embedding.weight is fast.target_embedding.weight
    assert all(torch.equal(p, before[name]) for name, p in model.state_dict().items())
    assert model.decoder[0].cross.query.weight.dtype == torch.float32
    if dtype is None:  # nothing is kept twice but the layout
        assert fast.source_embedding.weight.data_ptr() == model.source_embedding.weight.data_ptr()


def test_what_cannot_be_packed_stays() -> None:
    model = build()  # float64
    assert inference_weights(model) is model


def test_batch_normalisation_in_half_precision() -> None:
    """Its running averages stay float32, and torch refuses weights of another type beside them."""
    model = build(norm="batch").float()
    for norm in (m for m in model.modules() if isinstance(m, nn.BatchNorm1d)):
        nn.init.uniform_(norm.running_mean, -1, 1)
        nn.init.uniform_(norm.running_var, 0.5, 2)
    given = batch([(5, 4), (3, 4)])
    with torch.inference_mode():
        found, exact = (m.encode(given)[0] for m in (inference_weights(model, torch.bfloat16), model))
    assert found.dtype == torch.bfloat16
    assert float((found.float() - exact).norm() / exact.norm()) < 0.05


@pytest.mark.parametrize(
    "keys",
    [
        {"position": {"decoder": "relative"}},
        {"attention": {"decoder": {"score": "general"}}},
        {"attention": {"score": "additive"}},
        {"attention": {"cross": {"pattern": "local_p(2)"}}},
        {"attention": {"decoder": {"compress": "strided_conv"}, "cross": {"compress": "strided_conv"}}},
    ],
    ids=str,
)
def test_choices_with_weights_decode_in_half_precision(keys) -> None:
    """A CPU keeps keys in float32 for speed; the weights of a choice are bf16, and so must be what they meet."""
    model = build(**keys).float()
    fast, given = inference_weights(model, torch.bfloat16), batch([(5, 4), (3, 4)])
    with torch.inference_mode():
        exact = model.step(given.target[:, :1], model.start(given, 8))[0]
        for each in (fast, fused(fast)):
            found = each.step(given.target[:, :1], each.start(given, 8))[0]
            torch.testing.assert_close(found.float(), exact, atol=0.2, rtol=0.2)
