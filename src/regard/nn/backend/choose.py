"""Which kernel computes an attention: the first that serves its choices."""

from collections.abc import Callable

from regard.nn.backend import sdpa as sdpa_
from regard.nn.backend.contract import Job, Kernel

KERNELS: list[tuple[Kernel, Callable[[Job], str | None]]] = [(sdpa_.sdpa, sdpa_.refuses)]


def choose(job: Job) -> tuple[Kernel | None, str]:
    """The kernel, or None for the plain function; and why no faster one serves."""
    why = ""
    for kernel, refuses in KERNELS:
        reason = refuses(job)
        if reason is None:
            return kernel, why
        why = reason
    return None, why
