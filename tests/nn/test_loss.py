"""The loss in chunks against torch's, with gradients; that the scores are never whole; and the same by our kernel."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.accel import loss as accel_loss
from regard.nn import loss
from regard.nn.loss import vocabulary_loss


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 40), st.integers(1, 60), st.integers(1, 9), st.sampled_from([0.0, 0.1, 0.5]), st.integers(1, 500))
def test_it_is_torchs_cross_entropy(rows: int, entries: int, size: int, smoothing: float, chunk: int) -> None:
    torch.manual_seed(rows)
    x = torch.randn(rows, size, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(entries, size, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, entries, (rows,))
    before, loss.CHUNK["cpu"] = loss.CHUNK["cpu"], chunk
    try:
        ours = vocabulary_loss(x, weight, labels, smoothing)
    finally:
        loss.CHUNK["cpu"] = before
    theirs = F.cross_entropy(x @ weight.T, labels, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-12)
    for a, b in zip(*(torch.autograd.grad(0.3 * y, (x, weight)) for y in (ours, theirs)), strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-10)


def test_many_entries_in_float32() -> None:
    """Wide rows, of which the chunk is no multiple, by the code that float32 takes."""
    torch.manual_seed(1)
    x, weight = torch.randn(300, 16, requires_grad=True), torch.randn(10_007, 16, requires_grad=True)
    labels = torch.randint(0, 10_007, (300,))
    ours = vocabulary_loss(x, weight, labels, 0.1)
    exact = F.cross_entropy(x.double() @ weight.double().T, labels, label_smoothing=0.1, reduction="sum")
    assert ours.item() == pytest.approx(exact.item(), rel=1e-6)
    for a, b in zip(*(torch.autograd.grad(y, (x, weight)) for y in (ours, exact)), strict=True):
        torch.testing.assert_close(a, b, atol=5e-5, rtol=1e-5)


def test_large_scores_do_not_overflow() -> None:
    x = torch.tensor([[1000.0, -1000.0]], requires_grad=True)
    ours = vocabulary_loss(x, torch.eye(2), torch.tensor([1]), 0.1)
    assert ours.item() == pytest.approx(F.cross_entropy(x, torch.tensor([1]), label_smoothing=0.1).item())


def test_half_precision_is_no_worse_than_torchs() -> None:
    torch.manual_seed(0)
    x, weight, labels = torch.randn(64, 32), torch.randn(500, 32) * 0.2, torch.randint(0, 500, (64,))
    x.requires_grad_(), weight.requires_grad_()
    exact = F.cross_entropy(x.double() @ weight.double().T, labels, label_smoothing=0.1, reduction="sum")
    truth = torch.autograd.grad(exact, (x, weight))
    with torch.autocast("cpu", torch.bfloat16):
        ours = vocabulary_loss(x, weight, labels, 0.1)
        theirs = F.cross_entropy(F.linear(x, weight), labels, label_smoothing=0.1, reduction="sum")
    for right, a, b in zip(truth, *(torch.autograd.grad(y, (x, weight)) for y in (ours, theirs)), strict=True):
        assert a.dtype == torch.float32
        assert (a - right).norm() <= 1.1 * (b - right).norm() + 1e-6


def test_only_a_chunk_of_scores_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(loss.CHUNK, "cpu", 10 * 1000)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for made in out if isinstance(out, tuple) else (out,):
                largest = max(largest, made.numel() if isinstance(made, torch.Tensor) else 0)
            return out

    x, weight = torch.randn(400, 4, requires_grad=True), torch.randn(1000, 4, requires_grad=True)
    with Watch():
        vocabulary_loss(x, weight, torch.zeros(400, dtype=torch.long), 0.1).backward()
    assert largest == 10 * 1000


# --- the kernel ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entries", [1, 37, 64, 200])  # round and odd; less than a block and more
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_kernel(device: torch.device, monkeypatch: pytest.MonkeyPatch, entries: int, smoothing: float) -> None:
    """Places without a label count for nothing, in the loss and in its gradients."""
    monkeypatch.setattr(accel_loss, "BLOCK", 32)
    monkeypatch.setattr(loss, "FUSED", 5 * -(-entries // loss.ROUND) * loss.ROUND)  # three chunks
    torch.manual_seed(0)
    x, weight = (torch.randn(n, 8).to(device).requires_grad_() for n in (12, entries))
    labels = torch.randint(0, entries, (12,)).to(device)
    labels[[0, 7, 11]] = -1
    ours = vocabulary_loss(x, weight, labels, smoothing)
    scores = x.double() @ weight.double().T
    theirs = F.cross_entropy(scores, labels, label_smoothing=smoothing, reduction="sum", ignore_index=-1)
    torch.testing.assert_close(ours.double(), theirs, atol=1e-5, rtol=1e-5)
    found, right = (torch.autograd.grad(0.3 * y, (x, weight)) for y in (ours, theirs))
    for a, b in zip(found, right, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
    assert (found[0][[0, 7, 11]] == 0).all()


def test_the_kernel_on_large_scores_and_no_labels(device: torch.device) -> None:
    eye = torch.eye(3, device=device)
    x = torch.tensor([[1000.0, -1000.0, 0.0]], device=device, requires_grad=True)
    ours = vocabulary_loss(x, eye, torch.tensor([1], device=device), 0.1)
    right = F.cross_entropy(x, torch.tensor([1], device=device), label_smoothing=0.1)
    assert ours.item() == pytest.approx(right.item())
    torch.testing.assert_close(*(torch.autograd.grad(y, x)[0] for y in (ours, right)))
    nothing = vocabulary_loss(x, eye, torch.tensor([-1], device=device), 0.1)
    assert (nothing.item(), torch.autograd.grad(nothing, x)[0].tolist()) == (0.0, [[0.0, 0.0, 0.0]])
