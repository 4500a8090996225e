"""What stands in the place of a decoder's self-attention: loops in numpy as oracle, the scan and its plain twin."""

import numpy as np
import pytest
import torch

from regard.errors import RegardError
from regard.nn.layout import AttentionContext, Layout, SequenceSpans
from regard.nn.recurrence import SSRU, AverageAttention, Recurrence
from regard.nn.recurrence.contract import linear_scan, scan_by_loop

LAYERS = {"ssru": lambda: SSRU(6), "average": lambda: AverageAttention(6, 10), "bare": lambda: AverageAttention(6, 0)}


def layer(name: str) -> Recurrence:
    torch.manual_seed(0)
    built = LAYERS[name]().double().eval()
    with torch.no_grad():
        for p in built.parameters():
            p.add_(torch.randn_like(p) * 0.1)  # biases too, so that none is left untested at 0
    return built


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def by_hand(module: Recurrence, x: np.ndarray) -> np.ndarray:
    """The papers' formulas, position by position, of one row [T, D]."""
    w = {name: p.detach().numpy() for name, p in module.named_parameters()}
    c, out = np.zeros(x.shape[1]), []
    for t in range(len(x)):
        if isinstance(module, SSRU):
            f = sigmoid(w["forget.weight"] @ x[t] + w["forget.bias"])
            c = f * c + (1 - f) * (w["value.weight"] @ x[t])
            out.append(np.maximum(c, 0))
            continue
        g = x[: t + 1].mean(0)
        if "network.expand.weight" in w:
            inner = np.maximum(w["network.expand.weight"] @ g + w["network.expand.bias"], 0)
            g = w["network.contract.weight"] @ inner + w["network.contract.bias"]
        gates = sigmoid(w["gate.weight"] @ np.concatenate([x[t], g]) + w["gate.bias"])
        out.append(gates[:6] * x[t] + gates[6:] * g)
    return np.stack(out)


@pytest.mark.parametrize("name", LAYERS)
def test_a_loop_by_hand(name: str) -> None:
    module, x = layer(name), torch.randn(3, 9, 6, dtype=torch.float64)
    found = module(x, x, module.context(x)).detach().numpy()
    for row in range(3):
        np.testing.assert_allclose(found[row], by_hand(module, x[row].numpy()), atol=1e-12)


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_those_of_small_changes(name: str) -> None:
    module = layer(name)
    x = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda y: module(y, y, module.context(y)), (x,))
    module(x, x, module.context(x)).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in module.parameters())


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 33])
@pytest.mark.parametrize("wide", [True, False])
def test_the_scan_is_the_loop(length: int, wide: bool) -> None:
    a = torch.rand(3 if wide else 1, length, 4 if wide else 1, dtype=torch.float64, requires_grad=True)
    b = torch.randn(3, length, 4, dtype=torch.float64, requires_grad=True)
    found, expected = linear_scan(a, b), scan_by_loop(a, b)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    weight = torch.randn_like(found)
    pairs = (torch.autograd.grad((out * weight).sum(), (a, b)) for out in (found, expected))
    for one, other in zip(*pairs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)


def test_gates_that_forget_nothing_or_everything_are_safe_in_float32() -> None:
    """Where a prefix product would be zero, and a quotient of them not a number."""
    a = torch.cat([torch.zeros(1, 50, 2), torch.full((1, 200, 2), 1e-20), torch.ones(1, 250, 2)], 1)
    b = torch.randn(1, 500, 2)
    expected = scan_by_loop(a.double(), b.double())
    torch.testing.assert_close(linear_scan(a, b).double(), expected, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_sequences_that_are_packed_are_strangers(name: str) -> None:
    module, lengths = layer(name), [3, 1, 5]
    rows = [torch.randn(1, n, 6, dtype=torch.float64) for n in lengths]
    start = torch.tensor([0, 3, 4], dtype=torch.int32)
    position = torch.cat([torch.arange(n) for n in lengths])[None]
    spans = SequenceSpans(start, torch.tensor(lengths, dtype=torch.int32), torch.tensor([3]), 8)
    document = torch.repeat_interleave(torch.arange(3), torch.tensor(lengths))[None]
    expected = torch.cat([module(x, x, module.context(x)) for x in rows], 1)
    x = torch.cat(rows, 1)
    for layout in (Layout(position, 8, spans=spans), Layout(position, 9, document=document)):
        torch.testing.assert_close(module(x, x, AttentionContext(layout, layout)), expected, atol=1e-12, rtol=0)


def test_it_takes_no_mask() -> None:
    module, x = layer("ssru"), torch.randn(1, 4, 6, dtype=torch.float64)
    with pytest.raises(RegardError, match="SSRU reads all of a row's past: it takes no mask"):
        module.context(x, mask=torch.ones(1, 4, dtype=torch.bool))
