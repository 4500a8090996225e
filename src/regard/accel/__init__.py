"""Fast twins of `nn` and `models`: Triton kernels, CUDA graphs, packed sequences, fused steps of decoding.

The rest of the package computes everything without it. Training and decoding call `register`; a twin serves, or says
in a sentence why not. Each is tested against its plain twin, gradients included.
"""

from functools import cache
from importlib.util import find_spec

TRITON = find_spec("triton") is not None


@cache
def register() -> None:
    """Puts the kernels in front of the plain functions of `nn`, once; without Triton there are none."""
    if not TRITON:
        return
    from regard.accel import dropout, linear, loss, norm, packed_attention, rotary, sparse_attention
    from regard.nn import dispatch
    from regard.nn.attention import BACKENDS
    from regard.nn.backend import Backend

    dispatch.register(
        layer_norm=norm.layer_norm,
        add_norm=norm.add_norm,
        norm_beside=norm.norm_beside,
        linear=linear.linear,
        activated=linear.activated,
        dropout=dropout.dropout,
        add_dropout=dropout.add_dropout,
        rotate=rotary.rotate,
        smoothed_cross_entropy=loss.smoothed_cross_entropy,
        packed_fits=packed_attention.fits,
        packed_reason=packed_attention.unsupported_reason,
    )
    BACKENDS[:0] = [
        Backend("packed_attention", packed_attention.packed_attention, packed_attention.refuses),
        Backend("sparse_attention", sparse_attention.sparse_attention, sparse_attention.refuses),
    ]
