"""Products in 8 bits on a CPU: weights in whole numbers of 8 bits, and what goes in quantised as it comes."""

from functools import cache

import torch
from torch import nn

from regard.accel.int8.linear import LEAST, Int8Linear, Int8Output
from regard.errors import RegardError
from regard.nn.embedding import BiasedOutput, Output
from regard.nn.position import Position
from regard.reporting import say_once

INT8 = "int8"  # as `precision` says it


def int8_or_float32(device: torch.device) -> str:
    """The precision of a model that is to be in int8; on a CPU without such products float32, as stderr then says."""
    if device.type != "cpu":
        raise RegardError(f"precision is int8, which is for CPUs, and the device is {device}; write cpu, or bf16")
    reason = int8_unsupported_reason()
    if reason is None:
        return INT8
    say_once(f"computing in float32, not int8: {reason}")
    return "float32"


@cache
def int8_unsupported_reason() -> str | None:
    """Why products in 8 bits are not computed here; None: they are.

    Processors without VNNI add products of 8 bits in 16, which may overflow.
    """
    missing = not hasattr(torch.ops.onednn, "qlinear_pointwise")
    if missing or not hasattr(torch.ops.quantized, "embedding_bag_byte_prepack"):
        return "this torch has no products in 8 bits for this processor"
    if not (torch.cpu._is_vnni_supported() or torch.cpu._is_amx_tile_supported()):
        return "this processor has no instructions for products in 8 bits (AVX-512 VNNI or AMX)"
    return None


def use_int8(model: nn.Module) -> None:
    """Puts products in 8 bits in the place of a model's linear maps and of its output; the rest stays as it is."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(module, Position) or not isinstance(child, nn.Linear | Output):
                continue
            weight, bias = child.weight, child.bias if isinstance(child, nn.Linear | BiasedOutput) else None
            if weight.numel() >= LEAST and weight.shape[1] % 4 == 0:
                setattr(module, name, (Int8Output if isinstance(child, Output) else Int8Linear)(weight, bias))
