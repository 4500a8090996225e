"""Which backend computes an attention: the first that serves its choices. `regard.accel` puts its own in front."""

from collections.abc import Callable

from regard.nn.backend.blocks import blocks
from regard.nn.backend.blocks import refuses as blocks_refuse
from regard.nn.backend.contract import AttentionInputs, Kernel
from regard.nn.backend.sdpa import refuses as sdpa_refuses
from regard.nn.backend.sdpa import sdpa

BACKENDS: list[tuple[Kernel, Callable[[AttentionInputs], str | None]]] = [(blocks, blocks_refuse), (sdpa, sdpa_refuses)]


def choose(job: AttentionInputs) -> tuple[Kernel | None, str]:
    """The kernel, or None for the plain function; and why no faster one serves."""
    why = ""
    for kernel, refuses in BACKENDS:
        reason = refuses(job)
        if reason is None:
            return kernel, why
        why = reason
    return None, why
