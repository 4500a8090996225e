"""Heads that are switched off: their outputs are zeros before the output projection, while one text is looked at.

A forward hook on the projection does it, so that no attention knows of it and no fast path changes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from regard.config import nearest
from regard.errors import RegardError
from regard.nn.attention import Attention
from regard.nn.multi_head import MultiHeadAttention
from regard.nn.record import AttentionRecorder

Head = tuple[str, int, int]  # role, layer and head, from 0


def parse_heads(names: Sequence[str], attentions: Mapping[tuple[str, int], Attention]) -> list[Head]:
    """`encoder.1.3` is layer 1, head 3 of the encoder; both count from 1."""
    return [_parse_head(name, attentions) for name in dict.fromkeys(names)]


def _parse_head(name: str, attentions: Mapping[tuple[str, int], Attention]) -> Head:
    found = re.fullmatch(r"(\w+)\.(\d+)\.(\d+)", name)
    if not found:
        raise RegardError(f"the head {name!r} is not PLACE.LAYER.HEAD; write it as encoder.1.3")
    role, layer, head = found[1], int(found[2]) - 1, int(found[3]) - 1
    roles = list(dict.fromkeys(each for each, _ in attentions))
    if role not in roles:
        raise RegardError(f"the head {name!r}: this model has no attention {role!r}; {nearest(role, roles)}")
    layers = sum(each == role for each, _ in attentions)
    if not 0 <= layer < layers:
        raise RegardError(f"the head {name!r}: there is no layer {found[2]}; write 1 to {layers}")
    attention = attentions[role, layer]
    if not isinstance(attention, MultiHeadAttention):
        raise RegardError(f"the head {name!r}: this attention has no output projection, so no head can be switched off")
    if not 0 <= head < attention.heads:
        raise RegardError(f"the head {name!r}: there is no head {found[3]}; write 1 to {attention.heads}")
    return role, layer, head


def recorded_attentions(record: AttentionRecorder) -> dict[tuple[str, int], Attention]:
    """By role and layer the attentions of a record that kept their inputs."""
    return {place: each.inputs[0].layer for place, each in sorted(record.records.items()) if each.inputs}


@contextmanager
def heads_off(heads: Sequence[Head], attentions: Mapping[tuple[str, int], Attention]) -> Iterator[None]:
    """The model with these heads off."""
    with ExitStack() as stack:
        for place in dict.fromkeys((role, layer) for role, layer, _ in heads):
            off, attention = [head for *own, head in heads if tuple(own) == place], attentions[place]
            assert isinstance(attention, MultiHeadAttention)
            stack.callback(attention.output.register_forward_pre_hook(_silence(off, attention.heads)).remove)
        yield


def _silence(off: list[int], heads: int) -> Any:
    def hook(module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        out = inputs[0].unflatten(-1, (heads, -1)).clone()  # [B, Q, H, d_v]
        out[..., off, :] = 0
        return (out.flatten(-2),)

    return hook
