"""Weights laid out for decoding: the same numbers, in another layout or precision, and the model itself untouched."""

import pytest
import torch
from torch import nn

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
