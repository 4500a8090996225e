"""The block kernel is the plain function, forward and backward, and it never makes an n × n matrix."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard.nn.attention import Attention, AttentionConfig
from regard.nn.backend import BLOCKS
from regard.nn.backend.contract import AttentionInputs
from regard.nn.layout import AttentionContext, Layout
from regard.nn.normalise import EntmaxConfig
from regard.nn.pattern import Document, Padding
from regard.nn.position import AlibiConfig, NoPositionConfig, RelativeConfig, T5Config
from regard.nn.score import AdditiveConfig
from regard.nn.sizes import Sizes

PATTERNS = [
    "window(1)",
    "window(3)",
    "window(5) & causal",
    "blocks(4) & causal",
    "blocks(3)",
    "window(3) | global(2)",
    "(window(2) | global(3)) & causal",
    "window(2) | random(2, block=4)",
    "random(1, block=2, seed=3)",
    "(window(1) | random(2, block=2)) & causal",
    "bigbird(2)",
    "bigbird(4, random=1, global=1)",
    "bigbird(2, window=1, global=1, random=2) & causal",
    "bigbird(1, window=5, global=0)",
    "global(2)",
]


def build(pattern: str, heads: int, size: int, position=None, layer: int = 0, **keys) -> Attention:
    torch.manual_seed(0)
    sizes = Sizes.of(heads * size, heads)
    always = Padding() & Document()
    config = AttentionConfig(pattern=pattern, **keys)
    return Attention(sizes, config, (position or NoPositionConfig()).build(sizes), always, layer).double()


def job_of(layer: Attention, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext) -> AttentionInputs:
    pattern = layer.pattern.bind(q, context, layer.layer)
    return AttentionInputs(layer, q, layer.prepare_keys(k), v, context, pattern, layer.position.bias(q, context))


def padded(lengths: list[int]) -> AttentionContext:
    n = max(lengths)
    real = torch.arange(n) < torch.tensor(lengths)[:, None]
    layout = Layout.of(n, None if real.all() else real)
    return AttentionContext(layout, layout)


def compare(layer: Attention, lengths: list[int], heads: int, size: int, dtype=torch.float64, tolerance=1e-10) -> None:
    layer = layer.to(dtype)
    n = max(lengths)
    real = torch.arange(n) < torch.tensor(lengths)[:, None]
    results = []
    for path in (BLOCKS.compute, lambda inputs: layer.reference(inputs)[0]):
        torch.manual_seed(1)
        q, k, v = (torch.randn(len(lengths), heads, n, size, dtype=dtype, requires_grad=True) for _ in range(3))
        layer.zero_grad()
        out = path(job_of(layer, q, k, v, padded(lengths)))
        kept = out.transpose(1, 2)[real]
        (kept * torch.linspace(-1, 1, kept.numel(), dtype=dtype).view_as(kept)).sum().backward()
        learned = [p.grad for p in layer.parameters()]
        results.append([kept, *(x.grad.transpose(1, 2)[real] for x in (q, k, v)), *learned])
    for ours, plain in zip(*results, strict=True):
        torch.testing.assert_close(ours, plain, atol=tolerance, rtol=tolerance)


@settings(deadline=None, max_examples=120)
@given(
    st.sampled_from(PATTERNS),
    st.lists(st.integers(1, 23), min_size=1, max_size=3),
    st.integers(1, 3),
    st.integers(1, 5),
    st.booleans(),
)
def test_blocks_are_the_reference_with_gradients(pattern, lengths, heads, size, double) -> None:
    """Whatever the shape and the padding, lengths of 1 included, and where blocks would not pay too."""
    dtype, tolerance = (torch.float64, 1e-10) if double else (torch.float32, 1e-5)
    compare(build(pattern, heads, size), lengths, heads, size, dtype, tolerance)


@pytest.mark.parametrize("pattern", ["window(2) | global(2)", "bigbird(2, random=1) & causal"])
@pytest.mark.parametrize("position", [AlibiConfig(), T5Config(), RelativeConfig(distance=3)])
def test_positions_that_add_to_scores_and_output(pattern: str, position) -> None:
    compare(build(pattern, 2, 4, position), [17, 5], 2, 4)


@pytest.mark.parametrize("keys", [{"score": AdditiveConfig()}, {"normalise": EntmaxConfig()}])
def test_other_scores_and_normalisers(keys) -> None:
    compare(build("bigbird(2, random=2)", 2, 4, **keys), [19, 7], 2, 4)


def test_documents_in_one_row() -> None:
    layer, n = build("window(3) | global(1)", 2, 4), 20
    document = (torch.arange(n) // 6)[None].expand(2, n)
    layout = Layout(torch.arange(n)[None], n, None, document, right_padded=True)
    q, k, v = torch.randn(3, 2, 2, n, 4, dtype=torch.float64)
    inputs = job_of(layer, q, k, v, AttentionContext(layout, layout))
    torch.testing.assert_close(BLOCKS.compute(inputs), layer.reference(inputs)[0], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("pattern", ["window(3) | random(2, block=4)", "bigbird(4, global=1, random=2)", "global(3)"])
def test_the_same_sentence_alone_and_in_a_padded_batch(pattern: str) -> None:
    """Random blocks depend on a row's own length, never on the longest of its batch; through the chosen kernel."""
    lengths = [61, 64, 7, 1]
    layer = build(pattern, 3, 4, layer=2)
    q, k, v = torch.randn(3, len(lengths), 3, 64, 4, dtype=torch.float64)
    together = layer.attend(q, k, v, padded(lengths))
    for row, length in enumerate(lengths):
        alone = layer.attend(*(x[row : row + 1, :, :length] for x in (q, k, v)), padded([length]))
        torch.testing.assert_close(alone[0], together[row, :, :length], atol=1e-12, rtol=1e-12)


def test_which_kernel_serves() -> None:
    x = torch.randn(1, 2, 256, 4, dtype=torch.float64)
    for pattern, n, path in [
        ("window(8)", 256, "blocks"),
        ("bigbird(8)", 256, "blocks"),
        ("window(8)", 32, "sdpa (the pattern hides too little of so short an input)"),
        ("full", 256, "sdpa"),
        ("causal", 256, "sdpa"),
    ]:
        layer = build(pattern, 2, 4)
        layer.attend(x[:, :, :n], x[:, :, :n], x[:, :, :n], padded([n]))
        assert layer.path == path
    cached = AttentionContext(Layout(torch.tensor([[255]]), 256), Layout.of(256))
    layer.attend(x[:, :, -1:], x, x, cached)
    assert layer.path == "sdpa"


@torch.no_grad()
@pytest.mark.parametrize("position", [NoPositionConfig(), AlibiConfig(), RelativeConfig(distance=3)])
def test_weights_are_dropped_as_all_of_them_are(position) -> None:
    """Values of 1 sum to the weights that are left: 1 on average, with the spread of the plain function's."""
    layer = build("window(8) | global(1)", 2, 4, position, dropout=0.4).train()
    if isinstance(position, RelativeConfig):
        layer.position.values.data.zero_()
    torch.manual_seed(2)
    q, k = torch.randn(2, 40, 2, 256, 4, dtype=torch.float64)
    inputs = job_of(layer, q, k, torch.ones_like(q), padded([256] * 40))
    torch.manual_seed(1)
    found, plain = BLOCKS.compute(inputs)[..., 0], layer.reference(inputs)[0][..., 0]
    assert float(found.mean()) == pytest.approx(1, abs=0.01)
    assert float(found.std()) == pytest.approx(float(plain.std()), rel=0.03)
    layer.eval()
    torch.testing.assert_close(BLOCKS.compute(inputs)[..., 0], torch.ones_like(found))


class Largest(TorchDispatchMode):
    """How many elements the largest tensor has that any operation gives."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        sizes = [x.untyped_storage().size() // x.element_size() for x in tree_leaves(out) if isinstance(x, Tensor)]
        self.elements = max(self.elements, *sizes, 0)
        return out


def test_nothing_grows_with_the_square_of_the_length() -> None:
    """Twice the length, twice the largest tensor, forward and backward; far from n² elements."""
    largest = []
    for n in (2048, 4096):
        layer = build("window(16) | global(4) | random(1, block=16)", 1, 4)
        q, k, v = (torch.randn(1, 1, n, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
        with Largest() as seen:
            layer.attend(q, k, v, padded([n])).sum().backward()
        assert layer.path == "blocks"
        assert q.grad is not None
        largest.append(seen.elements)
    assert largest[1] == pytest.approx(2 * largest[0], rel=0.05)
    assert largest[1] < 4096**2 / 32
