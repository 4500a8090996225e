"""The kernels of sparse patterns against the plain function, gradients included; a CPU interprets them."""

import pytest
import torch
from torch import Tensor

from regard.accel.sparse_attention import sparse_attention
from regard.nn.attention import Attention, AttentionConfig
from regard.nn.backend.contract import AttentionInputs
from regard.nn.layout import AttentionContext, Layout
from regard.nn.pattern import Document, Padding
from regard.nn.position import Position
from regard.nn.sizes import Sizes


@pytest.mark.parametrize("pattern", ["window(20)", "(window(33) | global(70)) & causal", "bigbird(64)"])
@pytest.mark.parametrize("lengths", [[130], [150, 100]])
def test_outputs_and_gradients_are_those_of_the_plain_function(
    device: torch.device, pattern: str, lengths: list[int]
) -> None:
    """Tiles that see all, some and nothing of each other; a last tile that is not full; padding."""
    if device.type == "cuda":
        pytest.skip("tests/gpu/test_tiles.py compares them there, in bf16")
    layer = Attention(
        Sizes(16, 1, 16, 16), AttentionConfig(pattern=pattern), Position(), Padding() & Document(), layer=1
    )
    n = max(lengths)
    real = torch.arange(n) < torch.tensor(lengths)[:, None]
    layout = Layout(torch.arange(n)[None], n, real if min(lengths) < n else None, right_padded=True)
    context, hidden = AttentionContext(layout, layout), ~real[:, None, :, None]
    g = torch.Generator().manual_seed(0)
    *inputs, weight = (torch.randn(len(lengths), 1, n, 16, generator=g) for _ in range(4))

    def results(path) -> list[Tensor]:
        q, k, v = (x.clone().requires_grad_() for x in inputs)
        out = path(
            AttentionInputs(layer, q, k, v, context, layer.pattern.bind(q, context, layer.layer), None)
        ).masked_fill(hidden, 0)
        return [out.detach(), *torch.autograd.grad((out * weight).sum(), [q, k, v])]

    for fast, plain in zip(results(sparse_attention), results(lambda job: layer.reference(job)[0]), strict=True):
        torch.testing.assert_close(fast, plain, atol=1e-5, rtol=1e-5)
