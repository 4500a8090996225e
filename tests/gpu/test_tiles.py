"""Our own GPU kernels for sparse patterns, against the plain function: no worse than bf16 itself is."""

import pytest
import torch
from torch import Tensor

from regard.accel.sparse_attention import sparse_attention as tiles
from regard.nn.attention import Attention, AttentionConfig
from regard.nn.backend.contract import AttentionInputs
from regard.nn.layout import AttentionContext, Layout
from regard.nn.multi_head import build_attention
from regard.nn.pattern import Document, Padding
from regard.nn.position import Position
from regard.nn.sizes import Sizes

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

PATTERNS = [
    "window(20)",
    "window(256)",
    "window(100) & causal",
    "window(20) | global(2)",
    "(window(33) | global(70)) & causal",
    "bigbird(64)",
    "bigbird(64, global=1, random=2) & causal",
    "window(5) | random(2, block=64)",
    "random(1, block=64) & causal",  # the first places see nothing at all
]


@pytest.fixture(autouse=True)
def _poison():
    """Memory that a kernel forgets to write is NaN."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def build(pattern: str, heads: int, d_k: int = 64, d_v: int = 64) -> Attention:
    always = Padding() & Document()
    return Attention(Sizes(heads * d_k, heads, d_k, d_v), AttentionConfig(pattern=pattern), Position(), always, layer=1)


def call_of(lengths: list[int], documents: bool = False) -> AttentionContext:
    n = max(lengths)
    real = (torch.arange(n) < torch.tensor(lengths)[:, None]).cuda()
    document = (torch.arange(n).cuda() // 150).expand(len(lengths), n) if documents else None
    padding = None if min(lengths) == n else real
    layout = Layout(torch.arange(n).cuda()[None], n, padding, document, right_padded=True)
    return AttentionContext(layout, layout)


def results(layer: Attention, inputs: list[Tensor], weight: Tensor, context: AttentionContext, path) -> list[Tensor]:
    """The output at real places, and the gradients of queries, keys and values there."""
    q, k, v = (x.detach().requires_grad_() for x in inputs)
    out = path(AttentionInputs(layer, q, k, v, context, layer.pattern.bind(q, context, layer.layer), None))
    real = (
        torch.ones(out.shape[0], out.shape[2], dtype=torch.bool, device="cuda")
        if context.keys.real is None
        else context.keys.real
    )
    (out * weight.to(out.dtype) * real[:, None, :, None]).sum().backward()
    return [x.transpose(1, 2)[real].double() for x in (out, q.grad, k.grad, v.grad)]


def check(
    pattern: str, lengths: list[int], heads: int = 3, sizes=(64, 64), dtype=torch.bfloat16, documents=False
) -> None:
    torch.manual_seed(0)
    layer, context = build(pattern, heads, *sizes), call_of(lengths, documents)
    inputs = [torch.randn(len(lengths), heads, max(lengths), d, device="cuda", dtype=dtype) for d in (sizes[0], *sizes)]
    weight = torch.randn(len(lengths), heads, max(lengths), sizes[1], device="cuda", dtype=dtype)

    def plain(inputs: AttentionInputs) -> Tensor:
        return layer.reference(inputs)[0]

    exact = results(layer, [x.double() for x in inputs], weight, context, plain)
    slow = results(layer, inputs, weight, context, plain)
    fast = results(layer, inputs, weight, context, tiles)
    for what, truth, rough, ours in zip(("out", "d_q", "d_k", "d_v"), exact, slow, fast, strict=True):
        allowed = 2 * float((rough - truth).norm() / truth.norm())
        assert float((ours - truth).norm() / truth.norm()) <= allowed, f"{what} of {pattern} for {lengths}"


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("lengths", [[1024], [1000, 517, 1], [128, 64]])
def test_no_worse_than_bf16(pattern: str, lengths: list[int]) -> None:
    check(pattern, lengths)


@pytest.mark.parametrize("sizes", [(16, 16), (32, 64), (128, 128)])
def test_other_sizes_of_heads(sizes: tuple[int, int]) -> None:
    check("bigbird(64, random=2)", [700, 500], 2, sizes)
    check("window(130)", [700, 500], 2, sizes)


def test_half_precision_and_documents() -> None:
    check("window(90) | global(3)", [900, 400], dtype=torch.float16)
    check("window(90) | global(3)", [900, 400], documents=True)


def test_a_long_input_has_many_splits() -> None:
    """Several splits of the edge, forward and backward."""
    check("bigbird(64)", [5000], heads=1)
    check("window(64) | global(130)", [4999, 3000], heads=1)


def test_it_is_chosen_with_heads_as_a_layer_splits_them() -> None:
    layer = build_attention(AttentionConfig(pattern="bigbird(64)"), 128, 2, Position(), Padding() & Document()).cuda()
    x = torch.randn(2, 2048, 128, device="cuda", requires_grad=True)
    context = call_of([2048, 1500])
    with torch.autocast("cuda", torch.bfloat16):
        out = layer(x, x, context)
        assert layer.path == "sparse_attention"
    out[0].float().sum().backward()
    assert x.grad.isfinite().all()
    layer(x, x, context)
    assert layer.path.startswith("blocks (tensor cores have no float32")


@pytest.mark.parametrize("pattern", ["window(256)", "bigbird(64)"])
def test_memory_is_linear(pattern: str) -> None:
    peaks = []
    for n in (8192, 16384):
        layer = build(pattern, 4)
        q, k, v = (torch.randn(1, 4, n, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
        layer.attend(q, k, v, call_of([n])).sum().backward()  # plans are made
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        layer.attend(q, k, v, call_of([n])).sum().backward()
        peaks.append(torch.cuda.max_memory_allocated() - before)
    assert peaks[1] < 2.2 * peaks[0]
    assert peaks[1] < 16384**2  # bytes: not even one bit matrix of all pairs and heads
