"""The fast path is the same function: no padding and our own kernels, against torch's operations on padded batches."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import config
from regard.models.batch import Pairs
from regard.models.transformer import Transformer, TransformerConfig
from regard.nn import kernels
from regard.nn.backend import short
from regard.nn.layout import Tree
from regard.nn.record import Record
from tests.models.test_transformer import batch

LENGTHS = [(5, 3), (2, 9), (14, 1), (1, 12), (0, 5), (9, 0)]
SMALL = {"init": "xavier", "layers": 1, "size": 32, "inner": 40, "heads": 2, "dropout": 0.0}


def build(device: torch.device, **keys: Any) -> Transformer:
    """Weights are large, and biases are not zero, so that everything counts."""
    torch.manual_seed(0)
    model = config.parse(TransformerConfig, {**SMALL, **keys}).build(30, 30).to(device)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape).to(device) * 0.1)
    return model


def results(model: Transformer, b: Pairs) -> list[Tensor]:
    """Scores, loss, and the gradient of every parameter."""
    model.zero_grad()
    logits, loss = model(b), model(b, None, 0.1)
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())
    return [logits.detach(), loss.detach(), *(p.grad.clone() for p in model.parameters())]  # type: ignore[union-attr]


def compare(model: Transformer, b: Pairs) -> None:
    assert model.takes_strips(b)
    ours = results(model, b)
    with kernels.plain():
        assert not model.takes_strips(b)
        plain = results(model, b)
    names = ["logits", "loss", *(name for name, _ in model.named_parameters())]
    for name, a, right in zip(names, ours, plain, strict=True):
        torch.testing.assert_close(a, right, atol=2e-5, rtol=2e-5, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize(
    "keys",
    [
        {"layers": 2},
        {"residual": "pre_norm"},
        {"residual": "none"},
        {"norm": "batch"},
        {"position": "rotary"},
        {"position": {"kind": "learned", "length": 20}},
        {"position": {"kind": "sinusoidal", "join": "concat"}},
        {"activation": "swiglu"},
        {"activation": "gelu"},
        {"feed_forward": "none"},
        {"attention": {"projection": "shared"}},
        {"attention": {"projection": "shared"}, "position": "rotary"},
        {"attention": {"score": "general"}},
        {"attention": {"d_k": 16, "d_v": 32}, "heads": 3},
        {"attention": {"encoder": {"pattern": "causal"}}},
        {"share": "none"},
    ],
    ids=str,
)
def test_it_is_the_same_function(device: torch.device, keys: dict[str, Any]) -> None:
    b = batch(LENGTHS).to(device)
    assert b.source_real is not None
    assert float(b.source_real.float().mean()) < 0.7
    assert float(b.target_real.float().mean()) < 0.7
    compare(build(device, **keys), b)
