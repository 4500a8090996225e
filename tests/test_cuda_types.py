"""The rules by which a CPU stands in for CUDA are torch's own."""

import pytest
import torch
import torch.nn.functional as F

from tests import cuda_types as rules


def listed(key: str) -> set[str]:
    every = torch._C._dispatch_get_all_op_names()
    found = {name for name in every if torch._C._dispatch_has_kernel_for_dispatch_key(name, key)}
    return {name.removeprefix("aten::") for name in found}


def test_the_list_is_the_dispatchers() -> None:
    ours = [*rules.LOWER, *rules.FLOAT32, *rules.WIDEST, *rules.REFUSED]
    assert len(ours) == len(set(ours))
    assert set(ours) == listed("AutocastCUDA")
    assert set(rules.OF_A_CPU) <= listed("AutocastCPU") - listed("AutocastCUDA")


def test_what_a_cpu_casts_and_cuda_does_not() -> None:
    """The step that stopped every default training on a GPU at its first validation."""
    x, weight, bias = torch.ones(2, 4, dtype=torch.bfloat16), torch.ones(4, 4), torch.ones(4)
    with torch.autocast("cpu", torch.bfloat16):
        torch._addmm_activation(bias, x, weight)
        with rules.cuda_types():
            assert torch.addmm(bias, x, weight).dtype == torch.bfloat16
            with pytest.raises(RuntimeError, match="same dtype"):
                torch._addmm_activation(bias, x, weight)
        torch._addmm_activation(bias, x, weight)  # as it was


def test_norms_are_float32_and_their_weights_must_be() -> None:
    x, weight = torch.ones(2, 4, dtype=torch.bfloat16), torch.ones(4)
    with rules.cuda_types():
        with torch.autocast("cpu", torch.bfloat16):
            assert F.layer_norm(x, (4,), weight).dtype == torch.float32
            assert x.softmax(-1).dtype == torch.float32
        with pytest.raises(RuntimeError, match="same dtype"):
            F.layer_norm(x, (4,), weight)
    assert F.layer_norm(x, (4,), weight).dtype == torch.bfloat16  # a CPU takes both


def test_gradients_pass_the_casts() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    with rules.cuda_types(), torch.autocast("cpu", torch.bfloat16):
        out = F.linear(x, torch.ones(2, 4)).sum()
    out.backward()
    assert out.dtype == torch.float32
    assert torch.equal(x.grad, torch.full((3, 4), 2.0))
