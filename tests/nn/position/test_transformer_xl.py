"""Transformer-XL's positions against the paper's four terms, one pair of places at a time."""

import numpy as np
import pytest
import torch

from regard.nn import MultiHeadAttention
from regard.nn.cache import SegmentMemory
from regard.nn.position.transformer_xl import TransformerXL


def wave(distance: int, size: int) -> np.ndarray:
    """R: all sines, then all cosines."""
    angle = distance / 10000 ** (np.arange(0, size, 2) / size)
    return np.concatenate([np.sin(angle), np.cos(angle)])


def four_terms(layer: MultiHeadAttention, x: np.ndarray, memory: np.ndarray, causal: bool) -> np.ndarray:
    """A_ij = q_iᵀk_j + q_iᵀ W_R R_{i−j} + uᵀk_j + vᵀ W_R R_{i−j} (Dai 2019, 3.3), O(n²·d)."""
    own = {name: value.detach().numpy() for name, value in layer.state_dict().items()}
    heads, d = layer.heads, layer.sizes.d_k
    both, before = np.concatenate([memory, x], 1), memory.shape[1]
    q = x @ own["query.weight"].T + own["query.bias"]
    kv = both @ own["key_value.weight"].T + own["key_value.bias"]
    out = np.zeros_like(q)
    for b, h, i in np.ndindex(len(x), heads, x.shape[1]):
        part = slice(h * d, (h + 1) * d)
        last = before + i + 1 if causal else both.shape[1]
        scores = []
        for j in range(last):
            key, query = kv[b, j, part], q[b, i, part]
            place = own["position.project.weight"][part] @ wave(before + i - j, x.shape[-1])
            u, v = own["position.content"][h, 0], own["position.place"][h, 0]
            scores.append((query @ key + query @ place + u @ key + v @ place) / np.sqrt(d))
        weights = np.exp(np.array(scores) - max(scores))
        values = kv[b, :last, heads * d + h * d : heads * d + (h + 1) * d]
        out[b, i, part] = weights / weights.sum() @ values
    return out @ own["output.weight"].T + own["output.bias"]


def attention(causal: bool) -> MultiHeadAttention:
    torch.manual_seed(0)
    layer = MultiHeadAttention(8, 2, position="transformer_xl", causal=causal).double()
    assert isinstance(layer.position, TransformerXL)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return layer


@pytest.mark.parametrize("causal", [True, False])
def test_terms_of_the_paper(causal: bool) -> None:
    layer, x = attention(causal), torch.randn(2, 5, 8, dtype=torch.float64)
    expected = four_terms(layer, x.numpy(), np.zeros((2, 0, 8)), causal)
    np.testing.assert_allclose(layer(x).detach(), expected, atol=1e-12)


def test_a_segment_sees_what_is_remembered_and_no_gradient_goes_there() -> None:
    layer, x = attention(True), torch.randn(2, 7, 8, dtype=torch.float64, requires_grad=True)
    memory = SegmentMemory.empty(2, 3, x)
    layer(x[:, :4], cache=memory)
    out = layer(x[:, 4:], cache=memory)
    expected = four_terms(layer, x[:, 4:].detach().numpy(), x[:, 1:4].detach().numpy(), True)
    np.testing.assert_allclose(out.detach(), expected, atol=1e-12)
    out.sum().backward()
    assert x.grad is not None
    assert not x.grad[:, :4].any()
    assert x.grad[:, 4:].all()
    np.testing.assert_array_equal(memory.states, x[:, 4:].detach())


def test_an_empty_memory_is_not_seen() -> None:
    layer, x = attention(True), torch.randn(1, 4, 8, dtype=torch.float64)
    torch.testing.assert_close(layer(x, cache=SegmentMemory.empty(1, 5, x)), layer(x))
