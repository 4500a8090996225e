"""What a device can do, against what the operating system says of it."""

import gc
import platform
from pathlib import Path

import pytest
import torch

from regard.device import has_bf16, nothing_collected

FLAGS = Path("/proc/cpuinfo")


@pytest.mark.skipif(not FLAGS.exists() or platform.machine() != "x86_64", reason="asks Linux about an x86 processor")
def test_bf16_on_a_cpu_is_what_its_flags_say() -> None:
    flags = FLAGS.read_text(encoding="utf-8").split()
    assert has_bf16(torch.device("cpu")) == ("avx512_bf16" in flags or "amx_tile" in flags)


def test_nothing_is_collected_meanwhile() -> None:
    with nothing_collected():
        assert not gc.isenabled()
        with nothing_collected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
