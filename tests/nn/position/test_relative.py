"""Shaw's relative positions against the paper's equations, one pair of places at a time."""

import numpy as np
import pytest
import torch

from regard.nn.attention import AttentionConfig
from regard.nn.backend.contract import AttentionInputs
from regard.nn.layout import AttentionContext, Layout
from regard.nn.multi_head import build_attention
from regard.nn.pattern import Full, Padding
from regard.nn.position import RelativeConfig
from regard.nn.sizes import Sizes


def shaw(q, k, v, keys, values, where_q, where_k, far):
    """z_i = Σ_j softmax_j(q_i (k_j + aᴷ) / √d) (v_j + aⱽ), O(n² d)."""
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    for b, h, i in np.ndindex(q.shape[:3]):
        scores, sums = [], []
        for j in range(k.shape[2]):
            column = max(-far, min(far, where_k[j] - where_q[b][i])) + far
            scores.append(q[b, h, i] @ (k[b, h, j] + keys[column]) / np.sqrt(q.shape[-1]))
            sums.append(v[b, h, j] + values[column])
        w = np.exp(np.array(scores) - max(scores))
        out[b, h, i] = (w / w.sum()) @ np.array(sums)
    return out


@pytest.mark.parametrize("terms", ["keys", "keys_values"])
@pytest.mark.parametrize("where", [[[0, 1, 2, 3, 4]], [[3, 4], [7, 8]]])
def test_equations_of_the_paper(terms: str, where: list[list[int]]) -> None:
    """All places at once, and queries that stand at other places in every row, as in decoding."""
    torch.manual_seed(0)
    sizes = Sizes.of(8, 2, d_k=4, d_v=3)
    position = RelativeConfig(distance=2, terms=terms).build(sizes).double()
    layer = build_attention(AttentionConfig(d_k=4, d_v=3), 8, 2, position, Full() & Padding()).double()
    queries, keys = Layout(torch.tensor(where), 9), Layout.of(9)
    context = AttentionContext(queries, keys)
    q = torch.randn(2, 2, len(where[0]), 4, dtype=torch.float64)
    k, v = torch.randn(2, 2, 9, 4, dtype=torch.float64), torch.randn(2, 2, 9, 3, dtype=torch.float64)
    with torch.no_grad():
        out = layer.reference(AttentionInputs(layer, q, k, v, context, Full(), position.bias(q, context)))[0]
        values = position.values.numpy() if terms == "keys_values" else np.zeros((5, 3))
        table = position.keys.numpy()
    rows = where if len(where) == 2 else where * 2
    expected = shaw(q.numpy(), k.numpy(), v.numpy(), table, values, rows, range(9), 2)
    np.testing.assert_allclose(out, expected, atol=1e-12)


def test_mix_of_gathered_keys() -> None:
    """A block kernel's weights: queries in blocks [2, 3], each with some keys [2, 4], in any order."""
    torch.manual_seed(0)
    position = RelativeConfig(distance=2).build(Sizes.of(8, 2)).double()
    context = AttentionContext(Layout.of(6), Layout.of(6))
    weights = torch.rand(1, 2, 2, 3, 4, dtype=torch.float64)
    b, h = torch.zeros(1, 1, 1, 1, 1, dtype=torch.long), torch.arange(2)[:, None, None, None]
    i, j = torch.arange(6).view(2, 3, 1), torch.tensor([[5, 0, 3, 1], [2, 2, 4, 0]])[:, None]
    with torch.no_grad():
        out = position.mix(weights, context, (b, h, i, j)).numpy()
        table = position.values.numpy()
    for head, block, row in np.ndindex(2, 2, 3):
        away = [int(j[block, 0, n] - i[block, row, 0]) for n in range(4)]
        expected = sum(weights[0, head, block, row, n].item() * table[np.clip(away[n], -2, 2) + 2] for n in range(4))
        np.testing.assert_allclose(out[0, head, block, row], expected, atol=1e-12)


def test_gradients_reach_both_tables() -> None:
    position = RelativeConfig(distance=1).build(Sizes.of(4, 1)).double()
    context = AttentionContext(Layout.of(3), Layout.of(3))
    q, w = (torch.randn(1, 1, 3, n, dtype=torch.float64, requires_grad=True) for n in (4, 3))

    def both(q, w, keys, values):
        return position.bias(q, context).dense(context), position.mix(w, context, context.grid())

    assert torch.autograd.gradcheck(both, (q, w, position.keys, position.values))
